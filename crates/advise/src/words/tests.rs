use super::*;
use crate::advice::{Features, Tried, judge, verdict};
use crate::bounds::Bounds;
use crate::path::OfName;

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

/// An advice on two schedulers with these scores, in ns.
fn advice(kernel: &[f64], other: &[f64], possible_pct: Option<f64>) -> Advice {
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
    Advice {
        schema: 1,
        workload: "make.workload".to_owned(),
        machine: "laptop".to_owned(),
        cpus: 2,
        reference: "kernel".to_owned(),
        unit: "ns".to_owned(),
        higher_is_better: false,
        budget_runs: 100,
        runs: 98,
        cut_off: false,
        verdict: verdict(&finalists, "kernel", possible_pct),
        finalists,
        tried: Vec::new(),
        features: None,
        bounds: possible_pct.map(|_| Bounds {
            work_ns: 600,
            path_ns: Some(700),
        }),
        possible_pct,
        worst: None,
        recording: None,
    }
}

const SLOW: [f64; 6] = [1000.0, 1010.0, 990.0, 1005.0, 995.0, 1000.0];
const FAST: [f64; 6] = [800.0, 810.0, 790.0, 805.0, 795.0, 800.0];

#[test]
fn a_better_one_is_recommended_with_its_interval() {
    let advice = advice(&SLOW, &FAST, Some(43.0));
    let said = headline(&advice).join(" ");
    assert!(
        said.starts_with("Use `other` instead of `kernel`: it is 25 % faster (95 % interval: +24."),
        "{said}"
    );
    assert!(
        said.ends_with(
            "with 6 of 6 seeds, and the best of the last round in 100 % of draws of the seeds."
        ),
        "{said}"
    );
}

#[test]
fn those_that_cannot_be_told_apart_are_named() {
    let mut advice = advice(&SLOW, &FAST, Some(43.0));
    let twin = Finalist {
        scheduler: "twin".to_owned(),
        as_good: true,
        ..advice.finalists[0].clone()
    };
    advice.finalists.insert(1, twin);
    let said = headline(&advice);
    assert_eq!(said[1], "Its difference from `twin` may be chance.");
}

#[test]
fn the_current_one_stays_where_none_is_better() {
    let said = headline(&advice(&FAST, &SLOW, Some(30.0)));
    assert_eq!(
        said,
        ["Stay with `kernel`: none of 2 schedulers is better. The next, `other`, is 25 % slower."]
    );
}

#[test]
fn the_current_one_stays_where_chance_may_be_all() {
    let noise = [1003.0, 985.0, 1012.0, 991.0, 1004.0, 997.0];
    let said = headline(&advice(&SLOW, &noise, Some(30.0))).join(" ");
    assert!(
        said.starts_with("Stay with `kernel`: the best of the others, `other`, is "),
        "{said}"
    );
    assert!(said.ends_with("which may be chance."), "{said}");
}

#[test]
fn the_current_one_stays_for_less_than_a_percent() {
    let little: Vec<f64> = SLOW.iter().map(|score| score * 0.995).collect();
    let said = headline(&advice(&SLOW, &little, Some(30.0))).join(" ");
    assert!(
        said.ends_with("is only 0.5 % faster; less than 1 % is not worth a change."),
        "{said}"
    );
}

#[test]
fn few_seeds_decide_nothing() {
    let said = headline(&advice(&SLOW[..3], &FAST[..3], Some(30.0))).join(" ");
    assert!(
        said.ends_with("but 3 seeds are too few to tell that from chance."),
        "{said}"
    );
}

#[test]
fn a_small_gap_says_that_no_scheduler_matters() {
    let mut advice = advice(&SLOW, &SLOW, Some(1.2));
    let said = headline(&advice).join(" ");
    assert_eq!(
        said,
        "No scheduler matters here: even an ideal one would win at most 1.2 % over `kernel`."
    );
    advice.cut_off = true;
    assert!(headline(&advice)[1].starts_with("It was stopped before its end"));
}

#[test]
fn the_path_and_the_tasks_say_why() {
    let said = why(&advice(&SLOW, &FAST, Some(43.0)));
    assert_eq!(
        said,
        [
            "Of the critical path under `kernel` 70 % is on a CPU, 30 % waits for one and 0 % sleeps until a timer or a device.",
            "Under `other` the path has waits for a CPU after a wakeup: 150 ns less; waits for a CPU behind others: 40.0 ns \
             less; on a CPU: 10.0 ns less.",
            "Waits for a CPU under `other`, of all tasks of a name together: cc1 110 ns instead of 300 ns.",
            "Under `other` tasks change their CPU 20 times instead of 100.",
        ]
    );
}

#[test]
fn a_path_that_stays_the_same_says_so() {
    let mut advice = advice(&SLOW, &FAST, None);
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
fn bounds_say_what_is_possible_and_what_limits_it() {
    let mut advice = advice(&SLOW, &FAST, Some(43.0));
    assert_eq!(
        possible(&advice),
        [
            "An ideal scheduler could be at most 43 % faster than `kernel`: the critical path without its waits for a CPU \
             takes 700 ns; `kernel` takes 1.00 µs."
        ]
    );
    advice.bounds = Some(Bounds {
        work_ns: 900,
        path_ns: Some(700),
    });
    assert!(possible(&advice)[0].contains("with 2 CPUs always busy the work takes 900 ns"));
    let tried = |better_pct: Option<f64>, failed: Option<&str>| Tried {
        scheduler: "lost".to_owned(),
        runs: 1,
        better_pct,
        failed: failed.map(str::to_owned),
    };
    advice.worst = Some(tried(Some(-50.0), None));
    advice.tried = vec![tried(None, Some("stalled"))];
    let said = possible(&advice);
    assert_eq!(
        said[1],
        "The worst of those that were tried to the end, `lost`, is 100 % slower."
    );
    assert_eq!(said[2], "Given up: `lost`.");
    advice.bounds = None;
    assert!(possible(&advice)[0].starts_with("The score does not follow from the makespan"));
}

#[test]
fn rates_are_more_or_less() {
    let mut advice = advice(&SLOW, &FAST, None);
    advice.higher_is_better = true;
    assert_eq!(faster(&advice, 12.0), "12 % more");
    assert_eq!(faster(&advice, -5.0), "5.0 % less");
    advice.higher_is_better = false;
    advice.unit = "misses".to_owned();
    assert_eq!(faster(&advice, 12.0), "12 % better");
}

#[test]
fn features_are_named_by_what_is_known_of_them() {
    let mut advice = advice(&SLOW, &FAST, None);
    assert_eq!(features(&advice), None);
    let mut with = |good: &[&str], bad: &[&str]| {
        let named = |all: &[&str]| all.iter().map(|name| name.to_string()).collect();
        advice.features = Some(Features {
            space: "tree".to_owned(),
            runs: 60,
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
}

#[test]
fn a_recording_says_how_far_it_can_be_believed() {
    let mut advice = advice(&SLOW, &FAST, Some(43.0));
    assert!(not_modelled(&advice)[0].starts_with("The program is a model"));
    let mut recording = Recording {
        lost_events: 0,
        not_inferred_pct: 3.0,
        others_pct: 1.0,
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
    advice.recording = Some(recording);
    assert!(not_modelled(&advice)[0].starts_with("No replay"));
}

#[test]
fn a_unit_without_room_stands_below_the_table() {
    let mut advice = advice(&SLOW, &FAST, Some(43.0));
    for (unit, cell, below) in [
        ("ns", " 2.00 µs ", None),
        (
            "delivered messages/s",
            " 2,000 ",
            Some("MEAN is in delivered messages/s."),
        ),
    ] {
        unit.clone_into(&mut advice.unit);
        for one in &mut advice.finalists {
            one.mean = 2_000.0;
        }
        let page = text(&advice);
        assert!(page.contains(cell), "{page}");
        assert_eq!(page.contains("MEAN is in"), below.is_some(), "{page}");
        assert!(page.contains(below.unwrap_or("")), "{page}");
    }
}

#[test]
fn a_page_has_eighty_columns_and_names_long_schedulers_below() {
    let mut advice = advice(&SLOW, &FAST, Some(43.0));
    let long = "tree:election=fifo,slice=split,metric=nr_run,periodic=nr_cores,idle=on,unblock=on,executor=all";
    advice.finalists[0].scheduler = long.to_owned();
    let page = text(&advice);
    assert!(page.contains("Use `tree/1` instead of `kernel`"), "{page}");
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
        "HOW MUCH COULD BE WON",
        "NOT MODELLED",
    ] {
        assert!(page.contains(heading), "{heading}");
    }
}
