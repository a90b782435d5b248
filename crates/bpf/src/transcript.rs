//! The work of a loader as a kernel saw it: maps, programs, and everything that changed the contents of maps until the
//! scheduler was attached. Replayed, it leads to the same state in any kernel of the same types.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::btf::TypeId;
use crate::insn::Insn;

/// Everything that was asked, in order.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Transcript {
    /// The objects that the loader has its programs from, as far as they are found.
    pub objects: Vec<Vec<u8>>,
    /// Raw BTF of objects.
    pub btfs: Vec<Vec<u8>>,
    pub maps: Vec<MapRecord>,
    pub programs: Vec<ProgramRecord>,
    pub steps: Vec<Step>,
    /// The scheduler, once it is attached.
    pub ops: Option<OpsRecord>,
}

/// A map as it was created.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct MapRecord {
    /// At most 15 bytes of its name.
    pub name: String,
    /// `enum bpf_map_type`.
    pub kind: u32,
    pub key_size: u32,
    pub value_size: u32,
    pub max_entries: u32,
    pub flags: u32,
    /// Of an arena the address at which the loader maps it.
    pub extra: u64,
    /// The BTF of its types.
    pub btf: Option<usize>,
    pub value_type: TypeId,
    /// Of a table of ops its type in the kernel's BTF.
    pub kernel_type: TypeId,
    /// Of a map of maps the map that those in it are like.
    pub inner: Option<usize>,
    /// Programs and loader write it no more.
    pub frozen: bool,
}

impl MapRecord {
    /// Whether it has maps in it.
    pub fn has_maps(&self) -> bool {
        matches!(self.kind, map::ARRAY_OF_MAPS | map::HASH_OF_MAPS)
    }
}

/// A program as it was loaded: relocated, with its subprograms behind it.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ProgramRecord {
    /// At most 15 bytes of its name.
    pub name: String,
    /// `enum bpf_prog_type`.
    pub kind: u32,
    pub flags: u32,
    pub license: String,
    /// Names what it is attached to, where that is known.
    pub target: String,
    pub insns: Vec<Insn>,
    /// The maps that wide instructions load, by slot.
    pub maps: BTreeMap<usize, usize>,
    /// Functions and variables of the kernel that instructions refer to, by slot.
    pub kernel: BTreeMap<usize, String>,
    pub btf: Option<usize>,
    /// Where functions begin, and their types.
    pub functions: Vec<(usize, TypeId)>,
    pub lines: Vec<LineRecord>,
    /// The loader has attached it to its target.
    pub attached: bool,
}

/// A line of the source: offsets of strings in the program's BTF.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LineRecord {
    pub slot: usize,
    pub file: u32,
    pub text: u32,
    pub line: u32,
}

/// A change of contents.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Step {
    /// The loader has written to memory that it shares with programs: offsets and bytes.
    Contents {
        map: usize,
        patches: Vec<(u64, Vec<u8>)>,
    },
    /// `BPF_MAP_UPDATE_ELEM`; of a map with a value per CPU all of these, of a map of maps the map's number as a word.
    Update {
        map: usize,
        key: Vec<u8>,
        value: Vec<u8>,
        flags: u64,
    },
    /// `BPF_MAP_DELETE_ELEM`.
    Delete { map: usize, key: Vec<u8> },
    /// `BPF_PROG_TEST_RUN`.
    Run { program: usize, context: Vec<u8> },
}

/// A table of ops, as the virtual kernel's `struct sched_ext_ops` or `sched_ext_ops_cid` lays it out.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct OpsRecord {
    /// The name of its map.
    pub name: String,
    pub bytes: Vec<u8>,
    /// It is a `struct sched_ext_ops_cid`.
    pub is_cid: bool,
    /// Programs by their place in it.
    pub programs: BTreeMap<usize, usize>,
}

/// Numbers of `enum bpf_prog_type`.
pub mod program {
    pub const TRACEPOINT: u32 = 5;
    pub const KPROBE: u32 = 2;
    pub const TRACING: u32 = 26;
    pub const STRUCT_OPS: u32 = 27;
    pub const SYSCALL: u32 = 31;
    /// `BPF_F_SLEEPABLE` of a program's flags.
    pub const SLEEPABLE: u32 = 1 << 4;
}

/// Numbers of `enum bpf_map_type` that have a meaning for a loader's memory.
pub mod map {
    pub const ARRAY: u32 = 2;
    pub const ARRAY_OF_MAPS: u32 = 12;
    pub const HASH_OF_MAPS: u32 = 13;
    pub const STRUCT_OPS: u32 = 26;
    pub const RINGBUF: u32 = 27;
    pub const USER_RINGBUF: u32 = 31;
    pub const ARENA: u32 = 33;
    /// `BPF_F_MMAPABLE`, `BPF_F_LINK` of a map's flags.
    pub const MMAPABLE: u32 = 1 << 10;
    pub const LINK: u32 = 1 << 13;
}

/// Source registers of wide instructions and calls as a loader leaves them.
pub mod source {
    pub const MAP_FD: u8 = 1;
    pub const MAP_VALUE: u8 = 2;
    pub const BTF_ID: u8 = 3;
    pub const FUNC: u8 = 4;
    pub const MAP_IDX: u8 = 5;
    pub const MAP_IDX_VALUE: u8 = 6;
}

/// A kernel that runs programs and has the maps that the loader does not share.
///
/// Each method first carries out the steps of the transcript that are new.
pub trait World {
    /// Carries out the new steps; the answer is the last one's: 0 or a negative error number.
    ///
    /// # Errors
    /// If a program or map is not what the virtual kernel can have.
    fn apply(&mut self, transcript: &Transcript) -> Result<i64, String>;

    /// The last step is a run of a program: answers with its result and its context.
    ///
    /// # Errors
    /// As [`World::apply`].
    fn run(&mut self, transcript: &Transcript) -> Result<(u32, Vec<u8>), String>;

    /// The value of a key, of a map with a value per CPU all of these.
    ///
    /// # Errors
    /// As [`World::apply`].
    fn lookup(
        &mut self,
        transcript: &Transcript,
        map: usize,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, String>;

    /// The key behind another one, or the first.
    ///
    /// # Errors
    /// As [`World::apply`].
    fn next_key(
        &mut self,
        transcript: &Transcript,
        map: usize,
        key: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, String>;

    /// The contents of a map that the loader shares: places and bytes, each place a multiple of a page.
    fn contents(&mut self, map: usize) -> Vec<(u64, Vec<u8>)>;
}
