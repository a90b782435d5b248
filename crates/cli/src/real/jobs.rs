//! Many runs in one virtual machine: a machine takes longer to boot than most runs take.
//!
//! The host writes the jobs into a folder, this same program runs them inside and writes a line for each beside
//! them, so that what was done before a machine broke down is kept.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use schedlab_kernel::vm::{self, Vm};
use schedlab_report::RunResult;
use schedlab_sim::Scheduler;
use schedlab_trace::Duration as Limit;
use serde::{Deserialize, Serialize};

use super::contract::{Emulated, RealRun};
use super::here::{run_once, warm_up};
use super::machine::{forward, timeout_of_runs};
use crate::output::tell;
use crate::status::Status;

const JOBS: &str = "jobs.json";
const DONE: &str = "done.jsonl";

#[derive(Serialize, Deserialize)]
struct Line {
    job: usize,
    result: Option<RunResult>,
    refused: Option<String>,
}

/// Runs jobs in a virtual machine with `cpus` CPUs. A job that is missing at the end was not begun or not finished.
///
/// # Errors
/// If there can be no virtual machine.
pub fn emulate(cpus: u32, jobs: &[RealRun], time_limit: Limit) -> anyhow::Result<Vec<Emulated>> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let file = folder.path().join(JOBS);
    fs::write(&file, serde_json::to_vec(jobs)?)
        .with_context(|| format!("cannot write {}", file.display()))?;
    let machine = Vm {
        cpus,
        // The first one warms up, too.
        timeout: timeout_of_runs(time_limit, jobs.len() as u64 + 1),
        writable: vec![folder.path().to_owned()],
        ..Vm::default()
    };
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let words = ["emulate", "--time-limit", &time_limit.to_string()].map(OsString::from);
    let command: Vec<OsString> = std::iter::once(program.into_os_string())
        .chain(words)
        .chain([folder.path().into()])
        .collect();
    let ended = forward(&machine, &command);
    let lines = fs::read(folder.path().join(DONE)).unwrap_or_default();
    let emulated = outcomes(jobs, &lines);
    if emulated.iter().any(|one| !matches!(one, Emulated::Missing)) {
        if let Err(error) = ended {
            tell(format_args!("{error:#}"));
        }
        return Ok(emulated);
    }
    match ended? {
        Status::Done => Ok(emulated),
        _ => Err(anyhow!("nothing ran in the virtual machine")),
    }
}

/// Returns the outcome of each job by the lines that the machine has written. The last one may be cut off.
fn outcomes(jobs: &[RealRun], lines: &[u8]) -> Vec<Emulated> {
    let mut emulated: Vec<Emulated> = vec![Emulated::Missing; jobs.len()];
    for line in lines.split(|&byte| byte == b'\n') {
        let Ok(line) = serde_json::from_slice::<Line>(line) else {
            break;
        };
        let Some(job) = jobs.get(line.job) else {
            continue;
        };
        emulated[line.job] = match (line.result, line.refused) {
            (Some(mut result), _) => {
                result.asked.clone_from(&job.workload);
                Emulated::Done(Box::new(result))
            }
            (None, why) => Emulated::Refused(why.unwrap_or_default()),
        };
    }
    emulated
}

/// Inside: runs what the folder asks for.
pub fn inside(folder: &Path, time_limit: Limit) -> anyhow::Result<Status> {
    if !vm::inside() {
        return Err(anyhow!("this is for virtual machines of schedlab alone"));
    }
    let read =
        |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let jobs: Vec<RealRun> = serde_json::from_slice(&read(&folder.join(JOBS))?)?;
    let mut done = File::create(folder.join(DONE)).context("cannot write results")?;
    let mut warmed = false;
    for (index, job) in jobs.iter().enumerate() {
        // All jobs have the same program, which comes into the caches with the first one that is not refused.
        let scheduler = Scheduler::parse(&job.scheduler);
        let warm = match warmed {
            true => Ok(()),
            false => warm_up(&job.workload, &scheduler, job.seed, time_limit),
        };
        warmed |= warm.is_ok();
        let once = || run_once(&job.workload, &scheduler, job.seed, time_limit);
        let outcome = warm.and_then(|()| once());
        let line = match outcome {
            Ok(result) => Line {
                job: index,
                result: Some(result),
                refused: None,
            },
            Err(error) => Line {
                job: index,
                result: None,
                refused: Some(format!("{error:#}")),
            },
        };
        let mut text = serde_json::to_string(&line)?;
        text.push('\n');
        done.write_all(text.as_bytes())
            .context("cannot write results")?;
    }
    Ok(Status::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_before_a_machine_broke_down_is_kept() {
        let job = |seed| RealRun {
            workload: "cpu:tasks=2".into(),
            scheduler: "fifo".into(),
            seed,
        };
        let line = |job, result: Option<RunResult>, refused: Option<&str>| {
            let refused = refused.map(str::to_owned);
            serde_json::to_string(&Line {
                job,
                result,
                refused,
            })
            .unwrap()
        };
        let done = RunResult {
            seed: 1,
            ..RunResult::default()
        };
        let lines = [
            line(0, Some(done.clone()), None),
            line(1, None, Some("no")),
            line(2, Some(done), None),
        ]
        .join("\n");
        let jobs = [job(1), job(2), job(3)];
        // The third one's line is cut off, in the middle of a character.
        let cut = [&lines.as_bytes()[..lines.len() - 9], b"\xc3"].concat();
        let outcomes = outcomes(&jobs, &cut);
        assert!(
            matches!(&outcomes[0], Emulated::Done(result) if result.seed == 1 && result.asked == "cpu:tasks=2")
        );
        assert!(matches!(&outcomes[1], Emulated::Refused(why) if why == "no"));
        assert!(matches!(&outcomes[2], Emulated::Missing));
    }
}
