//! Every sentence in each of its cases, from analyses made by hand.

use super::*;
use crate::tree::Question;
use crate::{Against, LeftOut};
use crate::{Alternative, Condition, Front, Level, Node, Study};

/// Twelve schedulers with nothing found.
pub(crate) fn analysis() -> Analysis {
    Analysis {
        workload: "chat".into(),
        measure: "score".into(),
        unit: "messages/s".into(),
        higher_is_better: true,
        seeds: 1,
        words: String::new(),
        left_out: LeftOut::default(),
        search: None,
        study: Study {
            schedulers: 12,
            excluded: 0,
            unsteady: false,
            best: 200.0,
            best_scheduler: "feature".into(),
            worst: 50.0,
            alternatives: Vec::new(),
            first: [3, 2, 1],
            second: [3, 2, 1],
            false_positives_pct: None,
            covered_pct: 0.0,
            picture: Vec::new(),
        },
        variance: Variance {
            exact: true,
            against: Against::Rest,
            freedom: 20.0,
            mean: 100.0,
            deviation_pct: 10.0,
            effects: Vec::new(),
            interactions: Vec::new(),
            rest_pct: 5.0,
            rest_significant: None,
            noise_pct: None,
        },
        mute: Mute {
            points: 12,
            distinct: 12,
            effective: 12.0,
            conditions: Vec::new(),
            kinds: Vec::new(),
        },
        tree: Node {
            schedulers: 12,
            good_pct: 25.0,
            question: None,
        },
        second_measure: "wakeup.latency_ns_p99".into(),
        front: Vec::<Front>::new(),
        relative: Vec::new(),
        both: Vec::new(),
    }
}

/// A feature with the means of its alternatives.
fn effect(feature: &str, share_pct: f64, means: &[(&str, f64)]) -> Effect {
    Effect {
        feature: feature.into(),
        share_pct,
        total_pct: Some(share_pct),
        p: Some(0.001),
        significant: true,
        levels: means
            .iter()
            .map(|&(alternative, mean)| Level {
                alternative: alternative.into(),
                mean,
                better_pct: mean - 100.0,
                interval_pct: None,
            })
            .collect(),
        told: Vec::new(),
    }
}

fn pair(share_pct: f64, cells: &[(&str, &str, f64)]) -> Interaction {
    Interaction {
        features: ["idle".into(), "metric".into()],
        share_pct,
        p: Some(0.001),
        significant: true,
        cells: cells
            .iter()
            .map(|&(a, b, mean)| (a.to_owned(), b.to_owned(), mean))
            .collect(),
    }
}

const USED_TIME: (&str, &str) = ("metric", "used_time");

fn metric() -> Effect {
    effect("metric", 12.0, &[("nr_run", 90.0), ("used_time", 110.0)])
}

#[track_caller]
fn says(analysis: &Analysis, sentence: &str) {
    let words = paragraph(analysis);
    assert!(words.contains(sentence), "`{sentence}` is not in: {words}");
}

#[test]
fn the_spread_names_best_and_worst() {
    let mut one = analysis();
    says(
        &one,
        "3 of 12 schedulers come within reach of the best (200 messages/s); the worst has 75 % less.",
    );
    one.study.second[0] = 1;
    one.higher_is_better = false;
    one.study.worst = 400.0;
    says(
        &one,
        "1 of 12 schedulers comes within reach of the best (200 messages/s); the worst has 100 % more.",
    );
    one.study.worst = 2_199.2;
    says(&one, "(200 messages/s); the worst has 1000 % more.");
    one.study.worst = 200.0 * 125.39;
    says(&one, "(200 messages/s); the worst has 125 times as much.");
    // What is less is never more than all of it.
    one.higher_is_better = true;
    one.study.worst = 0.0;
    says(&one, "(200 messages/s); the worst has 100 % less.");
    one.higher_is_better = false;
    one.study.worst = 400.0;
    // Nothing is a percentage of nothing.
    one.study.best = 0.0;
    says(&one, "the worst has 400 messages/s.");
    one.study.schedulers = 1;
    says(&one, "Only one scheduler is compared (0 messages/s).");
    says(&one, "One scheduler says nothing of features.");
}

#[test]
fn what_is_left_out_has_a_sentence() {
    let mut one = analysis();
    one.study.excluded = 1;
    says(
        &one,
        "1 is left out of the comparison with the best because its runs differ too much.",
    );
    one.study.excluded = 2;
    says(
        &one,
        "2 are left out of the comparison with the best because their runs differ too much.",
    );
    one.study.unsteady = true;
    says(
        &one,
        "The runs of every scheduler differ too much; none is left out for that.",
    );
    one.left_out.seeds = 2;
    says(
        &one,
        "Seeds that not every scheduler has had are not looked at (2 of 3).",
    );
    assert!(!paragraph(&analysis()).contains("left out"));
}

#[test]
fn missing_combinations_have_their_reasons() {
    let mut one = analysis();
    one.variance.exact = false;
    one.left_out = LeftOut {
        failed: 2,
        failed_with: vec!["slice=infinite".into()],
        absent: 1,
        absent_with: vec!["election=fifo".into(), "slice=fixed".into()],
        unfinished: 1,
        not_run: 1,
        ..LeftOut::default()
    };
    says(
        &one,
        "Combinations are missing: 2 failed, all with slice=infinite; 1 ended its runs without any score \
         (election=fifo,slice=fixed); 1 lacks seeds that others have; 1 was not run. Effects of features are \
         estimated from the others, as if they added up.",
    );
    one.left_out = LeftOut {
        failed: 1,
        absent: 2,
        unfinished: 3,
        not_run: 4,
        ..LeftOut::default()
    };
    says(
        &one,
        "Combinations are missing: 1 failed; 2 ended their runs without any score; 3 lack seeds that others have; \
         4 were not run.",
    );
}

#[test]
fn finding_nothing_has_a_reason() {
    let mut one = analysis();
    says(
        &one,
        "No feature and no pair makes a difference that chance would not make; joint effects of three or more are \
         not separable from chance without more seeds (`--repeat`).",
    );
    one.variance.rest_significant = Some(false);
    says(
        &one,
        "No feature makes a difference that chance would not make.",
    );
    one.variance.rest_significant = Some(true);
    says(
        &one,
        "No feature and no pair makes a difference that chance would not make; three or more together do.",
    );
    one.variance.freedom = 3.0;
    says(
        &one,
        "There are too few combinations to separate effects from chance; run more seeds (`--repeat`).",
    );
    one.mute.distinct = 7;
    says(
        &one,
        "The 12 schedulers are only 7 different ones, some of which have many points: too few to separate effects from \
         chance; run more seeds (`--repeat`).",
    );
    one.variance.exact = false;
    says(
        &one,
        "There are too few combinations to separate effects from chance; run more of them, or all with more seeds \
         (`--repeat`).",
    );
    one.variance.freedom = 20.0;
    says(
        &one,
        "No single feature makes a difference that chance would not make; with combinations missing the joint effects of \
         several are unknown.",
    );
    one.study.worst = one.study.best;
    says(&one, "No feature makes any difference.");
    one.study.excluded = 1;
    says(
        &one,
        "Those that are compared do not differ. No single feature makes a difference that chance would not make;",
    );
}

#[test]
fn good_and_bad_alternatives_are_advice() {
    let mut one = analysis();
    one.study.alternatives = vec![
        Alternative::judged(("slice", "split"), Verdict::Good, true),
        Alternative::judged(("slice", "fixed"), Verdict::Bad, true),
        Alternative::judged(("idle", "off"), Verdict::Bad, true),
        // A difference that chance could give is no advice.
        Alternative::judged(("idle", "on"), Verdict::Good, false),
    ];
    says(&one, "Choose slice=split. Avoid slice=fixed and idle=off.");
    assert!(!paragraph(&one).contains("idle=on"));
}

/// The best mean and the verdict are of different schedulers; where they disagree the sentence says so.
#[test]
fn the_best_on_average_does_not_contradict_the_verdicts() {
    let with = |alternatives: Vec<Alternative>| {
        let mut one = analysis();
        one.variance.effects = vec![metric()];
        one.study.alternatives = alternatives;
        one
    };
    let of = "Shares of the differences by single features: metric 12 %";
    says(
        &with(Vec::new()),
        &format!("{of} (best on average: used_time)."),
    );
    for (verdict, but) in [
        (Verdict::Bad, "the best schedulers seldom have it"),
        (Verdict::BadInSecondRound, "it is bad in the second round"),
    ] {
        for significant in [false, true] {
            let one = with(vec![Alternative::judged(USED_TIME, verdict, significant)]);
            says(
                &one,
                &format!("{of} (best on average: used_time, but {but})."),
            );
        }
    }
    let one = with(vec![
        Alternative::judged(USED_TIME, Verdict::Bad, true),
        Alternative::judged(("metric", "nr_run"), Verdict::Good, true),
    ]);
    says(
        &one,
        &format!("{of} (best on average: used_time; the best schedulers have nr_run)."),
    );
    // Of equals the one that is not bad.
    let mut one = with(vec![Alternative::judged(USED_TIME, Verdict::Bad, true)]);
    one.variance.effects[0].levels[0].mean = 110.0;
    says(&one, &format!("{of} (best on average: nr_run)."));
    // Where all equals are, the first stands for them.
    one.study.alternatives.push(Alternative::judged(
        ("metric", "nr_run"),
        Verdict::Bad,
        true,
    ));
    says(
        &one,
        &format!("{of} (best on average: nr_run, but the best schedulers seldom have it)."),
    );
    // Where no mean is estimable, none is named.
    let mut one = with(Vec::new());
    one.variance.effects[0].levels.clear();
    says(&one, &format!("{of}."));
    one.variance.exact = false;
    says(
        &one,
        "Shares of the differences by single features, estimated: metric 12 %.",
    );
}

#[test]
fn pairs_name_their_best_and_worst() {
    let cells = [
        ("on", "nr_run", 110.0),
        ("on", "used_time", 90.0),
        ("off", "nr_run", 80.0),
        ("off", "used_time", 110.0),
    ];
    let mut one = analysis();
    one.variance.interactions = vec![pair(20.0, &cells)];
    says(
        &one,
        "idle and metric matter mainly together (20 %): best on average with idle=on and metric=nr_run or idle=off and \
         metric=used_time, worst with idle=off and metric=nr_run.",
    );
    one.variance.effects = vec![metric()];
    one.variance.interactions = vec![pair(5.0, &cells)];
    one.higher_is_better = false;
    says(
        &one,
        "idle and metric depend on each other (5 %): best on average with idle=off and metric=nr_run",
    );
    let equal = cells.map(|(a, b, _)| (a, b, 1.0));
    one.variance.interactions = vec![pair(5.0, &equal)];
    says(
        &one,
        "best on average with idle=on and metric=nr_run or 3 others",
    );
}

/// As of a single feature: what is best on average may be what is to be avoided.
#[test]
fn the_best_pair_does_not_contradict_the_verdicts() {
    let cells = [
        ("on", "nr_run", 110.0),
        ("off", "used_time", 120.0),
        ("off", "nr_run", 80.0),
    ];
    let mut one = analysis();
    one.variance.interactions = vec![pair(20.0, &cells)];
    let of = "idle and metric matter mainly together (20 %): best on average with";
    let worst = "worst with idle=off and metric=nr_run.";
    let mut of_verdicts = |verdicts: &[(&str, &str, Verdict)], best: &str| {
        let judged = verdicts.iter();
        one.study.alternatives = judged
            .map(|&(feature, name, verdict)| Alternative::judged((feature, name), verdict, true))
            .collect();
        says(&one, &format!("{of} {best}, {worst}"));
    };
    let best = "idle=off and metric=used_time";
    of_verdicts(&[], best);
    of_verdicts(&[("idle", "off", Verdict::Good)], best);
    of_verdicts(
        &[("metric", "used_time", Verdict::Bad)],
        &format!("{best} (but the best schedulers seldom have metric=used_time)"),
    );
    of_verdicts(
        &[
            ("metric", "used_time", Verdict::Bad),
            ("idle", "off", Verdict::BadInSecondRound),
        ],
        &format!(
            "{best} (but idle=off is bad in the second round and the best schedulers seldom have metric=used_time)"
        ),
    );
    // Of equals the one to which no verdict objects.
    one.variance.interactions[0].cells[0].2 = 120.0;
    says(&one, &format!("{of} idle=on and metric=nr_run, {worst}"));
}

#[test]
fn features_that_hardly_matter_are_named() {
    let mut one = analysis();
    let idle = Effect {
        significant: false,
        ..effect("idle", 0.1, &[("on", 100.0), ("off", 100.0)])
    };
    one.variance.effects = vec![metric(), idle.clone()];
    one.variance.rest_significant = Some(false);
    says(&one, "It hardly matters which idle is chosen.");
    let denied = |one: &Analysis| assert!(!paragraph(one).contains("hardly matters"));
    let mut judged = one.clone();
    judged.study.alternatives = vec![Alternative::judged(("idle", "on"), Verdict::Good, false)];
    denied(&judged);
    let mut failing = one.clone();
    failing.left_out.failed = 2;
    failing.left_out.failed_with = vec!["idle=off".into()];
    denied(&failing);
    let mut few = one.clone();
    few.variance.freedom = 3.0;
    denied(&few);
    // In a pair, or without a test, it may matter.
    let mut paired = one.clone();
    paired.variance.interactions = vec![pair(5.0, &[("on", "nr_run", 1.0)])];
    denied(&paired);
    let mut untested = one.clone();
    untested.variance.effects[1].p = None;
    denied(&untested);
    let mut asked = one.clone();
    let leaf = one.tree.clone();
    asked.tree.question = Some(Box::new(Question {
        feature: "idle".into(),
        alternative: "on".into(),
        yes: leaf.clone(),
        no: leaf,
    }));
    denied(&asked);
    let mut several = one;
    for feature in ["slice", "election"] {
        several.variance.effects.push(Effect {
            feature: feature.into(),
            ..idle.clone()
        });
    }
    says(
        &several,
        "It hardly matters which idle, slice or election is chosen.",
    );
}

#[test]
fn mute_features_and_the_rest_have_sentences() {
    let mut one = analysis();
    one.variance.effects = vec![metric()];
    one.mute.conditions = vec![
        Condition {
            feature: "executor".into(),
            with: vec!["periodic=never".into()],
        },
        Condition {
            feature: "imbalance".into(),
            with: vec!["periodic=never".into(), "idle=off".into()],
        },
    ];
    says(
        &one,
        "With periodic=never the executor makes no difference.",
    );
    assert!(!paragraph(&one).contains("imbalance"));
    one.variance.rest_pct = 30.0;
    says(
        &one,
        "30 % of the differences are of three or more features together, or of chance.",
    );
    one.variance.rest_significant = Some(true);
    says(
        &one,
        "30 % of the differences are of three or more features together.",
    );
    one.variance.noise_pct = Some(2.0);
    says(&one, "three or more features together, or of chance.");
    one.variance.exact = false;
    says(
        &one,
        "several features together, or of chance; with combinations missing these cannot be separated.",
    );
}
