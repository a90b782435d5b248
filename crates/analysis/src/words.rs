//! The analysis in one paragraph that a performance engineer can act on.

#[cfg(test)]
pub(crate) mod tests;

use schedlab_report::export::number::amount;

use crate::data::part;
use crate::{Analysis, Effect, Interaction, Level, Mute, Variance, Verdict};

/// Shares below this are not worth a word, in percent.
const WORTH_PCT: f64 = 1.0;
/// So many pairs are named at most.
const PAIRS_MAX: usize = 3;
/// A rest of this size is reported, in percent; an incomplete sweep's joint effects may be in it.
const REST_MIN_PCT: f64 = 20.0;
/// The largest relative difference of equal means that rounding alone may cause.
const ROUNDING: f64 = 1e-9;
/// So many equals are named.
const EQUALS_MAX: usize = 2;

pub fn paragraph(analysis: &Analysis) -> String {
    let mut sentences = vec![spread(analysis)];
    let Analysis {
        study, variance, ..
    } = analysis;
    match &analysis.search {
        Some(search) => {
            sentences.extend(search.words(&analysis.unit, &analysis.left_out.failed_with));
        }
        None => sentences.extend(missing(analysis)),
    }
    if study.excluded > 0 {
        let who = match study.excluded {
            1 => "1 is left out of the comparison with the best because its".to_owned(),
            several => {
                format!("{several} are left out of the comparison with the best because their")
            }
        };
        sentences.push(format!("{who} runs differ too much."));
    }
    if study.unsteady {
        sentences.push(
            "The runs of every scheduler differ too much; none is left out for that.".to_owned(),
        );
    }
    if analysis.left_out.seeds > 0 {
        sentences.push(format!(
            "Seeds that not every scheduler has had are not looked at ({} of {}).",
            analysis.left_out.seeds,
            analysis.left_out.seeds + analysis.seeds as u64
        ));
    }
    let found = !analysis.findings().is_empty();
    if !found {
        sentences.push(nothing_found(analysis));
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
            let best = best_on_average(analysis, effect);
            format!("{} {:.0} %{best}", effect.feature, effect.share_pct)
        })
        .collect();
    if !first.is_empty() {
        let about = if variance.exact { "" } else { ", estimated" };
        sentences.push(format!(
            "Shares of the differences by single features{about}: {}.",
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
    let idle = hardly_matter(analysis);
    if !idle.is_empty() && variance.tells() {
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
            "With {} the {} makes no difference.",
            condition.with[0], condition.feature
        ));
    }
    if variance.rest_pct >= REST_MIN_PCT {
        let chance_pct = variance.noise_pct.unwrap_or(0.0);
        let of = if variance.exact
            && variance.rest_significant == Some(true)
            && chance_pct < WORTH_PCT
        {
            "three or more features together"
        } else if variance.exact {
            "three or more features together, or of chance"
        } else {
            "several features together, or of chance; with combinations missing these cannot be separated"
        };
        sentences.push(format!(
            "{:.0} % of the differences are of {of}.",
            variance.rest_pct
        ));
    }
    sentences.join(" ")
}

/// Returns the alternatives with the best mean. A mean goes by all schedulers, the verdicts by the best ones alone:
/// where they disagree, the sentence says both.
fn best_on_average(analysis: &Analysis, effect: &Effect) -> String {
    let levels = effect.levels.iter();
    let best = extremes(levels, |level| level.mean, analysis.higher_is_better);
    let objections =
        |level: &&Level| objection(analysis, &effect.feature, &level.alternative, "it");
    let (best, objection) =
        without_objection(best, |level| objections(level).into_iter().collect());
    if best.is_empty() {
        return String::new();
    }
    let names: Vec<String> = best.iter().map(|one| one.alternative.clone()).collect();
    let mut levels = effect.levels.iter().map(|level| &level.alternative);
    let is_good = |name: &str| verdict(analysis, &effect.feature, name) == Verdict::Good;
    let good = levels.find(|&name| is_good(name) && !names.contains(name));
    let names = or(&names);
    match (good, objection.first()) {
        (Some(good), _) => {
            format!(" (best on average: {names}; the best schedulers have {good})")
        }
        (None, Some(objection)) => format!(" (best on average: {names}, but {objection})"),
        (None, None) => format!(" (best on average: {names})"),
    }
}

fn verdict(analysis: &Analysis, feature: &str, alternative: &str) -> Verdict {
    let mut all = analysis.study.alternatives.iter();
    let found = all.find(|one| one.feature == feature && one.alternative == alternative);
    found.map_or(Verdict::Neutral, |one| one.verdict)
}

/// Returns what the verdict says against an alternative, which the sentence calls `name`.
fn objection(analysis: &Analysis, feature: &str, alternative: &str, name: &str) -> Option<String> {
    match verdict(analysis, feature, alternative) {
        Verdict::Bad => Some(format!("the best schedulers seldom have {name}")),
        Verdict::BadInSecondRound => Some(format!("{name} is bad in the second round")),
        _ => None,
    }
}

/// Returns the equally good ones to which no verdict objects. Where it objects to all, the first stands for them,
/// with the objections to it.
fn without_objection<'a, T>(
    equals: Vec<&'a T>,
    objections: impl Fn(&&'a T) -> Vec<String>,
) -> (Vec<&'a T>, Vec<String>) {
    let is_kept = |one: &&'a T| objections(one).is_empty();
    let kept: Vec<&T> = equals.iter().copied().filter(is_kept).collect();
    match (kept.is_empty(), equals.first()) {
        (true, Some(first)) => (vec![*first], objections(first)),
        _ => (kept, Vec::new()),
    }
}

/// Features that change next to nothing.
fn hardly_matter(analysis: &Analysis) -> Vec<String> {
    let Analysis {
        study,
        variance,
        left_out,
        tree,
        ..
    } = analysis;
    // A feature that makes runs fail matters. The residual of a single one says nothing.
    let mut without: Vec<&String> = Vec::new();
    for (count, with) in [
        (left_out.failed, &left_out.failed_with),
        (left_out.absent, &left_out.absent_with),
    ] {
        without.extend(with.iter().filter(|_| count > 1));
    }
    let effects = variance.effects.iter().filter(|effect| {
        // The features of the best may matter, however little of all differences they make.
        let judged = study
            .alternatives
            .iter()
            .any(|one| one.verdict.is_judgement() && one.feature == effect.feature);
        let ends_runs = without
            .iter()
            .filter_map(|with| with.split_once('='))
            .any(|(feature, _)| feature == effect.feature);
        let asked = tree.asks(&effect.feature);
        does_little(variance, effect) && !judged && !ends_runs && !asked
    });
    effects.map(|effect| effect.feature.clone()).collect()
}

/// Returns whether next to no differences are of a feature, by itself or with others.
fn does_little(variance: &Variance, effect: &Effect) -> bool {
    let of = |pair: &&Interaction| pair.features.contains(&effect.feature);
    let mut pairs = variance.interactions.iter().filter(of);
    let paired = pairs.any(|pair| pair.share_pct >= WORTH_PCT);
    if effect.p.is_none() || effect.share_pct >= WORTH_PCT || paired {
        return false;
    }
    let chance = variance.noise_pct.unwrap_or(0.0);
    let Some(total) = effect.total_pct else {
        // Pairs are not estimated: joint effects are in the rest, and so is chance, about which one seed says
        // nothing. An insignificant rest is no proof: few seeds hardly show anything.
        return variance.rest_pct < REST_MIN_PCT && variance.rest_pct - chance < WORTH_PCT;
    };
    let alternatives = effect.levels.len() as f64;
    let chance = chance * (1.0 - 1.0 / alternatives);
    total - chance < WORTH_PCT || variance.rest_significant == Some(false)
}

/// Why there is no finding.
fn nothing_found(analysis: &Analysis) -> String {
    let Analysis {
        study,
        variance,
        mute,
        ..
    } = analysis;
    if study.schedulers == 1 {
        return "One scheduler says nothing of features.".to_owned();
    }
    let are_alike = study.best == study.worst;
    if are_alike && study.excluded == 0 {
        return "No feature makes any difference.".to_owned();
    }
    // The others are in the variance.
    let compared = match are_alike {
        true => "Those that are compared do not differ. ",
        false => "",
    };
    let text = match (variance.exact, variance.tells()) {
        (true, tells) => &nothing_found_in_all(variance, tells, mute),
        (false, true) => {
            "No single feature makes a difference that chance would not make; with combinations missing the joint \
             effects of several are unknown."
        }
        (false, false) => {
            "There are too few combinations to separate effects from chance; run more of them, or all with more seeds \
             (`--repeat`)."
        }
    };
    format!("{compared}{text}")
}

/// Returns why there is no finding though all combinations are there.
fn nothing_found_in_all(variance: &Variance, tells: bool, mute: &Mute) -> String {
    match variance.rest_significant {
        Some(true) if tells => {
            "No feature and no pair makes a difference that chance would not make; three or more together do.".to_owned()
        }
        _ if !tells && mute.distinct < mute.points => format!(
            "The {} schedulers are only {} different ones, some of which have many points: too few to separate effects \
             from chance; run more seeds (`--repeat`).",
            mute.points, mute.distinct
        ),
        _ if !tells => "There are too few combinations to separate effects from chance; run more seeds (`--repeat`)."
            .to_owned(),
        Some(_) => "No feature makes a difference that chance would not make.".to_owned(),
        None => "No feature and no pair makes a difference that chance would not make; joint effects of three or more are \
                 not separable from chance without more seeds (`--repeat`)."
            .to_owned(),
    }
}

/// Which combinations are missing, where that makes shares estimates.
fn missing(analysis: &Analysis) -> Option<String> {
    let left_out = &analysis.left_out;
    if analysis.variance.exact {
        return None;
    }
    let mut reasons = Vec::new();
    let mut add = |count: u64, what: &str, with: &[String]| {
        if count > 0 {
            let with = match count {
                _ if with.is_empty() => String::new(),
                // It is that scheduler.
                1 => format!(" ({})", with.join(",")),
                _ => format!(", all with {}", list(with)),
            };
            reasons.push(format!("{count} {what}{with}"));
        }
    };
    add(left_out.failed, "failed", &left_out.failed_with);
    let whose = if left_out.absent == 1 { "its" } else { "their" };
    let without = format!("ended {whose} runs without any {}", analysis.measure);
    add(left_out.absent, &without, &left_out.absent_with);
    let lack = match left_out.unfinished {
        1 => "lacks seeds that others have",
        _ => "lack seeds that others have",
    };
    add(left_out.unfinished, lack, &[]);
    let not_run = match left_out.not_run {
        1 => "was not run",
        _ => "were not run",
    };
    add(left_out.not_run, not_run, &[]);
    Some(format!(
        "Combinations are missing: {}. Effects of features are estimated from the others, as if they added up.",
        reasons.join("; ")
    ))
}

fn spread(analysis: &Analysis) -> String {
    let study = &analysis.study;
    let compared = if analysis.higher_is_better {
        "less"
    } else {
        "more"
    };
    let worst = 100.0 * part((study.worst - study.best).abs(), study.best);
    let worst = if worst.is_finite() && worst >= 1_000.0 && !analysis.higher_is_better {
        // A large percentage says less than a factor.
        format!("{:.0} times as much", 1.0 + worst / 100.0)
    } else if worst.is_finite() {
        format!("{worst:.0} % {compared}")
    } else {
        // Nothing is a percentage of nothing.
        amount(study.worst, &analysis.unit)
    };
    let best = amount(study.best, &analysis.unit);
    if study.schedulers == 1 {
        return format!("Only one scheduler is compared ({best}).");
    }
    let come = if study.second[0] == 1 {
        "comes"
    } else {
        "come"
    };
    format!(
        "{} of {} schedulers {come} within reach of the best ({best}); the worst has {worst}.",
        study.second[0], study.schedulers,
    )
}

/// A combination of two alternatives, and its mean.
type Cell = (String, String, f64);

/// Two features that matter together: which combination is best, which worst.
fn together(analysis: &Analysis, pair: &Interaction) -> String {
    let [a, b] = &pair.features;
    let extreme = |higher: bool| extremes(pair.cells.iter(), |cell| cell.2, higher);
    let named = |cells: &[&Cell]| {
        let name = |cell: &&Cell| format!("{a}={} and {b}={}", cell.0, cell.1);
        match cells.len() {
            ..=EQUALS_MAX => or(&cells.iter().map(name).collect::<Vec<String>>()),
            all => format!("{} or {} others", name(&cells[0]), all - 1),
        }
    };
    let objections = |cell: &&Cell| -> Vec<String> {
        let of = |feature: &str, alternative: &str| {
            let name = format!("{feature}={alternative}");
            objection(analysis, feature, alternative, &name)
        };
        of(a, &cell.0).into_iter().chain(of(b, &cell.1)).collect()
    };
    let (best, objections) = without_objection(extreme(analysis.higher_is_better), objections);
    let but = match objections.is_empty() {
        true => String::new(),
        false => format!(" (but {})", list(&objections)),
    };
    let best = format!("{}{but}", named(&best));
    let worst = named(&extreme(!analysis.higher_is_better));
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
        "{a} and {b} {only} ({:.0} %): best on average with {best}, worst with {worst}.",
        pair.share_pct
    )
}

/// Those with the highest or the lowest mean: of equals all, in their order.
fn extremes<'a, T>(
    all: impl Iterator<Item = &'a T> + Clone,
    mean: impl Fn(&T) -> f64,
    highest: bool,
) -> Vec<&'a T> {
    let means = all.clone().map(&mean);
    let Some(extreme) = means.reduce(if highest { f64::max } else { f64::min }) else {
        return Vec::new();
    };
    let size = all.clone().map(|one| mean(one).abs()).fold(0.0, f64::max);
    all.filter(|one| (mean(one) - extreme).abs() <= ROUNDING * size)
        .collect()
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
