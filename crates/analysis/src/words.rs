//! The analysis in one paragraph that a performance engineer can act on.

use schedlab_report::export::number::amount;

use crate::data::part;
use crate::{Analysis, Interaction, Verdict};

/// Shares below this are not worth a word, in percent.
const WORTH_PCT: f64 = 1.0;
/// So many pairs are named at most.
const PAIRS_MAX: usize = 3;

pub fn paragraph(analysis: &Analysis) -> String {
    let mut sentences = vec![spread(analysis)];
    let Analysis {
        study, variance, ..
    } = analysis;
    if variance.effects.iter().all(|e| !e.significant)
        && variance.interactions.iter().all(|i| !i.significant)
    {
        sentences.push("No feature makes a difference that chance would not make.".to_owned());
        return sentences.join(" ");
    }
    let with = |verdicts: &[Verdict]| -> Vec<String> {
        let chosen = study.alternatives.iter();
        chosen
            .filter(|one| one.significant && verdicts.contains(&one.verdict))
            .map(|one| format!("{}={}", one.feature, one.alternative))
            .collect()
    };
    let good = with(&[Verdict::Good]);
    let bad = with(&[Verdict::Bad]);
    if !good.is_empty() {
        sentences.push(format!("Choose {}.", list(&good)));
    }
    if !bad.is_empty() {
        sentences.push(format!("Avoid {}.", list(&bad)));
    }
    let first: Vec<String> = variance
        .effects
        .iter()
        .filter(|effect| effect.significant && effect.share_pct >= WORTH_PCT)
        .map(|effect| {
            let by = |a: &&crate::Level, b: &&crate::Level| a.better_pct.total_cmp(&b.better_pct);
            let best = effect
                .levels
                .iter()
                .max_by(by)
                .map_or("", |l| &l.alternative);
            format!(
                "{} {:.0} % (best on average: {best})",
                effect.feature, effect.share_pct
            )
        })
        .collect();
    if !first.is_empty() {
        sentences.push(format!(
            "What single features make of the differences: {}.",
            list(&first)
        ));
    }
    let pairs: Vec<&Interaction> = variance
        .interactions
        .iter()
        .filter(|pair| pair.significant && pair.share_pct >= WORTH_PCT)
        .take(PAIRS_MAX)
        .collect();
    for pair in &pairs {
        sentences.push(together(analysis, pair));
    }
    let idle: Vec<String> = variance
        .effects
        .iter()
        .filter(|effect| {
            let paired = variance
                .interactions
                .iter()
                .any(|pair| pair.share_pct >= WORTH_PCT && pair.features.contains(&effect.feature));
            effect.share_pct < WORTH_PCT && !paired
        })
        .map(|effect| effect.feature.clone())
        .collect();
    if !idle.is_empty() {
        sentences.push(format!("It hardly matters which {} is chosen.", or(&idle)));
    }
    for condition in analysis
        .mute
        .conditions
        .iter()
        .filter(|c| c.with.len() == 1)
        .take(PAIRS_MAX)
    {
        sentences.push(format!(
            "With {} the {} says nothing.",
            condition.with[0], condition.feature
        ));
    }
    if variance.rest_pct >= 20.0 && variance.exact {
        sentences.push(format!(
            "{:.0} % of the differences are of three or more features together, or of chance.",
            variance.rest_pct
        ));
    }
    sentences.join(" ")
}

fn spread(analysis: &Analysis) -> String {
    let study = &analysis.study;
    let compared = if analysis.higher_is_better {
        "less"
    } else {
        "more"
    };
    let worst = 100.0 * part((study.worst - study.best).abs(), study.best);
    let worst = if worst.is_finite() {
        format!("{worst:.0} % {compared}")
    } else {
        // Nothing is a percentage of nothing.
        amount(study.worst, &analysis.unit)
    };
    format!(
        "{} of {} schedulers come within reach of the best ({}); the worst has {worst}.",
        study.second[0],
        study.schedulers,
        amount(study.best, &analysis.unit)
    )
}

/// Two features that matter together: which combination is best, which worst.
fn together(analysis: &Analysis, pair: &Interaction) -> String {
    let [a, b] = &pair.features;
    let worse = |x: f64, y: f64| {
        if analysis.higher_is_better {
            x < y
        } else {
            x > y
        }
    };
    let (mut best, mut worst) = (&pair.cells[0], &pair.cells[0]);
    for cell in &pair.cells {
        if worse(best.2, cell.2) {
            best = cell;
        }
        if worse(cell.2, worst.2) {
            worst = cell;
        }
    }
    let alone = |feature: &String| {
        let effect = analysis
            .variance
            .effects
            .iter()
            .find(|effect| effect.feature == *feature);
        effect.map_or(0.0, |effect| effect.share_pct)
    };
    let only = if pair.share_pct > alone(a) && pair.share_pct > alone(b) {
        "matter mainly together"
    } else {
        "depend on each other"
    };
    format!(
        "{a} and {b} {only} ({:.0} %): best on average with {a}={} and {b}={}, worst with {a}={} and {b}={}.",
        pair.share_pct, best.0, best.1, worst.0, worst.1
    )
}

fn joined(words: &[String], last: &str) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., end] => format!("{} {last} {end}", most.join(", ")),
    }
}

fn list(words: &[String]) -> String {
    joined(words, "and")
}

fn or(words: &[String]) -> String {
    joined(words, "or")
}

/// Four significant digits.
pub fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = (3 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    format!("{value:.digits$}")
}
