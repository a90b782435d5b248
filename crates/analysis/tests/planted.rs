//! Synthetic sweeps whose truth is known: what was planted is found, and nothing else.

mod support;

use schedlab_analysis::{Analysis, Bounds, Verdict, analyse, page};
use schedlab_sweep::{Definition, Row};
use support::{Noise, analysis, place, rows};

/// The whole feature tree.
fn definition(workloads: &[&str], repeat: u32, sample: Option<u64>) -> Definition {
    support::definition(&[], workloads, repeat, sample, 1)
}

fn share(analysis: &Analysis, feature: &str) -> f64 {
    let effects = &analysis.variance.effects;
    effects
        .iter()
        .find(|effect| effect.feature == feature)
        .unwrap()
        .share_pct
}

fn pair(analysis: &Analysis, a: &str, b: &str) -> (f64, bool) {
    let found = analysis
        .variance
        .interactions
        .iter()
        .find(|pair| pair.features == [a, b]);
    let found = found.unwrap();
    (found.share_pct, found.significant)
}

/// `slice=split` is twice as good; metric and placement matter only together; the rest is noise.
fn planted(of: &dyn Fn(&str) -> String, noise: f64) -> (f64, f64) {
    let mut time = 100.0;
    if of("slice") == "split" {
        time -= 45.0;
    }
    let (metric, placement) = (of("metric"), of("placement"));
    let levels = |text: &str| {
        ["nr_run", "nr_run_block", "used_time", "smt", "llc", "all"]
            .iter()
            .position(|l| *l == text)
            .unwrap()
            % 3
    };
    // A Latin square: no feature has an effect by itself.
    time += [0.0, 4.0, 8.0][(levels(&metric) + levels(&placement)) % 3];
    (time + noise, 1_000.0)
}

#[test]
fn planted_effects_are_found_and_nothing_else() {
    let definition = definition(&["cpu"], 1, None);
    for seed in 1..=10 {
        let mut noise = Noise::new(seed);
        let rows = rows(&definition, |of, _| planted(of, noise.draw()));
        let analysis = analysis(&definition, &rows);
        let found = analysis.findings();
        let expected = [
            "slice",
            "metric × placement",
            "slice=infinite",
            "slice=fixed",
            "slice=split",
        ];
        assert_eq!(found, expected, "seed {seed}");
        let (together, _) = pair(&analysis, "metric", "placement");
        assert!(share(&analysis, "slice") > 90.0 && together > 1.0);
        assert!(share(&analysis, "metric") < 0.1 && share(&analysis, "placement") < 0.1);
        let words = &analysis.words;
        assert!(words.contains("Choose slice=split."), "{words}");
        assert!(
            words.contains("metric and placement matter mainly together"),
            "{words}"
        );
        let (_, idle) = words.split_once("It hardly matters which ").unwrap();
        for feature in [
            "election",
            "periodic",
            "idle",
            "unblock",
            "executor",
            "imbalance",
        ] {
            assert!(idle.contains(feature), "{words}");
        }
    }
}

/// Returns the time of a scheduler, by its alternatives.
type Time<'a> = &'a dyn Fn(&dyn Fn(&str) -> String) -> f64;

/// Chance hides which of several equals has the greatest mean.
#[test]
fn of_equals_none_is_named_as_the_only_winner() {
    let definition = definition(&["cpu"], 1, None);
    let words = |value: Time<'_>| {
        let rows = rows(&definition, |of, _| {
            // Else there would be a few schedulers only, each many times.
            let others = ["election", "periodic", "placement", "executor", "imbalance"].map(of);
            let bytes = others.iter().flat_map(|text| text.bytes());
            let lot = bytes.fold(7, |lot, byte| (lot * 31 + u64::from(byte)) % 997);
            (value(of) + 1e-6 * lot as f64, 1.0)
        });
        analysis(&definition, &rows).words
    };
    let found = words(&|of| if of("slice") == "fixed" { 200.0 } else { 100.0 });
    assert!(
        found.contains("slice 100 % (best on average: infinite or split)."),
        "{found}"
    );
    // The same numbers, added up in another order, which rounds otherwise.
    let found = words(&|of| match (of("metric").as_str(), of("idle").as_str()) {
        ("nr_run", _) => 0.9,
        ("used_time", "on") | ("nr_run_block", "off") => 0.1,
        _ => 0.3,
    });
    assert!(
        found.contains("(best on average: nr_run_block or used_time)"),
        "{found}"
    );
    let found = words(&|of| {
        if of("idle") == of("unblock") {
            200.0
        } else {
            100.0
        }
    });
    let both = "best on average with idle=off and unblock=on or idle=on and unblock=off, worst with idle=off and unblock=off or \
                idle=on and unblock=on.";
    assert!(found.contains(both), "{found}");
    let found = words(&|of| match (of("slice") == "fixed", of("idle") == "on") {
        (true, true) => 200.0,
        _ => 100.0,
    });
    assert!(
        found.contains(", worst with slice=fixed and idle=on."),
        "{found}"
    );
    // Of five equals; the fifth has slice=fixed, to which the verdict objects.
    assert!(
        found.contains("best on average with slice=infinite and idle=off or 3 others,"),
        "{found}"
    );
}

/// Two features that matter only together are in what the single ones do not explain.
#[test]
fn what_a_sample_cannot_tell_apart_is_not_said_to_matter_little() {
    let fixed = ["election=fifo", "slice=split", "metric=nr_run"];
    let hardly = |seeds: u32, together: f64, noise: f64| {
        let definition = support::definition(&fixed, &["cpu"], seeds, Some(100), 1);
        let mut random = Noise::new(1);
        let rows = rows(&definition, |of, _| {
            let placed = if of("placement") == "all" { 100.0 } else { 0.0 };
            let pair = f64::from(u8::from(of("idle") != of("unblock")));
            (
                1_000.0 + placed + together * pair + noise * random.draw(),
                1.0,
            )
        });
        let found = analysis(&definition, &rows);
        assert!(!found.variance.exact);
        (found.words.contains("It hardly matters which "), found)
    };
    let (said, found) = hardly(4, 40.0, 20.0);
    let variance = &found.variance;
    // A sixth of the differences.
    assert!((10.0..20.0).contains(&variance.rest_pct), "{variance:?}");
    assert!(variance.rest_significant == Some(true), "{variance:?}");
    assert!(!said, "{}", found.words);
    // Nor with two seeds that show nothing.
    let (said, found) = hardly(2, 40.0, 30.0);
    assert!(!said, "{}", found.words);
    // The rest is chance, or next to nothing.
    let (said, found) = hardly(4, 0.0, 20.0);
    assert!(said, "{}", found.words);
    let (said, found) = hardly(2, 4.0, 0.0);
    assert!(said, "{}", found.words);
    // One seed does not separate chance from a joint effect of two.
    let (said, found) = hardly(1, 0.0, 20.0);
    assert!(!said, "{}", found.words);
}

#[test]
fn parts_add_up_exactly_and_are_those_of_the_formula() {
    let definition = definition(&["cpu"], 1, None);
    // slice: 3 levels 0, 3, 6 (variance 6); idle × unblock: ±1 by parity (variance 1).
    let rows = rows(&definition, |of, _| {
        let slice = match of("slice").as_str() {
            "infinite" => 0.0,
            "fixed" => 3.0,
            _ => 6.0,
        };
        let parity = if of("idle") == of("unblock") {
            1.0
        } else {
            -1.0
        };
        (100.0 + slice + parity, 1.0)
    });
    let analysis = analysis(&definition, &rows);
    assert!(analysis.variance.exact);
    assert!((share(&analysis, "slice") - 600.0 / 7.0).abs() < 1e-6);
    assert!((pair(&analysis, "idle", "unblock").0 - 100.0 / 7.0).abs() < 1e-6);
    assert!(analysis.variance.rest_pct.abs() < 1e-6);
    assert!((analysis.variance.mean - 103.0).abs() < 1e-9);
}

/// Whether a feature says nothing at a point.
type Mutes = fn(&str, &dyn Fn(&str) -> String) -> bool;

/// Every scheduler is one of its own.
fn nowhere(_: &str, _: &dyn Fn(&str) -> String) -> bool {
    false
}

/// The executor of a balance that never takes place changes nothing.
fn executor(feature: &str, of: &dyn Fn(&str) -> String) -> bool {
    feature == "executor" && of("periodic") == "never"
}

/// The whole of what the source of `feature` says under `Mute:`.
fn declared(feature: &str, of: &dyn Fn(&str) -> String) -> bool {
    let never = of("periodic") == "never";
    match feature {
        "executor" => never,
        "imbalance" => never && of("idle") == "off",
        "placement" => of("unblock") == "off",
        _ => false,
    }
}

/// Three features that say something only together.
fn together(feature: &str, of: &dyn Fn(&str) -> String) -> bool {
    let off = [
        ("idle", "off"),
        ("unblock", "off"),
        ("imbalance", "differs"),
    ];
    off.iter().any(|(name, _)| *name == feature) && off.iter().any(|(name, off)| of(name) == *off)
}

/// Returns the identity of a scheduler: the features that have an effect.
fn kind(definition: &Definition, of: &dyn Fn(&str) -> String, mutes: Mutes) -> Vec<Option<String>> {
    let features = definition.space.features.iter();
    let word = |name: &str| (!mutes(name, of)).then(|| of(name));
    features.map(|feature| word(&feature.name)).collect()
}

/// A sweep in which each kind of scheduler has what a function makes of its alternatives and of a number drawn by lot.
fn by_lot(
    definition: &Definition,
    mutes: Mutes,
    seed: u64,
    value: impl Fn(&dyn Fn(&str) -> String, f64) -> f64,
) -> Vec<Row> {
    let mut noise = Noise::new(seed);
    let mut known = std::collections::BTreeMap::new();
    rows(definition, |of, _| {
        let kind = kind(definition, of, mutes);
        let drawn = known.entry(kind).or_insert_with(|| noise.draw());
        (value(of, *drawn), 1.0)
    })
}

/// Returns the time of a scheduler, by a random number.
type Lot = fn(f64) -> f64;

/// Most are equally good.
fn alike(drawn: f64) -> f64 {
    100.0 + 5.0 * drawn
}

/// Few are far better than the others.
fn heavy(drawn: f64) -> f64 {
    100.0 * (0.3 * drawn).exp()
}

/// Of some hundred a tenth is nearly as good as the best.
fn less_heavy(drawn: f64) -> f64 {
    100.0 * (0.06 * drawn).exp()
}

/// Data sets of so many without any effect that have a finding.
fn false_findings(definition: &Definition, mutes: Mutes, lot: Lot, sets: u64) -> usize {
    let found = |seed: &u64| {
        let rows = by_lot(definition, mutes, *seed, |_, drawn| lot(drawn));
        !analysis(definition, &rows).findings().is_empty()
    };
    (0..sets).filter(found).count()
}

#[test]
fn chance_is_no_finding() {
    let definition = definition(&["cpu"], 1, None);
    assert!(false_findings(&definition, nowhere, alike, 200) <= 10);
}

#[test]
fn chance_is_no_finding_where_few_are_good() {
    let definition = definition(&["cpu"], 1, None);
    assert!(false_findings(&definition, nowhere, heavy, 200) <= 10);
}

#[test]
fn chance_is_no_finding_where_alternatives_are_one() {
    let definition = definition(&["cpu"], 1, None);
    assert!(false_findings(&definition, executor, alike, 200) <= 10);
}

/// Groups of schedulers that are one have 1 to 18 members: large ones count for more in means.
#[test]
fn chance_is_no_finding_where_groups_of_one_are_large() {
    let found = definition(&["cpu"], 1, None);
    assert!(false_findings(&found, declared, alike, 50) <= 2);
    assert!(false_findings(&support::sharing(None, 1), declared, alike, 50) <= 2);
}

/// A third of the points have `periodic=never`, but only a ninth of the schedulers: of some thirty that are drawn by lot,
/// often none.
#[test]
fn chance_is_no_finding_where_groups_of_one_are_large_and_few_are_good() {
    let definition = support::definition(&["election=fifo", "slice=split"], &["cpu"], 1, None, 1);
    // 1 %; by shares of points alone there are half as many again.
    let count = false_findings(&definition, declared, less_heavy, 2_000);
    assert!(count <= 20, "{count}");
}

/// Too few differ in one feature alone to find out which are one, but the source says it.
#[test]
fn chance_is_no_finding_where_samples_share_runs() {
    for size in [4_957, 1_750] {
        let sample = support::sharing(Some(size), 1);
        assert!(false_findings(&sample, declared, alike, 40) <= 2, "{size}");
    }
}

#[test]
fn chance_is_no_finding_where_features_silence_each_other() {
    let fixed = ["election=fifo", "slice=split", "metric=nr_run"];
    let definition = support::definition(&fixed, &["cpu"], 1, None, 1);
    assert!(false_findings(&definition, together, alike, 100) <= 5);
    let rows = by_lot(&definition, together, 1, |_, drawn| drawn);
    let mute = analysis(&definition, &rows).mute;
    // 27 times one of seven points and one of one.
    assert_eq!((mute.points, mute.distinct), (216, 54));
    assert!((mute.effective - 216.0 * 216.0 / (27.0 * 50.0)).abs() < 1e-9);
}

/// B lies where groups are largest: 18 points without any balance but the periodic one are one scheduler.
#[test]
fn the_good_ones_are_as_many_as_differ() {
    let definition = definition(&["cpu"], 1, None);
    let mut others = 0;
    for seed in 0..40 {
        let rows = by_lot(&definition, declared, seed, |of, drawn| {
            let slow = |name: &str, fast: &str| f64::from(u8::from(of(name) != fast));
            let time = slow("periodic", "never") + slow("idle", "off") + slow("unblock", "off");
            (100.0 + 50.0 * time) * (1.0 + 0.1 * drawn)
        });
        let analysis = analysis(&definition, &rows);
        let mut alternatives = analysis.study.alternatives.iter();
        let is_other = |name: &str| !["periodic", "idle", "unblock"].contains(&name);
        others += u32::from(alternatives.any(|one| one.significant && is_other(&one.feature)));
    }
    assert!(others <= 2, "{others}");
}

#[test]
fn alternatives_that_are_one_are_recognised() {
    let definition = definition(&["cpu"], 1, None);
    let rows = by_lot(&definition, declared, 3, |_, drawn| 100.0 + drawn);
    let mute = analysis(&definition, &rows).mute;
    assert_eq!(mute.distinct, 2_916);
    assert_eq!(mute.points, 5_832);
    let found: Vec<(String, String)> = mute
        .conditions
        .iter()
        .map(|condition| (condition.feature.clone(), condition.with.join(" ")))
        .collect();
    let expect = |feature: &str, with: &str| (feature.to_owned(), with.to_owned());
    let expected = [
        expect("executor", "periodic=never"),
        expect("placement", "unblock=off"),
        expect("imbalance", "periodic=never idle=off"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_study_by_hand() {
    // One workload, all schedulers 200 s but those of slice=split with idle=on: 100 s, and of these the
    // ones with metric=nr_run and periodic=random: 150 s.
    let definition = definition(&["cpu"], 1, None);
    let rows = rows(&definition, |of, _| {
        let is = |name: &str, value: &str| of(name) == value;
        if !is("slice", "split") || !is("idle", "on") {
            return (200.0, 1.0);
        }
        if is("metric", "nr_run") && is("periodic", "random") {
            return (150.0, 1.0);
        }
        (100.0, 1.0)
    });
    let study = analysis(&definition, &rows).study;
    // 5832 / 3 / 2 = 972 have both good alternatives, 972 / 9 = 108 of them are not good.
    assert_eq!(study.first, [864, 972, 864]);
    let verdict = |feature: &str, alternative: &str| {
        let found = study
            .alternatives
            .iter()
            .find(|one| one.feature == feature && one.alternative == alternative);
        found.unwrap().clone()
    };
    assert_eq!(verdict("slice", "split").verdict, Verdict::Good);
    assert_eq!(verdict("slice", "fixed").verdict, Verdict::Bad);
    assert_eq!(verdict("idle", "on").verdict, Verdict::Good);
    assert_eq!(verdict("idle", "off").verdict, Verdict::Bad);
    // nr_run: 33.3 % of F and 216 of 864 in FB, 25 %: 8.3 points, not more than 10.
    let nr_run = verdict("metric", "nr_run");
    assert_eq!(nr_run.verdict, Verdict::Neutral);
    assert!((nr_run.in_f_pct.unwrap() - 100.0 / 3.0).abs() < 1e-9);
    assert!((nr_run.in_fb_pct.unwrap() - 25.0).abs() < 1e-9);
    assert_eq!(study.second, study.first);
    assert!((study.false_positives_pct.unwrap() - 100.0 / 9.0).abs() < 1e-9);
    assert!((study.covered_pct - 100.0).abs() < 1e-9);
    // With 5 points it is bad in the second round, and so is periodic=random.
    let bounds = Bounds {
        points: 5.0,
        ..Bounds::default()
    };
    let study = analyse(&definition, &rows, "cpu", "score", &bounds)
        .unwrap()
        .study;
    let bad = study
        .alternatives
        .iter()
        .filter(|one| one.verdict == Verdict::BadInSecondRound);
    let bad: Vec<String> = bad
        .map(|one| format!("{}={}", one.feature, one.alternative))
        .collect();
    assert_eq!(bad, ["metric=nr_run", "periodic=random"]);
    assert_eq!(study.first, [864, 972, 864]);
    assert_eq!(study.second, [864, 432, 432]);
    assert_eq!(study.false_positives_pct, Some(0.0));
    assert!((study.covered_pct - 50.0).abs() < 1e-9);
}

#[test]
fn schedulers_whose_runs_differ_are_left_out_and_intervals_need_seeds() {
    let definition = definition(&["cpu"], 4, None);
    let mut noise = Noise::new(5);
    let rows = rows(&definition, |of, seed| {
        let (mut value, _) = planted(of, 0.3 * noise.draw());
        if of("election") == "fifo" && seed == 2 {
            value *= 2.0;
        }
        (value, 1.0)
    });
    let analysis = analysis(&definition, &rows);
    assert_eq!(analysis.study.excluded, 5_832 / 3);
    assert_eq!(analysis.study.schedulers, 5_832 / 3 * 2);
    let slice = analysis
        .variance
        .effects
        .iter()
        .find(|effect| effect.feature == "slice")
        .unwrap();
    for level in &slice.levels {
        let [low, high] = level.interval_pct.unwrap();
        assert!(low < level.better_pct && level.better_pct < high && high - low < 10.0);
    }
    assert!(analysis.variance.noise_pct.unwrap() > 0.1);

    // One seed, and two of which the second changes nothing.
    for seeds in [1, 2] {
        let definition = self::definition(&["cpu"], seeds, None);
        let rows = self::rows(&definition, |of, _| planted(of, 0.0));
        let analysis = self::analysis(&definition, &rows);
        let mut levels = analysis
            .variance
            .effects
            .iter()
            .flat_map(|effect| &effect.levels);
        assert!(levels.all(|level| level.interval_pct.is_none()));
        assert_eq!(analysis.variance.noise_pct, None);
        let html = page("x", &[analysis], None).html();
        assert!(!html.contains("95 % interval"));
    }
}

/// A seed that makes all runs longer says nothing about chance between schedulers.
#[test]
fn what_seeds_add_to_all_alike_is_no_noise() {
    let fixed = ["election=fifo", "slice=split", "metric=nr_run"];
    let definition = support::definition(&fixed, &["cpu"], 3, None, 1);
    let mut noise = Noise::new(1);
    let rows = rows(&definition, |of, seed| {
        let idle = if of("idle") == "on" { 1.0 } else { 0.0 };
        (100.0 + 3.0 * seed as f64 + idle + 0.01 * noise.draw(), 1.0)
    });
    let analysis = analysis(&definition, &rows);
    assert!(share(&analysis, "idle") > 99.9);
    let noise = analysis.variance.noise_pct.unwrap();
    // A variance of 0.01² / 3 in a mean over three, beside one of 0.5².
    assert!((noise - 0.013).abs() < 0.003, "{noise}");
}

#[test]
fn the_front_is_what_nobody_beats() {
    let definition = definition(&["cpu"], 1, None);
    let rows = rows(&definition, |of, _| {
        let trade = match of("slice").as_str() {
            "infinite" => (10.0, 30.0),
            "fixed" => (20.0, 20.0),
            _ => (30.0, 10.0),
        };
        // Without an idle balance both are worse.
        if of("idle") == "on" {
            trade
        } else {
            (trade.0 + 5.0, trade.1 + 15.0)
        }
    });
    let front = analysis(&definition, &rows).front;
    let both: Vec<(f64, f64)> = front.iter().map(|one| (one.first, one.second)).collect();
    assert_eq!(both, [(10.0, 30.0), (20.0, 20.0), (30.0, 10.0)]);
    assert!(front.iter().all(|one| one.scheduler.contains("idle=on")));
}

/// No run migrates, or some do: a best value of zero has no percentages.
#[test]
fn zero_may_be_the_best_value() {
    let definition = definition(&["cpu"], 2, None);
    let nobody = analysis(&definition, &rows(&definition, |_, _| (0.0, 1.0)));
    assert_eq!(nobody.study.first[0], 5_832);
    assert_eq!(nobody.variance.deviation_pct, 0.0);
    assert!(nobody.relative.iter().all(|part| *part == Some(1.0)));
    for level in nobody.variance.effects.iter().flat_map(|e| &e.levels) {
        assert_eq!((level.better_pct, level.interval_pct), (0.0, None));
    }
    assert!(
        nobody.words.contains("(0 s); the worst has 0 % more."),
        "{}",
        nobody.words
    );

    let some = analysis(
        &definition,
        &rows(&definition, |of, _| match of("slice").as_str() {
            "split" => (0.0, 1.0),
            _ => (7.0, 1.0),
        }),
    );
    assert_eq!(some.study.first, [5_832 / 3; 3]);
    assert_eq!(some.study.covered_pct, 100.0);
    let one_third = some.relative.iter().filter(|part| **part == Some(1.0));
    assert_eq!(one_third.count(), 5_832 / 3);
    assert!(some.relative.iter().all(|part| *part >= Some(0.0)));
    assert!(
        some.words.contains("(0 s); the worst has 7 s."),
        "{}",
        some.words
    );
}

#[test]
fn the_tree_tells_who_is_good() {
    let definition = definition(&["cpu"], 1, None);
    let rows = rows(&definition, |of, _| {
        let good = of("slice") == "split" && of("placement") != "smt";
        (if good { 100.0 } else { 200.0 }, 1.0)
    });
    let analysis = analysis(&definition, &rows);
    assert_eq!(
        analysis.tree.lines(),
        [
            "5832 schedulers, 22 % good",
            "    slice = split: 1944 schedulers, 67 % good",
            "        placement = smt: 648 schedulers, 0 % good",
            "        placement ≠ smt: 1296 schedulers, 100 % good",
            "    slice ≠ split: 3888 schedulers, 0 % good",
        ]
    );
}

#[test]
fn failed_runs_and_samples_are_said_to_be_no_full_factorial() {
    let whole = definition(&["cpu"], 1, None);
    let mut some = rows(&whole, |of, _| planted(of, 0.0));
    for row in some.iter_mut().step_by(100) {
        row.exit = schedlab_report::Exit::ErrorStall;
        row.values[place("score")] = None;
    }
    let of_failed = analysis(&whole, &some);
    assert_eq!(of_failed.left_out.failed, 59);
    assert!(!of_failed.variance.exact && of_failed.variance.interactions.is_empty());

    let sample = definition(&["cpu"], 1, Some(200));
    let rows = rows(&sample, |of, _| planted(of, 0.0));
    let of_sample = analysis(&sample, &rows);
    assert_eq!(of_sample.study.schedulers, 200);
    assert!(!of_sample.variance.exact);
    assert!(
        of_sample.words.contains("slice=split"),
        "{}",
        of_sample.words
    );
}

#[test]
fn a_whole_sweep_is_one_page() {
    let names = [
        "cpu",
        "pipe",
        "reflex",
        "chat",
        "cpu:duration=1s",
        "cpu:duration=2s",
        "cpu:duration=3s",
    ];
    let definition = definition(&names, 1, None);
    let mut noise = Noise::new(1);
    let rows = rows(&definition, |of, _| planted(of, noise.draw()));
    let analyses: Vec<Analysis> = names
        .iter()
        .map(|name| analyse(&definition, &rows, name, "score", &Bounds::default()).unwrap())
        .collect();
    let scheduler = |point: usize| definition.space.scheduler(point as u64).to_string();
    let across = schedlab_analysis::Across::new(&analyses, scheduler).unwrap();
    let html = page("sweep", &analyses, Some(&across)).html();
    assert!(html.contains("Across workloads") && html.contains("<svg "));
    assert!(across.compromise.scheduler.contains("slice=split"));
    assert!(
        across
            .good
            .iter()
            .any(|(name, workloads)| name == "slice=split" && workloads.len() == 7)
    );
    assert!(html.len() < 10_000_000, "{}", html.len());
}
