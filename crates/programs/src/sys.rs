//! The system calls that the standard library does not have.

use std::io;
use std::sync::atomic::AtomicU32;

use schedlab_trace::CpuSet;
use schedlab_workload::SchedClass;

/// Turns `-1` into the error that `errno` tells.
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

/// A clock in ns.
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is writable for the call.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(result, 0, "clocks that Linux always has");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CLOCK_MONOTONIC in ns.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread in ns.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Sleeps until CLOCK_MONOTONIC reaches `ns`, or for `ns`.
pub fn sleep_ns(ns: u64, absolute: bool) {
    let request = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    };
    let flags = if absolute { libc::TIMER_ABSTIME } else { 0 };
    let mut left = request;
    loop {
        // SAFETY: both structures live through the call.
        let result = unsafe {
            let request = if absolute { request } else { left };
            libc::clock_nanosleep(libc::CLOCK_MONOTONIC, flags, &request, &mut left)
        };
        if result != libc::EINTR {
            return;
        }
    }
}

/// sched_yield().
pub fn sched_yield() {
    // SAFETY: takes no arguments.
    unsafe { libc::sched_yield() };
}

/// Nice level of the calling thread.
pub fn set_nice(nice: i8) -> io::Result<()> {
    // On Linux, who = 0 is the calling thread. -1 is a valid answer of getpriority, so errno decides.
    // SAFETY: errno's address is valid in every thread; the calls take no pointers.
    let current = unsafe {
        *libc::__errno_location() = 0;
        libc::getpriority(libc::PRIO_PROCESS, 0)
    };
    if current == i32::from(nice) {
        return Ok(());
    }
    // SAFETY: takes no pointers.
    checked(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, i32::from(nice)) }.into()).map(drop)
}

/// Scheduling class of the calling thread.
pub fn set_class(class: SchedClass) -> io::Result<()> {
    let (policy, priority) = match class {
        SchedClass::Normal => (libc::SCHED_OTHER, 0),
        SchedClass::Batch => (libc::SCHED_BATCH, 0),
        SchedClass::Idle => (libc::SCHED_IDLE, 0),
        SchedClass::Fifo(n) => (libc::SCHED_FIFO, n.into()),
        SchedClass::RoundRobin(n) => (libc::SCHED_RR, n.into()),
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
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is valid for both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        }
    }
    limit.rlim_cur
}

/// Sets the capacity of a pipe; the kernel rounds up to a power of two of pages.
pub fn set_pipe_size(fd: i32, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: takes no pointers.
    checked(unsafe { libc::fcntl(fd, libc::F_SETPIPE_SZ, bytes) }.into()).map(drop)
}

/// Sets a socket's buffer size (the kernel doubles it for its own bookkeeping).
pub fn set_socket_buffer(fd: i32, option: libc::c_int, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: `bytes` lives through the call and its size is told.
    let result = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            option,
            (&raw const bytes).cast(),
            std::mem::size_of_val(&bytes) as libc::socklen_t,
        )
    };
    checked(result.into()).map(drop)
}

/// Waits until somebody wakes those at `word`; returns at once if it is not `value`, and may do so at any time.
pub fn futex_wait(word: &AtomicU32, value: u32) {
    let no_timeout = std::ptr::null::<libc::timespec>();
    // SAFETY: the word is valid for the call, there is no timeout.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            no_timeout,
        );
    }
}

/// Wakes everybody who waits at `word`, in whatever process.
pub fn futex_wake_all(word: &AtomicU32) {
    // SAFETY: the word's address is all that is used of it.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE,
            libc::c_int::MAX,
        );
    }
}

/// Waits until something can be read.
pub fn wait_readable(fd: i32) {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry, which lives through the call. An interrupted wait is begun again.
    while unsafe { libc::poll(&mut poll, 1, -1) } < 0 {}
}

/// Waits until one of `polls` has something, at most `timeout`; returns how many have.
pub fn poll(polls: &mut [libc::pollfd], timeout: Option<std::time::Duration>) -> usize {
    let millis = timeout.map_or(-1, |time| {
        libc::c_int::try_from(time.as_millis()).unwrap_or(libc::c_int::MAX)
    });
    // SAFETY: the entries live through the call and their number is told.
    let ready = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, millis) };
    usize::try_from(ready).unwrap_or(0)
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

/// Asks the kernel to kill this process when its parent ends.
pub fn die_with_parent(parent: i32) {
    // SAFETY: takes no pointers. The parent may have ended before the request; then nobody waits for us.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(1);
        }
    }
}

/// What a process tells by the name that a thread takes, so that whoever measures the workload in the kernel sees
/// it at that very moment; `measure.h` of schedlab-kernel has the same names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tell {
    /// It only starts tasks and awaits them; told by its first thread.
    Starter,
    /// All tasks are there and may begin; told by the first thread of the first process.
    Begun,
    /// The time is over; told by every thread that notices it, of which the first counts.
    Over,
}

/// Tells it.
pub fn tell(what: Tell) {
    let name = match what {
        Tell::Starter => c"load:starter",
        Tell::Begun => c"load:begun",
        Tell::Over => c"load:over",
    };
    // SAFETY: the kernel copies the name, which ends with a zero.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// A child process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Child(libc::pid_t);

/// Forks; the child runs `body` and exits.
pub fn fork(body: impl FnOnce()) -> io::Result<Child> {
    // SAFETY: the child allocates and starts threads, which glibc keeps possible after a fork, and ends in
    // _exit, so nothing of the parent's (buffers, destructors) runs twice.
    unsafe {
        let parent = libc::getpid();
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                die_with_parent(parent);
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
                libc::_exit(0)
            }
            pid => Ok(Child(pid)),
        }
    }
}

impl Child {
    /// Kills it.
    pub fn kill(self) {
        // SAFETY: a pid that we forked and have not waited for is still ours.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }

    /// Waits for its end.
    pub fn wait(self) {
        let mut status = 0;
        // SAFETY: `status` is writable. An interrupted wait is begun again.
        while unsafe { libc::waitpid(self.0, &mut status, 0) } == -1
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
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

    /// Its first byte.
    pub fn start(&self) -> *mut u8 {
        self.start.cast()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: ours, mapped with this size; whoever holds a reference into it holds us.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}
