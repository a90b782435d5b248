//! A stop at any time: the advice is made of what is known then, and does not claim more.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};

use schedlab_advise::{Advice, AdviseError, Ask, Limit, Progress, Round, Verdict, advise, text};
use schedlab_sim::{Scheduler, SimSpec, parse_schedulers};
use schedlab_trace::counted;

/// The advice if it is stopped after so many runs.
fn stopped_after(runs: u64) -> Result<Advice, AdviseError> {
    let ask = Ask {
        spec: SimSpec {
            cpus: Some(2),
            ..SimSpec::new(
                "hackbench:groups=1,fds=2,loops=10",
                Scheduler::parse("kernel"),
                "laptop",
            )
        },
        file: None,
        schedulers: parse_schedulers("fifo,vtime,eevdf").unwrap(),
        limit: Limit::Runs(60),
        threads: NonZeroUsize::MIN,
    };
    let stop = AtomicBool::new(false);
    advise(&ask, &stop, &mut |progress: Progress| {
        if progress.done >= runs {
            stop.store(true, Ordering::Relaxed);
        }
    })
}

#[test]
fn a_stop_leaves_what_is_known() {
    // The current scheduler alone says nothing.
    assert!(matches!(stopped_after(1), Err(AdviseError::Stopped)));
    let mut rounds = Vec::new();
    for runs in [2, 4, 9, 12, 20, 40, 1_000] {
        let advice = stopped_after(runs).unwrap_or_else(|error| panic!("{runs}: {error}"));
        let page = text(&advice);
        let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(advice.cut_off, runs < 1_000, "{runs}: {page}");
        assert_eq!(
            page.contains("It was stopped before its end"),
            advice.cut_off
        );
        if advice.round == Round::Contest {
            assert!(advice.estimate.is_none() && advice.no_estimate.is_some());
            assert!(page.contains("SO FAR") && !page.contains("LAST ROUND"));
        }
        // Nothing is recommended that no further seeds have confirmed.
        if advice.confirmed.is_none() && !advice.best().differs.seeds_same {
            assert_eq!(advice.verdict, Verdict::Stay, "{page}");
        }
        if runs == 2 {
            // One more may have begun before the stop. Those without a run do not count.
            let others = counted(advice.runs - 1, "other scheduler");
            let none = page.contains(&format!("none of {others} is better"));
            let some = page.contains("Stay with `kernel` for now. The best so far is");
            assert!(none != some, "{page}");
            assert_eq!(some, page.contains("which is better"), "{page}");
        }
        if !advice.cut_off {
            // The time of a run is the part that its score counts, which begins when all tasks stand. The main thread ends
            // a little later than the last task.
            let reference = advice.reference();
            let time = reference.time.as_ref().unwrap();
            let part = time.makespan_ns as f64 / reference.scores[0];
            assert!((0.99..=1.0).contains(&part), "{part}");
            assert!(time.begun_ns > time.makespan_ns / 20, "{}", time.begun_ns);
            assert_eq!(time.path.unwrap().total_ns(), time.makespan_ns);
            let least = advice.estimate.unwrap().least_ns();
            assert!((1..=time.makespan_ns).contains(&least), "{least}");
            assert!(advice.possible_pct.is_some());
        }
        rounds.push(advice.round);
    }
    assert!(rounds.is_sorted_by_key(|round| *round == Round::Last));
    assert_eq!(rounds[0], Round::Contest);
    assert_eq!(rounds[rounds.len() - 1], Round::Last);
}
