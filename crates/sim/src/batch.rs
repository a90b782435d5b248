//! Many runs at once: each on a thread of its own, results in the order in which they were asked for.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How often `progress` hears that nothing changed.
const HEARTBEAT: Duration = Duration::from_millis(200);

/// Runs `work` on every item with at most `threads` at a time. Items are started in order. `progress` is
/// told how many are done, at least every 200 ms. After the first error no further item is started.
///
/// # Errors
/// The error of the earliest item that failed.
pub fn run_all<I: Sync, T: Send, E: Send>(
    items: &[I],
    threads: usize,
    work: impl Fn(&I) -> Result<T, E> + Sync,
    mut progress: impl FnMut(usize),
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let stop = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<T, E>>>> =
        items.iter().map(|_| Mutex::new(None)).collect();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            let sender = sender.clone();
            let (next, stop, results, work) = (&next, &stop, &results, &work);
            scope.spawn(move || {
                while stop.load(Ordering::Relaxed) == 0 {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else {
                        return;
                    };
                    let result = work(item);
                    if result.is_err() {
                        stop.store(1, Ordering::Relaxed);
                    }
                    *results[index].lock().expect("no panic while it is held") = Some(result);
                    // Nobody listens any more only when the scope is left by a panic.
                    let _ = sender.send(());
                }
            });
        }
        drop(sender);
        let mut done = 0;
        loop {
            match receiver.recv_timeout(HEARTBEAT) {
                Ok(()) => done += 1,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            progress(done);
        }
    });
    // Items are started in order, so those without a result lie behind the one that failed.
    results
        .into_iter()
        .filter_map(|result| result.into_inner().expect("all threads have ended"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_the_items() {
        for threads in [1, 3, 100] {
            let items: Vec<u64> = (0..50).collect();
            let mut told = 0;
            let work = |n: &u64| -> Result<u64, ()> {
                // Later items finish first.
                thread::sleep(Duration::from_micros(50 * (50 - n)));
                Ok(n * n)
            };
            let results = run_all(&items, threads, work, |done| told = done).unwrap();
            assert_eq!(results, items.iter().map(|n| n * n).collect::<Vec<_>>());
            assert_eq!(told, 50);
        }
        assert_eq!(
            run_all(&[], 4, |_: &u8| Ok::<u8, ()>(0), |_| ()),
            Ok(vec![])
        );
    }

    #[test]
    fn an_error_stops_what_has_not_started() {
        let items: Vec<usize> = (0..1_000).collect();
        let started = AtomicUsize::new(0);
        let work = |&n: &usize| {
            started.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_micros(100));
            if n == 5 { Err("five") } else { Ok(n) }
        };
        assert_eq!(run_all(&items, 2, work, |_| ()), Err("five"));
        assert!(started.load(Ordering::Relaxed) < 100);
    }
}
