//! Results as CSV: a row per run, for spreadsheets and scripts.

use std::io::Write;

use crate::export::view::{View, chosen};
use crate::{RunResult, Value};

/// Columns before the measures.
const HEAD: [&str; 8] = [
    "workload",
    "scheduler",
    "machine",
    "task_layout",
    "cpus",
    "seed",
    "exit",
    "message",
];

/// Writes a heading and a row per run, in the order of `results`: what was run, how it ended, and its measures in
/// their own units, all of them or those that `view` chooses. A field is empty where a run lacks the measure.
///
/// # Errors
/// If `out` fails.
pub fn write(results: &[RunResult], view: &View, out: impl Write) -> csv::Result<()> {
    let measures = match view.measures.is_empty() {
        true => all(results),
        false => chosen(&view.measures, results.iter()),
    };
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(
        HEAD.iter()
            .copied()
            .chain(measures.iter().map(String::as_str)),
    )?;
    for run in results {
        let mut row = vec![
            run.asked.clone(),
            run.scheduler.clone(),
            run.machine.clone(),
            run.task_layout.clone().unwrap_or_default(),
            run.cpus.to_string(),
            run.seed.to_string(),
            run.exit.to_string(),
            run.message.clone().unwrap_or_default(),
        ];
        row.extend(measures.iter().map(|name| match run.measures.get(name) {
            Some(Value::Int(n)) => n.to_string(),
            Some(Value::Float(x)) => x.to_string(),
            Some(Value::Text(text)) => text.clone(),
            None => String::new(),
        }));
        writer.write_record(&row)?;
    }
    writer.flush()?;
    Ok(())
}

/// Returns the measures of all runs, in the order in which they first appear.
fn all(results: &[RunResult]) -> Vec<String> {
    let mut names = indexmap::IndexSet::new();
    for run in results {
        names.extend(run.measures.iter().map(|(name, _)| name));
    }
    names.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Exit, Measures};

    #[test]
    fn a_row_per_run_with_all_or_some_measures() {
        let mut measures = Measures::default();
        measures.score(2.5, "a,b", true);
        measures.int("switches.total", 7);
        let first = RunResult {
            asked: "chat:rooms=1,messages=2".into(),
            scheduler: "fifo".into(),
            machine: "laptop".into(),
            cpus: 2,
            seed: 9,
            exit: Exit::Done,
            measures,
            ..RunResult::default()
        };
        let mut second = first.clone();
        second.exit = Exit::ErrorStall;
        second.message = Some("a \"stall\"".into());
        second.measures = Measures::default();
        second.measures.float("wait.ns_mean", 0.1);
        let text = |measures: &[&str]| {
            let view = View {
                measures: measures.iter().map(|&one| one.to_owned()).collect(),
                ..View::of_width(80)
            };
            let mut bytes = Vec::new();
            write(&[first.clone(), second.clone()], &view, &mut bytes).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(
            text(&[]),
            "workload,scheduler,machine,task_layout,cpus,seed,exit,message,score,score_unit,score_better,switches.total,wait.ns_mean\n\
             \"chat:rooms=1,messages=2\",fifo,laptop,,2,9,done,,2.5,\"a,b\",higher,7,\n\
             \"chat:rooms=1,messages=2\",fifo,laptop,,2,9,error_stall,\"a \"\"stall\"\"\",,,,,0.1\n"
        );
        let some = text(&["switches.*", "score"]);
        let head = some.lines().next().unwrap();
        assert!(head.ends_with(",message,switches.total,score"), "{some}");
    }
}
