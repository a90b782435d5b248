//! Many runs at once: each on a thread of its own.

use std::convert::Infallible;
use std::fmt::Display;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use schedlab_report::RunResult;

use crate::Prepared;

/// Interval of the notices that nothing changed.
const HEARTBEAT: Duration = Duration::from_millis(200);

/// Runs `work` on every item with at most `threads` at a time, as long as `stop` returns false. Items are started in
/// order. Calls `hear` on the calling thread with each result as it comes and its item's index, and with `None` after
/// 200 ms without a result. While `hear` runs, further items wait. If the host cannot start all threads, there are
/// fewer; if it cannot start any, the calling one does the work.
pub fn each<I: Sync, T: Send>(
    items: &[I],
    threads: NonZeroUsize,
    stop: impl Fn() -> bool + Sync,
    work: impl Fn(&I) -> T + Sync,
    mut hear: impl FnMut(Option<(usize, T)>),
) {
    let next = AtomicUsize::new(0);
    let take = || {
        if stop() {
            return None;
        }
        let index = next.fetch_add(1, Ordering::Relaxed);
        Some((index, items.get(index)?))
    };
    let (sender, receiver) = mpsc::sync_channel(threads.get());
    thread::scope(|scope| {
        let mut started = 0;
        for _ in 0..threads.get().min(items.len()) {
            let sender = sender.clone();
            let (take, work) = (&take, &work);
            let worker = move || {
                while let Some((index, item)) = take() {
                    // The receiver is gone only when the scope is left by a panic.
                    let _ = sender.send((index, work(item)));
                }
            };
            if thread::Builder::new().spawn_scoped(scope, worker).is_err() {
                break;
            }
            started += 1;
        }
        drop(sender);
        loop {
            match receiver.recv_timeout(HEARTBEAT) {
                Ok(result) => hear(Some(result)),
                Err(RecvTimeoutError::Timeout) => hear(None),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        while started == 0
            && let Some((index, item)) = take()
        {
            hear(Some((index, work(item))));
        }
    });
}

/// Runs `work` on every item, as [`each`] does; the results in the order of the items. Calls `progress` with the
/// number of done items, at least every 200 ms. After the first error no further item is started.
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

/// Makes all the runs, as [`run_all`]. One that cannot be begun is a failed run among the others, which are kept.
///
/// # Errors
/// The first one's where none can be begun: nothing is lost.
pub fn simulate<E: Display + Send>(
    runs: &[Prepared],
    threads: NonZeroUsize,
    work: impl Fn(&Prepared) -> Result<RunResult, E> + Sync,
    progress: impl FnMut(usize),
) -> Result<Vec<RunResult>, E> {
    let Ok(results) = run_all(
        runs,
        threads,
        |run| Ok::<_, Infallible>(work(run)),
        progress,
    );
    if results.iter().all(Result::is_err) {
        return results.into_iter().collect();
    }
    let results = runs.iter().zip(results);
    Ok(results
        .map(|(run, result)| result.unwrap_or_else(|error| run.not_run(error)))
        .collect())
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use schedlab_report::Exit;

    use super::*;
    use crate::{Inputs, Scheduler, SimSpec};

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

    #[test]
    fn what_cannot_be_begun_is_a_failed_run_among_the_others() {
        let mut inputs = Inputs::default();
        let runs: Vec<Prepared> = (0..5)
            .map(|seed| {
                let spec = SimSpec::new("cpu:duration=1ms", Scheduler::parse("fifo"), "laptop");
                inputs.read(&SimSpec { seed, ..spec }).unwrap()
            })
            .collect();
        let simulated = |fails: fn(u64) -> bool| {
            let work = |run: &Prepared| match fails(run.spec().seed) {
                true => Err(format!("no room for {}", run.spec().seed)),
                false => Ok(run.run(None).unwrap()),
            };
            simulate(&runs, threads(2), work, |_| ())
        };
        let results = simulated(|seed| seed == 1 || seed == 3).unwrap();
        for (seed, result) in (0..).zip(&results) {
            assert_eq!(result.seed, seed);
            assert_eq!(result.replay, runs[seed as usize].spec().replay_command());
            if seed % 2 == 0 {
                assert!(result.is_done());
            } else {
                assert_eq!(result.exit, Exit::NotRun);
                assert_eq!(result.message, Some(format!("no room for {seed}")));
            }
        }
        assert_eq!(simulated(|_| true), Err("no room for 0".to_owned()));
        assert_eq!(
            simulate(&[], threads(2), |_| Err("never"), |_| ()),
            Ok(vec![])
        );
    }
}
