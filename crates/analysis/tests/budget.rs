//! Searches with a budget on data whose truth is known: the best is found, and nothing that is not there.

mod support;

use std::collections::BTreeMap;

use schedlab_analysis::{Analysis, Verdict};
use schedlab_search::{Plan, estimated};
use schedlab_sweep::{Budget, Definition, Row};
use support::{Noise, analysis, rows, searched, sharing};

/// A tenth of the 2,916 different schedulers of the tree.
const RUNS: u64 = 291;

fn with_budget(definition: &Definition, runs: u64) -> Definition {
    let mut definition = definition.clone();
    definition.budget = Some(Budget { runs, timed: None });
    definition
}

/// Searches the rows of a full factorial.
fn search(definition: &Definition, all: &[Row]) -> Analysis {
    let by_job: BTreeMap<u64, &Row> = all.iter().map(|row| (row.job, row)).collect();
    let found = searched(definition, |job| by_job[&job].clone());
    analysis(definition, &found)
}

/// Every alternative with what is said of it.
fn verdicts(analysis: &Analysis) -> Vec<(String, Verdict)> {
    let all = analysis.study.alternatives.iter();
    all.map(|one| (format!("{}={}", one.feature, one.alternative), one.verdict))
        .collect()
}

/// Effects of the size of the study's: a few main effects, two that matter together, and one that hardly matters.
fn time(of: &dyn Fn(&str) -> String) -> f64 {
    let mut time = 100.0;
    if of("periodic") == "never" {
        time *= 2.0;
    }
    if of("unblock") == "off" && of("placement") == "smt" {
        time *= 1.4;
    }
    if of("slice") == "infinite" {
        time *= 0.85;
    }
    if of("metric") == "used_time" {
        time *= 1.12;
    }
    if of("idle") == "on" {
        time *= 1.01;
    }
    time
}

#[test]
fn a_tenth_of_the_runs_finds_the_best_and_the_same_features() {
    let whole = sharing(None, 1);
    // Equivalent schedulers have one result: the first one's.
    let all = rows(&whole, |of, _| (time(of), 1.0));
    let canonical = |job: u64| {
        let point = whole.points()[whole.parts(job).0];
        let first = whole.space.same_as(point);
        let mut row = all[job as usize].clone();
        row.values = all[first as usize].values.clone();
        row
    };
    let all: Vec<Row> = (0..whole.jobs()).map(canonical).collect();
    let truth = analysis(&whole, &all);
    let (mut same, mut of) = (0, 0);
    for seed in 1..=5 {
        let mut definition = with_budget(&whole, RUNS);
        definition.seed = seed;
        let found = search(&definition, &all);
        let about = found.search.as_ref().unwrap();
        assert!(about.runs <= RUNS, "{}", about.runs);
        assert!(
            found.study.best <= truth.study.best * 1.01,
            "seed {seed}: {} of {}",
            found.study.best,
            truth.study.best
        );
        for (one, other) in verdicts(&truth).iter().zip(&verdicts(&found)) {
            same += usize::from(one == other);
            of += 1;
        }
    }
    assert!(same * 100 >= of * 95, "{same} of {of} cells are the same");
}

/// At most 5 % of searches in data without any effect have a finding.
#[test]
fn noise_is_no_finding() {
    let whole = sharing(None, 1);
    let mut false_findings = 0;
    const SETS: u64 = 40;
    for set in 1..=SETS {
        let mut noise = Noise::new(set);
        let all = rows(&whole, |_, _| (100.0 + 5.0 * noise.draw(), 1.0));
        let mut definition = with_budget(&whole, 120);
        definition.seed = set;
        let found = search(&definition, &all);
        false_findings += u64::from(!found.findings().is_empty());
    }
    assert!(
        false_findings * 20 <= SETS,
        "{false_findings} of {SETS} searches found something"
    );
}

#[test]
fn the_same_seed_gives_the_same_runs_and_another_one_others() {
    let whole = sharing(None, 1);
    let all = rows(&whole, |of, _| (time(of), 1.0));
    let order = |seed| {
        let mut definition = with_budget(&whole, 60);
        definition.seed = seed;
        let found = searched(&definition, |job| all[job as usize].clone());
        found.iter().map(|row| row.job).collect::<Vec<u64>>()
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
}

/// With the rows of a whole search it is over: results of later stages change no earlier one.
#[test]
fn a_search_that_is_done_stays_done() {
    let whole = support::definition(&[], &["cpu"], 4, None, 1);
    let mut noise = Noise::new(2);
    let all = rows(&whole, |of, _| (time(of) + noise.draw(), 1.0));
    let definition = with_budget(&whole, 80);
    let found = searched(&definition, |job| all[job as usize].clone());
    let rows: BTreeMap<u64, Row> = found.into_iter().map(|row| (row.job, row)).collect();
    let mut plan = Plan::new(&definition).unwrap();
    assert_eq!(plan.stage(&rows), None);
    // Without the row of the last stage that stage is under way.
    let (last, _) = rows.last_key_value().unwrap();
    let mut without = rows.clone();
    without.remove(last);
    let mut plan = Plan::new(&definition).unwrap();
    let stage = plan.stage(&without).unwrap();
    assert!(
        stage
            .iter()
            .any(|run| definition.jobs_of(*run).any(|job| job == *last))
    );
}

/// The best race over further seeds, which decide between those that one seed cannot tell apart.
#[test]
fn the_last_ones_race_over_all_seeds() {
    let whole = support::definition(&[], &["cpu"], 8, None, 1);
    let mut definition = with_budget(&whole, 300);
    definition.seed = 3;
    let mut noise = Noise::new(9);
    let all = rows(&whole, |of, _| {
        (time(of) * (1.0 + 0.02 * noise.draw()), 1.0)
    });
    let found = searched(&definition, |job| all[job as usize].clone());
    let analysis = analysis(&definition, &found);
    let search = analysis.search.clone().unwrap();
    assert_eq!(search.seeds, 8);
    assert!(search.runs <= 300 && search.runs > 280, "{}", search.runs);
    let [low, high] = search.interval.unwrap();
    assert!(low < 85.0 * 1.03 && high > 85.0 * 0.97, "{low} to {high}");
    let second = search.second.as_ref().unwrap();
    assert!(second.interval_pct.is_some() && second.scheduler != search.best_scheduler);
    assert!(search.best_scheduler.contains("slice=infinite"));
    // The value and the name of the best stand for one run, of the first seed; the race may name another one.
    let score = |scheduler: &str, seeds: std::ops::Range<u32>| {
        let of = found.iter().filter(|row| row.scheduler == scheduler);
        let scores: Vec<f64> = of
            .filter(|row| seeds.contains(&definition.parts(row.job).2))
            .filter_map(|row| row.value("score"))
            .collect();
        scores.iter().sum::<f64>() / scores.len() as f64
    };
    let study = &analysis.study;
    let is = |value: f64, expected: f64| (value - expected).abs() < 1e-9;
    assert!(is(score(&study.best_scheduler, 0..1), study.best));
    assert!(is(score(&search.best_scheduler, 0..8), search.best));
    assert_ne!(
        study.best_scheduler, search.best_scheduler,
        "another seed shows nothing"
    );
    // Of a race nobody has more seeds than the winner, and most have one.
    let seeds = |row: &&Row| row.scheduler == search.best_scheduler;
    assert_eq!(found.iter().filter(seeds).count(), 8);
}

#[test]
fn a_budget_for_all_runs_all_and_the_verdicts_are_those_of_all() {
    let fixed = &["election=fifo", "slice=split", "metric=nr_run"];
    let whole = support::definition(fixed, &["cpu"], 1, None, 1);
    let all = rows(&whole, |of, _| {
        let slow = of("unblock") == "off" && of("placement") == "smt";
        (if slow { 200.0 } else { 100.0 }, 1.0)
    });
    let truth = analysis(&whole, &all);
    let found = search(&with_budget(&whole, 5_000), &all);
    assert_eq!(found.search.as_ref().unwrap().runs, whole.runs());
    assert_eq!(verdicts(&found), verdicts(&truth));
}

/// Where the best score is 0, estimates are on the scale of the other scores.
#[test]
fn a_best_of_zero_has_a_scale() {
    let whole = sharing(None, 1);
    let misses = |of: &dyn Fn(&str) -> String| match of("slice").as_str() {
        "infinite" => 0.0,
        _ => 40.0,
    };
    let all = rows(&whole, |of, _| (misses(of), 1.0));
    let definition = with_budget(&whole, 120);
    let found = searched(&definition, |job| all[job as usize].clone());
    let rows: BTreeMap<u64, Row> = found.into_iter().map(|row| (row.job, row)).collect();
    let known = estimated(&definition, 0, &rows).unwrap();
    let features = &definition.space.features;
    let slice = features.iter().position(|one| one.name == "slice").unwrap();
    let is_infinite = |choice: usize| features[slice].alternatives[choice] == "infinite";
    for (point, score) in (0..).zip(&known.scores) {
        let expected = match is_infinite(definition.space.choices(point)[slice]) {
            true => 0.0,
            false => 40.0,
        };
        assert!((score - expected).abs() < 10.0, "{point}: {score}");
    }
}
