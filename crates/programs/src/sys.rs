//! The system calls that the standard library does not have.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU32;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Signal, WaitOptions, getpid, getppid, getpriority_process, getrlimit,
    kill_process, set_parent_process_death_signal, setpriority_process, setrlimit, setsid, waitpid,
};
use rustix::thread::{
    CpuSet as KernelCpuSet, NanosleepRelativeResult, clock_nanosleep_absolute,
    clock_nanosleep_relative, futex, gettid, sched_getaffinity, set_name,
};
use rustix::time::{ClockId, Timespec, clock_gettime};
use schedlab_trace::{CpuId, CpuSet};
use schedlab_workload::{Reservation, SchedClass};

/// Turns `-1` into the error in `errno`.
fn checked(result: i64) -> io::Result<i64> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// CPUs that are configured, online or not: what CPU numbers go up to.
pub fn nr_cpus() -> usize {
    // SAFETY: takes no pointers.
    let n = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    usize::try_from(n).ok().filter(|&n| n > 0).unwrap_or(1)
}

/// CPUs that the calling thread may use and that are online: `taskset` and containers limit them.
pub fn allowed_cpus() -> CpuSet {
    let Ok(allowed) = sched_getaffinity(None) else {
        // More CPUs than the set has room for.
        return CpuSet::all(nr_cpus());
    };
    let is_allowed =
        |cpu: &CpuId| cpu.index() < KernelCpuSet::MAX_CPU && allowed.is_set(cpu.index());
    (0..nr_cpus() as u32)
        .map(CpuId)
        .filter(is_allowed)
        .collect::<CpuSet>()
        .resized(nr_cpus())
}

/// Returns the kernel's number of the calling thread.
pub fn thread_id() -> i32 {
    gettid().as_raw_nonzero().get()
}

/// Returns whether a thread of this process sleeps until it is woken; proc_pid_stat(5).
pub fn is_asleep(thread: i32) -> bool {
    let path = format!("/proc/self/task/{thread}/stat");
    std::fs::read_to_string(path).is_ok_and(|text| {
        // Names may have brackets.
        let state = text
            .rsplit(')')
            .next()
            .and_then(|rest| rest.trim_start().chars().next());
        state == Some('S')
    })
}

/// Returns a clock in ns.
fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CLOCK_MONOTONIC in ns.
pub fn monotonic_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

/// CPU time of the calling thread in ns.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(ClockId::ThreadCPUTime)
}

fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    }
}

/// Sleeps until CLOCK_MONOTONIC reaches `ns`.
pub fn sleep_until(ns: u64) {
    let until = timespec(ns);
    while clock_nanosleep_absolute(ClockId::Monotonic, &until) == Err(Errno::INTR) {}
}

/// Sleeps for `ns` of CLOCK_MONOTONIC.
pub fn sleep_for(ns: u64) {
    let mut left = timespec(ns);
    while let NanosleepRelativeResult::Interrupted(rest) =
        clock_nanosleep_relative(ClockId::Monotonic, &left)
    {
        left = rest;
    }
}

/// By how many ns sleeps of the calling thread may be late; none: as in other programs. Without it they are a little late.
pub fn set_timer_slack(ns: Option<NonZeroU64>) {
    let _ = rustix::thread::set_current_timer_slack(ns);
}

/// Nice level of the calling thread.
pub fn set_nice(nice: i8) -> io::Result<()> {
    // On Linux, no process is the calling thread.
    if getpriority_process(None) != Ok(nice.into()) {
        setpriority_process(None, nice.into())?;
    }
    Ok(())
}

/// Scheduling class of the calling thread.
pub fn set_class(class: SchedClass) -> io::Result<()> {
    let (policy, priority) = match class {
        SchedClass::Normal => (libc::SCHED_OTHER, 0),
        SchedClass::Batch => (libc::SCHED_BATCH, 0),
        SchedClass::Idle => (libc::SCHED_IDLE, 0),
        SchedClass::Fifo(n) => (libc::SCHED_FIFO, n.into()),
        SchedClass::RoundRobin(n) => (libc::SCHED_RR, n.into()),
        SchedClass::Deadline(reservation) => return set_reservation(reservation),
    };
    let param = libc::sched_param {
        sched_priority: priority,
    };
    // Threads of sched_ext programs may be SCHED_EXT by inheritance; a normal one is left as it is.
    // SAFETY: takes no pointers.
    if class == SchedClass::Normal && unsafe { libc::sched_getscheduler(0) } == SCHED_EXT {
        return Ok(());
    }
    // SAFETY: `param` lives through the call.
    checked(unsafe { libc::sched_setscheduler(0, policy, &param) }.into()).map(drop)
}

/// SCHED_DEADLINE for the calling thread, by sched_setattr(2), which the C library does not have.
fn set_reservation(reservation: Reservation) -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: std::mem::size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_DEADLINE as u32,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: reservation.runtime.ns(),
        sched_deadline: reservation.deadline.ns(),
        sched_period: reservation.period.ns(),
    };
    let no_flags: libc::c_uint = 0;
    // SAFETY: `attributes` lives through the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &attributes, no_flags) };
    checked(result).map(drop)
}

/// The policy number of sched_ext (include/uapi/linux/sched.h).
const SCHED_EXT: libc::c_int = 7;

/// Allowed CPUs of the calling thread.
pub fn set_affinity(cpus: &CpuSet) -> io::Result<()> {
    let words = cpus.words();
    // SAFETY: the kernel reads the words' bytes, which live through the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            0,
            std::mem::size_of_val(words),
            words.as_ptr(),
        )
    };
    checked(result).map(drop)
}

/// Raises the number of open files to what the system allows, and returns it.
pub fn raise_open_files() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where it is refused, the number stays what it was.
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Waits for a wakeup at `word`; returns at once if it is not `value`, and may do so at any time.
pub fn futex_wait(word: &AtomicU32, value: u32) {
    // A waiter looks at the word again, whatever ended the wait.
    let _ = futex::wait(word, futex::Flags::empty(), value, None);
}

/// Wakes all waiters at `word`, in any process.
pub fn futex_wake_all(word: &AtomicU32) {
    let all = i32::MAX as u32;
    futex::wake(word, futex::Flags::empty(), all).expect("the word is one");
}

/// Waits until something can be read.
pub fn wait_readable(file: impl AsFd) {
    let mut polls = [PollFd::new(&file, PollFlags::IN)];
    // An interrupted wait is begun again.
    while poll(&mut polls, None).is_err() {}
}

/// Sets the loopback interface up, as a bare virtual machine may not have done.
pub fn raise_loopback() -> io::Result<()> {
    // SAFETY: ioctl reads and writes `request`, which is a whole ifreq; the descriptor is ours.
    unsafe {
        let fd =
            checked(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).into())?
                as i32;
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo\0") {
            *to = *from as libc::c_char;
        }
        let mut result = libc::ioctl(fd, libc::SIOCGIFFLAGS, &mut request);
        if result == 0 {
            request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short;
            result = libc::ioctl(fd, libc::SIOCSIFFLAGS, &request);
        }
        let error = io::Error::last_os_error();
        libc::close(fd);
        if result == 0 { Ok(()) } else { Err(error) }
    }
}

/// A moment that a process announces by the name that a thread takes, so that a measurement in the kernel sees it at
/// that very moment; `measure.h` of schedlab-kernel has the same names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tell {
    /// It only starts tasks and awaits them; announced by its first thread.
    Starter,
    /// All tasks are there and may begin; announced by the first thread of the first process.
    Begun,
    /// The time is over; announced by every thread that notices it, of which the first counts.
    Over,
    /// It removes cgroups, and must not be ended before; `group.rs` of schedlab-kernel knows the name.
    Remover,
}

/// Tells it.
pub fn tell(what: Tell) {
    let name = match what {
        Tell::Starter => c"load:starter",
        Tell::Begun => c"load:begun",
        Tell::Over => c"load:over",
        Tell::Remover => c"load:remover",
    };
    set_name(name).expect("a thread may have any name");
}

/// A child process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Child(Pid);

/// Forks; the child runs `body` and exits, and ends with its parent.
pub fn fork(body: impl FnOnce()) -> io::Result<Child> {
    let parent = getpid();
    fork_freely(|| {
        let asked = set_parent_process_death_signal(Some(Signal::KILL));
        // It may have ended before the request; then no process waits for this one.
        if asked.is_ok() && getppid() == Some(parent) {
            body();
        }
    })
}

/// Forks; the child runs `body` and exits, whatever ends its parent and the parent's process group.
pub fn fork_apart(body: impl FnOnce()) -> io::Result<Child> {
    fork_freely(|| {
        // Refused to the head of a group alone, which a child never is.
        let _ = setsid();
        body();
    })
}

fn fork_freely(body: impl FnOnce()) -> io::Result<Child> {
    // SAFETY: the child allocates and starts threads, which glibc keeps possible after a fork, and ends in
    // _exit, so nothing of the parent's (buffers, destructors) runs twice.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            // SAFETY: never returns.
            unsafe { libc::_exit(0) }
        }
        pid => Ok(Child(Pid::from_raw(pid).expect("a child has a number"))),
    }
}

impl Child {
    /// Kills it.
    pub fn kill(self) {
        // One that has ended is not reaped yet, so that the number is still its own.
        let _ = kill_process(self.0, Signal::KILL);
    }

    /// Waits for its end.
    pub fn wait(self) {
        // An interrupted wait is begun again.
        while matches!(
            waitpid(Some(self.0), WaitOptions::empty()),
            Err(Errno::INTR)
        ) {}
    }
}

/// Zeroed memory that parent and children share.
pub struct SharedMemory {
    start: *mut libc::c_void,
    bytes: usize,
}

impl SharedMemory {
    /// At least `bytes` of it, aligned to a page.
    pub fn new(bytes: usize) -> io::Result<SharedMemory> {
        let bytes = bytes.max(1);
        // SAFETY: a new anonymous mapping touches no memory that is in use.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(SharedMemory { start, bytes })
    }

    /// Returns its first byte.
    pub fn start(&self) -> *mut u8 {
        self.start.cast()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: ours, mapped with this size; a holder of a reference into it holds us.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}
