//! Code that the build scripts that compile policies share; `crates/kernel` has one, too.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Does the same with each, on as many threads as cargo has jobs. The results are in the order of `all`.
pub fn each<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let jobs = std::env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok());
    let next = AtomicUsize::new(0);
    let one_by_one = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = all.get(index) else {
                return done;
            };
            done.push((index, work(one)));
        }
    };
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs.unwrap_or(1).min(all.len()))
            .map(|_| scope.spawn(one_by_one))
            .collect();
        let done = threads.into_iter().map(|thread| thread.join());
        done.flat_map(|done| done.expect("the thread has said why"))
            .collect()
    });
    done.sort_by_key(|&(index, _)| index);
    done.into_iter().map(|(_, result)| result).collect()
}
