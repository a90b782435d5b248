//! Runs what is missing of a shard, on as many threads as one likes.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use schedlab_report::RunResult;
use schedlab_sim::{Inputs, SimSpec, batch};

use crate::folder::{self, Work};
use crate::space::shuffle;
use crate::{Definition, Row, Shard, SweepError};

/// Results are kept when there are so many, if not before.
const KEEP_ROWS: usize = 4_096;

/// How a sweep is run; nothing of this shows in its results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Runs at a time.
    pub threads: NonZeroUsize,
    /// Results are kept after so long: what a kill can cost.
    pub keep_after: Duration,
}

/// How far a sweep is.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Progress {
    /// Jobs of the shard that are done.
    pub done: u64,
    /// All of them.
    pub jobs: u64,
    /// Runs of the shard that are made.
    pub made: u64,
    /// Runs that it makes; with a budget, its part of that.
    pub runs: u64,
    /// Jobs that did not end as they should.
    pub failed: u64,
    /// Time that is left at the pace so far; `None` before there is a pace.
    pub left: Option<Duration>,
    /// Workload of the newest result.
    pub workload: String,
    /// The best run so far on each workload. Which scheduler is best, over all seeds, is for who analyses them to say.
    pub best: BTreeMap<String, Best>,
}

/// The best run on a workload.
#[derive(Clone, PartialEq, Debug)]
pub struct Best {
    /// The job; the first one of equals.
    pub job: u64,
    /// The scheduler with its options.
    pub scheduler: String,
    /// Its score.
    pub score: f64,
    /// The score's unit; may be empty.
    pub unit: String,
}

impl Progress {
    fn add(&mut self, row: &Row) {
        self.done += 1;
        self.failed += u64::from(!row.is_done());
        self.workload.clone_from(&row.workload);
        let (Some(score), true) = (row.value("score"), row.is_done()) else {
            return;
        };
        let best = self.best.get(&row.workload);
        if best.is_none_or(|best| {
            let order = score.total_cmp(&best.score);
            let order = if row.higher_is_better() {
                order
            } else {
                order.reverse()
            };
            order.then(best.job.cmp(&row.job)).is_gt()
        }) {
            let entry = Best {
                job: row.job,
                scheduler: row.scheduler.clone(),
                score,
                unit: row.score_unit.clone().unwrap_or_default(),
            };
            self.best.insert(row.workload.clone(), entry);
        }
    }
}

/// How a sweep ended.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// Where it stands.
    pub progress: Progress,
    /// Jobs done this time.
    pub new: u64,
    /// Runs made for them; fewer where schedulers are the same.
    pub runs: u64,
    /// It was stopped before it was complete.
    pub stopped: bool,
    /// It cannot go on before other shards have made their runs.
    pub waits: bool,
}

/// Names the runs of the stage that is under way, from the rows that are there: all of the stage, those that are done
/// included. The same rows give the same runs. `None`: the sweep is over.
pub type Choose<'a> = &'a mut dyn FnMut(&BTreeMap<u64, Row>) -> Option<Vec<u64>>;

/// Runs what is missing of a shard until `stop`.
///
/// # Errors
/// If the folder cannot be used, a run cannot be begun, or results cannot be written. What was done
/// before is kept.
pub fn run(
    definition: &Definition,
    folder: &Path,
    shard: Shard,
    options: Options,
    stop: &AtomicBool,
    progress: impl FnMut(&Progress),
) -> Result<Summary, SweepError> {
    let one = |run| definition.run(run);
    make(
        definition, folder, shard, options, stop, one, None, progress,
    )
}

/// Runs a sweep with a budget: stage by stage what `choose` names. A shard makes its part of a stage, and goes on as
/// long as the others have made theirs.
///
/// # Errors
/// As [`run`].
pub fn run_chosen(
    definition: &Definition,
    folder: &Path,
    shard: Shard,
    options: Options,
    stop: &AtomicBool,
    choose: Choose<'_>,
    progress: impl FnMut(&Progress),
) -> Result<Summary, SweepError> {
    let one = |run| definition.run(run);
    let choose = Some(choose);
    make(
        definition, folder, shard, options, stop, one, choose, progress,
    )
}

/// Returns the same for runs that the caller makes: `one` returns the rows of a run's jobs. The runs of a live sweep
/// come in a random order, so that slow changes of the machine affect all of them.
///
/// # Errors
/// As [`run`].
pub fn run_by<E: From<SweepError> + Send>(
    definition: &Definition,
    folder: &Path,
    shard: Shard,
    options: Options,
    stop: &AtomicBool,
    one: &(dyn Fn(u64) -> Result<Vec<Row>, E> + Sync),
    progress: impl FnMut(&Progress),
) -> Result<Summary, E> {
    let one = |run| {
        let rows = one(run)?;
        // The maker of the run has read the files, not this function: afterwards they must be unchanged.
        let read = Inputs::default().read(&definition.spec_of(run));
        definition.check_provenance(read.map_err(SweepError::from)?.files())?;
        Ok(rows)
    };
    make(
        definition, folder, shard, options, stop, one, None, progress,
    )
}

/// The runs that a shard makes next.
struct Stages<'a> {
    choose: Option<Choose<'a>>,
    shard: Shard,
    /// Whether all that there was to do is known.
    is_begun: bool,
}

/// The next step of a shard.
enum Next {
    Runs(Vec<u64>),
    /// Others must make theirs first.
    Wait,
    Over,
}

impl Stages<'_> {
    fn next(
        &mut self,
        definition: &Definition,
        work: &Work,
        folder: &Path,
    ) -> Result<Next, SweepError> {
        let shard = self.shard;
        let Some(choose) = &mut self.choose else {
            let first = !std::mem::replace(&mut self.is_begun, true);
            return Ok(match first {
                true => Next::Runs(work.missing()),
                false => Next::Over,
            });
        };
        let others;
        let rows = match shard == Shard::WHOLE {
            true => &work.rows,
            false => {
                others = folder::rows(definition, folder)?;
                &others
            }
        };
        let Some(stage) = choose(rows) else {
            return Ok(Next::Over);
        };
        let own = (0..).zip(stage).filter(|(place, _)| shard.has(*place));
        let own: Vec<u64> = own
            .map(|(_, run)| run)
            .filter(|run| !work.has(*run))
            .collect();
        Ok(match own.is_empty() {
            true => Next::Wait,
            false => Next::Runs(own),
        })
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "three functions for others share it"
)]
fn make<E: From<SweepError> + Send>(
    definition: &Definition,
    folder: &Path,
    shard: Shard,
    options: Options,
    stop: &AtomicBool,
    one: impl Fn(u64) -> Result<Vec<Row>, E> + Sync,
    choose: Option<Choose<'_>>,
    mut progress: impl FnMut(&Progress),
) -> Result<Summary, E> {
    let mut work = Work::begin(definition, folder, shard)?;
    let mut stages = Stages {
        choose,
        shard,
        is_begun: false,
    };
    let mut state = Progress {
        jobs: work.jobs(),
        ..Progress::default()
    };
    for row in work.rows.values() {
        state.add(row);
    }
    state.made = work.made();
    state.runs = definition.budget.map_or_else(
        || work.nr_runs(),
        |budget| part(budget.runs, definition.runs(), shard),
    );
    progress(&state);
    let made_before = state.made;
    let mut new = 0;
    let begun = Instant::now();
    let (mut over, mut waits) = (false, false);
    while !over && !waits && !stop.load(Ordering::Relaxed) {
        let mut missing = match stages.next(definition, &work, folder)? {
            Next::Runs(missing) => missing,
            Next::Wait => {
                waits = true;
                continue;
            }
            Next::Over => {
                over = true;
                continue;
            }
        };
        if definition.live {
            shuffle(&mut missing, &mut Pcg64Mcg::seed_from_u64(definition.seed));
        }
        let end = AtomicBool::new(false);
        let mut fresh: Vec<Row> = Vec::new();
        let mut outcome = Ok(());
        let mut kept = Instant::now();
        // Where the disk is slow the runs wait, so that a kill costs no more than it should.
        batch::each(
            &missing,
            options.threads,
            || stop.load(Ordering::Relaxed) || end.load(Ordering::Relaxed),
            |&run| one(run),
            |heard| {
                match heard.map(|(_, rows)| rows) {
                    Some(Ok(rows)) => {
                        state.made += 1;
                        for row in rows {
                            if !work.rows.contains_key(&row.job) {
                                state.add(&row);
                                fresh.push(row);
                                new += 1;
                            }
                        }
                    }
                    Some(Err(error)) if outcome.is_ok() => outcome = Err(error),
                    Some(Err(_)) | None => {}
                }
                if outcome.is_ok()
                    && (fresh.len() >= KEEP_ROWS || kept.elapsed() >= options.keep_after)
                {
                    outcome = work.keep(&mut fresh).map_err(E::from);
                    kept = Instant::now();
                }
                if outcome.is_err() {
                    end.store(true, Ordering::Relaxed);
                }
                let to_do = state.runs.saturating_sub(state.made);
                state.left = left(begun.elapsed(), state.made - made_before, to_do);
                progress(&state);
            },
        );
        // Rows that could not be kept before may be kept now.
        let last = work.keep(&mut fresh);
        outcome.and(last.map_err(E::from))?;
    }
    let complete = match definition.budget {
        Some(_) => over,
        None => state.done == state.jobs,
    };
    if complete {
        work.finish()?;
    }
    Ok(Summary {
        new,
        runs: state.made - made_before,
        progress: state,
        stopped: !complete,
        waits,
    })
}

/// The part of a search's budget that a shard makes, or one run less; no more than there are runs.
fn part(budget: u64, runs: u64, shard: Shard) -> u64 {
    budget.min(runs).div_ceil(shard.count)
}

fn left(passed: Duration, done: u64, to_do: u64) -> Option<Duration> {
    (done > 0).then(|| passed.mul_f64(to_do as f64 / done as f64))
}

impl Definition {
    /// Simulates one job below [`Definition::jobs`], here and now, alone.
    ///
    /// # Errors
    /// If the job does not exist, it cannot be begun, or this build or the files are not the sweep's.
    pub fn row(&self, job: u64) -> Result<Row, SweepError> {
        self.check_job(job)?;
        let result = self.simulated(&self.spec(job))?;
        Ok(Row::new(self, job, &result))
    }

    /// Makes one run below [`Definition::runs`], here and now: the rows of its jobs.
    ///
    /// # Errors
    /// As [`Definition::row`].
    pub fn run(&self, run: u64) -> Result<Vec<Row>, SweepError> {
        self.check_run(run)?;
        let result = self.simulated(&self.spec_of(run))?;
        let jobs = self.jobs_of(run);
        Ok(jobs.map(|job| Row::new(self, job, &result)).collect())
    }

    /// Runs what was read, if that is what the sweep is of.
    fn simulated(&self, spec: &SimSpec) -> Result<RunResult, SweepError> {
        if self.live {
            return Err(SweepError::Live);
        }
        let run = Inputs::default().read(spec)?;
        self.check_provenance(run.files())?;
        Ok(run.run(None)?)
    }

    /// Returns the scheduler and workload of a run.
    fn spec_of(&self, run: u64) -> SimSpec {
        let first = self.jobs_of(run).next().expect("a run has a job");
        self.spec(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shards together have room for the whole budget, and none waits for runs that do not exist.
    #[test]
    fn a_shard_makes_its_part_of_the_budget_rounded_up() {
        let third = Shard::parse("1/3").unwrap();
        assert_eq!(part(40, 5_000, third), 14);
        assert_eq!(part(40, 5_000, Shard::WHOLE), 40);
        assert_eq!(part(5_000, 30, Shard::WHOLE), 30);
        assert_eq!(part(5_000, 31, third), 11);
    }
}
