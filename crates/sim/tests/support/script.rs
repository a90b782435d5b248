//! Workloads written as lists of steps: `compute 100us`, `sleep 1ms`, `yield`, `nice 5`, `cpus 0-1`,
//! `fork NAME`, `work 1`, `write N` and `read N` (one message to or from pipe N).
//!
//! A test says what its tasks do beside what it expects of them; the models of `crates/workload` stay
//! free of tasks that only tests need.

use std::sync::Arc;

use schedlab_trace::{CpuSet, Duration, Instant};
use schedlab_workload::{
    Action, Behaviour, Context, ObjectId, ObjectSpec, SchedClass, Score, ScoreRule, Start,
    TaskSpec, Workload,
};

/// One step of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Runs for so long.
    Compute(Duration),
    /// Sleeps for so long.
    Sleep(Duration),
    /// Gives the CPU up.
    Yield,
    /// Changes its nice level.
    Nice(i8),
    /// Changes its CPUs.
    Cpus(CpuSet),
    /// Creates the child of this name.
    Fork(String),
    /// So many units of work.
    Work(u32),
    /// Writes a message to this pipe.
    Write(u32),
    /// Reads a message from this pipe.
    Read(u32),
}

/// The size of a message; a pipe holds [`PIPE_BYTES`].
const MESSAGE_BYTES: u32 = 100;
/// So few that writers wait, too.
const PIPE_BYTES: u32 = 300;

impl Step {
    /// Reads one step.
    pub fn parse(text: &str, nr_cpus: usize) -> Result<Step, String> {
        let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
        let wrong = |what: &str| format!("step `{text}`: {what}");
        Ok(match verb {
            "compute" => Step::Compute(duration(rest).ok_or_else(|| wrong("no duration"))?),
            "sleep" => Step::Sleep(duration(rest).ok_or_else(|| wrong("no duration"))?),
            "yield" if rest.is_empty() => Step::Yield,
            "nice" => Step::Nice(rest.parse().map_err(|_| wrong("no nice level"))?),
            "cpus" => Step::Cpus(cpus(rest, nr_cpus).map_err(|error| wrong(&error))?),
            "fork" if !rest.is_empty() => Step::Fork(rest.to_owned()),
            "write" => Step::Write(rest.parse().map_err(|_| wrong("no pipe"))?),
            "read" => Step::Read(rest.parse().map_err(|_| wrong("no pipe"))?),
            "work" => Step::Work(rest.parse().map_err(|_| wrong("no number"))?),
            _ => return Err(wrong("unknown")),
        })
    }
}

/// `100us`, `3ms`, `2s`, `50ns`.
pub fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    let unit = match &text[digits.len()..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    Some(Duration::from_ns(number.checked_mul(unit)?))
}

/// A CPU list.
pub fn cpus(text: &str, nr_cpus: usize) -> Result<CpuSet, String> {
    text.parse::<CpuSet>()
        .map(|set| set.resized(nr_cpus))
        .map_err(|error| error.to_string())
}

/// A kind of task.
#[derive(Clone, Debug)]
pub struct Kind {
    /// Name.
    pub comm: String,
    /// How many there are at the start.
    pub count: u32,
    /// How often each does the steps.
    pub repeat: u32,
    /// The steps.
    pub steps: Vec<Step>,
    /// CPUs: task i is bound to entry i modulo length; unbound if empty.
    pub cpus: Vec<CpuSet>,
    /// Nice levels, likewise; 0 if empty.
    pub nice: Vec<i8>,
    /// When they come into being.
    pub start: Instant,
}

impl Kind {
    /// Task `number` of this kind.
    fn spec(&self, number: usize, children: &Arc<[Kind]>) -> TaskSpec {
        let of = |len: usize| (len > 0).then(|| number % len);
        TaskSpec {
            comm: self.comm.clone(),
            nice: of(self.nice.len()).map_or(0, |i| self.nice[i]),
            class: SchedClass::Normal,
            affinity: of(self.cpus.len()).map(|i| self.cpus[i].clone()),
            address_space: Some(1),
            start: self.start,
            working_set_bytes: 0,
            behaviour: Box::new(Script {
                kind: self.clone(),
                children: Arc::clone(children),
                rounds_left: self.repeat,
                at: 0,
            }),
        }
    }
}

struct Script {
    kind: Kind,
    children: Arc<[Kind]>,
    rounds_left: u32,
    at: usize,
}

impl Behaviour for Script {
    fn next(&mut self, _context: &mut Context<'_>) -> Action {
        if self.at == self.kind.steps.len() {
            self.at = 0;
            self.rounds_left -= 1;
        }
        if self.rounds_left == 0 || self.kind.steps.is_empty() {
            return Action::Exit;
        }
        self.at += 1;
        match &self.kind.steps[self.at - 1] {
            Step::Compute(time) => Action::Compute(*time),
            Step::Sleep(time) => Action::Sleep(*time),
            Step::Yield => Action::Yield,
            Step::Nice(nice) => Action::SetNice(*nice),
            Step::Cpus(cpus) => Action::SetAffinity(cpus.clone()),
            Step::Work(n) => Action::Work(*n),
            Step::Write(pipe) => Action::Write {
                to: ObjectId(*pipe),
                bytes: MESSAGE_BYTES,
            },
            Step::Read(pipe) => Action::Read {
                from: ObjectId(*pipe),
                limit: 1,
            },
            Step::Fork(name) => {
                let child = self
                    .children
                    .iter()
                    .find(|kind| kind.comm == *name)
                    .unwrap_or_else(|| panic!("there is no child `{name}`"));
                Action::Fork(Box::new(child.spec(0, &self.children)))
            }
        }
    }
}

/// A workload of these tasks.
pub fn workload(name: &str, tasks: &[Kind], children: &[Kind]) -> Workload {
    let nr_pipes = tasks
        .iter()
        .chain(children)
        .flat_map(|kind| &kind.steps)
        .map(|step| match step {
            Step::Write(pipe) | Step::Read(pipe) => pipe + 1,
            _ => 0,
        })
        .max();
    let pipe = ObjectSpec::Pipe {
        capacity: PIPE_BYTES,
    };
    let children: Arc<[Kind]> = children.into();
    let mut specs = Vec::new();
    for kind in tasks {
        specs.extend((0..kind.count).map(|number| kind.spec(number as usize, &children)));
    }
    Workload {
        name: name.to_owned(),
        params: Vec::new(),
        objects: vec![pipe; nr_pipes.unwrap_or(0) as usize],
        tasks: specs,
        // The rules of sched_ext are about tasks that are there when a policy is loaded.
        cgroups: Default::default(),
        start: Start::Together,
        parts: Vec::new(),
        notes: Vec::new(),
        duration: None,
        score: Score {
            name: "makespan_ns",
            unit: "ns",
            higher_is_better: false,
            rule: ScoreRule::Makespan,
        },
    }
}
