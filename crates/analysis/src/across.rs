//! Across workloads: the scheduler that serves all of them.

use serde::Serialize;

use crate::{Analysis, Verdict};

/// A scheduler on all workloads.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Compromise {
    /// The scheduler.
    pub scheduler: String,
    /// Its worst workload: its result relative to the best one's, in percent.
    pub worst_pct: f64,
    /// The mean over workloads, in percent.
    pub mean_pct: f64,
}

/// Findings that several workloads share.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Across {
    /// In words.
    pub words: String,
    /// The scheduler whose worst workload is best.
    pub compromise: Compromise,
    /// Alternatives that are good (or bad) for a workload, with the workloads' names.
    pub good: Vec<(String, Vec<String>)>,
    /// See there.
    pub bad: Vec<(String, Vec<String>)>,
}

impl Across {
    /// Compares; `None` for fewer than two workloads, or if no scheduler ran them all.
    pub fn new(analyses: &[Analysis], scheduler: impl Fn(usize) -> String) -> Option<Across> {
        let [first, _, ..] = analyses else {
            return None;
        };
        let mut best: Option<(usize, f64, f64)> = None;
        for point in 0..first.relative.len() {
            let all: Option<Vec<f64>> = analyses
                .iter()
                .map(|analysis| analysis.relative[point])
                .collect();
            let Some(all) = all else {
                continue;
            };
            let worst = all.iter().copied().fold(f64::INFINITY, f64::min);
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            let better = |&(_, known, known_mean): &(usize, f64, f64)| {
                worst > known || (worst == known && mean > known_mean)
            };
            if best.as_ref().is_none_or(better) {
                best = Some((point, worst, mean));
            }
        }
        let (point, worst, mean) = best?;
        let compromise = Compromise {
            scheduler: scheduler(point),
            worst_pct: 100.0 * worst,
            mean_pct: 100.0 * mean,
        };
        let named = |verdict: Verdict| {
            let mut found: Vec<(String, Vec<String>)> = Vec::new();
            for analysis in analyses {
                let chosen = analysis.study.alternatives.iter();
                for one in chosen.filter(|one| one.significant && one.verdict == verdict) {
                    let name = format!("{}={}", one.feature, one.alternative);
                    match found.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, workloads)) => workloads.push(analysis.workload.clone()),
                        None => found.push((name, vec![analysis.workload.clone()])),
                    }
                }
            }
            found.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then(a.0.cmp(&b.0)));
            found
        };
        let (good, bad) = (named(Verdict::Good), named(Verdict::Bad));
        let mut words = format!(
            "The scheduler whose worst workload is best reaches {:.0} % of the best on that one and {:.0} % on average: {}.",
            compromise.worst_pct, compromise.mean_pct, compromise.scheduler
        );
        let torn: Vec<&str> = good
            .iter()
            .filter(|(name, _)| bad.iter().any(|(other, _)| other == name))
            .map(|(name, _)| name.as_str())
            .collect();
        if !torn.is_empty() {
            words += &format!(" Good for some and bad for others: {}.", torn.join(", "));
        }
        if good.is_empty() {
            words += " No alternative is good for any workload beyond chance.";
        }
        if bad.is_empty() {
            words += " No alternative is bad for any workload beyond chance.";
        }
        Some(Across {
            words,
            compromise,
            good,
            bad,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Alternative;
    use crate::words::tests::analysis;

    fn of(name: &str, relative: &[f64], judged: &[(&str, Verdict)]) -> Analysis {
        let mut one = analysis();
        one.workload = name.to_owned();
        one.relative = relative.iter().copied().map(Some).collect();
        let judged = judged.iter();
        one.study.alternatives = judged
            .map(|&(alternative, verdict)| {
                Alternative::judged(("idle", alternative), verdict, true)
            })
            .collect();
        one
    }

    fn told(a: &[(&str, Verdict)], b: &[(&str, Verdict)]) -> String {
        let both = [of("a", &[1.0, 0.9], a), of("b", &[0.5, 0.8], b)];
        let across = Across::new(&both, |point| format!("s{point}"));
        across.expect("two workloads").words
    }

    #[test]
    fn the_words_have_each_case() {
        let best = "The scheduler whose worst workload is best reaches 80 % of the best on that one and 85 % on average: s1.";
        let no_good = "No alternative is good for any workload beyond chance.";
        let no_bad = "No alternative is bad for any workload beyond chance.";
        let (good, bad) = (("on", Verdict::Good), ("on", Verdict::Bad));
        assert_eq!(told(&[], &[]), format!("{best} {no_good} {no_bad}"));
        assert_eq!(told(&[good], &[]), format!("{best} {no_bad}"));
        assert_eq!(told(&[], &[bad]), format!("{best} {no_good}"));
        assert_eq!(
            told(&[good], &[bad]),
            format!("{best} Good for some and bad for others: idle=on.")
        );
        let others = [("on", Verdict::Bad), ("off", Verdict::Good)];
        let torn = [("on", Verdict::Good), ("off", Verdict::Bad)];
        assert_eq!(
            told(&others, &torn),
            format!("{best} Good for some and bad for others: idle=off, idle=on.")
        );
    }

    #[test]
    fn one_workload_or_no_common_scheduler_has_no_compromise() {
        let scheduler = |_| String::new();
        let one = of("a", &[1.0], &[]);
        assert!(Across::new(std::slice::from_ref(&one), scheduler).is_none());
        let mut other = of("b", &[1.0], &[]);
        other.relative = vec![None];
        assert!(Across::new(&[one, other], scheduler).is_none());
    }
}
