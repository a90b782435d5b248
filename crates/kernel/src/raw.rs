//! Records of the kernel's tracepoints, as `bpf/measure.bpf.c` writes them into its buffer.

use schedlab_trace::PrevState;

/// A record (`struct event` of `bpf/measure.h`). CPUs and process ids are the kernel's, times those of CLOCK_MONOTONIC.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawEvent {
    pub at_ns: u64,
    /// The kind of event.
    pub kind: RawKind,
    /// The CPU it happened on.
    pub cpu: u32,
    /// Switch: the previous task, 0 = none of the workload's. Fork: the child. Otherwise the task.
    pub pid: u32,
    /// Switch: the next task, 0 = none of the workload's. Migrate and interrupt: the new CPU. Wakeup: its CPU. Fork: the
    /// parent.
    pub other: u32,
    /// Switch: how the previous task left.
    pub left_as: LeftAs,
    /// Migrate: the old CPU. Wakeup: where somebody decided so.
    pub from: u32,
    /// Fork: the child's name. Switch: the next task's. Otherwise the task's.
    pub comm: [u8; 16],
    /// Wakeup: when somebody decided so.
    pub since_ns: u64,
    /// The priority of the task whose name it is, as in the kernel: -1 to 139.
    pub prio: u32,
    /// Whether that one is in `SCHED_IDLE`.
    pub idle_policy: bool,
    /// Allowed: a bit for each CPU, the lowest first.
    pub allowed: Option<Box<[u64]>>,
}

/// `enum event_kind` of `measure.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum RawKind {
    Switch,
    Wakeup,
    WakeupNew,
    Migrate,
    Fork,
    Exit,
    Exec,
    Begin,
    Starter,
    Prio,
    Ipi,
    Allowed,
}

/// `enum left_as` of `measure.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum LeftAs {
    Blocked,
    Exited,
    Preempted,
    Yielded,
}

impl From<LeftAs> for PrevState {
    fn from(left: LeftAs) -> Self {
        match left {
            LeftAs::Blocked => PrevState::Blocked,
            LeftAs::Exited => PrevState::Exited,
            LeftAs::Preempted => PrevState::Preempted,
            LeftAs::Yielded => PrevState::Yielded,
        }
    }
}

/// `FLAG_IDLE_POLICY` of `enum event_flags`.
const FLAG_IDLE_POLICY: u32 = 1;

impl RawEvent {
    /// Bytes of `struct event`, after which `struct allowed_event` has its mask.
    const SIZE: usize = 64;

    /// Reads a record; `None` if it is none that this program knows.
    pub(crate) fn parse(bytes: &[u8]) -> Option<RawEvent> {
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        let long = |at: usize| -> Option<u64> {
            Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
        };
        let kind = match word(8)? {
            1 => RawKind::Switch,
            2 => RawKind::Wakeup,
            3 => RawKind::WakeupNew,
            4 => RawKind::Migrate,
            5 => RawKind::Fork,
            6 => RawKind::Exit,
            7 => RawKind::Exec,
            8 => RawKind::Begin,
            9 => RawKind::Starter,
            10 => RawKind::Prio,
            11 => RawKind::Ipi,
            12 => RawKind::Allowed,
            _ => return None,
        };
        let mask = bytes.get(Self::SIZE..)?.chunks_exact(8);
        let mask = mask.map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
        Some(RawEvent {
            at_ns: long(0)?,
            kind,
            cpu: word(12)?,
            pid: word(16)?,
            other: word(20)?,
            left_as: match word(24)? {
                0 => LeftAs::Blocked,
                1 => LeftAs::Exited,
                2 => LeftAs::Preempted,
                3 => LeftAs::Yielded,
                _ => return None,
            },
            from: word(28)?,
            comm: bytes[32..48].try_into().ok()?,
            since_ns: long(48)?,
            prio: word(56)?,
            idle_policy: word(60)? & FLAG_IDLE_POLICY != 0,
            allowed: (kind == RawKind::Allowed).then(|| mask.collect()),
        })
    }

    /// The name in the record.
    pub fn comm(&self) -> String {
        let end = self.comm.iter().position(|b| *b == 0).unwrap_or(16);
        String::from_utf8_lossy(&self.comm[..end]).into_owned()
    }
}
