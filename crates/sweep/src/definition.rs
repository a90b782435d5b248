//! Defines a sweep: from this alone follow its jobs, their order and the specification of each run.

use std::collections::{BTreeMap, BTreeSet};

use schedlab_sim::{Inputs, Scheduler, SimSpec};
use schedlab_trace::Duration;
use serde::{Deserialize, Serialize};

use crate::measures::{MEASURES, PART_MEASURES};
use crate::{Space, SweepError};

/// Stands for this build of the program: the check sum of all sources that results depend on.
pub const BUILD: &str = env!("SCHEDLAB_BUILD");

/// A machine that runs real programs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Host {
    /// `host` or `vm`, as in results.
    pub machine: String,
    /// Its kernel's release.
    pub kernel: String,
    /// Number of its CPUs.
    pub cpus: usize,
    /// The runs of the sweep.
    pub cpu_model: String,
}

/// The runs that a sweep may make, chosen as results come in, instead of all.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Budget {
    /// Runs of all workloads and shards together.
    pub runs: u64,
    /// The requested time and the measured speed, if the budget was a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timed: Option<Timed>,
}

/// A time that became a number of runs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Timed {
    /// The time.
    pub seconds: f64,
    /// Runs per second when the sweep began.
    pub runs_per_second: f64,
}

/// The requested runs.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Workloads, `name:option=value,…`.
    pub workloads: Vec<String>,
    /// The scheduler whose options are swept.
    pub space: Space,
    /// Only so many points.
    pub sample: Option<u64>,
    /// Runs of each point, with the seeds `seed`, `seed` + 1, …
    pub repeat: u32,
    /// Everything else that determines a run; its workload, scheduler and seed are not looked at.
    pub run: SimSpec,
    /// The first seed; the sample is drawn from it, too.
    pub seed: u64,
    /// In this real kernel instead of in simulation.
    pub live: Option<Host>,
    /// Whether schedulers that are the same, by what the policy's source says, have a run each.
    pub each: bool,
    /// Only so many runs, chosen as results come in.
    pub budget: Option<Budget>,
}

/// A part of a workload that is composed of several, and its score.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartScore {
    /// The beginning of its measures' names.
    pub name: String,
    /// Unit of its score.
    pub unit: String,
    /// Whether of two scores the higher one is the better.
    pub higher_is_better: bool,
}

/// A sweep.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Definition {
    /// Version of this document.
    pub schema: u32,
    /// Version of the program.
    pub version: String,
    /// [`BUILD`] of the program; empty in older documents.
    #[serde(default)]
    pub build: String,
    /// Workloads.
    pub workloads: Vec<String>,
    /// The space.
    pub space: Space,
    /// Number of the points that were drawn from it; absent: all.
    pub sample: Option<u64>,
    /// Runs of each point; with a budget, of the best.
    pub repeat: u32,
    /// The runs that are made, if not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// First seed.
    pub seed: u64,
    /// Machine profile.
    pub machine: String,
    /// CPUs of it; absent: all.
    pub cpus: Option<usize>,
    /// Whether real-time tasks are handed to the policy.
    pub rt_policy: bool,
    /// Which kernel's sched_ext.
    pub kernel: String,
    /// Simulated time after which a run is given up; in the file a number of seconds.
    #[serde(rename = "time_limit_s", with = "seconds")]
    pub time_limit: Duration,
    /// Whether invariants are checked.
    pub check: bool,
    /// Whether the runs are made in a real kernel; then nothing of the simulated machine counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub live: bool,
    /// Which one, of a live sweep; absent in older documents.
    #[serde(rename = "place", default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Check sums of the files that it names, with what policies include: other contents are another sweep.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// The parts of workloads that are composed of several.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, Vec<PartScore>>,
    #[serde(skip)]
    points: Vec<u64>,
    /// Places in `points` of those that are the same scheduler.
    #[serde(skip)]
    same: Vec<Vec<usize>>,
}

const SCHEMA: u32 = 1;

impl Definition {
    /// Makes sure that each workload can be run.
    ///
    /// # Errors
    /// If a name or option is wrong.
    pub fn new(asked: Asked) -> Result<Definition, SweepError> {
        let Asked {
            workloads,
            mut space,
            sample,
            repeat,
            run,
            seed,
            live,
            each,
            budget,
        } = asked;
        for (index, workload) in workloads.iter().enumerate() {
            if workloads[..index].contains(workload) {
                let workload = workload.clone();
                return Err(SweepError::Twice { workload });
            }
        }
        if seed
            .checked_add(u64::from(repeat.saturating_sub(1)))
            .is_none()
        {
            return Err(SweepError::Seeds { seed });
        }
        // In a real kernel two runs of one scheduler differ: each is a measurement.
        if live.is_some() || each {
            space.mute.clear();
        }
        let mut definition = Definition {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            build: BUILD.to_owned(),
            workloads,
            space,
            sample,
            repeat,
            budget,
            seed,
            machine: run.machine,
            cpus: run.cpus,
            rt_policy: run.rt_policy,
            kernel: run.kernel,
            time_limit: run.time_limit,
            check: run.check,
            live: live.is_some(),
            host: live,
            files: BTreeMap::new(),
            parts: BTreeMap::new(),
            points: Vec::new(),
            same: Vec::new(),
        };
        definition.draw();
        let mut inputs = Inputs::default();
        for index in 0..definition.workloads.len() {
            let run = inputs.read(&definition.spec(definition.job(0, index, 0)))?;
            run.check()?;
            definition.files.extend(run.files().iter().cloned());
            let parts = run.parts()?;
            if !parts.is_empty() {
                let parts = parts.iter().map(|part| PartScore {
                    name: part.name.clone(),
                    unit: part.score.unit.to_owned(),
                    higher_is_better: part.score.higher_is_better,
                });
                let workload = definition.workloads[index].clone();
                definition.parts.insert(workload, parts.collect());
            }
        }
        Ok(definition)
    }

    /// Makes sure that the result of a run is one of this sweep: that this is the build, and these are the files, that
    /// the sweep was begun with.
    pub(crate) fn check_provenance(&self, files: &[(String, String)]) -> Result<(), SweepError> {
        if self.build != BUILD {
            return Err(SweepError::Build);
        }
        match files
            .iter()
            .find(|(path, sum)| self.files.get(path) != Some(sum))
        {
            Some((path, _)) => Err(SweepError::Changed { path: path.into() }),
            None => Ok(()),
        }
    }

    /// Reads what [`Definition::to_json`] wrote.
    ///
    /// # Errors
    /// The fault.
    pub fn from_json(text: &str) -> Result<Definition, String> {
        let mut definition: Definition =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        if definition.schema != SCHEMA {
            return Err(format!("its schema is {}, not {SCHEMA}", definition.schema));
        }
        definition.draw();
        if definition.jobs() == 0 {
            return Err(
                "it has no runs: `workloads`, `sample` or `repeat` is empty or 0".to_owned(),
            );
        }
        Ok(definition)
    }

    /// As a document.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data") + "\n"
    }

    fn draw(&mut self) {
        let size = self.sample.unwrap_or(u64::MAX);
        self.points = self.space.sample(size, self.seed);
        let mut same: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (place, &point) in self.points.iter().enumerate() {
            same.entry(self.space.same_as(point))
                .or_default()
                .push(place);
        }
        self.same = same.into_values().collect();
    }

    /// In what two definitions differ first; `None` if in nothing.
    pub fn difference(&self, other: &Definition) -> Option<String> {
        let fields = |definition: &Definition| match serde_json::to_value(definition) {
            Ok(serde_json::Value::Object(fields)) => fields,
            _ => unreachable!("a definition is an object"),
        };
        let (own, others) = (fields(self), fields(other));
        // A field with its default value is not written. In alphabetical order, so that the cause comes before its
        // consequence: `live` before `space`.
        let names: BTreeSet<&String> = own.keys().chain(others.keys()).collect();
        let mut names = names.into_iter();
        names
            .find(|name| own.get(*name) != others.get(*name))
            .cloned()
    }

    /// Returns the measures that rows keep, by their names in results, in the order of [`crate::Row::values`]: [`MEASURES`], and
    /// behind them [`PART_MEASURES`] of each part of a workload.
    pub fn measures(&self) -> Vec<String> {
        let mut names: Vec<&str> = Vec::new();
        for workload in &self.workloads {
            for part in self.parts.get(workload).into_iter().flatten() {
                if !names.contains(&part.name.as_str()) {
                    names.push(&part.name);
                }
            }
        }
        let whole = MEASURES.iter().map(|name| (*name).to_owned());
        let of_parts = names.iter().flat_map(|part| {
            let of_part = PART_MEASURES.iter();
            of_part.map(move |name| format!("{part}.{name}"))
        });
        whole.chain(of_parts).collect()
    }

    /// Returns the part of a workload whose score `measure` is.
    pub fn part_score(&self, workload: &str, measure: &str) -> Option<&PartScore> {
        let part = measure.strip_suffix(".score")?;
        let parts = self.parts.get(workload)?;
        parts.iter().find(|known| known.name == part)
    }

    /// Returns the points that are run.
    pub fn points(&self) -> &[u64] {
        &self.points
    }

    /// Number of jobs.
    pub fn jobs(&self) -> u64 {
        self.points.len() as u64 * self.workloads.len() as u64 * u64::from(self.repeat)
    }

    /// Makes sure that the sweep has the job.
    pub(crate) fn check_job(&self, job: u64) -> Result<(), SweepError> {
        let jobs = self.jobs();
        match job < jobs {
            true => Ok(()),
            false => Err(SweepError::NoJob { job, jobs }),
        }
    }

    /// Makes sure that the sweep has the run.
    pub(crate) fn check_run(&self, run: u64) -> Result<(), SweepError> {
        let runs = self.runs();
        match run < runs {
            true => Ok(()),
            false => Err(SweepError::NoRun { run, runs }),
        }
    }

    /// Number of runs. Jobs whose schedulers are the same by [`Space::same_as`] have one run together.
    pub fn runs(&self) -> u64 {
        self.same.len() as u64 * self.workloads.len() as u64 * u64::from(self.repeat)
    }

    /// Returns the different schedulers: of those that are the same by [`Space::same_as`] the first point.
    pub fn schedulers(&self) -> impl Iterator<Item = u64> {
        self.same.iter().map(|places| self.points[places[0]])
    }

    /// Returns the run of a scheduler, by its place among [`Definition::schedulers`].
    pub fn run_of(&self, scheduler: usize, workload: usize, repetition: u32) -> u64 {
        let turn = u64::from(repetition) * self.workloads.len() as u64 + workload as u64;
        turn * self.same.len() as u64 + scheduler as u64
    }

    /// Returns the jobs of a run below [`Definition::runs`]; the first one stands for all of them.
    pub fn jobs_of(&self, run: u64) -> impl Iterator<Item = u64> {
        let schedulers = self.same.len() as u64;
        let places = &self.same[(run % schedulers) as usize];
        let begin = run / schedulers * self.points.len() as u64;
        places.iter().map(move |&place| begin + place as u64)
    }

    /// Returns the job that runs a point (by its place among [`Definition::points`]) on a workload. Jobs of one
    /// workload follow each other, then come the other workloads, then the next repetition.
    pub fn job(&self, place: usize, workload: usize, repetition: u32) -> u64 {
        let turn = u64::from(repetition) * self.workloads.len() as u64 + workload as u64;
        turn * self.points.len() as u64 + place as u64
    }

    /// Returns the place of a job below [`Definition::jobs`]: (place of its point, workload, repetition).
    pub fn parts(&self, job: u64) -> (usize, usize, u32) {
        let points = self.points.len() as u64;
        let workloads = self.workloads.len() as u64;
        let turn = job / points;
        (
            (job % points) as usize,
            (turn % workloads) as usize,
            u32::try_from(turn / workloads).expect("repetitions are 32 bits wide"),
        )
    }

    /// Returns the scheduler of a job below [`Definition::jobs`].
    pub fn scheduler(&self, job: u64) -> Scheduler {
        self.space.scheduler(self.points[self.parts(job).0])
    }

    /// Returns the run that a job below [`Definition::jobs`] is.
    pub fn spec(&self, job: u64) -> SimSpec {
        let (_, workload, repetition) = self.parts(job);
        SimSpec {
            workload: self.workloads[workload].clone(),
            scheduler: self.scheduler(job),
            machine: self.machine.clone(),
            cpus: self.cpus,
            taskset: None,
            task_layout: None,
            seed: self.seed.wrapping_add(u64::from(repetition)),
            rt_policy: self.rt_policy,
            kernel: self.kernel.clone(),
            time_limit: self.time_limit,
            check: self.check,
            audit: false,
        }
    }
}

/// A part of a sweep's runs: every n-th.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    /// Which, from 1.
    pub index: u64,
    /// Of how many.
    pub count: u64,
}

impl Shard {
    /// All of it.
    pub const WHOLE: Shard = Shard { index: 1, count: 1 };

    /// Reads `I/N`.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn parse(text: &str) -> Result<Shard, SweepError> {
        let read = || {
            let (index, count) = text.split_once('/')?;
            let (index, count) = (index.parse().ok()?, count.parse().ok()?);
            (1 <= index && index <= count).then_some(Shard { index, count })
        };
        read().ok_or_else(|| SweepError::Shard {
            text: text.to_owned(),
        })
    }

    /// Returns whether a run belongs to it.
    pub fn has(self, run: u64) -> bool {
        run % self.count == self.index - 1
    }

    /// How its files begin.
    pub fn stem(self) -> String {
        format!("shard-{}-of-{}", self.index, self.count)
    }
}

/// A time as a number of seconds, whole where it is.
mod seconds {
    use schedlab_trace::Duration;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        match time.ns() % 1_000_000_000 {
            0 => to.serialize_u64(time.ns() / 1_000_000_000),
            _ => to.serialize_f64(time.ns() as f64 / 1e9),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(from)?;
        Ok(Duration::from_ns((seconds * 1e9).round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_run_twice_or_never_is_refused() {
        let asked = |workloads: &[&str], seed: u64, repeat: u32| {
            Definition::new(Asked {
                workloads: workloads.iter().map(|name| name.to_string()).collect(),
                space: Space::of("feature", &[]).unwrap(),
                sample: Some(1),
                repeat,
                run: SimSpec::new("", Scheduler::parse("feature"), "laptop"),
                seed,
                live: None,
                each: false,
                budget: None,
            })
        };
        let error = asked(&["cpu", "pipe", "cpu"], 1, 1).unwrap_err();
        assert!(error.to_string().starts_with("cpu is named twice"));
        let error = asked(&["cpu"], u64::MAX, 2).unwrap_err();
        assert!(error.to_string().contains("seeds go beyond 2^64"));
        assert!(asked(&["cpu"], u64::MAX, 1).is_ok());
    }

    #[test]
    fn shards_are_read_and_share_out_all_jobs() {
        assert_eq!(Shard::parse("3/8").unwrap(), Shard { index: 3, count: 8 });
        for text in ["", "3", "0/8", "9/8", "a/b", "1/0", "-1/2"] {
            assert!(Shard::parse(text).is_err(), "{text}");
        }
        for job in 0..100 {
            let owners = (1..=7).filter(|&index| Shard { index, count: 7 }.has(job));
            assert_eq!(owners.count(), 1);
        }
    }
}
