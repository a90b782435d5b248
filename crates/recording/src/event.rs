//! The events of a recording, whatever wrote it.

use std::fmt;

/// A thread's id as the kernel numbers it; 0 is the idle task.
pub type Tid = i32;

/// A thread's name as in `/proc/PID/comm`: at most 15 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Comm([u8; 16]);

impl Comm {
    /// From bytes up to the first zero.
    pub fn new(bytes: &[u8]) -> Comm {
        let mut comm = [0; 16];
        let used = bytes.iter().take(15).take_while(|byte| **byte != 0);
        for (to, from) in comm.iter_mut().zip(used) {
            *to = *from;
        }
        Comm(comm)
    }

    /// As text; bytes that are not printable ASCII become `?`.
    pub fn text(&self) -> String {
        let used = self.0.iter().take_while(|byte| **byte != 0);
        used.map(|&byte| match byte {
            b' '..=b'~' => char::from(byte),
            _ => '?',
        })
        .collect()
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text(), f)
    }
}

/// In which context of the kernel something happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    /// On behalf of the current task.
    Task,
    /// In a softirq: of the network, of timers.
    Soft,
    /// In an interrupt's handler.
    Hard,
    /// The source does not say.
    Unknown,
}

/// How a task left its CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// Still runnable.
    Runnable,
    /// Waits and can be interrupted (S), or is a kernel thread that idles (I).
    Sleeps,
    /// Waits and cannot be interrupted (D): mostly for a device.
    Uninterruptible,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// Dead.
    Dead,
}

/// A system call that may wait, or that gives the CPU up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// `nanosleep()` or a relative `clock_nanosleep()`.
    Sleep,
    /// `clock_nanosleep()` until an instant.
    SleepUntil,
    /// `futex()` on this address.
    Futex(u64),
    /// `poll()`, `select()`, `epoll_wait()` and their kin.
    Poll,
    /// `wait4()`, `waitid()`.
    Child,
    /// `sched_yield()`.
    Yield,
    /// `read()`, `recvfrom()` and their kin, from this descriptor.
    Read(i32),
    /// `write()`, `sendto()` and their kin, to this descriptor.
    Write(i32),
    /// `close()` of this descriptor.
    Close(i32),
    /// Another one.
    Other,
}

/// The kind of event.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum What {
    /// The CPU went from one task to another.
    Switch {
        /// The task that ran.
        prev: Tid,
        /// Its name.
        prev_comm: Comm,
        /// Its priority as the kernel counts: 0 to 99 real time, 120 = nice 0.
        prev_prio: i32,
        /// How it left.
        left: Left,
        /// The task that runs now.
        next: Tid,
        /// Its name.
        next_comm: Comm,
        /// Its priority.
        next_prio: i32,
    },
    /// The current task, or an interrupt, begins to wake a task.
    Waking {
        /// The task that is woken.
        task: Tid,
        /// Its name.
        comm: Comm,
    },
    /// A new task becomes runnable.
    New {
        /// The task.
        task: Tid,
    },
    /// The current task created another one.
    Fork {
        /// The task that forked.
        parent: Tid,
        /// The new task.
        child: Tid,
    },
    /// To which process a new task belongs, where the source tells.
    Process {
        /// The task.
        task: Tid,
        /// Its process.
        process: Tid,
    },
    /// The task runs another program now.
    Exec {
        /// The task.
        task: Tid,
    },
    /// A runnable or waking task was moved to another CPU.
    Migrate {
        /// The task.
        task: Tid,
    },
    /// The current task entered a system call.
    Enter(Call),
    /// … and left it, with this result.
    Leave(i64),
    /// So many events are missing.
    Lost(u64),
}

/// One event.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Event {
    /// When, in ns of the recording's clock.
    pub at_ns: u64,
    /// On which CPU.
    pub cpu: u32,
    /// The task that was current there; `None` where the source does not say.
    pub current: Option<Tid>,
    /// In which context.
    pub context: Context,
    /// The event itself.
    pub what: What,
}

/// The facts that a recording states about itself.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct About {
    /// Its format, in words.
    pub format: String,
    /// The command line of the recorder.
    pub command: Option<String>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// CPUs that were online.
    pub cpus: Option<u32>,
    /// Events that were read.
    pub events: u64,
    /// Events that the recorder lost, as far as it counted them.
    pub lost: u64,
    /// Events of kinds that nothing is inferred from.
    pub passed_over: u64,
    /// Events that came later than another one of a greater time.
    pub late: u64,
    /// The first and the last time, in ns of the recording's clock.
    pub first_ns: u64,
    /// The last time.
    pub last_ns: u64,
}
