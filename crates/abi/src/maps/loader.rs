//! A loader's access to maps, by whole values (kernel/bpf/syscall.c).

use std::collections::BTreeMap;
use std::ptr;

use super::{EINVAL, EOPNOTSUPP, Map, Store};
use crate::arena::Arena;
use crate::map_def::kind;
use crate::memory::PAGE;

/// The key behind another one in a table.
fn behind<T>(table: &BTreeMap<Box<[u8]>, T>, key: Option<&[u8]>) -> Option<Vec<u8>> {
    let behind = key.filter(|key| table.contains_key(*key));
    let mut keys = table.keys().map(|key| key.to_vec());
    match behind {
        Some(key) => keys.find(|known| known.as_slice() > key),
        None => keys.next(),
    }
}

impl Map {
    /// How many values a key has for a loader.
    fn copies(&self) -> usize {
        match &self.store {
            Store::Array { copies, .. } | Store::Hash { copies, .. } => *copies,
            _ => 1,
        }
    }

    /// Sets the value of a key, of a map with a value per CPU all of these: 0 or a negative error number.
    pub fn set(&mut self, key: &[u8], value: &[u8], flags: u64) -> i64 {
        let step = self.words * 8;
        for cpu in 0..self.copies() {
            let Some(from) = value.get(cpu * step..cpu * step + self.value_size()) else {
                return EINVAL;
            };
            // The key is there once the first CPU has its value.
            let flags = if cpu == 0 { flags } else { 0 };
            match self.slot_for_update(key, cpu, flags) {
                // SAFETY: a slot has room for a value, and no program runs.
                Ok(to) => unsafe { self.copy_value(from.as_ptr(), to, true) },
                Err(error) => return error,
            }
        }
        match self.is_keyed() {
            true => 0,
            false => EOPNOTSUPP,
        }
    }

    /// The value of a key, of a map with a value per CPU all of these.
    pub fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let step = match self.copies() {
            1 => self.value_size(),
            _ => self.words * 8,
        };
        let mut value = Vec::new();
        for cpu in 0..self.copies() {
            let from = self.lookup(key, cpu);
            if from.is_null() {
                return None;
            }
            // SAFETY: a slot has whole words, and no program runs.
            value.extend_from_slice(unsafe { std::slice::from_raw_parts(from, step) });
        }
        Some(value)
    }

    /// The key behind another one; the first behind one that is not there, or without one.
    pub fn key_behind(&mut self, key: Option<&[u8]>) -> Option<Vec<u8>> {
        match &self.store {
            Store::Array { .. } | Store::Maps(_) if self.def.kind != kind::HASH_OF_MAPS => {
                let number = key
                    .and_then(|key| key.try_into().ok())
                    .map(u32::from_ne_bytes);
                let next = match number {
                    Some(number) if number < self.def.max_entries => number + 1,
                    _ => 0,
                };
                (next < self.def.max_entries).then(|| next.to_ne_bytes().to_vec())
            }
            Store::Hash { index, .. } => behind(index, key),
            Store::Maps(slots) => behind(slots, key),
            _ => None,
        }
    }

    /// Puts bytes to a place among the values, as a loader does in memory that it shares.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        let values = self.words * 8 * self.def.max_entries as usize;
        match &mut self.store {
            Store::Array { values: to, .. } => {
                let room = values.saturating_sub(at).min(bytes.len());
                let to = to.cast::<u8>().wrapping_add(at);
                // SAFETY: so much of the values lies behind the place, and no program runs.
                unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), room) };
            }
            Store::Arena(arena) => {
                let mut done = 0;
                while done < bytes.len() {
                    let offset = at + done;
                    let part = (PAGE - offset % PAGE).min(bytes.len() - done);
                    let to = arena.base().wrapping_add(offset);
                    // A page that a loader touches is there from then on.
                    arena.alloc(to.wrapping_sub(offset % PAGE), 1);
                    if arena.is_used(offset) {
                        // SAFETY: the page is in use, and no program runs.
                        unsafe { ptr::copy_nonoverlapping(bytes[done..].as_ptr(), to, part) };
                    }
                    done += part;
                }
            }
            _ => {}
        }
    }

    /// Moves an arena that is still empty to an address.
    pub fn settle(&mut self, address: u64) -> std::io::Result<()> {
        self.store = Store::Arena(Arena::at(self.def.max_entries as usize, address)?);
        Ok(())
    }

    /// The contents of memory that a loader shares: places and bytes.
    pub fn parts(&mut self) -> Vec<(u64, Vec<u8>)> {
        let bytes = self.words * 8 * self.def.max_entries as usize;
        match &self.store {
            Store::Array { values, .. } => {
                // SAFETY: so long are the values, and no program runs.
                let values = unsafe { std::slice::from_raw_parts(values.cast::<u8>(), bytes) };
                vec![(0, values.to_vec())]
            }
            Store::Arena(arena) => {
                let pages = arena.used();
                let page = |at: usize| {
                    // SAFETY: the page is in use, and no program runs.
                    let page = unsafe { std::slice::from_raw_parts(arena.base().add(at), PAGE) };
                    (at as u64, page.to_vec())
                };
                pages.map(page).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Maps;
    use super::*;
    use crate::map_def::kind;
    use crate::map_def::tests::def;

    fn maps(kind: u32, entries: u32) -> Maps {
        Maps::new(&[def(kind, 4, 12, entries)], &[], 2).unwrap()
    }

    #[test]
    fn a_loader_gets_what_it_has_set() {
        let key = |n: u32| n.to_ne_bytes();
        for (kind, bytes) in [
            (kind::ARRAY, 12),
            (kind::HASH, 12),
            (kind::PERCPU_ARRAY, 32),
            (kind::PERCPU_HASH, 32),
        ] {
            let mut maps = maps(kind, 2);
            let map = &mut maps.list[0];
            let value: Vec<u8> = (0..bytes).collect();
            assert_eq!(map.set(&key(1), &value, 0), 0);
            let got = map.get(&key(1)).unwrap();
            assert_eq!((got.len(), &got[..12]), (bytes.into(), &value[..12]));
            if bytes > 12 {
                assert_eq!(&got[16..28], &value[16..28], "of the second CPU");
            }
            let short = &value[..value.len() - 8];
            assert_eq!(map.set(&key(1), short, 0), EINVAL);
            let first = map.key_behind(None).unwrap();
            assert_eq!(map.key_behind(Some(&key(1))), None);
            let is_array = [kind::ARRAY, kind::PERCPU_ARRAY].contains(&kind);
            assert_eq!(first, key(u32::from(!is_array)));
        }
    }

    #[test]
    fn a_loader_shares_arrays_and_arenas() {
        let mut arrays = maps(kind::ARRAY, 2);
        let array = &mut arrays.list[0];
        array.put(16, &[7; 4096]);
        assert_eq!(array.get(&1u32.to_ne_bytes()), Some(vec![7; 12]));
        assert_eq!(array.parts()[0].1.len(), 32);
        let mut arenas = maps(kind::ARENA, 4);
        let arena = &mut arenas.list[0];
        arena.put(PAGE, &[9; 2 * PAGE]);
        let parts: Vec<u64> = arena.parts().iter().map(|(at, _)| *at).collect();
        assert_eq!(parts, [4096, 8192]);
        arena.put(2 * PAGE - 8, &[8; 16]);
        assert_eq!(arena.parts()[0].1[PAGE - 9..], [9, 8, 8, 8, 8, 8, 8, 8, 8]);
        assert_eq!(arena.parts()[1].1[..9], [8, 8, 8, 8, 8, 8, 8, 8, 9]);
        // The page is the loader's: it is handed out to nobody else.
        let taken = arena.arena().unwrap().alloc(ptr::null_mut(), 1);
        let offset = arena.arena().unwrap().offset(taken as usize);
        assert_eq!(offset, Some(3 * 4096));
    }
}
