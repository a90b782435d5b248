//! The Python module `schedlab._engine`: simulations and sweeps in the process that calls. What people use
//! of it is in `python/schedlab`.
//!
//! Results cross the border as JSON, which Python reads fast enough: a run takes far longer.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyo3::exceptions::{PyIndexError, PyOSError, PyValueError};
use pyo3::prelude::*;
use schedlab_search::{Plan, RUNS_MIN};
use schedlab_sim::{Scheduler, SimSpec};
use schedlab_sweep::{Asked, Budget, Definition, Row, Shard, Space, SweepError, Work};
use schedlab_trace::counted;

fn wrong(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A file or folder that cannot be read or written is an `OSError`, all else a `ValueError`.
fn raised(error: SweepError) -> PyErr {
    match error {
        SweepError::File { .. } | SweepError::Folder { .. } => {
            PyOSError::new_err(error.to_string())
        }
        _ => wrong(error),
    }
}

/// Everything else that determines a run, as the program's options name it; what is absent has its default.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Options {
    cpus: Option<usize>,
    seed: u64,
    rt: String,
    kernel: Option<String>,
    time_limit: Option<f64>,
    check: bool,
}

fn specification(
    workload: &str,
    scheduler: &str,
    machine: &str,
    options: Options,
) -> PyResult<SimSpec> {
    let default = SimSpec::new(workload, Scheduler::parse(scheduler), machine);
    let time_limit = match options.time_limit {
        None => default.time_limit,
        Some(seconds) if (1e-9..=1e6).contains(&seconds) => {
            schedlab_trace::Duration::from_ns((seconds * 1e9).round() as u64)
        }
        Some(seconds) => {
            return Err(wrong(format!(
                "time_limit={seconds}: give seconds, at most 1000000"
            )));
        }
    };
    Ok(SimSpec {
        cpus: options.cpus,
        seed: options.seed,
        rt_policy: match options.rt.as_str() {
            "kernel" => false,
            "policy" => true,
            other => return Err(wrong(format!("rt={other:?}: write kernel or policy"))),
        },
        kernel: options.kernel.unwrap_or(default.kernel),
        time_limit,
        check: options.check,
        ..default
    })
}

/// One simulated run as a JSON document.
#[pyfunction]
fn simulate(
    py: Python<'_>,
    workload: &str,
    scheduler: &str,
    machine: &str,
    options: Options,
) -> PyResult<String> {
    let spec = specification(workload, scheduler, machine, options)?;
    let result = py
        .detach(|| schedlab_sim::run(&spec, None))
        .map_err(wrong)?;
    serde_json::to_string(&result).map_err(wrong)
}

/// A sweep: its jobs, and the run of each of them.
#[pyclass(frozen, name = "Definition", module = "schedlab._engine")]
struct PyDefinition(Definition);

#[pymethods]
impl PyDefinition {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    #[pyo3(signature = (workloads, space, fix, sample, repeat, each, budget, machine, options))]
    fn new(
        workloads: Vec<String>,
        space: &str,
        fix: BTreeMap<String, String>,
        sample: Option<u64>,
        repeat: u32,
        each: bool,
        budget: Option<u64>,
        machine: &str,
        options: Options,
    ) -> PyResult<PyDefinition> {
        let (Some(first), 1.., 1..) = (workloads.first(), repeat, sample.unwrap_or(1)) else {
            return Err(wrong(
                "a sweep needs a workload, and repeat and sample must be at least 1",
            ));
        };
        let least = RUNS_MIN * workloads.len() as u64;
        if budget.is_some_and(|runs| runs < least) {
            return Err(wrong(format!(
                "a search on so many workloads has a budget of at least {least} runs"
            )));
        }
        if budget.is_some() && sample.is_some() {
            return Err(wrong("a search takes its own sample: leave `sample` out"));
        }
        let fixed: Vec<(String, String)> = fix.into_iter().collect();
        let run = specification(first, space, machine, options)?;
        let seed = run.seed;
        let space = Space::of(space, &fixed).map_err(raised)?;
        Definition::new(Asked {
            workloads,
            space,
            sample,
            repeat,
            run,
            seed,
            live: None,
            each,
            budget: budget.map(|runs| Budget { runs, timed: None }),
        })
        .map(PyDefinition)
        .map_err(raised)
    }

    /// Reads what `to_json` wrote.
    #[staticmethod]
    fn from_json(text: &str) -> PyResult<PyDefinition> {
        Definition::from_json(text).map(PyDefinition).map_err(wrong)
    }

    fn to_json(&self) -> String {
        self.0.to_json()
    }

    /// Number of jobs.
    fn __len__(&self) -> usize {
        self.0.jobs() as usize
    }

    /// Returns the scheduler of a job.
    fn scheduler(&self, job: u64) -> PyResult<String> {
        self.has(job)?;
        Ok(self.0.scheduler(job).to_string())
    }

    /// Runs here what the folder does not hold yet, on one thread. A signal ends it after the run that is under way;
    /// what was done until then is kept.
    fn run_into(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        let options = schedlab_sweep::Options {
            threads: NonZeroUsize::MIN,
            keep_after: Duration::from_secs(10),
        };
        let stop = AtomicBool::new(false);
        let mut signal = None;
        let done = py.detach(|| {
            let progress = |_: &schedlab_sweep::Progress| {
                // Again and again while a run is under way.
                if let Err(error) = Python::attach(|py| py.check_signals()) {
                    signal.get_or_insert(error);
                    stop.store(true, Ordering::Relaxed);
                }
            };
            let (definition, whole) = (&self.0, Shard::WHOLE);
            match Plan::new(definition) {
                None => schedlab_sweep::run(definition, &folder, whole, options, &stop, progress),
                Some(mut plan) => {
                    let mut choose = |rows: &BTreeMap<u64, Row>| plan.stage(rows);
                    schedlab_sweep::run_chosen(
                        definition,
                        &folder,
                        whole,
                        options,
                        &stop,
                        &mut choose,
                        progress,
                    )
                }
            }
        });
        done.map_err(raised)?;
        signal.map_or(Ok(()), Err)
    }

    /// Simulates jobs, one after another; their rows as a JSON array.
    fn rows(&self, py: Python<'_>, jobs: Vec<u64>) -> PyResult<String> {
        let mut rows = Vec::with_capacity(jobs.len());
        for job in jobs {
            self.has(job)?;
            // A list can be interrupted between two runs, but not a run.
            py.check_signals()?;
            rows.push(py.detach(|| self.0.row(job)).map_err(raised)?);
        }
        serde_json::to_string(&rows).map_err(wrong)
    }

    /// Makes runs that `Folder.missing` named, one after another; the rows of their jobs as a JSON array.
    fn run(&self, py: Python<'_>, runs: Vec<u64>) -> PyResult<String> {
        let mut rows = Vec::new();
        for run in runs {
            let all = self.0.runs();
            if run >= all {
                return Err(PyIndexError::new_err(format!(
                    "there is no run {run}: the sweep has {all}"
                )));
            }
            py.check_signals()?;
            rows.extend(py.detach(|| self.0.run(run)).map_err(raised)?);
        }
        serde_json::to_string(&rows).map_err(wrong)
    }
}

impl PyDefinition {
    fn has(&self, job: u64) -> PyResult<()> {
        if job < self.0.jobs() {
            return Ok(());
        }
        let jobs = self.0.jobs();
        Err(PyIndexError::new_err(format!(
            "there is no job {job}: the sweep has {jobs}"
        )))
    }
}

/// A sweep's folder that results are put into, locked against other processes.
#[pyclass(frozen, name = "Folder", module = "schedlab._engine")]
struct PyFolder(Mutex<Option<Inside>>);

/// The work in progress, and the plan of a search.
struct Inside {
    work: Work,
    plan: Option<Plan>,
}

impl Inside {
    /// Returns the runs that are to be made next; of a search the runs of its stage.
    fn missing(&mut self) -> Vec<u64> {
        let Some(plan) = &mut self.plan else {
            return self.work.missing();
        };
        let stage = plan.stage(&self.work.rows).unwrap_or_default();
        stage
            .into_iter()
            .filter(|run| !self.work.has(*run))
            .collect()
    }
}

#[pymethods]
impl PyFolder {
    #[new]
    fn new(definition: &PyDefinition, path: PathBuf) -> PyResult<PyFolder> {
        let work = Work::begin(&definition.0, &path, Shard::WHOLE).map_err(raised)?;
        let plan = Plan::new(&definition.0);
        Ok(PyFolder(Mutex::new(Some(Inside { work, plan }))))
    }

    /// Returns the runs that are to be made next.
    fn missing(&self) -> PyResult<Vec<u64>> {
        self.with(|inside| Ok(inside.missing()))
    }

    /// Number of jobs that are not done; of a search the runs of its stage.
    fn left(&self) -> PyResult<u64> {
        self.with(|inside| {
            Ok(match inside.plan {
                None => inside.work.jobs() - inside.work.rows.len() as u64,
                Some(_) => inside.missing().len() as u64,
            })
        })
    }

    /// Keeps rows that `Definition.run` gave, on the disk when it returns.
    fn keep(&self, rows: &str) -> PyResult<()> {
        let mut rows: Vec<Row> = serde_json::from_str(rows).map_err(wrong)?;
        self.with(|inside| inside.work.keep(&mut rows).map_err(raised))
    }

    /// Everything is done: one file instead of parts. The folder is not used any more.
    fn finish(&self) -> PyResult<()> {
        let missing = self.left()?;
        if missing > 0 {
            let are = if missing == 1 { "is" } else { "are" };
            return Err(wrong(format!("{} {are} not done", counted(missing, "job"))));
        }
        match self.lock().take() {
            Some(inside) => inside.work.finish().map_err(raised),
            None => Ok(()),
        }
    }

    /// Leaves the folder to others; what was kept is there.
    fn close(&self) {
        self.lock().take();
    }
}

impl PyFolder {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Inside>> {
        self.0.lock().expect("no panic while it is held")
    }

    fn with<T>(&self, act: impl FnOnce(&mut Inside) -> PyResult<T>) -> PyResult<T> {
        match self.lock().as_mut() {
            Some(inside) => act(inside),
            None => Err(wrong("the folder is closed")),
        }
    }
}

#[pymodule]
mod _engine {
    #[pymodule_export]
    use super::{PyDefinition, PyFolder, simulate};
}
