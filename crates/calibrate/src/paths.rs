//! Paths through the kernel: system calls, wakeups, context switches, fork and exit, the timer.
//!
//! Every function measures one thing and says what that thing contains; the differences are taken
//! in `assemble.rs`.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicU32;
use std::thread;
use std::time::{Duration, Instant};

use memmap2::{Advice, MmapMut};
use rustix::process::{Pid, WaitOptions, getppid, waitpid};
use rustix::thread::futex;
use rustix::time::{ClockId, clock_getres};

use crate::pin::{on_cpu, pin};
use crate::sample::{Sample, preemptions, ps_each, undisturbed};

const BUDGET: Duration = Duration::from_millis(500);

/// Returns the mean of `operations` calls, many times over.
fn repeated(cpu: usize, operations: u64, mut call: impl FnMut() + Send) -> Option<Sample> {
    on_cpu(cpu, || {
        Sample::collect(101, BUDGET, || {
            undisturbed(|| {
                let start = Instant::now();
                for _ in 0..operations {
                    call();
                }
                Some(ps_each(start, operations))
            })
        })
    })
}

/// Reading the clock, which is contained where single calls are timed.
pub fn clock(cpu: usize) -> Option<Sample> {
    repeated(cpu, 1_000, || {
        std::hint::black_box(Instant::now());
    })
}

/// Returns the shortest system call.
pub fn syscall(cpu: usize) -> Option<Sample> {
    repeated(cpu, 1_000, || {
        std::hint::black_box(getppid());
    })
}

/// `futex(FUTEX_WAKE)` without a waiter.
pub fn futex_nobody(cpu: usize) -> Option<Sample> {
    let word = AtomicU32::new(0);
    repeated(cpu, 500, || {
        let _ = futex::wake(&word, futex::Flags::PRIVATE, 1);
    })
}

/// Returns a write to a pipe and the read of what was written, by one thread: neither waits nor wakes.
pub fn pipe_alone(cpu: usize) -> Option<Sample> {
    let (mut reader, mut writer) = pipe().ok()?;
    let mut byte = [0];
    repeated(cpu, 200, || {
        let _ = writer.write(&[1]);
        let _ = reader.read(&mut byte);
    })
}

/// Sending and receiving 100 bytes on a loopback stream socket, by one thread: neither waits nor wakes.
pub fn socket_alone(cpu: usize) -> Option<(Sample, Sample)> {
    on_cpu(cpu, || {
        let listener = TcpListener::bind(("127.0.0.1", 0)).ok()?;
        let mut sender = TcpStream::connect(listener.local_addr().ok()?).ok()?;
        let (mut receiver, _) = listener.accept().ok()?;
        sender.set_nodelay(true).ok()?;
        // A message that got lost must not hang the calibration.
        receiver
            .set_read_timeout(Some(Duration::from_secs(1)))
            .ok()?;
        let message = [7; 100];
        let mut buffer = [0; 100];
        let mut received = Vec::new();
        let sent = Sample::collect(101, BUDGET, || {
            let mut receiving = Duration::ZERO;
            let sent = undisturbed(|| {
                let mut sending = Duration::ZERO;
                for _ in 0..50 {
                    let start = Instant::now();
                    sender.write_all(&message).ok()?;
                    let middle = Instant::now();
                    receiver.read_exact(&mut buffer).ok()?;
                    sending += middle - start;
                    receiving += middle.elapsed();
                }
                Some(sending.as_nanos() as u64 * 1_000 / 50)
            })?;
            received.push(receiving.as_nanos() as u64 * 1_000 / 50);
            Some(sent)
        })?;
        Some((sent, Sample::of(received)?))
    })
}

/// Makes the calling thread one that never preempts another on waking.
pub fn become_batch() -> bool {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a live value of the type that the call reads; thread 0 is the caller.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) == 0 }
}

/// One hop of a byte that two threads send each other through pipes, on the CPUs `a` and `b`: a write, a
/// read, a wakeup, and the change to the woken thread.
pub fn pipe_hop(a: usize, b: usize) -> Option<Sample> {
    let (to_b, from_a) = pipe_pair()?;
    let (to_a, from_b) = pipe_pair()?;
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut reader, mut writer) = (from_a, to_a);
            if pin(b) {
                echo(&mut reader, &mut writer);
            }
        });
        on_cpu(a, move || hops(to_b, from_b))
    })
}

/// Returns a pipe: the end to write to, and the end to read from.
fn pipe_pair() -> Option<(PipeWriter, PipeReader)> {
    let (reader, writer) = pipe().ok()?;
    Some((writer, reader))
}

/// Sends back every byte until the end of the input.
fn echo(reader: &mut PipeReader, writer: &mut PipeWriter) {
    let mut byte = [0];
    while reader.read(&mut byte).is_ok_and(|n| n == 1) && writer.write(&byte).is_ok() {}
}

fn hops(mut writer: PipeWriter, mut reader: PipeReader) -> Option<Sample> {
    let rounds = 100;
    let mut byte = [0];
    Sample::collect(51, BUDGET, || {
        let start = Instant::now();
        for _ in 0..rounds {
            writer.write_all(&[1]).ok()?;
            // The other end closed: its thread could not be bound.
            if reader.read(&mut byte).ok()? == 0 {
                return None;
            }
        }
        Some(ps_each(start, 2 * rounds))
    })
}

/// `fork()` as its caller sees it, and from fork() until the child's exit is collected.
pub fn fork_and_exit(cpu: usize) -> Option<(Sample, Sample)> {
    on_cpu(cpu, || {
        let mut whole = Vec::new();
        let forks = Sample::collect(101, BUDGET, || {
            let start = Instant::now();
            let child = fork(|| ())?;
            let forked = ps_each(start, 1);
            waitpid(Some(child), WaitOptions::empty()).ok()?;
            whole.push(ps_each(start, 1));
            Some(forked)
        })?;
        Some((forks, Sample::of(whole)?))
    })
}

/// The first access of a page, and giving it back with others.
pub fn page_fault(cpu: usize) -> Option<Sample> {
    const PAGES: usize = 1_024;
    let page_bytes = rustix::param::page_size();
    on_cpu(cpu, || {
        Sample::collect(101, BUDGET, || {
            undisturbed(|| {
                let start = Instant::now();
                let mut pages = MmapMut::map_anon(PAGES * page_bytes).ok()?;
                // A kernel without huge pages has nothing to forbid.
                let _ = pages.advise(Advice::NoHugePage);
                for page in 0..PAGES {
                    pages[page * page_bytes] = 1;
                }
                drop(pages);
                Some(ps_each(start, PAGES as u64))
            })
        })
    })
}

/// Runs `child` in a forked process, which then exits at once.
///
/// The process has other threads, so `child` may do nothing but plain system calls: no allocation, no
/// lock, no panic. All callers pass such code.
pub fn fork(child: impl FnOnce()) -> Option<Pid> {
    // SAFETY: after fork() in a process with threads the child may call async-signal-safe functions
    // only: `child` makes read, write and close calls, and `_exit` runs no handlers.
    unsafe {
        match libc::fork() {
            0 => {
                child();
                libc::_exit(0)
            }
            pid => Pid::from_raw(pid).filter(|_| pid > 0),
        }
    }
}

/// Timer interrupts a second: the coarse clock moves once each.
pub fn hz() -> Option<u32> {
    let step = clock_getres(ClockId::MonotonicCoarse);
    let ns = u32::try_from(step.tv_nsec).ok().filter(|&ns| ns > 0)?;
    (step.tv_sec == 0).then_some(1_000_000_000 / ns)
}

/// Returns the gaps that the timer interrupt leaves in a loop which only reads the clock: a tick, and the
/// entry and return of its interrupt. As many of the longest gaps as there were ticks, without those in
/// which another thread ran.
pub fn tick_gaps(cpu: usize, hz: u32) -> Option<Sample> {
    on_cpu(cpu, || {
        let length = Duration::from_millis(600);
        let mut gaps = Vec::with_capacity(100_000);
        let start = Instant::now();
        let mut before = start;
        let mut preempted = preemptions();
        loop {
            let mut now = Instant::now();
            let gap = (now - before).as_nanos() as u64;
            if gap > 300 {
                let switches = preemptions();
                if switches == preempted && gaps.len() < gaps.capacity() {
                    gaps.push(gap * 1_000);
                }
                preempted = switches;
                // Asking is no gap.
                now = Instant::now();
            }
            before = now;
            if now - start > length {
                break;
            }
        }
        let ticks = (length.as_millis() as u64 * u64::from(hz) / 1_000) as usize;
        gaps.sort_unstable_by(|a, b| b.cmp(a));
        // Without enough gaps the kernel runs without ticks here.
        if gaps.len() < ticks / 2 {
            return None;
        }
        gaps.truncate(ticks);
        Sample::of(gaps)
    })
}

/// Returns the slack that the kernel gives timers of this process, in ns.
pub fn timer_slack_ns() -> Option<u64> {
    // SAFETY: PR_GET_TIMERSLACK takes no pointers.
    let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
    u64::try_from(slack).ok()
}
