//! The commands of bpf(2): what is created is kept in the transcript, what programs do is asked of a [`World`].

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io;

use schedlab_bpf::btf::{Btf, Kind};
use schedlab_bpf::insn::{Insn, wide};
use schedlab_bpf::transcript::{
    LineRecord, MapRecord, OpsRecord, ProgramRecord, Step, Transcript, World, map, program, source,
};

use crate::attr::{Attr, Info, command};
use crate::error::RecordError;
use crate::notify::{Asked, Memory, Reply};
use crate::shared::{Shared, anonymous};

/// Names of anonymous files begin with this, so that descriptors are known again.
pub const PREFIX: &str = "schedlab-";

/// Numbers that a loader gets to know begin here.
const FIRST_ID: u32 = 1;

/// The object behind a descriptor of the loader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Descriptor {
    Map(usize),
    Program(usize),
    Btf(usize),
    /// A link, a perf event, an iterator.
    Other,
}

impl Descriptor {
    /// By the name of its file.
    pub fn of(name: &str) -> Option<Descriptor> {
        let name = name.strip_prefix("/memfd:")?.strip_prefix(PREFIX)?;
        let name = name.trim_end_matches(" (deleted)");
        let (kind, number) = name.split_once('-').unwrap_or((name, ""));
        let number = number.parse().ok();
        match (kind, number) {
            ("map", Some(number)) => Some(Descriptor::Map(number)),
            ("program", Some(number)) => Some(Descriptor::Program(number)),
            ("btf", Some(number)) => Some(Descriptor::Btf(number)),
            _ => Some(Descriptor::Other),
        }
    }
}

/// A new file that stands for an object.
///
/// # Errors
/// If the host gives none.
pub fn token(kind: &str, number: usize, bytes: u64) -> io::Result<File> {
    let name = CString::new(format!("{PREFIX}{kind}-{number}")).expect("a name without NUL");
    anonymous(&name, bytes)
}

/// Everything that the loader has created.
pub struct BpfState<'w> {
    types: &'w Btf,
    world: &'w mut dyn World,
    nr_cpus: usize,
    pub transcript: Transcript,
    /// Of each BTF its types.
    btfs: Vec<Option<Btf>>,
    /// Of each map the memory that it shares, if any.
    maps: Vec<MapFile>,
    /// The scheduler is attached: the transcript is complete.
    pub attached: bool,
}

/// The file of a map.
enum MapFile {
    Shared(Shared),
    /// A file of so many bytes stands for it. None is kept: a loader makes more maps than a process may have files.
    Token(u64),
}

/// The outcome of a command.
type Answer = Result<Reply, Failure>;

/// Why a command fails.
pub enum Failure {
    /// With an error number, as a kernel says it.
    Errno(i32),
    /// The run cannot go on.
    Fatal(RecordError),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Errno(error.raw_os_error().unwrap_or(libc::EFAULT))
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        Failure::Fatal(error)
    }
}

const OK: Answer = Ok(Reply::Value(0));

fn refuse(number: i32) -> Answer {
    Err(Failure::Errno(number))
}

impl<'w> BpfState<'w> {
    pub fn new(types: &'w Btf, nr_cpus: usize, world: &'w mut dyn World) -> BpfState<'w> {
        BpfState {
            types,
            world,
            nr_cpus,
            transcript: Transcript::default(),
            btfs: Vec::new(),
            maps: Vec::new(),
            attached: false,
        }
    }

    /// Carries out a command.
    pub fn bpf(&mut self, asked: &Asked) -> Answer {
        let [command, at, bytes, ..] = asked.arguments;
        let memory = asked.memory()?;
        let attr = Attr(memory.read(at, (bytes as usize).min(4096))?);
        let call = Call {
            asked,
            memory: &memory,
            attr: &attr,
            at,
        };
        match command {
            command::MAP_CREATE => self.create_map(&call),
            command::BTF_LOAD => self.load_btf(&call),
            command::PROG_LOAD => self.load_program(&call),
            command::MAP_UPDATE => self.update(&call),
            command::MAP_LOOKUP => self.lookup(&call),
            command::MAP_DELETE => self.delete(&call),
            command::MAP_NEXT_KEY => self.next_key(&call),
            command::MAP_FREEZE => {
                let map = call.map(0)?;
                self.transcript.maps[map].frozen = true;
                OK
            }
            command::PROG_TEST_RUN => self.test_run(&call),
            command::INFO => self.info(&call),
            command::LINK_CREATE => self.create_link(&call),
            command::RAW_TRACEPOINT_OPEN => {
                self.attach(&call, 8);
                Ok(Reply::Descriptor(token("link", 0, 0)?.into(), true))
            }
            command::ITER_CREATE | command::ENABLE_STATS => {
                Ok(Reply::Descriptor(token("link", 0, 0)?.into(), true))
            }
            command::PROG_BIND_MAP | command::PROG_ASSOC_STRUCT_OPS | command::OBJ_PIN => OK,
            command::MAP_BY_ID => {
                let number = attr.word(0).wrapping_sub(FIRST_ID) as usize;
                match self.maps.get(number) {
                    Some(map) => Ok(Reply::Descriptor(map.file(number)?.into(), true)),
                    None => refuse(libc::ENOENT),
                }
            }
            command::PROG_NEXT_ID
            | command::MAP_NEXT_ID
            | command::BTF_NEXT_ID
            | command::LINK_NEXT_ID => refuse(libc::ENOENT),
            _ => refuse(libc::EINVAL),
        }
    }

    fn load_btf(&mut self, call: &Call<'_>) -> Answer {
        let bytes = call
            .memory
            .read(call.attr.wide(0), call.attr.word(16) as usize)?;
        let number = self.btfs.len();
        self.btfs.push(Btf::parse(&bytes).ok());
        self.transcript.btfs.push(bytes);
        Ok(Reply::Descriptor(token("btf", number, 0)?.into(), true))
    }

    fn create_map(&mut self, call: &Call<'_>) -> Answer {
        let attr = call.attr;
        let btf = match call.object(attr.word(48)) {
            Some(Descriptor::Btf(btf)) if attr.word(52) | attr.word(56) != 0 => Some(btf),
            _ => None,
        };
        let inner = match attr.word(0) {
            map::ARRAY_OF_MAPS | map::HASH_OF_MAPS => Some(call.map(20)?),
            _ => None,
        };
        let record = MapRecord {
            kind: attr.word(0),
            key_size: attr.word(4),
            value_size: attr.word(8),
            max_entries: attr.word(12),
            flags: attr.word(16),
            name: attr.name(28),
            extra: attr.wide(64),
            btf,
            value_type: attr.word(56),
            kernel_type: attr.word(60),
            inner,
            frozen: false,
        };
        let number = self.maps.len();
        let shared = self.shared_bytes(&record);
        // libbpf maps a ring: the consumer's page, the producer's, the data twice.
        let ring = match record.kind {
            map::RINGBUF | map::USER_RINGBUF => 8192 + 2 * u64::from(record.max_entries),
            _ => 0,
        };
        let file = token("map", number, shared.unwrap_or(ring))?;
        let (descriptor, kept) = match shared {
            Some(bytes) => (file.try_clone()?, MapFile::Shared(Shared::new(file, bytes))),
            None => (file, MapFile::Token(ring)),
        };
        self.maps.push(kept);
        self.transcript.maps.push(record);
        Ok(Reply::Descriptor(descriptor.into(), true))
    }

    /// The bytes of the memory that loader and programs share in a map, if they do.
    fn shared_bytes(&self, map: &MapRecord) -> Option<u64> {
        const PAGE: u64 = 4096;
        let values = u64::from(map.value_size.next_multiple_of(8)) * u64::from(map.max_entries);
        match map.kind {
            map::ARENA => Some(u64::from(map.max_entries) * PAGE),
            map::ARRAY if map.flags & map::MMAPABLE != 0 || self.is_section(map) => {
                Some(values.next_multiple_of(PAGE))
            }
            _ => None,
        }
    }

    /// Whether its value is a section of global variables.
    fn is_section(&self, map: &MapRecord) -> bool {
        let btf = map.btf.and_then(|btf| self.btfs[btf].as_ref());
        btf.is_some_and(|btf| matches!(btf.get(map.value_type).kind, Kind::Datasec(_)))
    }

    fn load_program(&mut self, call: &Call<'_>) -> Answer {
        let (attr, memory) = (call.attr, call.memory);
        let insns = memory.read(attr.wide(8), attr.word(4) as usize * Insn::BYTES)?;
        let license = memory.text(attr.wide(16)).unwrap_or_default();
        let btf = match call.object(attr.word(72)) {
            Some(Descriptor::Btf(btf)) => Some(btf),
            _ => None,
        };
        let records = |size: usize, at: usize, count: usize| -> io::Result<Vec<Vec<u32>>> {
            let size = attr.word(size) as usize;
            let bytes = memory.read(attr.wide(at), size * attr.word(count) as usize)?;
            let words = |record: &[u8]| {
                let words = record.chunks_exact(4);
                words
                    .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
                    .collect()
            };
            Ok(bytes.chunks_exact(size.max(16)).map(words).collect())
        };
        let functions = match (btf, attr.word(88)) {
            (Some(_), 1..) => {
                let size = attr.word(76) as usize;
                let bytes = memory.read(attr.wide(80), size * attr.word(88) as usize)?;
                let word = |at: usize| {
                    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
                };
                let starts = (0..bytes.len()).step_by(size.max(8));
                starts.map(|at| (word(at) as usize, word(at + 4))).collect()
            }
            _ => Vec::new(),
        };
        let lines = match (btf, attr.word(104)) {
            (Some(_), 1..) => records(92, 96, 104)?,
            _ => Vec::new(),
        };
        let kind = attr.word(0);
        let mut record = ProgramRecord {
            name: attr.name(48),
            kind,
            flags: attr.word(44),
            license: String::from_utf8_lossy(&license).into_owned(),
            target: self.target(kind, attr.word(44), attr.word(68), attr.word(108)),
            insns: Insn::decode_all(&insns),
            btf,
            functions,
            lines: lines
                .iter()
                .map(|words| LineRecord {
                    slot: words[0] as usize,
                    file: words[1],
                    text: words[2],
                    line: words[3] >> 10,
                })
                .collect(),
            ..ProgramRecord::default()
        };
        if let Err((error, said)) = self.resolve(call, &mut record) {
            let (log, room) = (attr.wide(32), attr.word(28) as usize);
            if log != 0 && room > said.len() {
                memory.write(log, format!("{said}\0").as_bytes())?;
            }
            return refuse(error);
        }
        let number = self.transcript.programs.len();
        self.transcript.programs.push(record);
        Ok(Reply::Descriptor(token("program", number, 0)?.into(), true))
    }

    /// Finds the maps and functions that a program refers to, and refuses what the kernel's verifier refuses where loaders
    /// try out what a kernel can.
    fn resolve(
        &self,
        call: &Call<'_>,
        record: &mut ProgramRecord,
    ) -> Result<(), (i32, &'static str)> {
        const DIRECT: &str = "direct value offset of this size is not allowed";
        let mut slot = 0;
        while slot < record.insns.len() {
            let insn = record.insns[slot];
            if insn.is_call() && insn.src == 2 {
                let name = match insn.off {
                    0 => self.types.get(insn.imm as u32).name.clone(),
                    _ => "a function of a module".to_owned(),
                };
                record.kernel.insert(slot, name);
            }
            // JITs of Linux 7.2 have no fetching bit operations on arenas.
            let is_fetching = insn.code & 0xe7 == 0xc3 && matches!(insn.imm, 0x41 | 0x51 | 0xa1);
            if is_fetching && record.btf.is_none() && record.kind == program::SYSCALL {
                return Err((
                    libc::EINVAL,
                    "BPF_ATOMIC on an arena pointer is not allowed",
                ));
            }
            if !insn.is_wide() {
                slot += 1;
                continue;
            }
            let high = record.insns.get(slot + 1).copied().unwrap_or_default();
            match insn.src {
                source::MAP_FD | source::MAP_VALUE | source::MAP_IDX | source::MAP_IDX_VALUE => {
                    let descriptor = match insn.src {
                        source::MAP_FD | source::MAP_VALUE => insn.imm,
                        _ => call.indexed(insn.imm).unwrap_or(-1),
                    };
                    let Some(Descriptor::Map(map)) = call.object(descriptor as u32) else {
                        return Err((libc::EBADF, "fd is not pointing to valid bpf_map"));
                    };
                    let of = &self.transcript.maps[map];
                    let is_value = matches!(insn.src, source::MAP_VALUE | source::MAP_IDX_VALUE);
                    if is_value && of.kind == map::ARRAY && high.imm as u32 >= of.value_size {
                        return Err((libc::EINVAL, DIRECT));
                    }
                    record.maps.insert(slot, map);
                }
                source::BTF_ID => {
                    let id = wide(insn, high) as u32;
                    record.kernel.insert(slot, self.types.get(id).name.clone());
                }
                _ => {}
            }
            slot += 2;
        }
        Ok(())
    }

    /// The section's name that leads to such a program.
    fn target(&self, kind: u32, flags: u32, attach_type: u32, attach_to: u32) -> String {
        let to = self.types.get(attach_to);
        match kind {
            program::STRUCT_OPS => {
                let member = self.types.members(attach_to).get(attach_type as usize);
                let name = member.map_or("", |member| member.name.as_str());
                let sleepable = flags & program::SLEEPABLE != 0;
                format!("struct_ops{}/{name}", if sleepable { ".s" } else { "" })
            }
            program::TRACING => {
                let (word, name) = match attach_type {
                    23 => ("tp_btf", to.name.trim_start_matches("btf_trace_")),
                    24 => ("fentry", to.name.as_str()),
                    25 => ("fexit", to.name.as_str()),
                    28 => ("iter", to.name.trim_start_matches("bpf_iter_")),
                    _ => ("tracing", to.name.as_str()),
                };
                format!("{word}/{name}")
            }
            program::SYSCALL => "syscall".to_owned(),
            program::TRACEPOINT => "tracepoint".to_owned(),
            program::KPROBE => "kprobe".to_owned(),
            _ => format!("type {kind}"),
        }
    }

    fn update(&mut self, call: &Call<'_>) -> Answer {
        let map = call.map(0)?;
        let record = &self.transcript.maps[map];
        if record.kind == map::STRUCT_OPS {
            return self.set_ops(call, map);
        }
        let key = call
            .memory
            .read(call.attr.wide(8), record.key_size as usize)?;
        let mut value = call
            .memory
            .read(call.attr.wide(16), self.value_bytes(record))?;
        if record.has_maps() {
            let descriptor = value.try_into().map_or(u32::MAX, u32::from_le_bytes);
            let Some(Descriptor::Map(inner)) = call.object(descriptor) else {
                return refuse(libc::EBADF);
            };
            value = (inner as u32).to_le_bytes().to_vec();
            if record.kind == map::ARRAY_OF_MAPS {
                return self.put_map(map, key, inner, call.attr.wide(24));
            }
        }
        let record = &self.transcript.maps[map];
        let elem = u64::from(record.value_size.next_multiple_of(8));
        let (max, frozen) = (record.max_entries, record.frozen);
        if frozen {
            return refuse(libc::EPERM);
        }
        if let MapFile::Shared(shared) = &mut self.maps[map] {
            let index = u32::from_le_bytes(key.try_into().unwrap_or([0xff; 4]));
            if index >= max {
                return refuse(libc::E2BIG);
            }
            use std::os::unix::fs::FileExt as _;
            shared.file.write_all_at(&value, u64::from(index) * elem)?;
            return OK;
        }
        let flags = call.attr.wide(24);
        self.gather()?;
        let step = Step::Update {
            map,
            key,
            value,
            flags,
        };
        self.transcript.steps.push(step);
        self.applied()
    }

    /// Puts a map into an array of maps. The world is not asked: it would be made again for each of thousands of maps.
    fn put_map(&mut self, map: usize, key: Vec<u8>, inner: usize, flags: u64) -> Answer {
        /// `BPF_F_INNER_MAP`: arrays of any length.
        const INNER_MAP: u32 = 1 << 12;
        let (record, of) = (&self.transcript.maps[map], &self.transcript.maps[inner]);
        let index = u32::from_le_bytes(key.as_slice().try_into().unwrap_or([0xff; 4]));
        let like = |it: &MapRecord| (it.kind, it.key_size, it.value_size, it.flags);
        let model = record.inner.map(|model| &self.transcript.maps[model]);
        let is_like = model.is_some_and(|model| {
            let any_length = of.kind != map::ARRAY || of.flags & INNER_MAP != 0;
            like(model) == like(of) && (any_length || model.max_entries == of.max_entries)
        });
        if flags != 0 || (index < record.max_entries && !is_like) {
            return refuse(libc::EINVAL);
        }
        if index >= record.max_entries {
            return refuse(libc::E2BIG);
        }
        self.transcript.steps.push(Step::Update {
            map,
            key,
            value: (inner as u32).to_le_bytes().to_vec(),
            flags,
        });
        OK
    }

    /// The number of the map at a key of a map of maps, as a loader gets to know it.
    fn map_at(&self, map: usize, key: &[u8]) -> Option<Vec<u8>> {
        let mut steps = self.transcript.steps.iter().rev();
        let found = steps.find_map(|step| match step {
            Step::Update {
                map: of,
                key: at,
                value,
                ..
            } if *of == map && at == key => Some(Some(value)),
            Step::Delete { map: of, key: at } if *of == map && at == key => Some(None),
            _ => None,
        });
        let number = found.flatten()?.as_slice().try_into().ok()?;
        Some(
            (u32::from_le_bytes(number) + FIRST_ID)
                .to_le_bytes()
                .to_vec(),
        )
    }

    /// Lets the world carry out the last step.
    fn applied(&mut self) -> Answer {
        match self
            .world
            .apply(&self.transcript)
            .map_err(RecordError::Program)?
        {
            0 => OK,
            error => {
                self.transcript.steps.pop();
                refuse(-error as i32)
            }
        }
    }

    /// Bytes of a value as the loader hands it over.
    fn value_bytes(&self, map: &MapRecord) -> usize {
        /// The kinds with a value for each CPU.
        const PER_CPU: [u32; 4] = [5, 6, 10, 21];
        match PER_CPU.contains(&map.kind) {
            true => map.value_size.next_multiple_of(8) as usize * self.nr_cpus,
            false => map.value_size as usize,
        }
    }

    fn lookup(&mut self, call: &Call<'_>) -> Answer {
        let map = call.map(0)?;
        let record = &self.transcript.maps[map];
        let key = call
            .memory
            .read(call.attr.wide(8), record.key_size as usize)?;
        let bytes = self.value_bytes(record);
        let elem = u64::from(record.value_size.next_multiple_of(8));
        let value = match &self.maps[map] {
            _ if record.has_maps() => self.map_at(map, &key),
            MapFile::Shared(shared) => {
                let index = u32::from_le_bytes(key.try_into().unwrap_or([0xff; 4]));
                use std::os::unix::fs::FileExt as _;
                let mut value = vec![0; bytes];
                let there = index < record.max_entries;
                if there {
                    shared
                        .file
                        .read_exact_at(&mut value, u64::from(index) * elem)?;
                }
                there.then_some(value)
            }
            MapFile::Token(_) => {
                // The first question may make the world, and constants must have their values by then.
                self.gather()?;
                let found = self.world.lookup(&self.transcript, map, &key);
                found.map_err(RecordError::Program)?
            }
        };
        match value {
            Some(value) => {
                call.memory.write(call.attr.wide(16), &value)?;
                OK
            }
            None => refuse(libc::ENOENT),
        }
    }

    fn delete(&mut self, call: &Call<'_>) -> Answer {
        let map = call.map(0)?;
        let key_size = self.transcript.maps[map].key_size as usize;
        let key = call.memory.read(call.attr.wide(8), key_size)?;
        self.gather()?;
        self.transcript.steps.push(Step::Delete { map, key });
        self.applied()
    }

    fn next_key(&mut self, call: &Call<'_>) -> Answer {
        let map = call.map(0)?;
        let key_size = self.transcript.maps[map].key_size as usize;
        let key = match call.attr.wide(8) {
            0 => None,
            at => Some(call.memory.read(at, key_size)?),
        };
        self.gather()?;
        let next = self.world.next_key(&self.transcript, map, key.as_deref());
        match next.map_err(RecordError::Program)? {
            Some(key) => {
                call.memory.write(call.attr.wide(16), &key)?;
                OK
            }
            None => refuse(libc::ENOENT),
        }
    }

    fn test_run(&mut self, call: &Call<'_>) -> Answer {
        let Some(Descriptor::Program(number)) = call.object(call.attr.word(0)) else {
            return refuse(libc::EBADF);
        };
        if self.transcript.programs[number].kind != program::SYSCALL {
            return refuse(libc::EOPNOTSUPP);
        }
        let (at, bytes) = (call.attr.wide(48), call.attr.word(40) as usize);
        let context = match at {
            0 => Vec::new(),
            at => call.memory.read(at, bytes)?,
        };
        self.gather()?;
        self.transcript.steps.push(Step::Run {
            program: number,
            context,
        });
        let (result, context) = self
            .world
            .run(&self.transcript)
            .map_err(RecordError::Program)?;
        if at != 0 {
            call.memory.write(at, &context)?;
        }
        call.memory.write(call.at + 4, &result.to_le_bytes())?;
        for map in 0..self.maps.len() {
            if let MapFile::Shared(shared) = &mut self.maps[map]
                && !self.transcript.maps[map].frozen
            {
                for (start, bytes) in self.world.contents(map) {
                    shared.show(start, &bytes)?;
                }
            }
        }
        OK
    }

    /// Notes what the loader has written to shared memory.
    ///
    /// # Errors
    /// If the host fails.
    pub fn gather(&mut self) -> io::Result<()> {
        for (map, memory) in self.maps.iter_mut().enumerate() {
            if let MapFile::Shared(shared) = memory {
                let patches = shared.changes()?;
                if !patches.is_empty() {
                    self.transcript.steps.push(Step::Contents { map, patches });
                }
            }
        }
        Ok(())
    }

    fn set_ops(&mut self, call: &Call<'_>, map: usize) -> Answer {
        let record = &self.transcript.maps[map];
        let (name, flags) = (record.name.clone(), record.flags);
        let value = call
            .memory
            .read(call.attr.wide(16), record.value_size as usize)?;
        let is_cid = match self.types.get(record.kernel_type).name.as_str() {
            "bpf_struct_ops_sched_ext_ops" => false,
            "bpf_struct_ops_sched_ext_ops_cid" => true,
            _ => return refuse(libc::EINVAL),
        };
        let members = self.types.members(record.kernel_type);
        let Some(data) = members.iter().find(|member| member.name == "data") else {
            return refuse(libc::EINVAL);
        };
        let start = data.bit_offset as usize / 8;
        let bytes = value.get(start..start + self.types.size(data.type_id) as usize);
        let Some(bytes) = bytes else {
            return refuse(libc::EINVAL);
        };
        let mut bytes = bytes.to_vec();
        let mut programs = BTreeMap::new();
        for member in self.types.members(data.type_id) {
            let is_function = match self.types.get(self.types.plain(member.type_id)).kind {
                Kind::Ptr(to) => matches!(self.types.get(to).kind, Kind::FuncProto { .. }),
                _ => false,
            };
            let at = member.bit_offset as usize / 8;
            if is_function && bytes[at..at + 8] != [0; 8] {
                let descriptor =
                    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
                let Some(Descriptor::Program(number)) = call.object(descriptor) else {
                    return refuse(libc::EINVAL);
                };
                programs.insert(at, number);
                bytes[at..at + 8].fill(0);
            }
        }
        self.transcript.ops = Some(OpsRecord {
            name,
            bytes,
            is_cid,
            programs,
        });
        // Without a link the table is in force at once.
        self.attached = flags & map::LINK == 0;
        OK
    }

    /// Notes that a program is attached to its target; its descriptor is at a place of the attributes.
    fn attach(&mut self, call: &Call<'_>, at: usize) {
        if let Some(Descriptor::Program(number)) = call.object(call.attr.word(at)) {
            self.transcript.programs[number].attached = true;
        }
    }

    fn create_link(&mut self, call: &Call<'_>) -> Answer {
        /// `BPF_PERF_EVENT`, which loaders try on no event.
        const PERF_EVENT: u32 = 41;
        if let Some(Descriptor::Map(map)) = call.object(call.attr.word(0))
            && self.transcript.maps[map].kind == map::STRUCT_OPS
        {
            self.attached = self.transcript.ops.is_some();
        } else if call.attr.word(8) == PERF_EVENT && call.attr.word(4) as i32 == -1 {
            return refuse(libc::EBADF);
        } else {
            self.attach(call, 0);
        }
        Ok(Reply::Descriptor(token("link", 0, 0)?.into(), true))
    }

    fn info(&mut self, call: &Call<'_>) -> Answer {
        let (length, at) = (call.attr.word(4) as usize, call.attr.wide(8));
        let mut info = Info(call.memory.read(at, length)?);
        match call.object(call.attr.word(0)) {
            Some(Descriptor::Map(number)) => {
                let map = &self.transcript.maps[number];
                info.0.fill(0);
                for (at, value) in [
                    (0, map.kind),
                    (4, number as u32 + FIRST_ID),
                    (8, map.key_size),
                    (12, map.value_size),
                    (16, map.max_entries),
                    (20, map.flags),
                    (64, map.btf.map_or(0, |btf| btf as u32 + FIRST_ID)),
                    (72, map.value_type),
                ] {
                    info.word(at, value);
                }
                info.put(24, map.name.as_bytes());
                info.put(80, &map.extra.to_le_bytes());
            }
            Some(Descriptor::Program(number)) => {
                let program = &self.transcript.programs[number];
                info.0.fill(0);
                info.word(0, program.kind);
                info.word(4, number as u32 + FIRST_ID);
                info.put(64, program.name.as_bytes());
            }
            Some(Descriptor::Btf(number)) => info.word(12, number as u32 + FIRST_ID),
            Some(Descriptor::Other) => {
                info.0.fill(0);
                info.word(4, FIRST_ID);
            }
            None => return refuse(libc::EBADF),
        }
        call.memory.write(at, &info.0)?;
        OK
    }
}

impl MapFile {
    /// A descriptor of the map.
    fn file(&self, number: usize) -> io::Result<File> {
        match self {
            MapFile::Shared(shared) => shared.file.try_clone(),
            MapFile::Token(bytes) => token("map", number, *bytes),
        }
    }
}

/// A command with its attributes.
struct Call<'c> {
    asked: &'c Asked,
    memory: &'c Memory,
    attr: &'c Attr,
    /// Where the attributes lie.
    at: u64,
}

impl Call<'_> {
    fn object(&self, descriptor: u32) -> Option<Descriptor> {
        let name = self.asked.descriptor_name(i64::from(descriptor as i32))?;
        Descriptor::of(&name)
    }

    /// The map of a descriptor among the attributes.
    fn map(&self, at: usize) -> Result<usize, Failure> {
        match self.object(self.attr.word(at)) {
            Some(Descriptor::Map(map)) => Ok(map),
            _ => Err(Failure::Errno(libc::EBADF)),
        }
    }

    /// A descriptor of the program's own table of descriptors.
    fn indexed(&self, index: i32) -> Option<i32> {
        let at = self.attr.wide(120) + u64::try_from(index).ok()? * 4;
        let bytes = self.memory.read(at, 4).ok()?;
        Some(i32::from_le_bytes(bytes.try_into().ok()?))
    }
}
