//! Two threads on one core, and how long they stay there.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::programs::on;

/// Two threads that never sleep begin on CPUs 0 and 1, which are a core, and may then run anywhere: how long
/// they share a core, at most `patience`.
pub fn until_apart(patience: Duration) -> Duration {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let (ready, done) = (&AtomicU32::new(0), &AtomicBool::new(false));
    let on_cpu = [&AtomicUsize::new(0), &AtomicUsize::new(1)];
    thread::scope(|scope| {
        for (number, on_cpu) in on_cpu.into_iter().enumerate() {
            scope.spawn(move || {
                on(number..number + 1);
                ready.fetch_add(1, Relaxed);
                while ready.load(Relaxed) < 2 {
                    std::hint::spin_loop();
                }
                on(0..cpus);
                while !done.load(Relaxed) {
                    on_cpu.store(rustix::thread::sched_getcpu(), Relaxed);
                }
            });
        }
        let start = Instant::now();
        let apart = || on_cpu[0].load(Relaxed) / 2 != on_cpu[1].load(Relaxed) / 2;
        while !apart() && start.elapsed() < patience {
            thread::sleep(Duration::from_millis(1));
        }
        done.store(true, Relaxed);
        start.elapsed()
    })
}
