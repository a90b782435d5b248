//! Many runs at once: each on a thread of its own.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How often somebody who listens hears that nothing changed.
const HEARTBEAT: Duration = Duration::from_millis(200);

/// Runs `work` on every item with at most `threads` at a time, as long as `stop` says false. Items are started in
/// order. `hear` is told, on the calling thread, each result as it comes, with its item's index; and `None` where there
/// was none for 200 ms. Where it takes its time, further items wait.
pub fn each<I: Sync, T: Send>(
    items: &[I],
    threads: NonZeroUsize,
    stop: impl Fn() -> bool + Sync,
    work: impl Fn(&I) -> T + Sync,
    mut hear: impl FnMut(Option<(usize, T)>),
) {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::sync_channel(threads.get());
    thread::scope(|scope| {
        for _ in 0..threads.get().min(items.len()) {
            let sender = sender.clone();
            let (next, stop, work) = (&next, &stop, &work);
            scope.spawn(move || {
                while !stop() {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else {
                        return;
                    };
                    // Nobody listens any more only when the scope is left by a panic.
                    let _ = sender.send((index, work(item)));
                }
            });
        }
        drop(sender);
        loop {
            match receiver.recv_timeout(HEARTBEAT) {
                Ok(result) => hear(Some(result)),
                Err(RecvTimeoutError::Timeout) => hear(None),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
}

/// Runs `work` on every item, as [`each`] does; the results in the order of the items. `progress` is told how many are
/// done, at least every 200 ms. After the first error no further item is started.
///
/// # Errors
/// The error of the earliest item that failed.
pub fn run_all<I: Sync, T: Send, E: Send>(
    items: &[I],
    threads: NonZeroUsize,
    work: impl Fn(&I) -> Result<T, E> + Sync,
    mut progress: impl FnMut(usize),
) -> Result<Vec<T>, E> {
    let failed = AtomicBool::new(false);
    let mut results: Vec<Option<Result<T, E>>> = items.iter().map(|_| None).collect();
    let mut done = 0;
    each(
        items,
        threads,
        || failed.load(Ordering::Relaxed),
        |item| {
            let result = work(item);
            if result.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            result
        },
        |heard| {
            if let Some((index, result)) = heard {
                results[index] = Some(result);
                done += 1;
            }
            progress(done);
        },
    );
    // Items are started in order, so those without a result lie behind the one that failed.
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;

    fn threads(nr: usize) -> NonZeroUsize {
        NonZeroUsize::new(nr).unwrap()
    }

    #[test]
    fn results_keep_the_order_of_the_items() {
        for nr in [1, 3, 100] {
            let items: Vec<u64> = (0..50).collect();
            let mut told = 0;
            let work = |n: &u64| -> Result<u64, ()> {
                // Later items finish first.
                thread::sleep(Duration::from_micros(50 * (50 - n)));
                Ok(n * n)
            };
            let results = run_all(&items, threads(nr), work, |done| told = done).unwrap();
            assert_eq!(results, items.iter().map(|n| n * n).collect::<Vec<_>>());
            assert_eq!(told, 50);
        }
        assert_eq!(
            run_all(&[], threads(4), |_: &u8| Ok::<u8, ()>(0), |_| ()),
            Ok(vec![])
        );
    }

    #[test]
    fn an_error_stops_what_has_not_started() {
        const FAILS: usize = 5;
        for nr in [1, 2, 7] {
            let items: Vec<usize> = (0..1_000).collect();
            let started = AtomicUsize::new(0);
            // Those behind it go on when it has failed.
            let failed = OnceLock::new();
            let work = |&n: &usize| {
                started.fetch_add(1, Ordering::Relaxed);
                if n > FAILS {
                    failed.wait();
                }
                if n == FAILS { Err("five") } else { Ok(n) }
            };
            let progress = |done| {
                if done > FAILS {
                    failed.get_or_init(|| ());
                }
            };
            assert_eq!(run_all(&items, threads(nr), work, progress), Err("five"));
            assert!(started.load(Ordering::Relaxed) <= FAILS + nr);
        }
    }
}
