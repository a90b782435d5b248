//! Sweeps that lack something: combinations, runs, seeds, measures, or enough of any for a finding.

mod support;

use schedlab_analysis::{Across, Against, Analysis, Bounds, Effect, Verdict, analyse, page};
use schedlab_sweep::{Definition, Row};
use support::{Noise, analysis, definition, place, rows};

/// The options that are fixed so that 216 schedulers are left.
const FIXED: &[&str] = &["election=fifo", "slice=split", "metric=nr_run"];

fn effect(analysis: &Analysis, feature: &str) -> Effect {
    let mut effects = analysis.variance.effects.iter();
    effects.find(|one| one.feature == feature).unwrap().clone()
}

/// The alternatives of `placement`.
fn placed(of: &dyn Fn(&str) -> String) -> f64 {
    match of("placement").as_str() {
        "smt" => 100.0,
        "llc" => 110.0,
        _ => 200.0,
    }
}

fn fail(row: &mut Row) {
    row.exit = schedlab_report::Exit::ErrorStall;
    row.values[place("score")] = None;
}

fn value<'a>(definition: &Definition, row: &'a Row, feature: &str) -> &'a str {
    let features = &definition.space.features;
    &row.choices[features.iter().position(|f| f.name == feature).unwrap()]
}

fn only<'a>(analysis: &'a Analysis, feature: &str) -> impl Iterator<Item = String> + 'a {
    let others = feature.to_owned();
    let found = analysis.findings().into_iter();
    found.filter(move |name| !name.starts_with(&others))
}

#[test]
fn samples_find_what_matters_and_nothing_else() {
    for (size, always) in [(12, false), (40, true)] {
        let mut others = 0;
        for seed in 1..=100 {
            let definition = definition(FIXED, &["cpu"], 1, Some(size), seed);
            let mut noise = Noise::new(seed);
            let rows = rows(&definition, |of, _| (placed(of) + noise.draw(), 1.0));
            let analysis = analysis(&definition, &rows);
            let variance = &analysis.variance;
            assert!(!variance.exact);
            others += usize::from(only(&analysis, "placement").next().is_some());
            assert!(
                !always || effect(&analysis, "placement").significant,
                "{seed}"
            );
            let shares: f64 = variance.effects.iter().map(|effect| effect.share_pct).sum();
            assert!(
                shares + variance.rest_pct <= 100.0 + 1e-6,
                "{seed}: {shares}"
            );
        }
        assert!(others <= 5, "{others} of 100 samples of {size}");
    }
}

/// Two features that matter only together are no noise, and no finding about a third.
#[test]
fn samples_take_a_pair_for_no_other_feature() {
    let mut others = 0;
    for seed in 1..=100 {
        let definition = definition(FIXED, &["cpu"], 1, Some(24), seed);
        let rows = rows(&definition, |of, _| {
            let slow = of("unblock") == "on" && of("placement") == "smt";
            (if slow { 200.0 } else { 100.0 }, 1.0)
        });
        let analysis = analysis(&definition, &rows);
        let about = ["unblock", "placement"];
        let is_other = |name: &String| !about.iter().any(|own| name.starts_with(own));
        others += usize::from(analysis.findings().iter().any(is_other));
    }
    assert!(others <= 5, "{others} of 100 samples");
}

/// `idle` does nothing, but where it is off the slow placement fails.
#[test]
fn an_alternative_that_fails_where_others_are_slow_is_not_the_best() {
    let definition = definition(FIXED, &["cpu"], 3, None, 1);
    let mut noise = Noise::new(2);
    let mut rows = rows(&definition, |of, _| (placed(of) + 0.5 * noise.draw(), 1.0));
    for row in &mut rows {
        let fails = value(&definition, row, "idle") == "off"
            && value(&definition, row, "placement") == "all";
        if fails {
            fail(row);
        }
    }
    let analysis = analysis(&definition, &rows);
    let idle = effect(&analysis, "idle");
    assert!(!idle.significant && idle.p.unwrap() > 0.01, "{idle:?}");
    assert!(idle.share_pct < 0.1, "{idle:?}");
    assert!(idle.levels.iter().all(|level| level.better_pct.abs() < 0.5));
    assert_eq!(analysis.left_out.failed, 36);
    let placement = effect(&analysis, "placement");
    assert!(placement.significant);
    for (level, mean) in placement.levels.iter().zip([100.0, 110.0, 200.0]) {
        let from_all = level.mean - analysis.variance.mean;
        assert!((from_all - (mean - 410.0 / 3.0)).abs() < 0.5, "{level:?}");
        let [low, high] = level.interval_pct.unwrap();
        assert!(low < level.better_pct && level.better_pct < high);
    }
    let words = &analysis.words;
    assert!(!words.contains("idle=on"), "{words}");
    assert!(
        words.contains("36 failed, all with idle=off and placement=all"),
        "{words}"
    );
    assert!(only(&analysis, "placement").next().is_none());
}

/// Two features and nothing else: no combination is left over for a test, but seeds are.
#[test]
fn seeds_tell_where_combinations_cannot() {
    let fixed = &[
        FIXED,
        &[
            "periodic=never",
            "executor=all",
            "imbalance=differs",
            "unblock=on",
        ],
    ]
    .concat();
    let definition = definition(fixed, &["cpu"], 10, None, 1);
    let idle_matters = |noise: f64| {
        let mut random = Noise::new(1);
        let rows = rows(&definition, |of, _| {
            let time = if of("idle") == "on" { 200.0 } else { 100.0 };
            (time + noise * random.draw(), 1.0)
        });
        analysis(&definition, &rows)
    };
    let found = idle_matters(0.5);
    assert_eq!(
        (found.variance.against, found.variance.freedom),
        (Against::Seeds, 45.0)
    );
    assert!(found.variance.exact && effect(&found, "idle").significant);
    assert!(!effect(&found, "placement").significant);
    assert!(
        found.words.contains("idle 100 % (best on average: off)"),
        "{}",
        found.words
    );
    // Every run is the same whatever the seed.
    let copies = idle_matters(0.0);
    assert_eq!(
        (copies.variance.against, copies.variance.freedom),
        (Against::Copies, 0.0)
    );
    assert_eq!(copies.findings(), ["idle"]);
    assert_eq!(effect(&copies, "placement").p, Some(1.0));
}

#[test]
fn too_little_to_tell_is_not_nothing() {
    let rest = [
        "periodic=never",
        "executor=all",
        "imbalance=differs",
        "placement=all",
    ];
    let definition = definition(&[FIXED, &rest].concat(), &["cpu"], 1, None, 1);
    let rows = |step: f64| {
        rows(&definition, |of, _| {
            let one = if of("idle") == "on" { step } else { 0.0 };
            let other = if of("unblock") == "on" {
                3.0 * step
            } else {
                0.0
            };
            (100.0 + one + other + one * other / 100.0, 1.0)
        })
    };
    let some = analysis(&definition, &rows(10.0));
    assert!(
        some.words.contains("too few combinations to separate"),
        "{}",
        some.words
    );
    assert!(
        !some.words.contains("that chance would not make"),
        "{}",
        some.words
    );
    // There are no more combinations than these.
    assert!(
        !some.words.contains("more of them") && some.words.contains("more seeds"),
        "{}",
        some.words
    );
    let none = analysis(&definition, &rows(0.0));
    assert!(
        none.words.ends_with("No feature makes any difference."),
        "{}",
        none.words
    );
}

/// A scheduler whose runs differ too much is not compared with the best, but it is in the variance.
#[test]
fn what_is_not_compared_may_differ() {
    let rest = [
        "periodic=never",
        "executor=all",
        "imbalance=differs",
        "placement=all",
    ];
    let definition = definition(&[FIXED, &rest].concat(), &["cpu"], 2, None, 1);
    let rows = rows(&definition, |of, seed| {
        let unsteady = of("idle") == "on";
        (if unsteady { 150.0 * seed as f64 } else { 100.0 }, 1.0)
    });
    let found = analysis(&definition, &rows);
    assert_eq!((found.study.excluded, found.study.schedulers), (2, 2));
    assert_eq!(found.study.best, found.study.worst);
    assert!(effect(&found, "idle").share_pct > 99.0);
    assert!(
        !found.words.contains("No feature makes any difference"),
        "{}",
        found.words
    );
    assert!(
        found
            .words
            .contains("Those that are compared do not differ. The 4 schedulers are only 2"),
        "{}",
        found.words
    );
}

/// All combinations are there, but without a periodic balance they are one scheduler.
#[test]
fn one_scheduler_of_many_points_is_not_enough_to_tell() {
    let definition = definition(FIXED, &["cpu"], 1, None, 1);
    let mut noise = Noise::new(1);
    let rows = rows(&definition, |of, _| match of("periodic").as_str() {
        "never" => (100.0, 1.0),
        _ => (100.0 + noise.draw(), 1.0),
    });
    let analysis = analysis(&definition, &rows);
    assert!(analysis.variance.exact && !analysis.variance.tells());
    let words = &analysis.words;
    assert!(
        words.contains("The 216 schedulers are only 145 different ones"),
        "{words}"
    );
    assert!(!words.contains("more of them"), "{words}");
    let html = page("t", &[analysis], None).html();
    assert!(html.contains("too few different schedulers"), "{html}");
}

/// A run has no measure of events that did not occur; it ended all the same.
#[test]
fn a_measure_that_runs_lack_is_no_failure() {
    let definition = definition(FIXED, &["cpu"], 1, None, 1);
    let mut noise = Noise::new(1);
    let mut rows = rows(&definition, |of, _| (placed(of) + noise.draw(), 1.0));
    for row in &mut rows {
        if value(&definition, row, "unblock") == "on" {
            row.values[place("score")] = None;
        }
        if value(&definition, row, "periodic") == "never" {
            fail(row);
        }
    }
    let analysis = analysis(&definition, &rows);
    assert_eq!(
        (analysis.left_out.failed, analysis.left_out.absent),
        (72, 72)
    );
    let words = &analysis.words;
    assert!(
        words.contains("72 failed, all with periodic=never"),
        "{words}"
    );
    assert!(
        words.contains("72 ended their runs without any score, all with unblock=on"),
        "{words}"
    );
    // Only one alternative of these is left to look at.
    assert_eq!(
        (
            effect(&analysis, "unblock").p,
            effect(&analysis, "unblock").share_pct
        ),
        (None, 0.0)
    );
    let html = page("x", &[analysis], None).html();
    assert!(html.contains("72 ended their runs without any score"));
}

/// Two shards of three are there: a seed more or less would count for a scheduler.
#[test]
fn means_are_over_the_same_seeds() {
    let definition = definition(FIXED, &["cpu"], 3, None, 1);
    let mut noise = Noise::new(7);
    let mut rows = rows(&definition, |of, seed| {
        let block = [100.0, 200.0, 1_000.0][seed as usize - 1];
        let idle = if of("idle") == "on" { 1.05 } else { 1.0 };
        (block * idle * (1.0 + 0.001 * noise.draw()), 1.0)
    });
    rows.retain(|row| {
        let (place, _, repetition) = definition.parts(row.job);
        repetition != if place % 2 == 0 { 0 } else { 2 }
    });
    let found = analysis(&definition, &rows);
    assert_eq!(
        (found.seeds, found.left_out.seeds, found.variance.exact),
        (1, 2, true)
    );
    let idle = effect(&found, "idle");
    assert!(
        idle.share_pct > 95.0 && (idle.levels[0].better_pct - 2.44).abs() < 0.1,
        "{idle:?}"
    );
    assert!(
        found.words.contains("not looked at (2 of 3)"),
        "{}",
        found.words
    );
    // One scheduler lacks a run that all others have: all of its seeds but that are looked at.
    rows.retain(|row| definition.parts(row.job).2 == 1);
    rows.pop();
    let found = analysis(&definition, &rows);
    assert_eq!((found.left_out.not_run, found.variance.exact), (1, false));
}

/// A scheduler that was not compared is not recommended.
#[test]
fn schedulers_that_are_left_out_are_no_compromise() {
    let definition = definition(FIXED, &["cpu", "pipe"], 3, None, 1);
    let mut rows = rows(&definition, |_, seed| (100.0 + seed as f64 / 10.0, 1.0));
    let best = |row: &Row| {
        let of = |feature| value(&definition, row, feature);
        of("idle") == "on" && of("unblock") == "on" && of("periodic") == "never"
    };
    for row in &mut rows {
        row.score_better = Some("higher".into());
        if best(row) {
            row.values[place("score")] = Some([100.0, 300.0, 500.0][row.seed as usize - 1]);
        }
    }
    let both: Vec<Analysis> = ["cpu", "pipe"]
        .iter()
        .map(|name| analyse(&definition, &rows, name, "score", &Bounds::default()).unwrap())
        .collect();
    assert_eq!(both[0].study.excluded, 18);
    let scheduler = |point: usize| definition.space.scheduler(point as u64).to_string();
    let across = Across::new(&both, scheduler).unwrap();
    assert!(across.compromise.worst_pct <= 100.0, "{}", across.words);
    let front = &both[0].front;
    assert!(!front.is_empty() && front.iter().all(|one| one.first < 101.0));
    assert!(
        both[0]
            .words
            .contains("18 are left out of the comparison with the best because"),
        "{}",
        both[0].words
    );
}

#[test]
fn nobody_is_left_out_where_nobody_is_steady() {
    let definition = definition(FIXED, &["cpu"], 3, None, 1);
    let rows = rows(&definition, |_, seed| (200.0 * seed as f64, 1.0));
    let analysis = analysis(&definition, &rows);
    let study = &analysis.study;
    assert_eq!(
        (study.schedulers, study.excluded, study.unsteady),
        (216, 0, true)
    );
    assert!(
        analysis.words.contains("none is left out for that"),
        "{}",
        analysis.words
    );
    assert!(
        !analysis.words.contains("are left out"),
        "{}",
        analysis.words
    );
}

/// A feature of the best schedulers is not one that hardly matters, though it makes a small part of all differences.
#[test]
fn advice_does_not_contradict_itself() {
    let definition = definition(&[], &["cpu"], 1, None, 1);
    let mut noise = Noise::new(1);
    let rows = rows(&definition, |of, _| {
        let periodic = match of("periodic").as_str() {
            "never" => 5_000.0,
            "random" => 2_000.0,
            _ => 0.0,
        };
        let executor = if of("executor") == "core" { 0.0 } else { 20.0 };
        (100.0 + periodic + executor + noise.draw(), 1.0)
    });
    let analysis = analysis(&definition, &rows);
    assert!(effect(&analysis, "executor").share_pct < 1.0);
    let words = &analysis.words;
    assert!(
        words.contains("Choose periodic=nr_cores and executor=core."),
        "{words}"
    );
    let (_, idle) = words.split_once("It hardly matters which ").unwrap();
    let (idle, _) = idle.split_once(" is chosen").unwrap();
    assert!(idle.contains("election"));
    for one in &analysis.study.alternatives {
        let is_judged = one.verdict.is_judgement();
        assert!(!is_judged || !idle.contains(&one.feature), "{words}");
    }
}

/// Of the schedulers with an idle balance only those with one metric are good, which the tree says right below.
#[test]
fn advice_does_not_contradict_the_tree() {
    let definition = definition(&[], &["cpu"], 1, None, 1);
    let mut noise = Noise::new(1);
    let rows = rows(&definition, |of, _| {
        let periodic = match of("periodic").as_str() {
            "never" => 5_000.0,
            _ => 0.0,
        };
        let slow = of("idle") == "on" && of("metric") != "nr_run_block";
        let metric = if slow { 20.0 } else { 0.0 };
        (100.0 + periodic + metric + 0.1 * noise.draw(), 1.0)
    });
    let analysis = analysis(&definition, &rows);
    let mut alternatives = analysis.study.alternatives.iter();
    assert!(!alternatives.any(|one| one.feature == "metric" && one.verdict.is_judgement()));
    assert!(effect(&analysis, "metric").share_pct < 1.0);
    assert!(analysis.tree.asks("metric") && !analysis.tree.asks("slice"));
    let words = &analysis.words;
    let (_, idle) = words.split_once("It hardly matters which ").unwrap();
    let (idle, _) = idle.split_once(" is chosen").unwrap();
    assert!(
        idle.contains("slice") && !idle.contains("metric"),
        "{words}"
    );
}

/// Verdicts of the second round are ones, too, though none is marked as more than chance.
#[test]
fn advice_does_not_contradict_the_second_round() {
    let definition = definition(&[], &["cpu"], 1, None, 1);
    let mut noise = Noise::new(1);
    let rows = rows(&definition, |of, _| {
        let periodic = match of("periodic").as_str() {
            "nr_cores" => 0.0,
            _ => 5_000.0,
        };
        // In half of its combinations: a fifth of the good ones have it, a third of those that are expected to be good.
        let slow = of("election") == "rbtree" && of("idle") == of("unblock");
        let election = if slow { 20.0 } else { 0.0 };
        (100.0 + periodic + election + 0.1 * noise.draw(), 1.0)
    });
    let analysis = analysis(&definition, &rows);
    assert!(effect(&analysis, "election").share_pct < 1.0);
    let mut alternatives = analysis.study.alternatives.iter();
    let rbtree = alternatives
        .find(|one| one.alternative == "rbtree")
        .unwrap();
    assert_eq!(rbtree.verdict, Verdict::BadInSecondRound);
    assert!(!rbtree.significant);
    let words = &analysis.words;
    let (_, idle) = words.split_once("It hardly matters which ").unwrap();
    let (idle, _) = idle.split_once(" is chosen").unwrap();
    assert!(
        idle.contains("slice") && !idle.contains("election"),
        "{words}"
    );
}

/// Alternatives are compared where the first one failed, too.
#[test]
fn a_feature_whose_first_alternative_failed_is_not_mute() {
    let definition = definition(&[], &["cpu"], 1, None, 1);
    let mut noise = Noise::new(1);
    let mut known = std::collections::BTreeMap::new();
    // Without a periodic balance, the executor says nothing; the slice nothing but where the first one fails.
    let mut rows = rows(&definition, |of, _| {
        let never = of("periodic") == "never";
        let hangs = never && of("unblock") == "off";
        let features = definition.space.features.iter();
        let key: Vec<String> = features
            .map(|feature| match feature.name.as_str() {
                "executor" if never => String::new(),
                "slice" if !hangs => String::new(),
                name => of(name),
            })
            .collect();
        let value = known.entry(key).or_insert_with(|| 100.0 + noise.draw());
        (*value, 1.0)
    });
    let infinite = &definition.space.features[1].alternatives[0];
    for row in &mut rows {
        let of = |feature| value(&definition, row, feature);
        if of("periodic") == "never" && of("unblock") == "off" && of("slice") == infinite {
            fail(row);
        }
    }
    let analysis = analysis(&definition, &rows);
    assert_eq!(analysis.left_out.failed, 324);
    let conditions = analysis.mute.conditions.iter();
    let found: Vec<(&str, String)> = conditions
        .map(|one| (one.feature.as_str(), one.with.join(" ")))
        .collect();
    let expect = |feature, with: &str| (feature, with.to_owned());
    let expected = [
        expect("slice", "periodic=random"),
        expect("slice", "periodic=nr_cores"),
        expect("slice", "unblock=on"),
        expect("executor", "periodic=never"),
    ];
    assert_eq!(found, expected);
    // Of the planted effects, the slice that failed is missing: 3 * 3 * 2 * 2 * 3 schedulers.
    assert_eq!(analysis.mute.distinct, known.len() - 108);
}

/// Failed schedulers say nothing about their alternatives, and the remaining ones nothing about those that all of
/// them have.
#[test]
fn what_only_one_side_of_was_measured_is_neither_good_nor_bad() {
    let definition = definition(FIXED, &["cpu"], 1, None, 1);
    let mut rows = rows(&definition, |_, _| (100.0, 1.0));
    for row in &mut rows {
        if value(&definition, row, "idle") == "off" {
            fail(row);
        }
    }
    let analysis = analysis(&definition, &rows);
    let idle: Vec<_> = analysis
        .study
        .alternatives
        .iter()
        .filter(|one| one.feature == "idle")
        .map(|one| one.verdict)
        .collect();
    assert_eq!(idle, [Verdict::NotCompared; 2]);
    let others = analysis.study.alternatives.iter();
    let others = others.filter(|one| one.feature != "idle");
    assert!(
        others
            .clone()
            .all(|one| one.verdict != Verdict::NotCompared)
    );
    // No scheduler is expected to be better than those that were measured.
    assert_eq!(analysis.study.first, [108; 3]);
    let html = page("t", &[analysis], None).html();
    assert!(html.contains("<td>not compared"), "{html}");
}

/// `idle` and `unblock` matter only together; `slice` decides who fails.
#[test]
fn what_matters_only_together_is_not_said_to_hardly_matter() {
    let definition = definition(&[], &["cpu"], 1, None, 1);
    let planted = |fails: &dyn Fn(&Row) -> bool| {
        let mut noise = Noise::new(1);
        let mut rows = rows(&definition, |of, _| {
            let both = if of("idle") == of("unblock") {
                0.0
            } else {
                30.0
            };
            (100.0 + placed(of) / 20.0 + both + 0.1 * noise.draw(), 1.0)
        });
        rows.iter_mut().filter(|row| fails(row)).for_each(fail);
        analysis(&definition, &rows)
    };
    let hardly = "It hardly matters which";
    let complete = planted(&|_| false).words;
    assert!(
        complete.contains("idle and unblock matter mainly together"),
        "{complete}"
    );
    assert!(complete.contains(hardly), "{complete}");
    let lacks_one = planted(&|row| row.job == 77).words;
    assert!(!lacks_one.contains(hardly), "{lacks_one}");
    assert!(
        lacks_one.contains("% of the differences are of several features together, or of chance;"),
        "{lacks_one}"
    );
    // One that failed is that one; nothing is what it has in common with others.
    let name = definition.scheduler(77).to_string();
    let (_, options) = name.split_once(':').unwrap();
    assert!(
        lacks_one.contains(&format!("missing: 1 failed ({options}).")),
        "{lacks_one}"
    );
}

/// A joint effect of three features is in the rest, and neither nothing nor chance if seeds say so.
#[test]
fn what_only_three_do_together_is_not_denied() {
    let planted = |seeds: u32, [three, executor, noise]: [f64; 3]| {
        let definition = definition(FIXED, &["cpu"], seeds, None, 1);
        let mut random = Noise::new(1);
        let rows = rows(&definition, |of, _| {
            let is = |feature: &str, value: &str| of(feature) == value;
            let odd = is("idle", "on") ^ is("unblock", "on") ^ is("imbalance", "differs");
            let three = if odd { three } else { 0.0 };
            let executor = if is("executor", "all") { executor } else { 0.0 };
            (100.0 + three + executor + noise * random.draw(), 1.0)
        });
        analysis(&definition, &rows)
    };
    let others_hardly_matter = |words: &str| {
        let (_, idle) = words.split_once("It hardly matters which ").unwrap();
        let (idle, _) = idle.split_once(" is chosen").unwrap();
        let both = ["placement or periodic", "periodic or placement"];
        assert!(both.contains(&idle), "{words}");
    };
    let with_executor = planted(3, [40.0, 24.0, 0.2]);
    assert!(effect(&with_executor, "executor").significant);
    let words = &with_executor.words;
    others_hardly_matter(words);
    assert!(
        words.contains("of three or more features together."),
        "{words}"
    );
    // A small part of all differences, whatever seeds there are.
    for seeds in [1, 3] {
        others_hardly_matter(&planted(seeds, [10.0, 40.0, 0.2]).words);
    }
    for noise in [0.0, 0.2] {
        let alone = planted(3, [40.0, 0.0, noise]);
        assert!(alone.findings().is_empty());
        assert_eq!(alone.variance.rest_significant, Some(true));
        assert!(
            alone.words.ends_with("three or more together do."),
            "{}",
            alone.words
        );
    }
    // One seed cannot decide; seeds that differ as much as schedulers say that it is chance.
    let one = planted(1, [40.0, 0.0, 0.2]);
    assert_eq!(one.variance.rest_significant, None);
    assert!(
        one.words.contains("not separable from chance without"),
        "{}",
        one.words
    );
    let chance = planted(3, [0.0, 0.0, 1.0]);
    assert_eq!(chance.variance.rest_significant, Some(false));
    assert!(
        chance
            .words
            .ends_with("No feature makes a difference that chance would not make."),
        "{}",
        chance.words
    );
}

#[test]
fn what_makes_runs_fail_is_not_said_to_hardly_matter() {
    let definition = definition(&[], &["cpu"], 1, None, 1);
    let mut noise = Noise::new(1);
    let mut rows = rows(&definition, |of, _| (placed(of) + noise.draw(), 1.0));
    for row in &mut rows {
        if value(&definition, row, "slice") == "infinite" {
            fail(row);
        }
    }
    let words = analysis(&definition, &rows).words;
    assert!(
        words.contains("1944 failed, all with slice=infinite."),
        "{words}"
    );
    let (_, idle) = words.split_once("It hardly matters which ").unwrap();
    let (idle, _) = idle.split_once(" is chosen").unwrap();
    assert!(
        idle.contains("metric") && !idle.contains("slice"),
        "{words}"
    );
}

/// Only pairs make differences, and pairs are not estimated.
#[test]
fn nothing_by_itself_is_not_nothing() {
    let definition = definition(&[], &["cpu"], 1, None, 1);
    let mut noise = Noise::new(1);
    let mut rows = rows(&definition, |of, _| {
        let both = if of("idle") == of("unblock") {
            0.0
        } else {
            5.0
        };
        (100.0 + both + 0.1 * noise.draw(), 1.0)
    });
    fail(&mut rows[77]);
    let analysis = analysis(&definition, &rows);
    assert!(analysis.findings().is_empty(), "{:?}", analysis.findings());
    assert!(
        analysis
            .words
            .contains("joint effects of several are unknown"),
        "{}",
        analysis.words
    );
    let html = page("t", &[analysis], None).html();
    assert!(
        html.contains("against what no single feature explains,"),
        "{html}"
    );
}

/// The findings for a workload do not depend on which other workloads are in the sweep.
#[test]
fn a_workload_is_analysed_by_itself() {
    let found = |workloads: &[&str]| {
        let definition = definition(FIXED, workloads, 1, None, 1);
        let mut noise = Noise::new(1);
        let rows = rows(&definition, |of, _| (placed(of) + 30.0 * noise.draw(), 1.0));
        analysis(&definition, &rows)
    };
    assert!(found(&["cpu"]) == found(&["cpu", "pipe", "reflex", "chat"]));
}

/// Relative to the best, no scheduler is better than the best, whatever the sign.
#[test]
fn the_best_is_the_best_below_zero_too() {
    let definition = definition(FIXED, &["cpu"], 1, None, 1);
    for higher in [false, true] {
        let mut rows = rows(&definition, |of, _| {
            let time = if of("idle") == "on" { -10.0 } else { -1.0 };
            (time + placed(of) / 1_000.0, 1.0)
        });
        for row in &mut rows {
            row.score_better = higher.then(|| "higher".into());
        }
        let analysis = analysis(&definition, &rows);
        let relative = || analysis.relative.iter().map(|one| one.unwrap());
        assert_eq!(relative().fold(f64::MIN, f64::max), 1.0);
        let best = analysis.study.best;
        let lost = (analysis.study.worst - best).abs() / best.abs();
        let worst = relative().fold(f64::MAX, f64::min);
        assert!((worst - (1.0 - lost)).abs() < 1e-9, "{worst} {lost}");
    }
}

#[test]
fn one_is_no_plural() {
    let definition = definition(FIXED, &["cpu"], 1, Some(12), 1);
    let mut rows = rows(&definition, |of, _| (placed(of), 1.0));
    rows.truncate(1);
    let analysis = analysis(&definition, &rows);
    assert!(
        analysis
            .words
            .starts_with("Only one scheduler is compared ("),
        "{}",
        analysis.words
    );
    assert_eq!(analysis.tree.lines(), ["1 scheduler, 100 % good"]);
    let html = page("t", &[analysis], None).html();
    assert!(html.contains("1 scheduler, 1 different"), "{html}");
}

/// The schedulers with `periodic=never` are those with `idle=off`, and the reverse; the other two are separable.
#[test]
fn features_of_which_a_part_is_confounded_are_findings() {
    let definition = definition(FIXED, &["cpu"], 1, None, 1);
    let planted = |random: f64, never: f64| {
        let mut noise = Noise::new(1);
        let mut rows = rows(&definition, |of, _| {
            let periodic = match of("periodic").as_str() {
                "random" => random,
                "never" => never,
                _ => 0.0,
            };
            (100.0 + periodic + 0.1 * noise.draw(), 1.0)
        });
        for row in &mut rows {
            let of = |feature| value(&definition, row, feature);
            if (of("periodic") == "never") != (of("idle") == "off") {
                fail(row);
            }
        }
        analysis(&definition, &rows)
    };
    let found = planted(20.0, 0.0);
    let periodic = effect(&found, "periodic");
    assert!(periodic.significant && periodic.levels.is_empty());
    assert_eq!(periodic.told, ["random", "nr_cores"]);
    assert_eq!(found.findings(), ["periodic", "periodic=random"]);
    let words = &found.words;
    assert!(words.contains("Avoid periodic=random."), "{words}");
    assert!(!words.contains("best on average"), "{words}");
    let share = format!(">{:.2}<", periodic.share_pct);
    let html = page("t", &[found], None).html();
    assert!(
        html.contains("some are confounded with other features") && html.contains(&share),
        "{html}"
    );
    // That might be for want of an idle balance.
    let never = planted(5.0, 20.0);
    let mut alternatives = never.study.alternatives.iter();
    let is_never = |one: &&schedlab_analysis::Alternative| one.alternative == "never";
    let one = alternatives.find(is_never).unwrap();
    assert_eq!((one.verdict, one.significant), (Verdict::Bad, false));
    assert!(effect(&never, "periodic").significant);
}

#[test]
fn only_schedulers_that_are_compared_are_counted() {
    let definition = definition(FIXED, &["cpu"], 3, None, 1);
    let mut noise = Noise::new(1);
    let rows = rows(&definition, |of, seed| {
        let is_steady = of("idle") == "on" || seed == 1;
        let time = if is_steady { 100.0 } else { 200.0 };
        (time + noise.draw(), 1.0)
    });
    let analysis = analysis(&definition, &rows);
    assert_eq!(
        (analysis.study.excluded, analysis.mute.distinct),
        (108, 216)
    );
    let html = page("t", &[analysis], None).html();
    assert!(html.contains("108 schedulers, 108 different"), "{html}");
}
