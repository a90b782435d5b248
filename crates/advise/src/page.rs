//! The advice as a page for a browser.

use schedlab_compare::{Differs, parts_beside, time, waiting_over_time, waits};
use schedlab_figures::{Axis, Chart, Mark, Page, Point, Section, Series, Table};
use schedlab_report::export::number::amount;
use schedlab_trace::counted;

use crate::Advice;
use crate::advice::Round;
use crate::words::{
    against, best_in, explained, features, headline, interval, not_modelled, possible, round,
    short, why, wins,
};

/// Tasks of the table of waits.
const TASKS_MAX: usize = 20;

/// Returns the page.
pub fn page(advice: &Advice) -> Page {
    let about = format!(
        "`{}` on `{}` with {}: {} of {} schedulers, compared with `{}`.",
        advice.workload,
        advice.machine,
        counted(advice.cpus, "CPU"),
        counted(advice.runs, "run"),
        advice.schedulers(),
        advice.reference
    );
    let mut lead = headline(advice);
    lead.push(about);
    let mut sections = vec![
        last_round(advice),
        of_features(advice),
        of_time(advice),
        Section {
            heading: "About how much could be won".to_owned(),
            text: possible(advice),
            ..Section::default()
        },
        others(advice),
        Section {
            heading: "What is not modelled".to_owned(),
            text: not_modelled(advice),
            ..Section::default()
        },
    ];
    sections.retain(|section| !section.is_empty());
    Page {
        title: format!("Which scheduler suits {}?", advice.workload),
        lead,
        sections,
    }
}

fn last_round(advice: &Advice) -> Section {
    let rows = advice.finalists.iter().map(|one| {
        let is_reference = one.scheduler == advice.reference;
        let of = |text: String| if is_reference { String::new() } else { text };
        vec![
            short(advice, &one.scheduler),
            amount(one.mean, &advice.unit),
            of(format!("{:+.1} %", one.differs.percent)),
            of(interval(&one.differs)),
            of(wins(one, " of ")),
            best_in(advice, one),
        ]
    });
    let names = advice.finalists.iter().filter_map(|one| {
        let name = short(advice, &one.scheduler);
        (name != one.scheduler).then(|| format!("{name} is `{}`.", one.scheduler))
    });
    let seeds = seeds(advice);
    let better = match advice.higher_is_better {
        true => "higher",
        false => "lower",
    };
    let text = format!(
        "{seeds} The mean is of the score; {better} is better. The interval has the true difference with a probability of 95 %. \
         The last column is the share of draws of the seeds in which a scheduler is the best."
    );
    let reference = &advice.reference().scores;
    let others = advice
        .finalists
        .iter()
        .filter(|one| one.scheduler != advice.reference);
    let series = others.map(|one| Series {
        name: short(advice, &one.scheduler),
        mark: Mark::Line,
        points: (1..)
            .zip(one.scores.iter().zip(reference))
            .filter_map(|(seed, (score, reference))| {
                let differs = Differs::of(&[*score], &[*reference], advice.higher_is_better)?;
                Some(Point::from((f64::from(seed), differs.percent)))
            })
            .collect(),
    });
    Section {
        heading: round(advice).to_owned(),
        text: std::iter::once(text).chain(names).collect(),
        charts: vec![Chart {
            title: format!("Difference from {}, by seed", advice.reference),
            x: Axis::linear("seed").of_counts(),
            y: Axis::linear("%"),
            series: series.collect(),
        }],
        tables: vec![Table {
            caption: String::new(),
            head: Table::head([
                "scheduler",
                "mean",
                "differs",
                "95 % interval",
                "wins",
                "best in",
            ]),
            rows: rows.collect(),
        }],
        ..Section::default()
    }
}

/// The role of the seeds in the table.
fn seeds(advice: &Advice) -> &'static str {
    let is_confirmed = advice.gain().1;
    let is_reference = advice.best().scheduler == advice.reference;
    match advice.round {
        Round::Contest => {
            "The search was stopped before its last round. These are the best of the contest, and their seeds chose them."
        }
        Round::Last if is_confirmed => {
            "All of the last round ran with the same seeds, which the search had not seen. They choose the best one, so they \
             flatter it; the paragraph above has its difference with further seeds."
        }
        Round::Last if is_reference || advice.best().differs.seeds_same => {
            "All of the last round ran with the same seeds, which the search had not seen."
        }
        Round::Last => {
            "All of the last round ran with the same seeds, which the search had not seen. They choose the best one, so they \
             flatter it, and no further seeds have confirmed it."
        }
    }
}

fn of_features(advice: &Advice) -> Section {
    Section {
        heading: "Features".to_owned(),
        text: features(advice).into_iter().collect(),
        ..Section::default()
    }
}

fn of_time(advice: &Advice) -> Section {
    let mut section = Section {
        heading: "Why".to_owned(),
        text: why(advice),
        ..Section::default()
    };
    let (Some((own, Some(other))), Some(against)) = (explained(advice), against(advice)) else {
        return section;
    };
    let head = vec![
        String::new(),
        short(advice, &advice.reference),
        short(advice, &against.scheduler),
    ];
    if let (Some(a), Some(b)) = (&own.path, &other.path) {
        let rows = parts_beside(&[a, b]).into_iter();
        let mut rows: Vec<Vec<String>> = rows
            .map(|(what, times)| vec![what.to_owned(), time(times[0]), time(times[1])])
            .collect();
        rows.push(vec![
            "makespan".to_owned(),
            time(a.total_ns()),
            time(b.total_ns()),
        ]);
        section.text.push(
            "The critical path is walked back from the end of the last task. Where a task slept until another one woke it, \
             the path goes on in that one; so the parts add up to the makespan."
                .to_owned(),
        );
        section.tables.push(Table {
            caption: "Critical path".to_owned(),
            head: head.clone(),
            rows,
        });
    }
    section.charts.push(waiting_over_time(&[
        (head[1].clone(), own),
        (head[2].clone(), other),
    ]));
    let rows = waits(own, other);
    let rows = rows.iter().filter(|(_, a, b)| a + b > 0).take(TASKS_MAX);
    section.tables.push(Table {
        caption: "Waits for a CPU, of all tasks of a name together".to_owned(),
        head,
        rows: rows
            .map(|(task, a, b)| vec![task.clone(), time(*a), time(*b)])
            .collect(),
    });
    section
}

fn others(advice: &Advice) -> Section {
    let rows = advice.tried.iter().map(|one| {
        vec![
            one.scheduler.clone(),
            one.differs_pct
                .map_or(String::new(), |differs| format!("{differs:+.1} %")),
            one.runs.to_string(),
            one.failed.clone().unwrap_or_default(),
        ]
    });
    Section {
        heading: "The others".to_owned(),
        text: Vec::new(),
        tables: vec![Table {
            caption: format!("Compared with {} by the same seeds", advice.reference),
            head: Table::head(["scheduler", "differs", "runs", "given up because"]),
            rows: rows.collect(),
        }],
        ..Section::default()
    }
}
