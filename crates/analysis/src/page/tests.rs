//! The sentences of the page in each of their cases; crates/analysis/tests has whole pages.

use super::*;
use crate::Alternative;
use crate::tree::Question;
use crate::words::tests::analysis;

#[test]
fn the_parts_of_the_variance_have_their_basis() {
    let mut one = analysis();
    let deviation = "Standard deviation over schedulers: 10.00 % of the mean, 100 messages/s.";
    let exact = "Every combination was run, so the parts are exact. Three and more features together, and chance: 5.0 %.";
    let estimated = "Not every combination was run: these are estimates, of single features only. A share is what the \
                     feature explains that no other does. What none explains: 5.0 %.";
    let against = "Parts are tested against what no single feature";
    let without = "Seeds say nothing of chance here: there are no intervals.";
    let cases = [
        (
            true,
            Against::Rest,
            20.0,
            format!("{against} or pair explains, 20 degrees of freedom."),
        ),
        (
            true,
            Against::Rest,
            1.0,
            format!("{against} or pair explains, 1 degree of freedom."),
        ),
        (
            false,
            Against::Rest,
            20.0,
            format!("{against} explains, 20 degrees of freedom."),
        ),
        (
            true,
            Against::Seeds,
            6.0,
            "Parts are tested against the differences between seeds, 6 degrees of freedom.".into(),
        ),
        (
            true,
            Against::Copies,
            0.0,
            "No seed changes anything: every difference is one of schedulers.".into(),
        ),
        (
            true,
            Against::Nothing,
            0.0,
            "There are too few different schedulers to test the parts; run more seeds.".into(),
        ),
        (
            false,
            Against::Nothing,
            0.0,
            "There are too few combinations to test the parts.".into(),
        ),
    ];
    for (is_exact, basis, freedom, told) in cases {
        one.variance.exact = is_exact;
        one.variance.against = basis;
        one.variance.freedom = freedom;
        let parts = if is_exact { exact } else { estimated };
        assert_eq!(variance_text(&one), [deviation, parts, &told, without]);
    }
    one.variance.noise_pct = Some(2.5);
    one.unit = "ns".into();
    one.variance.mean = 10_210_927_426.0;
    let text = variance_text(&one);
    assert_eq!(
        text[0],
        "Standard deviation over schedulers: 10.00 % of the mean, 10.2 s."
    );
    assert_eq!(text[3], "Chance alone, from the seeds: 2.5 %.");
}

#[test]
fn alternatives_bear_their_verdicts() {
    let mut one = analysis();
    let judged = [
        (Verdict::Good, true),
        (Verdict::Good, false),
        (Verdict::Bad, true),
        (Verdict::BadInSecondRound, false),
        (Verdict::Neutral, false),
        (Verdict::NotCompared, false),
    ];
    one.study.alternatives = judged
        .iter()
        .zip(["a", "b", "c", "d", "e", "f"])
        .map(|(&(verdict, significant), name)| {
            Alternative::judged(("idle", name), verdict, significant)
        })
        .collect();
    let tree = features(&one);
    let shown: Vec<&str> = tree.root.children[0]
        .children
        .iter()
        .map(|node| node.text.as_str())
        .collect();
    assert_eq!(shown, ["a", "b (chance?)", "c", "d (chance?)", "e", "f"]);
    let rows = alternatives(&one).rows;
    let words: Vec<(&str, &str)> = rows.iter().map(|row| (&*row[5], &*row[6])).collect();
    let expected = [
        ("good", "yes"),
        ("good", "no"),
        ("bad", "yes"),
        ("bad (second round)", "no"),
        ("", "no"),
        ("not compared", "no"),
    ];
    assert_eq!(words, expected);
}

#[test]
fn questions_count_their_schedulers() {
    let mut one = analysis();
    assert!(questions(&one).is_none());
    let leaf = |schedulers, good_pct| crate::Node {
        schedulers,
        good_pct,
        question: None,
    };
    one.tree.question = Some(Box::new(Question {
        feature: "idle".into(),
        alternative: "on".into(),
        yes: leaf(11, 27.3),
        no: leaf(1, 0.0),
    }));
    let root = questions(&one).expect("it asks").root;
    let below: Vec<&str> = root
        .children
        .iter()
        .map(|node| node.text.as_str())
        .collect();
    assert_eq!(root.text, "12 schedulers, 25 % good");
    assert_eq!(
        below,
        [
            "idle = on: 11 schedulers, 27 % good",
            "idle ≠ on: 1 scheduler, 0 % good"
        ]
    );
}

#[test]
fn what_says_nothing_has_its_place() {
    let mut one = analysis();
    one.mute.conditions = [&[][..], &["a=1"], &["a=1", "b=2"]]
        .map(|with| crate::Condition {
            feature: "executor".into(),
            with: with.iter().map(|&text| text.to_owned()).collect(),
        })
        .into();
    let places: Vec<String> = mute(&one)
        .rows
        .into_iter()
        .map(|mut row| row.remove(1))
        .collect();
    assert_eq!(places, ["everywhere", "a=1", "a=1 and b=2"]);
}
