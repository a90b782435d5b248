//! Raw tracepoints of the scheduler as events.

use crate::formats::{Format, Raw};
use crate::{Call, Comm, Context, Left, Tid, What};

/// `TRACE_FLAG_HARDIRQ`, `TRACE_FLAG_SOFTIRQ`, `TRACE_FLAG_NMI` (include/linux/trace_events.h).
const HARD: i64 = 0x08 | 0x40;
const SOFT: i64 = 0x10;
/// `TIMER_ABSTIME`.
const ABSOLUTE: u64 = 1;

/// A tracepoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Point {
    Switch,
    Waking,
    /// It comes later than `sched_waking`, and not always on the waker's CPU.
    Wakeup,
    New,
    Fork,
    Exec,
    Migrate,
    Enter,
    Leave,
    Other,
}

impl Point {
    /// From its name, with or without its subsystem before it.
    pub fn named(name: &str) -> Point {
        match name.rsplit(':').next().unwrap_or_default().trim() {
            "sched_switch" => Point::Switch,
            "sched_waking" => Point::Waking,
            "sched_wakeup" => Point::Wakeup,
            "sched_wakeup_new" => Point::New,
            "sched_process_fork" => Point::Fork,
            "sched_process_exec" => Point::Exec,
            "sched_migrate_task" => Point::Migrate,
            "sys_enter" => Point::Enter,
            "sys_exit" => Point::Leave,
            _ => Point::Other,
        }
    }
}

/// The facts that a tracepoint's bytes tell.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Told {
    pub what: What,
    pub current: Option<Tid>,
    pub context: Context,
}

/// Decodes the tracepoints of one recording.
pub(crate) struct Decoder {
    machine: String,
    has_waking: bool,
}

impl Decoder {
    /// For a machine, as `uname -m` names it.
    pub fn new(machine: &str) -> Decoder {
        Decoder {
            machine: machine.to_owned(),
            has_waking: false,
        }
    }

    /// Decodes a tracepoint's bytes: `None` if they do not fit its format, `Some(None)` if nothing is inferred from them.
    pub fn decode(&mut self, point: Point, format: &Format, raw: Raw<'_>) -> Option<Option<Told>> {
        self.has_waking |= point == Point::Waking;
        let is_repeated = point == Point::Wakeup && self.has_waking;
        // Kernels before 4.3 tell wakeups of tasks that were awake, too.
        let is_failed = point == Point::Wakeup && format.number(raw, "success") == Some(0);
        if point == Point::Other || is_repeated || is_failed {
            return Some(None);
        }
        Some(Some(Told {
            what: what(point, format, raw, &self.machine)?,
            current: format.number(raw, "common_pid").map(tid),
            context: context(format.number(raw, "common_flags")),
        }))
    }
}

/// From `common_flags`.
pub(crate) fn context(flags: Option<i64>) -> Context {
    match flags {
        None => Context::Unknown,
        Some(flags) if flags & HARD != 0 => Context::Hard,
        Some(flags) if flags & SOFT != 0 => Context::Soft,
        Some(_) => Context::Task,
    }
}

fn tid(number: i64) -> Tid {
    Tid::try_from(number).unwrap_or(-1)
}

/// Decodes a tracepoint's raw bytes; `None` if they do not fit its format.
fn what(point: Point, format: &Format, raw: Raw<'_>, machine: &str) -> Option<What> {
    let number = |name: &str| format.number(raw, name);
    let task = |name: &str| number(name).map(tid);
    let comm = |name: &str| Some(Comm::new(format.text(raw, name)?));
    let priority = |name: &str| number(name).and_then(|number| i32::try_from(number).ok());
    Some(match point {
        Point::Switch => What::Switch {
            prev: task("prev_pid")?,
            prev_comm: comm("prev_comm")?,
            prev_prio: priority("prev_prio")?,
            left: match format.has_old_states {
                true => old_left(number("prev_state")?),
                false => left(number("prev_state")?),
            },
            next: task("next_pid")?,
            next_comm: comm("next_comm")?,
            next_prio: priority("next_prio")?,
        },
        Point::Waking | Point::Wakeup => What::Waking {
            task: task("pid")?,
            comm: comm("comm")?,
        },
        Point::New => What::New { task: task("pid")? },
        Point::Fork => What::Fork {
            parent: task("parent_pid")?,
            child: task("child_pid")?,
        },
        Point::Exec => What::Exec { task: task("pid")? },
        Point::Migrate => What::Migrate { task: task("pid")? },
        Point::Enter => What::Enter(call(
            machine,
            number("id")?,
            format.element(raw, "args", 0)?,
            format.element(raw, "args", 1)?,
        )),
        Point::Leave => What::Leave(number("ret")?),
        Point::Other => return None,
    })
}

/// From `prev_state`: `TASK_REPORT` has the states' bits, `TASK_REPORT_MAX` (or an older, higher bit) says preempted
/// (include/linux/sched.h, include/trace/events/sched.h).
pub(crate) fn left(state: i64) -> Left {
    match state & 0xff {
        0 => Left::Runnable,
        bits if bits & 0x30 != 0 => Left::Dead,
        bits if bits & 0x0c != 0 => Left::Stopped,
        bits if bits & 0x02 != 0 => Left::Uninterruptible,
        _ => Left::Sleeps,
    }
}

/// From `prev_state` of a kernel before 4.14: 0x40 is a dead task, 0x200 a parked one, and higher bits say preempted.
pub(crate) fn old_left(state: i64) -> Left {
    match state & 0x3ff {
        0 => Left::Runnable,
        bits if bits & 0x70 != 0 => Left::Dead,
        bits => left(bits & 0x0f | 1),
    }
}

/// The numbers of system calls that may wait, by machine (arch/x86/entry/syscalls/syscall_64.tbl,
/// include/uapi/asm-generic/unistd.h); on other machines nothing is known of a call.
pub(crate) fn call(machine: &str, number: i64, first: u64, second: u64) -> Call {
    let x86 = match machine {
        "x86_64" => true,
        "aarch64" | "arm64" | "riscv64" | "loongarch64" => false,
        _ => return Call::Other,
    };
    let until = match second & ABSOLUTE {
        0 => Call::Sleep,
        _ => Call::SleepUntil,
    };
    match (x86, number) {
        (true, 35) | (false, 101) => Call::Sleep,
        (true, 230) | (false, 115) => until,
        (true, 202) | (false, 98) => Call::Futex(first),
        (true, 7 | 23 | 232 | 270 | 271 | 281 | 441) | (false, 22 | 72 | 73 | 441) => Call::Poll,
        (true, 61 | 247) | (false, 260 | 95) => Call::Child,
        (true, 24) | (false, 124) => Call::Yield,
        (true, 0 | 19 | 45 | 47) | (false, 63 | 65 | 207 | 212) => Call::Read(first as i32),
        (true, 1 | 20 | 44 | 46) | (false, 64 | 66 | 206 | 211) => Call::Write(first as i32),
        (true, 3) | (false, 57) => Call::Close(first as i32),
        _ => Call::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_those_of_the_kernel() {
        assert_eq!(left(0), Left::Runnable);
        assert_eq!(left(0x100), Left::Runnable);
        assert_eq!(left(1), Left::Sleeps);
        assert_eq!(left(2), Left::Uninterruptible);
        assert_eq!(left(0x40), Left::Sleeps);
        assert_eq!(left(0x80), Left::Sleeps);
        assert_eq!(left(0x10), Left::Dead);
        assert_eq!(left(0x20), Left::Dead);
        assert_eq!(left(4), Left::Stopped);
    }

    #[test]
    fn old_kernels_have_other_states() {
        assert_eq!(old_left(0), Left::Runnable);
        assert_eq!(old_left(0x400), Left::Runnable);
        assert_eq!(old_left(1), Left::Sleeps);
        assert_eq!(old_left(0x82), Left::Uninterruptible);
        assert_eq!(old_left(0x40), Left::Dead);
        assert_eq!(old_left(0x200), Left::Sleeps);
        assert_eq!(old_left(8), Left::Stopped);
    }

    #[test]
    fn calls_go_by_the_machine() {
        assert_eq!(call("x86_64", 230, 1, 0), Call::Sleep);
        assert_eq!(call("x86_64", 230, 1, 1), Call::SleepUntil);
        assert_eq!(call("x86_64", 202, 77, 0), Call::Futex(77));
        assert_eq!(call("aarch64", 98, 77, 0), Call::Futex(77));
        assert_eq!(call("x86_64", 0, 5, 0), Call::Read(5));
        assert_eq!(call("aarch64", 64, 5, 0), Call::Write(5));
        assert_eq!(call("aarch64", 202, 77, 0), Call::Other);
        assert_eq!(call("armv7l", 98, 77, 0), Call::Other);
    }
}
