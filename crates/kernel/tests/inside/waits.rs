//! How long a thread is kept from its CPU.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, gettid, sched_setaffinity};

use super::programs::on;

/// Computes until a moment; the longest time after `from` in which it did not run.
fn longest_pause(from: Instant, until: Instant) -> Duration {
    let mut last = Instant::now();
    let mut longest = Duration::ZERO;
    while last < until {
        let now = Instant::now();
        if now > from {
            longest = longest.max(now - last.max(from));
        }
        last = now;
    }
    longest
}

fn sleep_until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(Instant::now()));
}

/// A thread computes on CPU 0, alone and then beside another one: its longest pause of then.
pub fn beside_a_newcomer(alone: Duration, beside: Duration) -> Duration {
    let from = Instant::now() + alone;
    let until = from + beside;
    let old = thread::spawn(move || {
        on(0..1);
        longest_pause(from, until)
    });
    sleep_until(from);
    let new = thread::spawn(move || {
        on(0..1);
        longest_pause(from, until)
    });
    new.join().expect("computing does not panic");
    old.join().expect("computing does not panic")
}

/// A thread computes on CPU 1 when a SCHED_FIFO thread takes that CPU; soon afterwards it may run on any,
/// and the others are idle: its longest pause.
pub fn beside_a_realtime_hog(hog: Duration) -> Duration {
    let from = Instant::now() + Duration::from_millis(200);
    let until = from + hog;
    let (tell, told) = mpsc::channel();
    let displaced = thread::spawn(move || {
        on(1..2);
        tell.send(gettid()).expect("somebody listens");
        longest_pause(from, until)
    });
    let id = told.recv().expect("it tells its id");
    let hog = thread::spawn(move || {
        on(1..2);
        let parameter = libc::sched_param { sched_priority: 1 };
        // SAFETY: takes two numbers and a structure that lives on.
        let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
        assert_eq!(set, 0, "root may have real-time threads");
        sleep_until(from);
        longest_pause(from, until);
    });
    sleep_until(from + Duration::from_millis(20));
    let mut all = CpuSet::new();
    for cpu in 0..thread::available_parallelism().map_or(1, usize::from) {
        all.set(cpu);
    }
    sched_setaffinity(Some(id), &all).expect("the thread is there");
    hog.join().expect("computing does not panic");
    displaced.join().expect("computing does not panic")
}
