//! BPF maps: arrays, hashes, queues, task storage.
//!
//! Values never move while they exist, so a policy may keep pointers to them during an op.

mod loader;

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use schedlab_fiber::prefetch;

use schedlab_bpf::link::ARENA_SECTION;

use crate::arena::Arena;
use crate::bpf::{self, Program};
use crate::map_def::{MapDef, is_like, kind, name_of};
use crate::memory::{Memory, PAGE, space};
use crate::placed::MAP_VALUES;

const EXIST_FLAGS: u64 = 3;
const NOEXIST: u64 = 1;
const EXIST: u64 = 2;
/// `BPF_F_LOCK`, for values with a `struct bpf_spin_lock`.
const LOCK: u64 = 4;

pub const ENOENT: i64 = -2;
pub const E2BIG: i64 = -7;
pub const ENOMEM: i64 = -12;
pub const EEXIST: i64 = -17;
pub const EINVAL: i64 = -22;
pub const EOPNOTSUPP: i64 = -95;

/// Address space is reserved for the storage of so many tasks: no workload has more.
const TASKS_MAX: usize = 8 << 20;

/// Address space for the keys of timers.
const KEY_BYTES: usize = 1 << 30;

/// Places for values of one size, aligned to 8 bytes, zeroed, never moving.
struct Slab {
    words: usize,
    /// Binary logarithm of the number of values in a chunk.
    chunk_bits: u32,
    chunks: Vec<*mut u64>,
    memory: Rc<Memory>,
}

impl Slab {
    fn new(words: usize, expected: usize, memory: &Rc<Memory>) -> Slab {
        Slab {
            words,
            chunk_bits: (8192 / words).clamp(1, expected.max(1)).ilog2(),
            chunks: Vec::new(),
            memory: Rc::clone(memory),
        }
    }

    /// A place; null if there is no memory for it.
    fn get(&mut self, index: usize) -> *mut u8 {
        let chunk = index.wrapping_shr(self.chunk_bits);
        while self.chunks.len() <= chunk {
            let values = self.memory.take(self.chunk_words() * 8);
            if values.is_null() {
                return std::ptr::null_mut();
            }
            self.chunks.push(values.cast());
        }
        let at = (index - (chunk << self.chunk_bits)) * self.words;
        self.chunks[chunk].wrapping_add(at).cast()
    }

    fn chunk_words(&self) -> usize {
        self.words << self.chunk_bits
    }
}

/// The kind of data structure behind a map.
enum Store {
    Array {
        values: *mut u64,
        /// 1, or the number of CPUs.
        copies: usize,
    },
    Hash {
        index: BTreeMap<Box<[u8]>, usize>,
        slab: Slab,
        /// Whether each slot is in use.
        used: Vec<bool>,
        /// The key in each slot, for policies that iterate.
        keys: Slab,
        free: Vec<usize>,
        copies: usize,
        /// Of an LRU map, when each slot was used last.
        used_at: Vec<u64>,
        uses: u64,
    },
    List {
        values: VecDeque<Box<[u8]>>,
        first_out: bool,
    },
    TaskStorage {
        slab: Slab,
    },
    /// Records that are reserved, and free places, by size.
    Ring {
        reserved: BTreeMap<usize, usize>,
        free: BTreeMap<usize, Vec<*mut u8>>,
        memory: Rc<Memory>,
    },
    /// Events of performance counters: none is ever attached.
    Events,
    /// Numbers of maps.
    Maps(BTreeMap<Box<[u8]>, usize>),
    Arena(Arena),
}

/// Room for the word that stands for a map in a map.
const VARIABLE: usize = 16;

/// One map of one run.
pub struct Map {
    /// The policy's variable that stands for it; of a map in a map a word of its own.
    pub variable: *const u64,
    pub def: MapDef,
    words: usize,
    store: Store,
    /// Each task's value in task storage, null where it has none.
    of_tasks: Vec<*mut u8>,
    /// Where its values lie for the cache model.
    modelled: u64,
}

/// All maps of a run.
pub struct Maps {
    pub list: Vec<Map>,
    /// Maps that lie in maps and have no variable. Their numbers follow the numbers of the list.
    inner: Vec<Map>,
    pub arena: Option<usize>,
    /// Where keys and values lie, but for arenas.
    pub memory: Rc<Memory>,
}

/// The most that the elements of a map may take.
fn bytes_max(def: &MapDef, nr_cpus: usize) -> usize {
    let copies = match def.kind {
        kind::ARRAY | kind::HASH | kind::LRU_HASH => 1,
        kind::PERCPU_ARRAY | kind::PERCPU_HASH | kind::LRU_PERCPU_HASH => nr_cpus,
        kind::RINGBUF => return (def.max_entries as usize).saturating_mul(2),
        kind::CGRP_STORAGE => return space(TASKS_MAX),
        kind::TASK_STORAGE => {
            let value = def.value_size as usize;
            return space(TASKS_MAX * value.next_multiple_of(8));
        }
        _ => return 0,
    };
    let (key, value) = (def.key_size as usize, def.value_size as usize);
    // Chunks of a slab are filled up.
    let entries = (def.max_entries as usize).next_power_of_two();
    let element = key.next_multiple_of(8) + value.next_multiple_of(8) * copies;
    entries.saturating_mul(element).saturating_add(64)
}

impl Maps {
    /// Makes maps that have variables, and `inner` ones that have none.
    pub fn new(defs: &[MapDef], inner: &[MapDef], nr_cpus: usize) -> std::io::Result<Maps> {
        let mut by_name: Vec<&MapDef> = defs.iter().collect();
        by_name.sort_by(|a, b| a.name.cmp(&b.name));
        let mut modelled = BTreeMap::new();
        let mut next = MAP_VALUES;
        for def in by_name {
            modelled.insert(def.name.clone(), schedlab_machine::address::GLOBALS + next);
            let values = u64::from(def.max_entries) * u64::from(def.value_size);
            // Large maps overlap rather than leave the region.
            next =
                MAP_VALUES + (next - MAP_VALUES + values.next_multiple_of(128) + 64) % 0x200_0000;
        }
        let of_maps = defs.iter().map(|def| bytes_max(def, nr_cpus));
        let of_inner = inner.iter().map(|def| VARIABLE + bytes_max(def, nr_cpus));
        let bytes = of_maps
            .chain(of_inner)
            .fold(space(KEY_BYTES), usize::saturating_add);
        let memory = Rc::new(Memory::new(bytes)?);
        let mut list = Vec::new();
        let mut arena = None;
        for def in defs {
            if def.kind == kind::ARENA {
                arena = Some(list.len());
            }
            list.push(Map::new(def, nr_cpus, &memory, modelled[&def.name])?);
        }
        let mut of_maps = Vec::new();
        for def in inner {
            let mut map = Map::new(
                def,
                nr_cpus,
                &memory,
                schedlab_machine::address::GLOBALS + next,
            )?;
            let values = u64::from(def.max_entries) * u64::from(def.value_size);
            next =
                MAP_VALUES + (next - MAP_VALUES + values.next_multiple_of(128) + 64) % 0x200_0000;
            map.variable = memory.put((list.len() + of_maps.len()) as u64);
            of_maps.push(map);
        }
        Ok(Maps {
            list,
            inner: of_maps,
            arena,
            memory,
        })
    }

    /// Puts the global variables of an object's arena into it, and returns its beginning.
    pub fn put_globals(
        &mut self,
        program: Option<&Program>,
        run: &mut bpf::Run,
    ) -> std::io::Result<()> {
        let Some(arena) = self.arena.and_then(|index| self.list[index].arena()) else {
            return Ok(());
        };
        run.arena = arena.base() as u64;
        let section = program.and_then(|program| {
            let at = program.placement.arena_section?;
            let mut sections = program.elf.data.iter();
            Some((at, sections.find(|section| section.name == ARENA_SECTION)?))
        });
        if let Some((at, section)) = section {
            let pages = section.bytes.len().div_ceil(PAGE).max(1);
            let place = arena.alloc(arena.base().wrapping_add(at as usize), pages);
            if place.is_null() {
                return Err(std::io::ErrorKind::OutOfMemory.into());
            }
            // SAFETY: the pages are open, and no policy code runs yet.
            unsafe { place.copy_from_nonoverlapping(section.bytes.as_ptr(), section.bytes.len()) };
        }
        Ok(())
    }

    /// The map of a number.
    #[inline]
    pub fn get_mut(&mut self, number: usize) -> Option<&mut Map> {
        match number.checked_sub(self.list.len()) {
            None => self.list.get_mut(number),
            Some(inner) => self.inner.get_mut(inner),
        }
    }

    /// All maps, those in maps too.
    fn all(&self) -> impl Iterator<Item = &Map> {
        self.list.iter().chain(&self.inner)
    }

    /// As `all`.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Map> {
        self.list.iter_mut().chain(&mut self.inner)
    }

    /// Puts a map into another one; 0 or a negative error number (`bpf_fd_array_map_update_elem()`, `bpf_fd_htab_map_update_elem()`).
    pub fn put_map(&mut self, into: usize, key: &[u8], number: usize, flags: u64) -> i64 {
        let Some(inner) = self.get_mut(number).map(|map| map.def.clone()) else {
            return EINVAL;
        };
        let Some(map) = self.get_mut(into) else {
            return EINVAL;
        };
        let is_alike = match &map.def.inner {
            Some(model) => is_like(&inner, model),
            None => false,
        };
        let entries = map.def.max_entries as usize;
        let is_array = map.def.kind == kind::ARRAY_OF_MAPS;
        let Store::Maps(slots) = &mut map.store else {
            return EOPNOTSUPP;
        };
        let is_there = slots.contains_key(key);
        let number_of_key = u32::from_ne_bytes(key.try_into().unwrap_or([0xff; 4]));
        match flags {
            // An array has a place for every key.
            1.. if is_array => return EINVAL,
            _ if is_array && number_of_key as usize >= entries => return E2BIG,
            _ if !is_alike => return EINVAL,
            EXIST.. if flags > EXIST => return EINVAL,
            NOEXIST if is_there => return EEXIST,
            EXIST if !is_there => return ENOENT,
            _ if !is_there && slots.len() >= entries => return E2BIG,
            _ => {}
        }
        slots.insert(key.into(), number);
        0
    }

    /// Puts a map into a map before the run, by the number that is the key.
    pub fn begin_with(&mut self, map: usize, key: u32, inner: usize) -> Result<(), String> {
        let mut bytes = key.to_ne_bytes().to_vec();
        bytes.resize(self.list[map].key_size(), 0);
        match self.put_map(map, &bytes, inner, 0) {
            0 => Ok(()),
            E2BIG => Err(format!(
                "{} takes {} maps, and has none at {key}",
                self.list[map].description(),
                self.list[map].def.max_entries
            )),
            _ => {
                let what = self.list[map].description();
                let inner = self.get_mut(inner).map(|inner| inner.description());
                let inner = inner.unwrap_or_default();
                Err(format!("{inner}, is not like the maps that lie in {what}"))
            }
        }
    }

    /// Puts an entry into a map before the run, for every CPU if each has its own.
    pub fn put(
        &mut self,
        contents: &bpf::decisions::Contents,
        nr_cpus: usize,
    ) -> Result<(), String> {
        let map = &mut self.list[contents.map];
        let copies = if map.is_per_cpu() { nr_cpus } else { 1 };
        for cpu in 0..copies {
            let slot = map.slot_for_update(&contents.key, cpu, 0);
            let slot = slot.map_err(|error| {
                let what = map.description();
                format!(
                    "{}: {what} does not take the entry ({error})",
                    contents.place
                )
            })?;
            // SAFETY: a slot is as long as a value, of which these are the bytes by its type; no policy code runs yet.
            unsafe { slot.copy_from_nonoverlapping(contents.value.as_ptr(), contents.value.len()) };
        }
        Ok(())
    }

    /// Prefetches the task's values in task storage.
    pub fn prefetch(&self, task: usize) {
        for map in self.list.iter().filter(|map| map.is_storage()) {
            // SAFETY: a value is a slot of the map's slab, of whole words.
            if let Some(value) = unsafe { map.storage(task).cast::<u64>().as_ref() } {
                prefetch(value);
            }
        }
    }

    /// The offset of an address in the arena.
    #[inline]
    pub fn arena_offset(&self, address: usize) -> Option<u64> {
        match &self.list[self.arena?].store {
            Store::Arena(arena) => arena.offset(address),
            _ => None,
        }
    }

    /// Whether an address of the arena is in a page in use; `None` if it is not of the arena.
    pub fn arena_used(&self, address: usize) -> Option<bool> {
        match &self.list[self.arena?].store {
            Store::Arena(arena) => {
                let offset = arena.offset(address)?;
                Some(arena.is_used(offset as usize))
            }
            _ => None,
        }
    }

    /// The modelled address of a place in a map's values.
    pub fn modelled(&self, address: usize) -> Option<u64> {
        self.all().find_map(|map| {
            let offset = map.offset_of(address)?;
            Some(map.modelled + offset % 0x200_0000)
        })
    }

    /// The map among whose values a place lies, and its offset in the value.
    pub fn value_of(&self, address: usize) -> Option<(&str, u64)> {
        self.all().find_map(|map| {
            let offset = map.offset_of(address)?;
            Some((map.def.name.as_str(), offset % (map.words as u64 * 8)))
        })
    }

    /// The task in whose value in task storage a place lies, the map's name, and the offset in the value.
    pub fn storage_at(&self, address: usize) -> Option<(usize, &str, u64)> {
        self.list
            .iter()
            .filter(|map| map.is_storage())
            .find_map(|map| {
                let offset = map.offset_of(address)?;
                let bytes = map.words as u64 * 8;
                let task = (offset / bytes) as usize;
                let is_kept = !map.storage(task).is_null();
                is_kept.then_some((task, map.def.name.as_str(), offset % bytes))
            })
    }

    /// Drops what maps keep for a task.
    pub fn drop_task(&mut self, task: usize) {
        for map in self.list.iter_mut().filter(|map| map.is_storage()) {
            map.storage_delete(task);
        }
    }
}

impl Map {
    /// An empty one.
    fn new(
        def: &MapDef,
        nr_cpus: usize,
        memory: &Rc<Memory>,
        modelled: u64,
    ) -> std::io::Result<Map> {
        let entries = def.max_entries as usize;
        let words = def.value_size.div_ceil(8) as usize;
        let store = match def.kind {
            kind::ARRAY | kind::PERCPU_ARRAY => {
                let copies = if def.kind == kind::ARRAY { 1 } else { nr_cpus };
                let bytes = words * 8 * entries * copies;
                let values = memory.take(bytes).cast::<u64>();
                if values.is_null() {
                    return Err(std::io::ErrorKind::OutOfMemory.into());
                }
                Store::Array { values, copies }
            }
            kind::HASH | kind::PERCPU_HASH | kind::LRU_HASH | kind::LRU_PERCPU_HASH => {
                let is_one = [kind::HASH, kind::LRU_HASH].contains(&def.kind);
                let copies = if is_one { 1 } else { nr_cpus };
                Store::Hash {
                    index: BTreeMap::new(),
                    slab: Slab::new(words * copies, entries, memory),
                    used: Vec::new(),
                    keys: Slab::new(def.key_size.div_ceil(8) as usize, entries, memory),
                    free: Vec::new(),
                    copies,
                    used_at: Vec::new(),
                    uses: 0,
                }
            }
            kind::QUEUE | kind::STACK => Store::List {
                values: VecDeque::new(),
                first_out: def.kind == kind::QUEUE,
            },
            kind::TASK_STORAGE | kind::CGRP_STORAGE => Store::TaskStorage {
                slab: Slab::new(words, usize::MAX, memory),
            },
            kind::RINGBUF => Store::Ring {
                reserved: BTreeMap::new(),
                free: BTreeMap::new(),
                memory: Rc::clone(memory),
            },
            kind::PERF_EVENT_ARRAY => Store::Events,
            kind::ARRAY_OF_MAPS | kind::HASH_OF_MAPS => Store::Maps(BTreeMap::new()),
            _ => Store::Arena(Arena::new(entries)?),
        };
        Ok(Map {
            variable: std::ptr::null(),
            def: def.clone(),
            words,
            store,
            of_tasks: Vec::new(),
            modelled,
        })
    }

    /// Whether a look-up in it depends on what other CPUs have done.
    pub fn is_shared(&self) -> bool {
        match self.store {
            Store::Hash { .. } | Store::List { .. } => true,
            Store::Maps(_) => self.def.kind == kind::HASH_OF_MAPS,
            _ => false,
        }
    }

    /// Bytes of a key.
    pub fn key_size(&self) -> usize {
        self.def.key_size as usize
    }

    /// Bytes of a value.
    pub fn value_size(&self) -> usize {
        self.def.value_size as usize
    }

    /// Its kind, for people.
    pub fn description(&self) -> String {
        format!(
            "the map `{}`, of type {}",
            self.def.name,
            name_of(self.def.kind)
        )
    }

    /// Whether it has a value for a key.
    pub fn is_keyed(&self) -> bool {
        matches!(self.store, Store::Array { .. } | Store::Hash { .. })
    }

    /// Whether it has maps in it.
    pub fn has_maps(&self) -> bool {
        matches!(self.store, Store::Maps(_))
    }

    /// Whether a look-up in it finds something: a value, or a map.
    pub fn has_elements(&self) -> bool {
        self.is_keyed() || self.has_maps()
    }

    /// The number of the map of a key.
    pub fn map_of(&self, key: &[u8]) -> Option<usize> {
        match &self.store {
            Store::Maps(slots) => slots.get(key).copied(),
            _ => None,
        }
    }

    /// Whether each CPU has a value of its own for a key.
    pub fn is_per_cpu(&self) -> bool {
        [kind::PERCPU_ARRAY, kind::PERCPU_HASH, kind::LRU_PERCPU_HASH].contains(&self.def.kind)
    }

    /// Whether it is a queue or a stack.
    pub fn is_list(&self) -> bool {
        matches!(self.store, Store::List { .. })
    }

    /// Whether it has a value for a task.
    pub fn is_storage(&self) -> bool {
        self.def.kind == kind::TASK_STORAGE
    }

    /// Whether it has a value for a cgroup.
    pub fn is_cgroup_storage(&self) -> bool {
        self.def.kind == kind::CGRP_STORAGE
    }

    /// Whether it is a ring buffer.
    pub fn is_ring(&self) -> bool {
        matches!(self.store, Store::Ring { .. })
    }

    /// Whether it has events of performance counters.
    pub fn is_events(&self) -> bool {
        matches!(self.store, Store::Events)
    }

    /// Whether the value that was used longest ago makes room for another one.
    fn is_lru(&self) -> bool {
        [kind::LRU_HASH, kind::LRU_PERCPU_HASH].contains(&self.def.kind)
    }

    /// Whether a record and its header fit into a ring buffer beside those that are reserved.
    pub fn ring_fits(&self, bytes: usize) -> bool {
        let Store::Ring { reserved, .. } = &self.store else {
            return false;
        };
        let taken = reserved.values().sum::<usize>();
        bytes.saturating_add(8).next_multiple_of(8) + taken <= self.def.max_entries as usize
    }

    /// `__bpf_ringbuf_reserve()`; null if it does not fit.
    pub fn reserve(&mut self, bytes: usize) -> *mut u8 {
        if bytes > self.def.max_entries as usize || !self.ring_fits(bytes) {
            return std::ptr::null_mut();
        }
        let Store::Ring {
            reserved,
            free,
            memory,
        } = &mut self.store
        else {
            return std::ptr::null_mut();
        };
        let size = (bytes + 8).next_multiple_of(16);
        let used = free.get_mut(&size).and_then(Vec::pop);
        let place = used.unwrap_or_else(|| memory.take(size));
        if !place.is_null() {
            reserved.insert(place as usize, size);
        }
        place
    }

    /// A record is submitted or discarded. Whether it is one of this buffer.
    pub fn release(&mut self, record: *mut u8) -> bool {
        let Store::Ring { reserved, free, .. } = &mut self.store else {
            return false;
        };
        let Some(size) = reserved.remove(&(record as usize)) else {
            return false;
        };
        free.entry(size).or_default().push(record);
        true
    }

    /// Whether it is an arena.
    pub fn is_arena(&self) -> bool {
        matches!(self.store, Store::Arena(_))
    }

    /// Whether it is a hash table, whose updates make new elements.
    pub fn is_hash(&self) -> bool {
        matches!(self.store, Store::Hash { .. })
    }

    /// Returns the lock that an update with these flags takes: the lock of an existing value.
    pub fn lock_for_update(&mut self, key: &[u8], cpu: usize, flags: u64) -> Option<*mut u32> {
        let lock = self.def.special.spin_locks.first()?.start;
        let value = self.lookup(key, cpu);
        (flags & LOCK != 0 && !value.is_null()).then(|| value.wrapping_add(lock).cast())
    }

    /// `copy_map_value()`: copies a value without the kernel's part. References stay if the value `keeps` them, or
    /// has none.
    ///
    /// # Safety
    /// Both are as large as a value.
    pub unsafe fn copy_value(&self, from: *const u8, to: *mut u8, keeps: bool) {
        let special = &self.def.special;
        let locks = special.spin_locks.iter().chain(&special.res_locks);
        let locks = locks.map(|field| (field, true));
        let references = special.references.iter().map(|field| (field, keeps));
        let fields: Vec<(usize, Vec<u8>)> = locks
            .chain(references)
            .map(|(field, stays)| {
                if !stays {
                    return (field.start, vec![0; field.len()]);
                }
                // SAFETY: the field lies in the value.
                let bytes = unsafe { std::slice::from_raw_parts(to.add(field.start), field.len()) };
                (field.start, bytes.to_vec())
            })
            .collect();
        // SAFETY: as promised; they may be the same.
        unsafe { std::ptr::copy(from, to, self.value_size()) };
        for (start, bytes) in fields {
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.add(start), bytes.len()) };
        }
    }

    /// A value of an LRU map is used (`bpf_lru_node_set_ref()`).
    // Model: the kernel keeps an approximate order, a list for each CPU; here it is exact.
    pub fn use_value(&mut self, key: &[u8]) {
        if !self.is_lru() {
            return;
        }
        if let Store::Hash {
            index,
            used_at,
            uses,
            ..
        } = &mut self.store
            && let Some(&slot) = index.get(key)
        {
            *uses += 1;
            used_at.resize(used_at.len().max(slot + 1), 0);
            used_at[slot] = *uses;
        }
    }

    /// Makes room in a full LRU map: the value that was used longest ago goes.
    fn evict(&mut self) {
        let Store::Hash { index, used_at, .. } = &self.store else {
            return;
        };
        let at = |slot: usize| used_at.get(slot).copied().unwrap_or(0);
        let oldest = index.iter().min_by_key(|(_, slot)| at(**slot));
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.delete(&key);
        }
    }

    /// `bpf_map_lookup_elem()`; null if the key is absent.
    pub fn lookup(&mut self, key: &[u8], cpu: usize) -> *mut u8 {
        match &mut self.store {
            Store::Array { values, copies } => {
                let index = u32::from_ne_bytes(key.try_into().unwrap_or([0xff; 4])) as usize;
                if index >= self.def.max_entries as usize {
                    return std::ptr::null_mut();
                }
                let cpu = if *copies == 1 { 0 } else { cpu };
                let at = (cpu * self.def.max_entries as usize + index) * self.words;
                values.wrapping_add(at).cast()
            }
            Store::Hash {
                index,
                slab,
                copies,
                ..
            } => match index.get(key) {
                // A per-CPU value's copies lie side by side in its slot.
                Some(&slot) => {
                    let cpu = if *copies == 1 { 0 } else { cpu };
                    slab.get(slot).wrapping_add(cpu * self.words * 8)
                }
                None => std::ptr::null_mut(),
            },
            _ => std::ptr::null_mut(),
        }
    }

    /// Prepares an update: where to write the value, or a negative errno.
    pub fn slot_for_update(&mut self, key: &[u8], cpu: usize, flags: u64) -> Result<*mut u8, i64> {
        let existing = self.lookup(key, cpu);
        if self.is_keyed() && flags & !LOCK > EXIST {
            return Err(EINVAL);
        }
        let lock_missing = flags & LOCK != 0 && self.def.special.spin_locks.is_empty();
        let is_new = existing.is_null() && flags & EXIST_FLAGS != EXIST;
        if self.is_lru() && is_new {
            let full = |index: &BTreeMap<_, _>| index.len() >= self.def.max_entries as usize;
            if matches!(&self.store, Store::Hash { index, .. } if full(index)) {
                self.evict();
            }
        }
        match &mut self.store {
            Store::Array { .. } if existing.is_null() => Err(E2BIG),
            Store::Array { .. } if flags & EXIST_FLAGS == NOEXIST => Err(EEXIST),
            Store::Array { .. } | Store::Hash { .. } if lock_missing => Err(EINVAL),
            Store::Array { .. } => Ok(existing),
            Store::Hash {
                index,
                slab,
                used,
                keys,
                free,
                copies,
                ..
            } => {
                if !existing.is_null() {
                    return if flags & EXIST_FLAGS == NOEXIST {
                        Err(EEXIST)
                    } else {
                        Ok(existing)
                    };
                }
                if flags & EXIST_FLAGS == EXIST {
                    return Err(ENOENT);
                }
                if index.len() >= self.def.max_entries as usize {
                    return Err(E2BIG);
                }
                let slot = free.last().copied().unwrap_or(used.len());
                let (value, place) = (slab.get(slot), keys.get(slot));
                if value.is_null() || place.is_null() {
                    return Err(ENOMEM);
                }
                if free.pop().is_none() {
                    used.push(false);
                }
                used[slot] = true;
                index.insert(key.into(), slot);
                // SAFETY: the place is as long as a key and not in use yet.
                unsafe { place.copy_from(key.as_ptr(), key.len()) };
                let bytes = self.words * 8 * *copies;
                // SAFETY: the slot is `bytes` long and not in use yet.
                unsafe { value.write_bytes(0, bytes) };
                let cpu = if *copies == 1 { 0 } else { cpu };
                Ok(value.wrapping_add(cpu * self.words * 8))
            }
            _ => Err(EOPNOTSUPP),
        }
    }

    /// `bpf_map_delete_elem()`.
    pub fn delete(&mut self, key: &[u8]) -> i64 {
        match &mut self.store {
            Store::Hash {
                index, used, free, ..
            } => match index.remove(key) {
                Some(slot) => {
                    used[slot] = false;
                    free.push(slot);
                    0
                }
                None => ENOENT,
            },
            Store::Maps(slots) => match slots.remove(key) {
                Some(_) => 0,
                None => ENOENT,
            },
            Store::Array { .. } => EINVAL,
            _ => EOPNOTSUPP,
        }
    }

    /// `bpf_map_push_elem()`; `BPF_EXIST` overwrites the oldest when it is full.
    pub fn push(&mut self, value: &[u8], flags: u64) -> i64 {
        let Store::List { values, .. } = &mut self.store else {
            return EOPNOTSUPP;
        };
        if flags & EXIST_FLAGS == NOEXIST || flags > EXIST {
            return EINVAL;
        }
        if values.len() >= self.def.max_entries as usize {
            if flags & EXIST_FLAGS != EXIST {
                return E2BIG;
            }
            values.pop_front();
        }
        values.push_back(value.into());
        0
    }

    /// `bpf_map_pop_elem()` and, with `keep`, `bpf_map_peek_elem()`.
    pub fn pop(&mut self, value: &mut [u8], keep: bool) -> i64 {
        let Store::List { values, first_out } = &mut self.store else {
            return EOPNOTSUPP;
        };
        let found = if *first_out {
            values.front()
        } else {
            values.back()
        };
        let Some(found) = found else {
            value.fill(0);
            return ENOENT;
        };
        value.copy_from_slice(found);
        if !keep {
            if *first_out {
                values.pop_front();
            } else {
                values.pop_back();
            }
        }
        0
    }

    /// The next value with its key. The cursor begins at 0; its upper half is the place to look from,
    /// its lower half the key of an array, so that a pointer to it can be handed out.
    pub fn next(&mut self, cursor: &mut u64, cpu: usize) -> Option<(*const u8, *mut u8)> {
        let start = (*cursor >> 32) as usize;
        match &mut self.store {
            Store::Array { .. } => {
                if start >= self.def.max_entries as usize {
                    return None;
                }
                let index = start as u32;
                *cursor = u64::from(index + 1) << 32 | u64::from(index);
                let key = std::ptr::from_mut(cursor).cast::<u8>().cast_const();
                Some((key, self.lookup(&index.to_ne_bytes(), cpu)))
            }
            Store::Hash {
                slab,
                used,
                keys,
                copies,
                ..
            } => {
                let slot = (start..used.len()).find(|&slot| used[slot])?;
                *cursor = (slot as u64 + 1) << 32;
                let key = keys.get(slot).cast_const();
                let cpu = if *copies == 1 { 0 } else { cpu };
                Some((key, slab.get(slot).wrapping_add(cpu * self.words * 8)))
            }
            _ => None,
        }
    }

    /// A task's value in task storage; null if the task has none.
    #[inline]
    pub fn storage(&self, task: usize) -> *mut u8 {
        self.of_tasks
            .get(task)
            .copied()
            .unwrap_or(std::ptr::null_mut())
    }

    /// A zeroed value for a task that has none.
    pub fn storage_create(&mut self, task: usize) -> *mut u8 {
        let Store::TaskStorage { slab } = &mut self.store else {
            return std::ptr::null_mut();
        };
        let value = slab.get(task);
        if value.is_null() {
            return value;
        }
        let values = &mut self.of_tasks;
        if values.len() <= task {
            values.resize(task + 1, std::ptr::null_mut());
        }
        // SAFETY: the slot is that long and not in use yet.
        unsafe { value.write_bytes(0, self.words * 8) };
        values[task] = value;
        value
    }

    /// `bpf_task_storage_delete()`.
    pub fn storage_delete(&mut self, task: usize) -> i64 {
        let Store::TaskStorage { .. } = &self.store else {
            return EINVAL;
        };
        match self.of_tasks.get_mut(task) {
            Some(value) if !value.is_null() => {
                *value = std::ptr::null_mut();
                0
            }
            _ => ENOENT,
        }
    }

    /// The pages of an arena.
    pub fn arena(&mut self) -> Option<&mut Arena> {
        match &mut self.store {
            Store::Arena(arena) => Some(arena),
            _ => None,
        }
    }

    /// The offset of an address among the map's values.
    fn offset_of(&self, address: usize) -> Option<u64> {
        let within = |start: *mut u64, words: usize| {
            let offset = address.wrapping_sub(start as usize);
            (offset < words * 8).then_some(offset as u64)
        };
        match &self.store {
            Store::Array { values, copies } => {
                within(*values, self.words * self.def.max_entries as usize * copies)
            }
            Store::Hash { slab, .. } | Store::TaskStorage { slab } => {
                let mut chunks = slab.chunks.iter().enumerate();
                chunks.find_map(|(index, chunk)| {
                    let offset = within(*chunk, slab.chunk_words())?;
                    Some(((index << slab.chunk_bits) * slab.words * 8) as u64 + offset)
                })
            }
            _ => None,
        }
    }

    /// The key and the start of the value that holds `address`, for timers.
    pub fn value_around(&mut self, address: usize) -> Option<(Vec<u8>, *mut u8)> {
        let offset = self.offset_of(address)? as usize;
        match &mut self.store {
            Store::Array { values, copies: 1 } => {
                let index = offset / (self.words * 8);
                let value = values.wrapping_add(index * self.words).cast();
                Some(((index as u32).to_ne_bytes().to_vec(), value))
            }
            Store::Hash {
                slab,
                used,
                keys,
                copies: 1,
                ..
            } => {
                let slot = offset / (slab.words * 8);
                used.get(slot).filter(|&&used| used)?;
                let length = self.def.key_size as usize;
                // SAFETY: the place is as long as a key, and there while the map is.
                let key = unsafe { std::slice::from_raw_parts(keys.get(slot), length) };
                Some((key.to_vec(), slab.get(slot)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map_def::tests::def;

    fn map(kind: u32) -> Map {
        let maps = Maps::new(&[def(kind, 4, 8, 2)], &[], 2).unwrap();
        maps.list.into_iter().next().unwrap()
    }

    #[test]
    fn a_hash_keeps_values_where_they_are_and_refuses_a_third() {
        let mut hash = map(kind::HASH);
        let key = |n: u32| n.to_ne_bytes();
        let first = hash.slot_for_update(&key(7), 0, 0).unwrap();
        hash.slot_for_update(&key(8), 0, 0).unwrap();
        assert_eq!(hash.slot_for_update(&key(9), 0, 0), Err(E2BIG));
        assert_eq!(hash.slot_for_update(&key(7), 0, NOEXIST), Err(EEXIST));
        assert_eq!(hash.slot_for_update(&key(9), 0, EXIST), Err(ENOENT));
        assert_eq!(hash.lookup(&key(7), 0), first);
        assert_eq!(hash.delete(&key(7)), 0);
        assert_eq!(hash.delete(&key(7)), ENOENT);
        assert!(hash.lookup(&key(7), 0).is_null());
        assert!(hash.slot_for_update(&key(9), 0, 0).is_ok());
    }

    #[test]
    fn updates_are_refused_as_the_kernel_refuses_them() {
        let (there, beyond) = (1u32.to_ne_bytes(), 9u32.to_ne_bytes());
        for kind in [kind::HASH, kind::ARRAY] {
            for flags in [3, 8, 3 | LOCK] {
                let refused = map(kind).slot_for_update(&there, 0, flags);
                assert_eq!(refused, Err(EINVAL), "{kind} {flags}");
            }
            let mut without = map(kind);
            assert_eq!(without.slot_for_update(&there, 0, LOCK), Err(EINVAL));
            let mut with = map(kind);
            with.def.special.spin_locks.push(0..4);
            assert!(with.slot_for_update(&there, 0, LOCK).is_ok());
        }
        let mut array = map(kind::ARRAY);
        assert_eq!(array.slot_for_update(&there, 0, NOEXIST), Err(EEXIST));
        assert_eq!(array.slot_for_update(&beyond, 0, NOEXIST), Err(E2BIG));
    }

    #[test]
    fn per_cpu_copies_are_apart() {
        for kind in [kind::PERCPU_ARRAY, kind::PERCPU_HASH] {
            let mut map = map(kind);
            let key = 1u32.to_ne_bytes();
            map.slot_for_update(&key, 0, 0).unwrap();
            let (a, b) = (map.lookup(&key, 0), map.lookup(&key, 1));
            assert!(!a.is_null() && !b.is_null() && a != b);
        }
        assert!(
            map(kind::PERCPU_ARRAY)
                .lookup(&2u32.to_ne_bytes(), 0)
                .is_null()
        );
    }

    #[test]
    fn queues_and_stacks_hand_out_from_their_own_end() {
        for (kind, expected) in [(kind::QUEUE, 1u8), (kind::STACK, 2u8)] {
            let mut list = map(kind);
            assert_eq!(list.push(&[1; 8], 0), 0);
            assert_eq!(list.push(&[2; 8], 0), 0);
            assert_eq!(list.push(&[3; 8], 0), E2BIG);
            let mut value = [0; 8];
            assert_eq!(list.pop(&mut value, true), 0);
            assert_eq!(list.pop(&mut value, false), 0);
            assert_eq!(value, [expected; 8]);
            assert_eq!(list.pop(&mut value, false), 0);
            assert_eq!(list.pop(&mut value, false), ENOENT);
        }
    }

    #[test]
    fn maps_lie_in_maps_of_their_kind() {
        let outer = |kind| MapDef {
            inner: Some(Box::new(def(kind::QUEUE, 0, 8, 4))),
            ..def(kind, 4, 4, 2)
        };
        let defs = [outer(kind::ARRAY_OF_MAPS), outer(kind::HASH_OF_MAPS)];
        let inner = [
            def(kind::QUEUE, 0, 8, 4),
            def(kind::QUEUE, 0, 8, 9),
            def(kind::STACK, 0, 8, 4),
        ];
        let mut maps = Maps::new(&defs, &inner, 2).unwrap();
        let key = |n: u32| n.to_ne_bytes();
        // Numbers 0 and 1 are the maps with variables.
        assert_eq!(maps.put_map(0, &key(1), 2, 0), 0);
        assert_eq!(
            maps.put_map(0, &key(0), 4, 0),
            EINVAL,
            "a stack is no queue"
        );
        assert_eq!(maps.put_map(0, &key(2), 2, 0), E2BIG);
        assert_eq!(maps.put_map(0, &key(0), 2, NOEXIST), EINVAL);
        assert_eq!(maps.put_map(1, &key(70), 2, EXIST), ENOENT);
        assert_eq!(maps.put_map(1, &key(70), 2, 0), 0);
        assert_eq!(maps.put_map(1, &key(70), 3, NOEXIST), EEXIST);
        assert_eq!(maps.put_map(1, &key(71), 3, 0), 0);
        assert_eq!(maps.put_map(1, &key(72), 3, 0), E2BIG);
        assert_eq!(
            maps.put_map(2, &key(0), 3, 0),
            EOPNOTSUPP,
            "a queue has no maps"
        );
        assert_eq!(maps.list[1].map_of(&key(70)), Some(2));
        assert_eq!(maps.list[0].map_of(&key(0)), None);
        assert_eq!(maps.list[1].delete(&key(70)), 0);
        assert_eq!(maps.list[1].map_of(&key(70)), None);
        // The word of a map has its number.
        let word = maps.get_mut(3).unwrap().variable;
        // SAFETY: it is the map's.
        assert_eq!(unsafe { word.read() }, 3);
    }

    #[test]
    fn a_push_into_a_full_list_can_replace_the_oldest() {
        for (kind, expected) in [(kind::QUEUE, [2u8, 3]), (kind::STACK, [3, 2])] {
            let mut list = map(kind);
            for value in 1..=3 {
                assert_eq!(list.push(&[value; 8], EXIST), 0);
            }
            let mut value = [0; 8];
            for expected in expected {
                assert_eq!(list.pop(&mut value, false), 0);
                assert_eq!(value, [expected; 8]);
            }
            assert_eq!(list.pop(&mut value, false), ENOENT);
        }
    }

    #[test]
    fn task_storage_is_zeroed_for_the_next_task() {
        let mut storage = map(kind::TASK_STORAGE);
        assert!(storage.storage(5).is_null());
        let value = storage.storage_create(5);
        assert_eq!(storage.storage(5), value);
        // SAFETY: the value has 8 bytes.
        unsafe { value.write(9) };
        assert_eq!(storage.storage_delete(5), 0);
        assert!(storage.storage(5).is_null());
        let value = storage.storage_create(5);
        // SAFETY: as above.
        assert_eq!(unsafe { value.read() }, 0);
    }
}
