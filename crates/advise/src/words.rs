//! The advice as a page of text. Each sentence is computed.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use schedlab_compare::{
    Decomposed, Differs, changes, critical_path, cut, is_same, parts_beside, percent, scores, time,
    waits,
};
use schedlab_report::export::lines::{fill, width_of};
use schedlab_report::export::number::amount;
use schedlab_trace::counted;

use crate::advice::{Advice, Confirmed, Finalist, NoEstimate, Round, WORTH_PCT};
use crate::{Recording, Verdict};

/// Columns of the page.
const WIDTH: usize = 80;
/// Longer names of schedulers stand below the tables.
const NAME_MAX: usize = 22;
/// Tasks that are named.
const TASKS_MAX: usize = 5;
/// A replay that misses the recording by more says little, in percent.
const REPLAY_PCT: f64 = 20.0;

/// Short names for tables: `feature/1` for a point of a space, with its options below.
pub(crate) fn short(advice: &Advice, scheduler: &str) -> String {
    if scheduler.len() <= NAME_MAX {
        return scheduler.to_owned();
    }
    let name = scheduler.split(':').next().unwrap_or(scheduler);
    let long = advice.finalists.iter().map(|one| one.scheduler.as_str());
    let long: Vec<&str> = long.filter(|name| name.len() > NAME_MAX).collect();
    let number = long.iter().position(|one| *one == scheduler);
    match number {
        Some(number) => format!("{name}/{}", number + 1),
        None => name.to_owned(),
    }
}

/// How a score differs from the reference's.
fn scored(advice: &Advice, differs_pct: f64) -> String {
    scores(differs_pct, advice.higher_is_better)
}

/// The interval of a difference, as far as there is one.
pub(crate) fn interval(differs: &Differs) -> String {
    match differs.interval_pct {
        Some([low, high]) => format!("{low:+.1} to {high:+.1} %"),
        None if differs.seeds_same => "none".to_owned(),
        None => "unknown".to_owned(),
    }
}

/// Says that seeds say nothing about chance, where they change nothing.
pub(crate) fn seeds_same(advice: &Advice) -> Option<String> {
    let all = advice.finalists.iter();
    let same = all
        .filter(|one| one.scheduler != advice.reference)
        .all(|one| one.differs.seeds_same);
    (same && advice.finalists.len() > 1).then(|| {
        "The seed changes nothing here: each scheduler has one score, and there is no interval."
            .to_owned()
    })
}

/// The error of the replayed makespan, in percent.
fn makespan_error(recording: &Recording) -> Option<f64> {
    let mut errors = recording.errors_pct.iter();
    let found = errors.find(|(what, _)| what == "makespan");
    found.map(|(_, error)| *error)
}

/// Returns the recommendation and how sure it is.
pub fn headline(advice: &Advice) -> Vec<String> {
    let mut said = match advice.verdict {
        Verdict::Change => change(advice),
        Verdict::Stay => vec![stay(advice)],
    };
    said.extend(seeds_same(advice));
    let replay = advice.recording.as_ref().and_then(makespan_error);
    if let Some(error) = replay.filter(|error| error.abs() > REPLAY_PCT) {
        said.push(format!(
            "The replay under the recorded scheduler misses the recorded makespan by {error:+.0} %, so measure before you \
             rely on this."
        ));
    }
    if advice.cut_off {
        said.push(
            "It was stopped before its end, so this is less sure than the budget allows."
                .to_owned(),
        );
    }
    said
}

fn change(advice: &Advice) -> Vec<String> {
    let name = short(advice, &advice.best().scheduler);
    let reference = &advice.reference;
    let (differs, is_confirmed) = advice.gain();
    let score = scored(advice, differs.percent);
    let mut said = vec![match is_confirmed && !differs.seeds_same {
        true => format!(
            "Use `{name}` instead of `{reference}`: with {} by which nothing was chosen, {score} (95 % interval: {}; better \
             with {} of them).",
            counted(differs.seeds as u64, "seed"),
            interval(differs),
            differs.wins
        ),
        false => format!("Use `{name}` instead of `{reference}`: {score}."),
    }];
    let equals = advice.finalists[1..].iter().filter(|one| one.as_good);
    let equals: Vec<String> = equals
        .map(|one| format!("`{}`", short(advice, &one.scheduler)))
        .collect();
    if !equals.is_empty() {
        let equals = equals.join(", ");
        said.push(match seeds_same(advice) {
            Some(_) => format!("The same score: {equals}."),
            None => format!("Its difference from {equals} may be chance."),
        });
    }
    said
}

fn stay(advice: &Advice) -> String {
    let reference = &advice.reference;
    let best = advice.best();
    let name = short(advice, &best.scheduler);
    if best.scheduler == *reference {
        let others = advice.schedulers() - 1;
        let second = advice.finalists.get(1);
        let second = second.map_or(String::new(), |second| {
            let differs = &second.differs;
            let may_be_chance = second.as_good && !differs.seeds_same && !is_same(differs.percent);
            let chance = if may_be_chance {
                ", which may be chance"
            } else {
                ""
            };
            format!(
                " The next is `{}`: {}{chance}.",
                short(advice, &second.scheduler),
                scored(advice, second.differs.percent)
            )
        });
        return format!(
            "Stay with `{reference}`: none of {} is better.{second}",
            counted(others as u64, "other scheduler")
        );
    }
    let chosen = scored(advice, best.differs.percent);
    match &advice.confirmed {
        None if advice.round == Round::Contest => format!(
            "Stay with `{reference}` for now. The best so far is `{name}`: {chosen}, by the same {} that chose it.",
            counted(best.differs.seeds as u64, "seed")
        ),
        None if best.differs.seeds_same => format!(
            "Stay with `{reference}`. The best of the others is `{name}`: {chosen}; less than {WORTH_PCT:.0} % is not worth a \
             change."
        ),
        None => format!(
            "Stay with `{reference}` for now. The best of the last round is `{name}`: {chosen}, by the same seeds that chose \
             it; no further seeds have confirmed it."
        ),
        Some(Confirmed {
            failed: Some(why), ..
        }) => format!(
            "Stay with `{reference}`: `{name}` was the best of the last round, but of the runs with further seeds one failed: \
             {why}."
        ),
        Some(Confirmed { differs, .. }) => {
            let differs = differs.clone().unwrap_or_default();
            let why = if !differs.is_shown() {
                ", which may be chance".to_owned()
            } else if differs.gain_pct(advice.higher_is_better) < 0.0 {
                String::new()
            } else {
                format!("; less than {WORTH_PCT:.0} % is not worth a change")
            };
            format!(
                "Stay with `{reference}`: `{name}` was the best of the last round, but with {} {} (95 % interval: {}){why}.",
                counted(differs.seeds as u64, "further seed"),
                scored(advice, differs.percent),
                interval(&differs)
            )
        }
    }
}

/// Which features the good ones share.
pub fn features(advice: &Advice) -> Option<String> {
    let found = advice.features.as_ref()?;
    let list = |names: &[String]| names.join(", ");
    let searched = format!(
        "Of the {} different schedulers of `{}`, {} were run{} and the others estimated.",
        found.of,
        found.space,
        found.runs,
        match found.failed {
            0 => String::new(),
            failed => format!(" ({failed} failed)"),
        }
    );
    Some(match (found.good.is_empty(), found.bad.is_empty()) {
        (true, true) => format!("{searched} No single feature is good or bad beyond chance."),
        (false, true) => format!("{searched} Good: {}.", list(&found.good)),
        (true, false) => format!("{searched} Bad: {}.", list(&found.bad)),
        (false, false) => format!(
            "{searched} Good: {}. Bad: {}.",
            list(&found.good),
            list(&found.bad)
        ),
    })
}

/// The runs that explain the advice: the reference's, and the best one's if that is another one.
pub(crate) fn explained(advice: &Advice) -> Option<(&Decomposed, Option<&Decomposed>)> {
    let own = advice.reference().time.as_ref()?;
    let best = advice.best();
    let other = match best.scheduler == advice.reference {
        true => advice.finalists.get(1).and_then(|one| one.time.as_ref()),
        false => best.time.as_ref(),
    };
    Some((own, other))
}

/// The scheduler that the reference is explained against.
pub(crate) fn against(advice: &Advice) -> Option<&Finalist> {
    let best = advice.best();
    match best.scheduler == advice.reference {
        true => advice.finalists.get(1),
        false => Some(best),
    }
}

/// Why the best is better, or why the next is not: parts of the critical path, and the tasks whose waits change most.
pub fn why(advice: &Advice) -> Vec<String> {
    let Some((own, other)) = explained(advice) else {
        return Vec::new();
    };
    let mut said: Vec<String> = critical_path(&advice.reference, own).into_iter().collect();
    if let (Some(other), Some(against)) = (other, against(advice)) {
        said.extend(changes(own, other, &short(advice, &against.scheduler)));
    }
    said
}

/// About how much could be won, and how much the worst loses.
pub fn possible(advice: &Advice) -> Vec<String> {
    let mut said = Vec::new();
    match (&advice.estimate, advice.possible_pct) {
        (Some(estimate), Some(possible)) => {
            let by_path = estimate.path_ns.filter(|path| *path >= estimate.work_ns);
            let limit = match by_path {
                Some(path) => format!(
                    "the critical path takes {} on the fastest core, without its waits for a CPU",
                    time(path)
                ),
                None => format!(
                    "with {} always busy the work takes {}",
                    counted(advice.cpus, "CPU"),
                    time(estimate.work_ns)
                ),
            };
            let takes = advice.reference().time.as_ref();
            let takes = takes.map_or(String::new(), |run| {
                format!("; `{}` takes {}", advice.reference, time(run.makespan_ns))
            });
            let word = match advice.higher_is_better {
                true => "higher",
                false => "lower",
            };
            said.push(format!(
                "By the runs of the last round, the score of another scheduler could be about {} {word} than that of `{}`: \
                 {limit}{takes}.",
                percent(possible.abs()),
                advice.reference
            ));
            said.push(
                "This is an estimate and no bound: another scheduler may lead to less work, or to another critical path."
                    .to_owned(),
            );
        }
        _ => said.push(
            match advice.no_estimate {
                Some(NoEstimate::ScoreIsNoTime) => {
                    "The score does not follow from the makespan, so it is unknown how much another scheduler could win."
                }
                Some(NoEstimate::WorkDiffers) => {
                    "The runs do different amounts of work, so it is unknown how much another scheduler could win."
                }
                Some(NoEstimate::Stopped) | None => {
                    "No run was taken apart before the stop, so it is unknown how much another scheduler could win."
                }
            }
            .to_owned(),
        ),
    }
    if let Some(worst) = &advice.worst
        && let Some(differs) = worst.differs_pct
    {
        said.push(format!(
            "The worst of those that were tried to the end is `{}`: {}.",
            short(advice, &worst.scheduler),
            scored(advice, differs)
        ));
    }
    let failed = advice.tried.iter().filter(|one| one.failed.is_some());
    let failed: Vec<String> = failed.map(|one| format!("`{}`", one.scheduler)).collect();
    if !failed.is_empty() {
        said.push(format!("Given up: {}.", failed.join(", ")));
    }
    said
}

/// Returns the limits of the prediction.
pub fn not_modelled(advice: &Advice) -> Vec<String> {
    let mut said = Vec::new();
    match &advice.recording {
        Some(recording) => said.extend(of_recording(advice, recording)),
        None => said.push(
            "The program is a model or was written by hand, so nothing here was compared with a recording.".to_owned(),
        ),
    }
    said.push(format!(
        "The queues of `{}` cost nothing in simulation, and tasks share no memory.",
        schedlab_sim::Scheduler::KERNELS_OWN
    ));
    said
}

fn of_recording(advice: &Advice, recording: &Recording) -> Vec<String> {
    let mut said = Vec::new();
    if recording.errors_pct.is_empty() {
        said.push(match recording.replays {
            0 => {
                "It was stopped before a replay under the recorded scheduler: the error is unknown."
                    .to_owned()
            }
            1 => "The replay under the recorded scheduler did not come to its end.".to_owned(),
            made => format!("None of {made} replays under the recorded scheduler came to its end."),
        });
    } else {
        let errors = recording.errors_pct.iter();
        let errors: Vec<String> = errors
            .map(|(what, error)| format!("{what} {error:+.1} %"))
            .collect();
        said.push(format!(
            "Replays under the recorded scheduler differ from the recording by: {}.",
            errors.join(", ")
        ));
    }
    let gain = advice.gain().0.percent.abs();
    if let Some(error) = makespan_error(recording)
        && advice.verdict == Verdict::Change
        && error.abs() > gain
    {
        said.push("That is more than the gain: measure before you rely on it.".to_owned());
    }
    said.push(format!(
        "{:.0} % of the time that tasks waited has no known cause and is replayed as it was.",
        recording.not_inferred_pct
    ));
    if recording.others_pct >= 5.0 {
        said.push(format!(
            "Other tasks took {:.0} % of the CPU time while it was recorded, and are replayed beside it; a gain may come at their \
             cost (`FILE:others=false` leaves them out).",
            recording.others_pct
        ));
    }
    if recording.lost_events > 0 {
        said.push(format!(
            "The recorder lost {}: what they were is not replayed.",
            counted(recording.lost_events, "event")
        ));
    }
    said
}

fn section(text: &mut String, heading: &str, sentences: &[String]) {
    if sentences.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{heading}");
    fill(text, "  ", &sentences.join(" "), 2, WIDTH);
}

/// The page.
pub fn text(advice: &Advice) -> String {
    let mut text = String::new();
    let about = format!(
        "{} on {}, {}: {} of {} schedulers",
        advice.workload,
        advice.machine,
        counted(advice.cpus, "CPU"),
        counted(advice.runs, "run"),
        advice.schedulers()
    );
    fill(&mut text, "", &about, 2, WIDTH);
    text.push('\n');
    fill(&mut text, "", &headline(advice).join(" "), 0, WIDTH);
    let _ = writeln!(
        text,
        "\n{:<22} {:>12} {:>9} {:>19} {:>6} {:>7}",
        round(advice).to_uppercase(),
        "MEAN",
        "DIFFERS",
        "95 % INTERVAL",
        "WINS",
        "BEST IN"
    );
    // A unit that the column has no room for stands below the table.
    const MEAN: usize = 12;
    let mut means = advice.finalists.iter().map(|one| one.mean);
    let fits = |mean: f64| width_of(&amount(mean, &advice.unit)) <= MEAN;
    let unit = if means.all(fits) {
        advice.unit.as_str()
    } else {
        ""
    };
    for one in &advice.finalists {
        let is_reference = one.scheduler == advice.reference;
        let of = |shown: String| if is_reference { "-".to_owned() } else { shown };
        let _ = writeln!(
            text,
            "{:<22} {:>12} {:>9} {:>19} {:>6} {:>7}",
            short(advice, &one.scheduler),
            amount(one.mean, unit),
            of(format!("{:+.1} %", one.differs.percent)),
            of(interval(&one.differs)),
            of(wins(one, "/")),
            best_in(advice, one)
        );
    }
    let better = match advice.higher_is_better {
        true => "higher",
        false => "lower",
    };
    let mut notes = format!(
        "MEAN is the score{}; {better} is better.",
        match unit == advice.unit {
            true => String::new(),
            false => format!(" in {}", advice.unit),
        }
    );
    let _ = write!(
        notes,
        " DIFFERS is from `{}`, seed by seed.",
        advice.reference
    );
    fill(&mut text, "", &notes, 2, WIDTH);
    for one in &advice.finalists {
        let name = short(advice, &one.scheduler);
        if name != one.scheduler {
            // Options have no blanks at which a line could be broken.
            let options = one
                .scheduler
                .split_once(':')
                .map_or("", |(_, options)| options);
            let options = options.replace(',', ", ");
            fill(&mut text, "", &format!("{name}: {options}"), 2, WIDTH);
        }
    }
    section(
        &mut text,
        "FEATURES",
        &features(advice).into_iter().collect::<Vec<_>>(),
    );
    section(&mut text, "WHY", &why(advice));
    table(&mut text, advice);
    section(&mut text, "ABOUT HOW MUCH COULD BE WON", &possible(advice));
    section(&mut text, "NOT MODELLED", &not_modelled(advice));
    text
}

/// The round that the table has.
pub(crate) fn round(advice: &Advice) -> &'static str {
    match advice.round {
        Round::Last => "Last round",
        Round::Contest => "So far",
    }
}

/// Seeds with which one is better than the reference, of all; copies of one run are no seeds.
pub(crate) fn wins(one: &Finalist, of: &str) -> String {
    match one.differs.seeds_same {
        true => "-".to_owned(),
        false => format!("{}{of}{}", one.differs.wins, one.differs.seeds),
    }
}

/// The share of draws of the seeds in which one is the best; copies of one run cannot be drawn from.
pub(crate) fn best_in(advice: &Advice, one: &Finalist) -> String {
    match seeds_same(advice) {
        Some(_) => "-".to_owned(),
        None => format!("{:.0} %", one.best_in_pct),
    }
}

fn table(text: &mut String, advice: &Advice) {
    let (Some((own, Some(other))), Some(against)) = (explained(advice), against(advice)) else {
        return;
    };
    let names = (
        cut(&short(advice, &advice.reference), 12),
        cut(&short(advice, &against.scheduler), 12),
    );
    if let (Some(a), Some(b)) = (&own.path, &other.path) {
        let _ = writeln!(
            text,
            "\n  {:<34} {:>12} {:>12}",
            "CRITICAL PATH", names.0, names.1
        );
        for (what, times) in parts_beside(&[a, b]) {
            let (a, b) = (time(times[0]), time(times[1]));
            let _ = writeln!(text, "  {what:<34} {a:>12} {b:>12}");
        }
        let _ = writeln!(
            text,
            "  {:<34} {:>12} {:>12}",
            "makespan",
            time(a.total_ns()),
            time(b.total_ns())
        );
    }
    let waits = waits(own, other);
    let waits: Vec<_> = waits.iter().filter(|(_, a, b)| a + b > 0).collect();
    if !waits.is_empty() {
        let _ = writeln!(
            text,
            "\n  {:<34} {:>12} {:>12}",
            "WAITS FOR A CPU, BY TASK", names.0, names.1
        );
        for (task, a, b) in waits.iter().take(TASKS_MAX) {
            let _ = writeln!(
                text,
                "  {:<34} {:>12} {:>12}",
                cut(task, 34),
                time(*a),
                time(*b)
            );
        }
    }
}
