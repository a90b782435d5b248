//! Policies as objects: the instructions that a kernel would load, run by the virtual kernel (crates/bpf).

mod calls;
pub mod decisions;
pub mod expression;
pub mod fields;
mod image;
mod masks;
mod read;
mod recording;
mod types;
mod words;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use schedlab_bpf::btf::{Btf, essential};
use schedlab_bpf::core_relo;
use schedlab_bpf::elf::{Elf, Link};
use schedlab_bpf::link::{KernelSymbols, Linked, Placement, link};
use schedlab_bpf::program::{Hooks, HostFn};
use schedlab_bpf::seen::Seen;
use schedlab_bpf::translate::{Code, translate};
use schedlab_engine::KernelVersion;
use schedlab_machine::LineRef;

pub use calls::{kernel_types, missing_functions};
pub use image::{Beside, Image, Sized};
pub use read::{Facts, read, recorded, step_map};
pub use recording::{Places, Recording};
pub use types::KernelTypes;
pub use words::Word;

use crate::kconfig;
use crate::known::Known;
use decisions::Checked;
use fields::Of;

/// Native code lies here in an object's own addresses: behind all of its data.
pub const CODE: u64 = 1 << 40;

/// The data of one run, which code reaches through its first argument.
#[repr(C)]
pub struct Run {
    /// Where its data begin.
    pub data: *mut u8,
    /// Where its arena begins; 0 without one.
    pub arena: u64,
    /// Instructions that were executed and not yet charged.
    pub executed: u64,
    /// The cost of one.
    pub instruction_ps: u64,
    /// The cost of accesses that was not yet charged.
    pub owed_ps: u64,
    /// The memory that the op which runs has accessed since it began or a function of the kernel returned.
    pub seen: Seen,
    /// Copies of words that no iterator uses.
    pub free_words: Vec<*mut u64>,
    /// The lines of places that it accessed; none of a place that is not modelled. A native build has no use for them.
    lines: Option<Known<Option<ObjectLine>, PLACES, true>>,
}

/// A line of the modelled caches.
#[derive(Clone, Copy)]
pub struct ObjectLine {
    pub number: u32,
    pub line: LineRef,
}

/// So many that the words of hundreds of tasks and their values are among them.
const PLACES: usize = 16_384;

impl Run {
    pub fn new(data: *mut u8, arena: u64, instruction_ps: u64) -> Run {
        Run {
            data,
            arena,
            executed: 0,
            instruction_ps,
            owed_ps: 0,
            seen: Seen::default(),
            free_words: Vec::new(),
            lines: None,
        }
    }

    /// Forgets the lines of places: they belong to one model of caches, and another one follows.
    pub fn forget_lines(&mut self) {
        self.lines = None;
    }

    /// Returns the line of a place, `Some(None)` for a place that is not modelled, `None` where that is not kept.
    #[inline(always)]
    pub fn line_of(&self, place: usize) -> Option<Option<ObjectLine>> {
        self.lines.as_ref()?.get(place)
    }

    /// Returns the lines of the places that it accessed.
    pub fn lines(&mut self) -> &mut Known<Option<ObjectLine>, PLACES, true> {
        self.lines.get_or_insert_with(Known::new)
    }
}

/// Instructions of one op beyond which it is taken for a loop without end.
pub const OP_INSTRUCTIONS_MAX: u64 = 1 << 30;

/// A policy as an object.
#[derive(Debug)]
pub struct Program {
    pub elf: Elf,
    types: Arc<KernelTypes>,
    pub placement: Placement,
    /// Enumerators whose values a loader puts into variables (`SCX_ENUM_INIT()`), by address.
    enumerators: Vec<(u64, String)>,
    /// Variables into which a loader puts the number of CPUs: addresses and bytes.
    cpu_counts: Vec<(u64, u32)>,
    /// Functions of ops, by their place in `struct sched_ext_ops` of the virtual kernel.
    pub ops: Vec<(usize, usize)>,
    /// The rest of the table.
    table: Vec<u8>,
    /// It is a `struct sched_ext_ops_cid`.
    pub is_cid: bool,
    /// The work of a loader.
    pub decisions: Checked,
    /// Programs that run where a scheduler is attached, before `ops.init()`: they hang on `bpf_scx_reg()`.
    attach: Vec<usize>,
    /// Of one that its own loader has loaded: what comes before a run.
    pub recording: Option<Recording>,
    /// Functions that run before the scheduler is attached, and are no ops.
    before: Vec<usize>,
    translated: [OnceLock<Result<Arc<Translated>, String>>; 2],
}

/// Native code for one version of the kernel. All runs share it.
pub struct Translated {
    pub linked: Linked,
    pub code: Code,
}

impl std::fmt::Debug for Translated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.code.fmt(f)
    }
}

/// Describes a BPF program beside the ops. The virtual kernel calls none of these.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOut {
    /// Names the function.
    pub program: String,
    /// Names its section.
    pub section: String,
    /// Is `file:line` of the function, or empty if the object does not say it.
    pub place: String,
}

impl Program {
    /// The code for a version, translated once.
    pub fn translated(&self, version: KernelVersion) -> Result<Arc<Translated>, String> {
        let index = usize::from(version >= KernelVersion::V7_2);
        let translated = self.translated[index].get_or_init(|| {
            if self.is_cid && version < KernelVersion::V7_2 {
                let name = version.name();
                return Err(format!(
                    "its table is a `struct {CID_OPS}`, which is not in Linux {name}"
                ));
            }
            let kernel = VirtualKernel {
                types: &self.types,
                version,
                is_cid: self.is_cid,
            };
            let ops = self.ops.iter().map(|(_, function)| *function);
            let called = self.decisions.calls.iter().map(|call| call.function);
            let before = self.attach.iter().chain(&self.before).copied();
            let roots: Vec<usize> = ops.chain(called).chain(before).collect();
            let linked = link(&self.elf, &roots, &kernel).map_err(|error| error.to_string())?;
            let code = translate(&linked.unit, self.types.functions.layout)
                .map_err(|error| error.to_string())?;
            Ok(Arc::new(Translated { linked, code }))
        });
        translated.clone()
    }

    /// The value of an enumerator in a version; 0 where it has none.
    fn enumerator(&self, version: KernelVersion, name: &str) -> u64 {
        self.types.of(version).enumerator(name).unwrap_or(0) as u64
    }

    /// The code that is there of any version, with an address in it.
    fn at(&self, offset: u64) -> Option<(usize, usize)> {
        let address = offset.checked_sub(CODE)?;
        let mut all = self
            .translated
            .iter()
            .filter_map(|it| it.get()?.as_ref().ok());
        all.find_map(|it| {
            let (function, insn) = it.code.place(address as usize)?;
            Some((it.linked.origins[function], insn))
        })
    }

    /// File, and `file:line (function)`, of a place in the code.
    pub fn frame(&self, offset: u64) -> Option<(String, String)> {
        let (function, insn) = self.at(offset)?;
        let name = &self.elf.functions[function].name;
        Some(match self.elf.line(function, insn) {
            Some(line) => {
                let file = line.file.trim_start_matches("./").to_owned();
                let text = format!("{file}:{} ({name}, instruction {insn})", line.line);
                (file, text)
            }
            None => (String::new(), format!("{name}, instruction {insn}")),
        })
    }

    /// The programs beside the ops: the virtual kernel calls none of these.
    pub fn left_out(&self) -> Vec<LeftOut> {
        let functions = self.elf.functions.iter().enumerate();
        let called = |index| {
            let mut calls = self.decisions.calls.iter();
            self.attach.contains(&index)
                || self.before.contains(&index)
                || calls.any(|call| call.function == index)
        };
        let beside = functions.filter(|(index, it)| {
            !it.section.starts_with(['.', '?'])
                && !it.section.starts_with("struct_ops")
                && !called(*index)
        });
        let told = beside.map(|(index, it)| LeftOut {
            program: it.name.clone(),
            section: it.section.clone(),
            place: match self.elf.line(index, 0) {
                Some(line) => format!("{}:{}", line.file.trim_start_matches("./"), line.line),
                None => String::new(),
            },
        });
        told.collect()
    }

    /// Whether an instruction of it reaches the `cpus_mask` of a task or a part of it.
    pub fn asks_for_mask(&self) -> bool {
        let strangers = self.elf.strangers.iter();
        let mut insns = strangers.flat_map(|of| &self.elf.functions[*of].insns);
        insns.any(|insn| {
            fields::MASK.contains(&insn.off.into()) || fields::MASK.contains(&insn.imm.into())
        }) || self.asks_for("task_struct", "cpus_mask")
    }

    /// Whether an instruction of it reaches a field or a part of it.
    fn asks_for(&self, structure: &str, path: &str) -> bool {
        let sections = self.elf.info.values();
        let mut relos = sections.flat_map(|section| section.relos.values());
        relos.any(|relo| {
            let place = core_relo::place(&self.elf.btf, relo);
            place.is_some_and(|(of, found)| {
                let first = found.split(['.', '[']).next();
                of == structure && first == Some(path)
            })
        })
    }

    /// Whether an instruction of it may read a field that changes by itself.
    pub fn reads_facts(&self) -> bool {
        if !self.elf.strangers.is_empty() {
            return true;
        }
        let sections = self.elf.info.values();
        let mut relos = sections.flat_map(|section| section.relos.values());
        relos.any(|relo| {
            let place = core_relo::place(&self.elf.btf, relo);
            place.is_some_and(|(of, path)| fields::live(&of, &path).is_some())
        })
    }

    /// Whether the function at a place is a sleepable op.
    pub fn is_sleepable(&self, offset: u64) -> bool {
        self.at(offset).is_some_and(|(function, _)| {
            self.elf.functions[function]
                .section
                .starts_with("struct_ops.s")
        })
    }
}

/// The table of ops of a scheduler that gets cids.
const CID_OPS: &str = "sched_ext_ops_cid";

struct VirtualKernel<'t> {
    types: &'t KernelTypes,
    version: KernelVersion,
    /// Its scheduler gets cids.
    is_cid: bool,
}

impl KernelSymbols for VirtualKernel<'_> {
    fn types(&self) -> &Btf {
        self.types.of(self.version)
    }

    fn kfunc(&self, name: &str) -> Option<HostFn> {
        (self.types.functions.kfunc)(self.version, name)
    }

    fn retired(&self, name: &str) -> Option<HostFn> {
        (self.types.functions.retired)(self.version, name)
    }

    fn refused(&self, name: &str, section: &str) -> Option<String> {
        let is_refused = self.is_cid
            && (self.types.functions.is_of_cpu_form)(name)
            && !section.starts_with("syscall");
        is_refused.then(|| {
            format!("kfunc {name} is of the cpu form, and the kernel's verifier refuses it in a `struct {CID_OPS}`")
        })
    }

    fn helper(&self, number: i32) -> Result<HostFn, String> {
        (self.types.functions.helper)(number)
    }

    fn kconfig(&self, name: &str) -> bool {
        kconfig::is_known(name)
    }

    fn hooks(&self) -> Hooks {
        (self.types.functions.hooks)()
    }

    fn live(&self, structure: &str, path: &str) -> Option<u32> {
        fields::live(structure, path).map(|of| of as u32)
    }

    fn live_places(&self, elf: &Elf) -> Vec<(Range<i64>, u32)> {
        /// Where pointers to run queues come from.
        const RUN_QUEUES: [&str; 3] = ["runqueues", "scx_bpf_cpu_rq", "scx_bpf_locked_rq"];
        let links = elf.functions.iter().flat_map(|it| it.links.values());
        let mut externs = links.filter_map(|link| match link {
            Link::Extern(name) => Some(essential(name)),
            _ => None,
        });
        let has_rq = externs.any(|name| RUN_QUEUES.contains(&name));
        let places = fields::live_places().into_iter();
        let places = places.filter(|(_, of)| has_rq || *of != Of::RunQueue);
        places.map(|(place, of)| (place, of as u32)).collect()
    }

    fn variable(&self, name: &str) -> Option<u64> {
        (self.types.functions.per_cpu_variable)(name)
    }
}
