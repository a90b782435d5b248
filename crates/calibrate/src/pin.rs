//! Threads bound to one CPU.

use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Binds the calling thread to `cpu` (the kernel's number). False if that is not allowed.
pub fn pin(cpu: usize) -> bool {
    if cpu >= CpuSet::MAX_CPU {
        return false;
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).is_ok()
}

/// Returns whether this process may run on `cpu` (the kernel's number): containers and `taskset` limit it.
pub fn allowed(cpu: usize) -> bool {
    let is_set = |set: CpuSet| cpu < CpuSet::MAX_CPU && set.is_set(cpu);
    sched_getaffinity(None).is_ok_and(is_set)
}

/// Runs `measure` on a thread of its own bound to `cpu`; `None` where that is not allowed.
pub fn on_cpu<T: Send>(cpu: usize, measure: impl FnOnce() -> Option<T> + Send) -> Option<T> {
    thread::scope(|scope| {
        let thread = scope.spawn(|| if pin(cpu) { measure() } else { None });
        thread.join().ok().flatten()
    })
}
