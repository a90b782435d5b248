use super::*;
use schedlab_compare::{OfName, Times};

use crate::advice::{Features, Tried, judge, verdict};
use crate::estimate::Estimate;

fn run(running_ns: u64, woken_ns: u64, preempted_ns: u64, migrations: u64) -> Decomposed {
    let times = Times {
        running_ns,
        woken_ns,
        preempted_ns,
        ..Times::default()
    };
    let of = OfName {
        tasks: 2,
        times,
        migrations,
    };
    Decomposed {
        makespan_ns: times.total_ns(),
        names: vec![("cc1".to_owned(), of)],
        path: Some(times),
        ..Decomposed::default()
    }
}

/// An advice on two schedulers with these scores, in ns. With further seeds the other one has the second ones.
fn advice_on(kernel: &[f64], other: &[f64], again: Option<&[f64]>) -> Advice {
    let last = vec![
        ("kernel".to_owned(), kernel.to_vec()),
        ("other".to_owned(), other.to_vec()),
    ];
    let mut finalists = judge(last, "kernel", false);
    for one in &mut finalists {
        let is_kernel = one.scheduler == "kernel";
        one.time = Some(match is_kernel {
            true => run(700, 200, 100, 100),
            false => run(690, 50, 60, 20),
        });
    }
    let confirmed = again.map(|again| Confirmed {
        differs: Differs::of(again, kernel, false),
        failed: None,
    });
    Advice {
        schema: 2,
        workload: "make.workload".to_owned(),
        machine: "laptop".to_owned(),
        cpus: 2,
        reference: "kernel".to_owned(),
        unit: "ns".to_owned(),
        higher_is_better: false,
        budget_runs: 100,
        runs: 98,
        cut_off: false,
        verdict: verdict(&finalists, confirmed.as_ref(), "kernel", false),
        round: Round::Last,
        finalists,
        confirmed,
        tried: Vec::new(),
        features: None,
        estimate: Some(Estimate {
            work_ns: 600,
            path_ns: Some(700),
        }),
        no_estimate: None,
        possible_pct: Some(-30.0),
        worst: None,
        recording: None,
    }
}

/// With further seeds the other one has the same scores.
fn advice(kernel: &[f64], other: &[f64]) -> Advice {
    advice_on(kernel, other, Some(other))
}

const SLOW: [f64; 6] = [1000.0, 1010.0, 990.0, 1005.0, 995.0, 1000.0];
const FAST: [f64; 6] = [800.0, 810.0, 790.0, 805.0, 795.0, 800.0];

/// The scores times a factor, which differs a little from seed to seed.
fn about(factor: f64) -> Vec<f64> {
    (0..)
        .zip(SLOW)
        .map(|(seed, score)| score * factor * (1.0 + 1e-5 * f64::from(seed)))
        .collect()
}

#[test]
fn a_better_one_is_recommended_with_its_interval() {
    let advice = advice(&SLOW, &FAST);
    assert_eq!(
        headline(&advice),
        [
            "Use `other` instead of `kernel`: with 6 seeds by which nothing was chosen, its score is 20 % lower, which is better \
             (95 % interval: -20.2 to -19.8 %; better with 6 of them)."
        ]
    );
}

#[test]
fn those_that_cannot_be_told_apart_are_named() {
    let mut advice = advice(&SLOW, &FAST);
    let twin = Finalist {
        scheduler: "twin".to_owned(),
        as_good: true,
        ..advice.finalists[0].clone()
    };
    advice.finalists.insert(1, twin);
    let said = headline(&advice);
    assert_eq!(said[1], "Its difference from `twin` may be chance.");
}

/// Copies of one run: there is a difference and no interval.
#[test]
fn where_the_seed_changes_nothing_it_is_said() {
    let same =
        "The seed changes nothing here: each scheduler has one score, and there is no interval.";
    let mut advice = advice_on(&[1000.0; 6], &[800.0; 6], None);
    assert_eq!(
        headline(&advice),
        [
            "Use `other` instead of `kernel`: its score is 20 % lower, which is better.",
            same
        ]
    );
    let page = text(&advice);
    let row = page.lines().find(|line| line.starts_with("other")).unwrap();
    let row: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(row[3..], ["-20.0", "%", "none", "-", "-"], "{page}");
    let twin = Finalist {
        scheduler: "twin".to_owned(),
        as_good: true,
        ..advice.finalists[0].clone()
    };
    advice.finalists.insert(1, twin);
    assert_eq!(headline(&advice)[1], "The same score: `twin`.");
    let little = advice_on(&[1000.0; 6], &[995.0; 6], None);
    assert_eq!(
        headline(&little),
        [
            "Stay with `kernel`. The best of the others is `other`: its score is 0.5 % lower, which is better; less than 1 % is \
             not worth a change.",
            same
        ]
    );
    let equal = advice_on(&[1000.0; 6], &[1000.0; 6], None);
    assert_eq!(
        headline(&equal)[0],
        "Stay with `kernel`: none of 1 other scheduler is better. The next is `other`: its score is about the same."
    );
    // One that the seed changes is enough.
    assert_eq!(seeds_same(&advice_on(&[1000.0; 6], &FAST, None)), None);
}

#[test]
fn the_current_one_stays_where_none_is_better() {
    let said = headline(&advice_on(&FAST, &SLOW, None));
    assert_eq!(
        said,
        [
            "Stay with `kernel`: none of 1 other scheduler is better. The next is `other`: its score is 25 % higher, which is \
             worse."
        ]
    );
    let noise = [1023.0, 985.0, 1042.0, 991.0, 1034.0, 997.0];
    let said = headline(&advice_on(&SLOW, &noise, None));
    assert!(
        said[0].ends_with("which is worse, which may be chance."),
        "{said:?}"
    );
}

#[test]
fn the_current_one_stays_where_further_seeds_do_not_confirm_it() {
    let of = |again: Option<&[f64]>| headline(&advice_on(&SLOW, &FAST, again)).join(" ");
    let noise = [1003.0, 985.0, 1012.0, 991.0, 1004.0, 997.0];
    let said = of(Some(&noise));
    assert!(
        said.starts_with(
            "Stay with `kernel`: `other` was the best of the last round, but with 6 further seeds its score is "
        ) && said.ends_with("%), which may be chance."),
        "{said}"
    );
    assert!(
        of(Some(&about(0.995))).ends_with(
            "its score is 0.5 % lower, which is better (95 % interval: -0.5 to -0.5 %); less than 1 % is not worth a change."
        ),
        "{}",
        of(Some(&about(0.995)))
    );
    assert!(
        of(Some(&about(1.1))).ends_with("which is worse (95 % interval: +10.0 to +10.0 %)."),
        "{}",
        of(Some(&about(1.1)))
    );
    assert_eq!(
        of(None),
        "Stay with `kernel` for now. The best of the last round is `other`: its score is 20 % lower, which is better, by the \
         same seeds that chose it; no further seeds have confirmed it."
    );
    let mut failed = advice_on(&SLOW, &FAST, None);
    failed.confirmed = Some(Confirmed {
        differs: None,
        failed: Some("other stalled".to_owned()),
    });
    assert_eq!(
        headline(&failed)[0],
        "Stay with `kernel`: `other` was the best of the last round, but of the runs with further seeds one failed: other \
         stalled."
    );
}

#[test]
fn a_contest_that_was_stopped_says_so() {
    let mut advice = advice_on(&SLOW[..1], &FAST[..1], None);
    advice.round = Round::Contest;
    advice.cut_off = true;
    (advice.estimate, advice.possible_pct) = (None, None);
    advice.no_estimate = Some(NoEstimate::Stopped);
    assert_eq!(
        headline(&advice),
        [
            "Stay with `kernel` for now. The best so far is `other`: its score is 20 % lower, which is better, by the same 1 seed \
             that chose it.",
            "It was stopped before its end, so this is less sure than the budget allows.",
        ]
    );
    let page = text(&advice);
    assert!(
        page.contains("SO FAR") && !page.contains("LAST ROUND"),
        "{page}"
    );
    assert!(page.contains("unknown"), "no interval of one seed: {page}");
    assert_eq!(
        possible(&advice),
        [
            "No run was taken apart before the stop, so it is unknown how much another scheduler could win."
        ]
    );
}

/// The page says that further seeds are in its first paragraph only if they are.
#[test]
fn the_page_tells_what_the_seeds_chose() {
    let told = |advice: &Advice| {
        let page = crate::page(advice);
        page.sections[0].text[0].clone()
    };
    let begin = "All of the last round ran with the same seeds, which the search had not seen. ";
    let flatter = "They choose the best one, so they flatter it";
    let mut confirmed = advice(&SLOW, &FAST);
    let further = format!(
        "{begin}{flatter}; the paragraph above has its difference with further seeds. The mean"
    );
    assert!(told(&confirmed).starts_with(&further));
    // It was stopped, or a run with further seeds failed.
    let bare = format!("{begin}{flatter}, and no further seeds have confirmed it. The mean");
    assert!(told(&advice_on(&SLOW, &FAST, None)).starts_with(&bare));
    confirmed.confirmed = Some(Confirmed {
        differs: None,
        failed: Some("other stalled".to_owned()),
    });
    assert!(told(&confirmed).starts_with(&bare));
    // The current scheduler is the best one, or the seed changes nothing: there is nothing to confirm.
    let plain = format!("{begin}The mean");
    assert!(told(&advice_on(&FAST, &SLOW, None)).starts_with(&plain));
    let same = advice_on(&[1000.0; 6], &[800.0; 6], None);
    assert!(told(&same).starts_with(&plain));
}

#[test]
fn the_path_and_the_tasks_say_why() {
    let said = why(&advice(&SLOW, &FAST));
    assert_eq!(
        said,
        [
            "Of the critical path under `kernel` 70 % is on a CPU, 30 % waits for one and 0 % sleeps until a timer or a device.",
            "Under `other` the path has waits for a CPU after a wakeup: 150 ns less; waits for a CPU lost or yielded: 40.0 ns \
             less; on a CPU: 10.0 ns less.",
            "Waits for a CPU under `other`, of all tasks of a name together: cc1 110 ns instead of 300 ns.",
            "Under `other` tasks change their CPU 20 times instead of 100.",
        ]
    );
}

#[test]
fn a_path_that_stays_the_same_says_so() {
    let mut advice = advice(&SLOW, &FAST);
    for one in &mut advice.finalists {
        one.time = Some(run(700, 200, 100, 100));
    }
    let said = why(&advice);
    assert_eq!(
        said[1],
        "Under `other` no part of the path changes by 0.5 % of it."
    );
    assert_eq!(said.len(), 2);
    for one in &mut advice.finalists {
        one.time = None;
    }
    assert!(why(&advice).is_empty());
}

#[test]
fn an_estimate_says_what_is_possible_and_what_limits_it() {
    let mut advice = advice(&SLOW, &FAST);
    assert_eq!(
        possible(&advice),
        [
            "By the runs of the last round, the score of another scheduler could be about 30 % lower than that of `kernel`: the \
             critical path takes 700 ns on the fastest core, without its waits for a CPU; `kernel` takes 1.00 µs.",
            "This is an estimate and no bound: another scheduler may lead to less work, or to another critical path.",
        ]
    );
    advice.estimate = Some(Estimate {
        work_ns: 900,
        path_ns: Some(700),
    });
    assert!(possible(&advice)[0].contains("with 2 CPUs always busy the work takes 900 ns"));
    advice.higher_is_better = true;
    advice.possible_pct = Some(11.0);
    assert!(possible(&advice)[0].contains("could be about 11 % higher than"));
    advice.higher_is_better = false;
    let tried = |differs_pct: Option<f64>, failed: Option<&str>| Tried {
        scheduler: "lost".to_owned(),
        runs: 1,
        differs_pct,
        failed: failed.map(str::to_owned),
    };
    advice.worst = Some(tried(Some(100.0), None));
    advice.tried = vec![tried(None, Some("stalled"))];
    let said = possible(&advice);
    assert_eq!(
        said[2],
        "The worst of those that were tried to the end is `lost`: its score is 100 % higher, which is worse."
    );
    assert_eq!(said[3], "Given up: `lost`.");
    (advice.estimate, advice.possible_pct) = (None, None);
    for (why, told) in [
        (
            NoEstimate::ScoreIsNoTime,
            "The score does not follow from the makespan, so it is unknown how much another scheduler could win.",
        ),
        (
            NoEstimate::WorkDiffers,
            "The runs do different amounts of work, so it is unknown how much another scheduler could win.",
        ),
    ] {
        advice.no_estimate = Some(why);
        assert_eq!(possible(&advice)[0], told);
    }
}

#[test]
fn features_are_named_by_what_is_known_of_them() {
    let mut advice = advice(&SLOW, &FAST);
    assert_eq!(features(&advice), None);
    let mut with = |good: &[&str], bad: &[&str]| {
        let named = |all: &[&str]| all.iter().map(|name| name.to_string()).collect();
        advice.features = Some(Features {
            space: "tree".to_owned(),
            runs: 60,
            failed: 0,
            of: 2916,
            good: named(good),
            bad: named(bad),
        });
        features(&advice).unwrap()
    };
    assert!(with(&[], &[]).ends_with("No single feature is good or bad beyond chance."));
    assert!(with(&["a=on"], &[]).ends_with("estimated. Good: a=on."));
    assert!(with(&[], &["b=off", "c=x"]).ends_with("estimated. Bad: b=off, c=x."));
    assert!(with(&["a=on"], &["b=off"]).ends_with("Good: a=on. Bad: b=off."));
    assert!(with(&[], &[]).starts_with(
        "Of the 2916 different schedulers of `tree`, 60 were run and the others estimated."
    ));
    advice.features.as_mut().unwrap().failed = 4;
    assert!(
        features(&advice)
            .unwrap()
            .contains("60 were run (4 failed) and the others estimated.")
    );
}

#[test]
fn a_recording_says_how_far_it_can_be_believed() {
    let mut advice = advice(&SLOW, &FAST);
    assert!(not_modelled(&advice)[0].starts_with("The program is a model"));
    let mut recording = Recording {
        lost_events: 0,
        not_inferred_pct: 3.0,
        others_pct: 1.0,
        replays: 3,
        errors_pct: vec![("makespan".to_owned(), -4.0), ("CPU time".to_owned(), 1.0)],
    };
    advice.recording = Some(recording.clone());
    let said = not_modelled(&advice);
    assert_eq!(
        said[0],
        "Replays under the recorded scheduler differ from the recording by: makespan -4.0 %, CPU time +1.0 %."
    );
    assert!(said[1].starts_with("3 % of the time that tasks waited"));
    assert_eq!(said.len(), 3);
    recording.errors_pct[0].1 = -40.0;
    recording.lost_events = 7;
    recording.others_pct = 50.0;
    advice.recording = Some(recording.clone());
    let said = not_modelled(&advice);
    assert_eq!(
        said[1],
        "That is more than the gain: measure before you rely on it."
    );
    assert!(said[3].starts_with("Other tasks took 50 %"));
    assert!(said[4].starts_with("The recorder lost 7 events"));
    assert_eq!(
        headline(&advice)[1],
        "The replay under the recorded scheduler misses the recorded makespan by -40 %, so measure before you rely on this."
    );
    recording.errors_pct.clear();
    for (made, told) in [
        (
            0,
            "It was stopped before a replay under the recorded scheduler: the error is unknown.",
        ),
        (
            1,
            "The replay under the recorded scheduler did not come to its end.",
        ),
        (
            3,
            "None of 3 replays under the recorded scheduler came to its end.",
        ),
    ] {
        recording.replays = made;
        advice.recording = Some(recording.clone());
        assert_eq!(not_modelled(&advice)[0], told);
    }
}

#[test]
fn a_unit_without_room_stands_below_the_table() {
    let mut advice = advice(&SLOW, &FAST);
    for (unit, cell, below) in [
        ("ns", " 2.00 µs ", None),
        (
            "delivered messages/s",
            " 2,000 ",
            Some("MEAN is the score in delivered messages/s;"),
        ),
    ] {
        unit.clone_into(&mut advice.unit);
        for one in &mut advice.finalists {
            one.mean = 2_000.0;
        }
        let page = text(&advice);
        assert!(page.contains(cell), "{page}");
        assert_eq!(
            page.contains("MEAN is the score in"),
            below.is_some(),
            "{page}"
        );
        assert!(page.contains(below.unwrap_or("")), "{page}");
    }
}

#[test]
fn a_page_has_eighty_columns_and_names_long_schedulers_below() {
    let mut advice = advice(&SLOW, &FAST);
    let long = "tree:election=fifo,slice=split,metric=nr_run,periodic=nr_cores,idle=on,unblock=on,executor=all";
    advice.finalists[0].scheduler = long.to_owned();
    let page = text(&advice);
    let flat = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("Use `tree/1` instead of `kernel`"), "{page}");
    assert!(
        page.contains("tree/1: election=fifo, slice=split"),
        "{page}"
    );
    for line in page.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for heading in [
        "LAST ROUND",
        "WHY",
        "CRITICAL PATH",
        "ABOUT HOW MUCH COULD BE WON",
        "NOT MODELLED",
    ] {
        assert!(page.contains(heading), "{heading}");
    }
}
