//! The analysis as a page.

#[cfg(test)]
mod tests;

use schedlab_figures::{Axis, Chart, Mark, Node, Page, Section, Series, Table, Tree};
use schedlab_report::export::number::amount;
use schedlab_report::export::view;
use schedlab_trace::counted;

use crate::study::Set;
use crate::{Across, Against, Analysis, Verdict};

/// Columns of the picture: more dots than this of a set would lie upon each other.
const COLUMNS: usize = 600;
/// Dots of the cloud beside the front.
const CLOUD_MAX: usize = 1_000;
/// Rows of the table of pairs.
const PAIRS_MAX: usize = 10;

/// Returns all of it in one page.
pub fn page(title: &str, analyses: &[Analysis], across: Option<&Across>) -> Page {
    let mut sections = Vec::new();
    if let Some(across) = across {
        sections.push(together(across, analyses));
    }
    for analysis in analyses {
        sections.extend(workload(analysis));
    }
    sections.push(definitions());
    Page {
        title: title.to_owned(),
        lead: Vec::new(),
        sections,
    }
}

/// Returns the terms of the study, after the answers.
fn definitions() -> Section {
    Section {
        heading: "How to read this".to_owned(),
        text: [
            "Each scheduler is one choice of an alternative for every feature. B is the set of schedulers within reach of \
             the best one. An alternative is good if most of B has it, and bad if hardly any of B has it.",
            "F is the set of schedulers with every good alternative and no bad one; FB has the schedulers of F that are in B. In the \
             second round an alternative is bad, too, if F has it more often than FB.",
            "“Significant” marks a result that chance alone would hardly give. Only such a result is called a finding.",
        ]
        .map(str::to_owned)
        .into(),
        ..Section::default()
    }
}

fn together(across: &Across, analyses: &[Analysis]) -> Section {
    let rows = |named: &[(String, Vec<String>)]| {
        named
            .iter()
            .map(|(name, workloads)| {
                vec![
                    name.clone(),
                    format!("{} of {}", workloads.len(), analyses.len()),
                    workloads.join(", "),
                ]
            })
            .collect()
    };
    let table = |caption: &str, named: &[(String, Vec<String>)]| Table {
        caption: caption.to_owned(),
        head: Table::head(["alternative", "workloads", "which"]),
        rows: rows(named),
    };
    Section {
        heading: "Across workloads".to_owned(),
        text: vec![across.words.clone()],
        tables: vec![
            table("Good alternatives", &across.good),
            table("Bad alternatives", &across.bad),
        ],
        ..Section::default()
    }
}

fn workload(analysis: &Analysis) -> Vec<Section> {
    vec![
        Section {
            heading: analysis.workload.clone(),
            text: vec![analysis.words.clone()],
            trees: std::iter::once(features(analysis))
                .chain(questions(analysis))
                .collect(),
            charts: vec![picture(analysis), front(analysis)],
            tables: vec![sets(analysis), alternatives(analysis)],
            ..Section::default()
        },
        Section {
            heading: format!("{}: where the differences come from", analysis.workload),
            text: variance_text(analysis),
            tables: vec![effects(analysis), pairs(analysis), mute(analysis)],
            ..Section::default()
        },
    ]
}

/// Every feature with its alternatives, each marked by what the study's method says of it. A mark in brackets is one
/// that chance could give.
fn features(analysis: &Analysis) -> Tree {
    let mut features: Vec<Node> = Vec::new();
    for one in &analysis.study.alternatives {
        if features.last().is_none_or(|last| last.text != one.feature) {
            features.push(Node::plain(&one.feature, Vec::new()));
        }
        let by_chance = one.verdict.is_judgement() && !one.significant;
        let alternative = Node {
            text: match by_chance {
                true => format!("{} (chance?)", one.alternative),
                false => one.alternative.clone(),
            },
            verdict: match one.verdict {
                Verdict::Good => Some(schedlab_figures::Verdict::Good),
                Verdict::Bad => Some(schedlab_figures::Verdict::Bad),
                Verdict::BadInSecondRound => Some(schedlab_figures::Verdict::Doubtful),
                Verdict::Neutral => Some(schedlab_figures::Verdict::Neutral),
                Verdict::NotCompared => None,
            },
            children: Vec::new(),
        };
        let feature = features.last_mut().expect("one was pushed above");
        feature.children.push(alternative);
    }
    Tree {
        title: "Features: + good, − bad, ± bad in the second round; no mark: neither".to_owned(),
        root: Node::plain("scheduler", features),
    }
}

/// Which schedulers are in B, as a decision tree; `None` where it asks nothing.
fn questions(analysis: &Analysis) -> Option<Tree> {
    fn node(answer: &str, from: &crate::Node) -> Node {
        let here = format!("{answer}{}", from.words());
        let children = from.question.as_ref().map(|question| {
            let (feature, alternative) = (&question.feature, &question.alternative);
            vec![
                node(&format!("{feature} = {alternative}: "), &question.yes),
                node(&format!("{feature} ≠ {alternative}: "), &question.no),
            ]
        });
        Node::plain(here, children.unwrap_or_default())
    }
    analysis.tree.question.as_ref().map(|_| Tree {
        title: "Which schedulers are good (in B)".to_owned(),
        root: node("", &analysis.tree),
    })
}

fn picture(analysis: &Analysis) -> Chart {
    let all = &analysis.study.picture;
    let step = all.len().div_ceil(COLUMNS).max(1);
    let of = |set: Set, name: &str| {
        let ranks = all.iter().enumerate().filter(|(_, (_, own))| *own == set);
        let values = ranks.filter_map(|(rank, (point, _))| {
            let relative = analysis.relative[*point]?;
            Some((rank, 100.0 * relative))
        });
        // One dot a column of the picture.
        let mut last = usize::MAX;
        let thinned = values.filter(|(rank, _)| {
            let fresh = rank / step != last;
            last = rank / step;
            fresh
        });
        Series {
            name: name.to_owned(),
            mark: Mark::Dots,
            points: thinned
                .map(|(rank, value)| (rank as f64, value).into())
                .collect(),
        }
    };
    Chart {
        title: "Every scheduler, from the best to the worst".to_owned(),
        x: Axis::linear("rank"),
        y: Axis::linear("% of the best"),
        series: vec![
            of(Set::Fb, "FB"),
            of(Set::F, "F, not in B"),
            of(Set::B, "B, not in F"),
            of(Set::Rest, "neither"),
        ],
    }
}

fn front(analysis: &Analysis) -> Chart {
    let step = analysis.both.len().div_ceil(CLOUD_MAX).max(1);
    let cloud = analysis.both.iter().step_by(step);
    Chart {
        title: "Two measures (less of the second is better): the front of schedulers that no other beats in both"
            .to_owned(),
        x: Axis::linear(with_unit(&analysis.measure, &analysis.unit)),
        y: Axis::log(with_unit(
            &analysis.second_measure,
            &view::unit_of(&analysis.second_measure, &[]),
        )),
        series: vec![
            Series {
                name: "front".to_owned(),
                mark: Mark::Line,
                points: analysis
                    .front
                    .iter()
                    .map(|one| (one.first, one.second).into())
                    .collect(),
            },
            Series {
                name: "schedulers".to_owned(),
                mark: Mark::Dots,
                points: cloud.map(|&both| both.into()).collect(),
            },
        ],
    }
}

/// Returns the label of an axis.
fn with_unit(measure: &str, unit: &str) -> String {
    match unit {
        "" => measure.to_owned(),
        unit => format!("{measure}, {unit}"),
    }
}

fn sets(analysis: &Analysis) -> Table {
    let study = &analysis.study;
    let shown: Vec<usize> = study.picture.iter().map(|(point, _)| *point).collect();
    let row = |name: &str, [b, f, fb]: [usize; 3]| {
        let part = |part: usize, whole: usize| {
            if whole == 0 {
                "–".to_owned()
            } else {
                format!("{:.1}", 100.0 * part as f64 / whole as f64)
            }
        };
        vec![
            name.to_owned(),
            b.to_string(),
            f.to_string(),
            fb.to_string(),
            part(f - fb, f),
            part(fb, b),
        ]
    };
    Table {
        caption: format!(
            "{}, {} different",
            counted(study.schedulers as u64, "scheduler"),
            analysis.mute.distinct(&shown)
        ),
        head: Table::head([
            "round",
            "|B|",
            "|F|",
            "|FB|",
            "false positives in F, %",
            "B covered, %",
        ]),
        rows: vec![row("first", study.first), row("second", study.second)],
    }
}

fn alternatives(analysis: &Analysis) -> Table {
    let verdict = |verdict: Verdict| match verdict {
        Verdict::Good => "good",
        Verdict::Bad => "bad",
        Verdict::BadInSecondRound => "bad (second round)",
        Verdict::Neutral => "",
        Verdict::NotCompared => "not compared",
    };
    let maybe = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.1}"));
    let rows = analysis.study.alternatives.iter().map(|one| {
        vec![
            one.feature.clone(),
            one.alternative.clone(),
            format!("{:.1}", one.in_b_pct),
            maybe(one.in_f_pct),
            maybe(one.in_fb_pct),
            verdict(one.verdict).to_owned(),
            if one.significant { "yes" } else { "no" }.to_owned(),
        ]
    });
    Table {
        caption: "Alternatives: share of the sets that has them".to_owned(),
        head: Table::head([
            "feature",
            "alternative",
            "B, %",
            "F, %",
            "FB, %",
            "verdict",
            "significant",
        ]),
        rows: rows.collect(),
    }
}

fn variance_text(analysis: &Analysis) -> Vec<String> {
    let variance = &analysis.variance;
    let mut text = vec![format!(
        "Standard deviation over schedulers: {:.2} % of the mean, {}.",
        variance.deviation_pct,
        amount(variance.mean, &analysis.unit)
    )];
    if variance.exact {
        text.push(format!(
            "Every combination was run, so the parts are exact. Three and more features together, and chance: {:.1} %.",
            variance.rest_pct
        ));
    } else {
        text.push(format!(
            "Not every combination was run: these are estimates, of single features only. A share is what the feature \
             explains that no other does. What none explains: {:.1} %.",
            variance.rest_pct
        ));
    }
    let freedom = match format!("{:.0}", variance.freedom) {
        one if one == "1" => "1 degree of freedom".to_owned(),
        several => format!("{several} degrees of freedom"),
    };
    text.push(match variance.against {
        Against::Rest => format!(
            "Parts are tested against what no single feature{} explains, {freedom}.",
            if variance.exact { " or pair" } else { "" }
        ),
        Against::Seeds => {
            format!("Parts are tested against the differences between seeds, {freedom}.")
        }
        Against::Copies => {
            "No seed changes anything: every difference is one of schedulers.".to_owned()
        }
        Against::Nothing if variance.exact => {
            "There are too few different schedulers to test the parts; run more seeds.".to_owned()
        }
        Against::Nothing => "There are too few combinations to test the parts.".to_owned(),
    });
    match variance.noise_pct {
        Some(noise) => text.push(format!("Chance alone, from the seeds: {noise:.1} %.")),
        None => {
            text.push("Seeds say nothing of chance here: there are no intervals.".to_owned());
        }
    }
    text
}

fn effects(analysis: &Analysis) -> Table {
    let seeds = analysis.variance.noise_pct.is_some();
    let mut head = Table::head([
        "feature",
        "share, %",
        "significant",
        "alternative",
        "better than the mean, %",
    ]);
    if seeds {
        head.push("95 % interval".to_owned());
    }
    let mut rows = Vec::new();
    for effect in &analysis.variance.effects {
        let significant = if effect.significant { "yes" } else { "no" };
        if effect.levels.is_empty() {
            let (share, text) = if effect.told.is_empty() {
                ("–".to_owned(), "confounded with other features")
            } else {
                let share = format!("{:.2}", effect.share_pct);
                (share, "some are confounded with other features")
            };
            let mut row = vec![
                effect.feature.clone(),
                share,
                if effect.significant { "yes" } else { "–" }.to_owned(),
                text.to_owned(),
            ];
            row.resize(head.len(), "–".to_owned());
            rows.push(row);
        }
        for (index, level) in effect.levels.iter().enumerate() {
            let first = |text: String| if index == 0 { text } else { String::new() };
            let mut row = vec![
                first(effect.feature.clone()),
                first(format!("{:.2}", effect.share_pct)),
                first(significant.to_owned()),
                level.alternative.clone(),
                format!("{:+.2}", level.better_pct),
            ];
            if seeds {
                row.push(level.interval_pct.map_or("–".to_owned(), |[low, high]| {
                    format!("{low:+.2} to {high:+.2}")
                }));
            }
            rows.push(row);
        }
    }
    Table {
        caption: "Single features".to_owned(),
        head,
        rows,
    }
}

fn pairs(analysis: &Analysis) -> Table {
    let rows = analysis
        .variance
        .interactions
        .iter()
        .take(PAIRS_MAX)
        .map(|pair| {
            vec![
                pair.features.join(" × "),
                format!("{:.2}", pair.share_pct),
                if pair.significant { "yes" } else { "no" }.to_owned(),
            ]
        });
    Table {
        caption: "Pairs: what they do beyond each by itself".to_owned(),
        head: Table::head(["features", "share, %", "significant"]),
        rows: rows.collect(),
    }
}

fn mute(analysis: &Analysis) -> Table {
    let rows = analysis.mute.conditions.iter().map(|condition| {
        let with = if condition.with.is_empty() {
            "everywhere".to_owned()
        } else {
            condition.with.join(" and ")
        };
        vec![condition.feature.clone(), with]
    });
    Table {
        caption: "Features that say nothing".to_owned(),
        head: Table::head(["feature", "where"]),
        rows: rows.collect(),
    }
}
