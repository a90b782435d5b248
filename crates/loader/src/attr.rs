//! The attributes of bpf(2) and the structures that it fills, by offsets (`union bpf_attr`, include/uapi/linux/bpf.h).

/// The attributes of a call, as long as the loader gives them; further ones are 0.
pub struct Attr(pub Vec<u8>);

impl Attr {
    pub fn word(&self, at: usize) -> u32 {
        let bytes = self
            .0
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes)
    }

    pub fn wide(&self, at: usize) -> u64 {
        u64::from(self.word(at)) | u64::from(self.word(at + 4)) << 32
    }

    /// A name of at most 15 letters.
    pub fn name(&self, at: usize) -> String {
        let bytes = self.0.get(at..).unwrap_or_default();
        let letters = bytes.iter().take(15).take_while(|&&byte| byte != 0);
        letters.map(|&byte| char::from(byte)).collect()
    }
}

/// Writes fields of a structure that the kernel fills.
pub struct Info(pub Vec<u8>);

impl Info {
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.0.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    pub fn word(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }
}

/// Commands of bpf(2).
pub mod command {
    pub const MAP_CREATE: u64 = 0;
    pub const MAP_LOOKUP: u64 = 1;
    pub const MAP_UPDATE: u64 = 2;
    pub const MAP_DELETE: u64 = 3;
    pub const MAP_NEXT_KEY: u64 = 4;
    pub const PROG_LOAD: u64 = 5;
    pub const OBJ_PIN: u64 = 6;
    pub const PROG_TEST_RUN: u64 = 10;
    pub const PROG_NEXT_ID: u64 = 11;
    pub const MAP_NEXT_ID: u64 = 12;
    pub const MAP_BY_ID: u64 = 14;
    pub const INFO: u64 = 15;
    pub const RAW_TRACEPOINT_OPEN: u64 = 17;
    pub const BTF_LOAD: u64 = 18;
    pub const MAP_FREEZE: u64 = 22;
    pub const BTF_NEXT_ID: u64 = 23;
    pub const LINK_CREATE: u64 = 28;
    pub const LINK_NEXT_ID: u64 = 31;
    pub const ENABLE_STATS: u64 = 32;
    pub const ITER_CREATE: u64 = 33;
    pub const PROG_BIND_MAP: u64 = 35;
    pub const PROG_ASSOC_STRUCT_OPS: u64 = 38;
}
