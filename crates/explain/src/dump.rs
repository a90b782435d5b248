//! The facts that a text holds about an ejection: the kernel's reason and message, and the state of CPUs and tasks in
//! its debug dump.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// A task as the kernel's messages name it, `comm[pid]`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Label {
    pub comm: String,
    pub pid: i32,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.comm, self.pid)
    }
}

/// `enum scx_exit_kind`, by the kernel's text for it (`scx_exit_reason()`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Unreg,
    UnregBpf,
    UnregKern,
    Sysrq,
    Parent,
    Error,
    ErrorBpf,
    ErrorStall,
    /// The simulator's own: policy code did what the verifier refuses.
    Fault,
    /// No ejection: a user asked for a dump (SysRq-D).
    Asked,
}

impl Kind {
    /// Every kind with its number and the kernel's text, as of Linux 7.2.
    pub const ALL: [(Kind, u32, &str); 9] = [
        (Kind::Unreg, 64, "unregistered from user space"),
        (Kind::UnregBpf, 65, "unregistered from BPF"),
        (Kind::UnregKern, 66, "unregistered from the main kernel"),
        (Kind::Sysrq, 67, "disabled by sysrq-S"),
        (Kind::Parent, 68, "parent exiting"),
        (Kind::Error, 1024, "runtime error"),
        (Kind::ErrorBpf, 1025, "scx_bpf_error"),
        (Kind::ErrorStall, 1026, "runnable task stall"),
        (Kind::Fault, 4096, "fault in policy code"),
    ];

    pub fn of_reason(reason: &str) -> Option<Kind> {
        let known = Self::ALL.iter().find(|(.., text)| *text == reason);
        known.map(|(kind, ..)| *kind)
    }

    pub fn of_number(number: u32) -> Option<Kind> {
        let known = Self::ALL.iter().find(|(_, known, _)| *known == number);
        known.map(|(kind, ..)| *kind)
    }

    /// Returns the kernel's text for it.
    pub fn reason(self) -> &'static str {
        let known = Self::ALL.iter().find(|(kind, ..)| *kind == self);
        known.map_or("debug dump", |(.., text)| *text)
    }
}

/// One ejection, as far as a text reports it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Ejection {
    pub scheduler: Option<String>,
    pub kind: Option<Kind>,
    pub message: String,
    /// The kernel's log told it by a `disabled` line, and what stands before that line's words: a time.
    pub logged: Option<String>,
    /// Where the policy's call is (`in ops.enqueue at mine.bpf.c:12` of the simulator, `at mine.bpf.c:12` of a kernel).
    pub place: Option<String>,
    pub exit_code: Option<i64>,
    /// The current task where the dump was made.
    pub triggered_by: Option<Label>,
    pub exit_cpu: Option<u32>,
    /// Functions of the kernel and of the scheduler that led to the exit, the innermost first.
    pub backtrace: Vec<String>,
    pub cpus: Vec<CpuState>,
    pub events: BTreeMap<String, u64>,
    /// The heading of the CPUs' states was there.
    pub has_states: bool,
    /// Something of the CPUs' states is missing: `exit_dump_len` was too small, or the text was cut.
    pub is_cut: bool,
    /// The text after the CPUs' states was there, so that they are whole unless `is_cut`.
    pub has_end: bool,
    /// CPUs that the kernel's own watchdogs found stuck, with the seconds.
    pub lockups: Vec<(u32, u64)>,
    /// The kernel reported a stall of RCU.
    pub rcu_stall: bool,
}

/// One CPU (`scx_dump_cpu()`).
#[derive(Clone, PartialEq, Debug)]
pub struct CpuState {
    pub cpu: u32,
    pub nr_running: u32,
    /// `ops.cpu_release()` came, and `ops.cpu_acquire()` not yet.
    pub released: bool,
    pub curr: Option<Label>,
    pub class: Class,
    pub tasks: Vec<TaskState>,
}

/// A scheduling class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    Stop,
    Deadline,
    Realtime,
    Fair,
    Ext,
    Idle,
    Unknown,
}

impl Class {
    pub fn parse(name: &str) -> Class {
        match name {
            "stop_sched_class" => Class::Stop,
            "dl_sched_class" => Class::Deadline,
            "rt_sched_class" => Class::Realtime,
            "fair_sched_class" => Class::Fair,
            "ext_sched_class" => Class::Ext,
            "idle_sched_class" => Class::Idle,
            _ => Class::Unknown,
        }
    }

    /// Its tasks go before sched_ext's, and may stay: a stopper moves a task and is gone.
    pub fn is_above_ext(self) -> bool {
        matches!(self, Class::Deadline | Class::Realtime | Class::Fair)
    }

    /// Returns the name of its tasks.
    pub fn tasks(self) -> &'static str {
        match self {
            Class::Stop => "stop-class",
            Class::Deadline => "deadline",
            Class::Realtime => "real-time",
            Class::Fair => "fair-class",
            Class::Ext => "sched_ext",
            Class::Idle => "idle",
            Class::Unknown => "unknown",
        }
    }
}

/// One task (`scx_dump_task()`).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TaskState {
    pub comm: String,
    pub pid: i32,
    /// It is the one that runs.
    pub is_curr: bool,
    /// For how long it has been runnable; running tasks since they last became it.
    pub waited_ms: i64,
    pub flags: Option<u32>,
    pub ops_state: Option<OpsState>,
    pub sticky_cpu: i64,
    pub holding_cpu: i64,
    pub dsq: Option<Dsq>,
    pub slice: Option<u64>,
    /// CPUs on which it may run, and of how many.
    pub cpus: Option<Mask>,
    pub migration_disabled: bool,
    pub backtrace: Vec<String>,
}

impl TaskState {
    pub fn label(&self) -> Label {
        Label {
            comm: self.comm.clone(),
            pid: self.pid,
        }
    }
}

/// The owner of a task (`SCX_OPSS_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpsState {
    None,
    Queueing,
    Queued,
    Dispatching,
}

impl OpsState {
    pub fn of_number(number: u32) -> Option<OpsState> {
        Some(match number {
            0 => OpsState::None,
            1 => OpsState::Queueing,
            2 => OpsState::Queued,
            3 => OpsState::Dispatching,
            _ => return None,
        })
    }
}

/// A dispatch queue (`enum scx_dsq_id_flags`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dsq {
    /// `dsq_id=(n/a)`.
    None,
    Global,
    /// The local one of the CPU under which the task is listed.
    Local,
    LocalOn(u32),
    Bypass,
    User(u64),
}

impl Dsq {
    pub fn of_id(id: u64) -> Dsq {
        const BUILTIN: u64 = 1 << 63;
        const LOCAL_ON: u64 = 1 << 62;
        match id {
            _ if id & BUILTIN == 0 => Dsq::User(id),
            _ if id & LOCAL_ON != 0 => Dsq::LocalOn(id as u32),
            _ => match id & !BUILTIN {
                1 => Dsq::Global,
                2 => Dsq::Local,
                3 => Dsq::Bypass,
                _ => Dsq::None,
            },
        }
    }
}

/// A set of CPUs, as `%*pb` prints it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mask {
    pub cpus: Vec<u32>,
    /// How many CPUs its digits have room for.
    pub room: u32,
}

impl Mask {
    /// More than any machine has; who writes more digits is no kernel.
    const DIGITS_MAX: usize = 1 << 14;

    pub fn parse(text: &str) -> Option<Mask> {
        let digits = text.bytes().rev().filter(|digit| *digit != b',');
        let mut cpus = Vec::new();
        let mut room = 0;
        for digit in digits.take(Self::DIGITS_MAX) {
            let bits = char::from(digit).to_digit(16)?;
            cpus.extend(
                (0..4)
                    .filter(|bit| bits >> bit & 1 != 0)
                    .map(|bit| room + bit),
            );
            room += 4;
        }
        (room > 0).then_some(Mask { cpus, room })
    }

    pub fn allows(&self, cpu: u32) -> bool {
        self.cpus.binary_search(&cpu).is_ok()
    }

    /// Returns the CPUs as people write them: `0-3,8`.
    pub fn list(&self) -> String {
        let mut parts: Vec<(u32, u32)> = Vec::new();
        for &cpu in &self.cpus {
            match parts.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => parts.push((cpu, cpu)),
            }
        }
        let text = |(first, last): (u32, u32)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        let parts: Vec<String> = parts.into_iter().map(text).collect();
        parts.join(",")
    }

    /// Returns them with their noun: `CPU 3`, `CPUs 0-2`, `no CPU`.
    pub fn words(&self) -> String {
        match self.cpus.len() {
            0 => "no CPU".to_owned(),
            1 => format!("CPU {}", self.list()),
            _ => format!("CPUs {}", self.list()),
        }
    }
}

impl Ejection {
    /// Returns whether each CPU that is not listed is known to have been idle.
    pub fn is_whole(&self) -> bool {
        self.has_states && self.has_end && !self.is_cut
    }

    pub fn cpu(&self, cpu: u32) -> Option<&CpuState> {
        self.cpus.iter().find(|known| known.cpu == cpu)
    }

    /// Returns a task and the CPU under which it is listed. Another thread of the same name is another task.
    pub fn task(&self, label: &Label) -> Option<(&CpuState, &TaskState)> {
        self.tasks().find(|(_, task)| task.pid == label.pid)
    }

    pub fn tasks(&self) -> impl Iterator<Item = (&CpuState, &TaskState)> {
        let of = |cpu| move |task| (cpu, task);
        self.cpus
            .iter()
            .flat_map(move |cpu| cpu.tasks.iter().map(of(cpu)))
    }

    /// Returns the op of the scheduler in which it happened, by the kernel's trampoline of that op, or by the
    /// message.
    pub fn op(&self) -> Option<String> {
        let frame = |frame: &String| Some(frame.strip_prefix("bpf__sched_ext_ops_")?.to_owned());
        self.backtrace.iter().find_map(frame)
    }

    /// Returns the scheduler's function in which it happened: `bpf_prog_<hash>_<name>`.
    pub fn function(&self) -> Option<&str> {
        let name = |frame: &'_ str| -> Option<usize> {
            let rest = frame.strip_prefix("bpf_prog_")?;
            let (hash, name) = rest.split_once('_')?;
            let is_hash = hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit());
            (is_hash && !name.is_empty()).then(|| frame.len() - name.len())
        };
        self.backtrace
            .iter()
            .find_map(|frame| Some(&frame[name(frame)?..]))
    }

    /// Returns the kfunc in which it happened.
    pub fn kfunc(&self) -> Option<&str> {
        let is_kfunc = |frame: &&String| frame.starts_with("scx_bpf_");
        self.backtrace.iter().find(is_kfunc).map(String::as_str)
    }
}
