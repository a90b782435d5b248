//! The tasks of a workload file.

use std::collections::VecDeque;
use std::sync::Arc;

use schedlab_trace::{CpuSet, Duration, Instant};

use super::file::{File, Step, TaskHead};
use crate::param::Value;
use crate::seed::drawn;
use crate::{
    Action, Behaviour, Builder, Context, Kind, ObjectId, ObjectSpec, Options, SchedClass, TaskSpec,
    WorkloadError,
};

/// The beginning of the names of background tasks in a run.
pub const OTHER: char = '~';

/// The data that all tasks share.
struct Program {
    tasks: Vec<Task>,
    /// Objects of the barriers.
    barriers: Vec<ObjectId>,
    think_percent: u64,
    /// Overrides what was measured.
    jitter_percent: Option<u64>,
}

/// An entry of the file: one task, or several that do the same.
struct Task {
    comm: String,
    process: u32,
    nice: i8,
    class: SchedClass,
    affinity: Option<CpuSet>,
    background: bool,
    work_percent: u64,
    jitter_percent: u64,
    /// The waits of each of its tasks.
    semaphores: Vec<ObjectId>,
    steps: Arc<[Step]>,
}

/// One task.
struct Replay {
    program: Arc<Program>,
    task: usize,
    copy: usize,
    begun: Option<Instant>,
    at: usize,
    /// Actions of the step under way.
    waiting: VecDeque<Action>,
}

/// Fills in tasks and objects.
pub(super) fn build(
    file: &str,
    parsed: &File,
    options: &Options,
    builder: &mut Builder,
) -> Result<(), WorkloadError> {
    let with_others = options.flag("others");
    let kept = |task: usize| with_others || !parsed.head.tasks[task].background;
    let all = parsed.head.tasks.iter().enumerate();
    let nr_tasks = all
        .clone()
        .filter(|(number, _)| kept(*number))
        .map(|(_, task)| u64::from(task.threads));
    builder.room_for(options, nr_tasks.sum())?;
    let allowed = builder.placement().allowed.clone();
    let wrong = |task: usize, message: String| WorkloadError::File {
        file: file.to_owned(),
        line: 1,
        path: format!("task {}", task + 1),
        message,
    };
    let mut tasks = Vec::new();
    for (number, head) in all {
        let own = class(head).map_err(|message| wrong(number, message))?;
        let affinity = match (&head.cpus, builder.placement().cpus(number)) {
            (_, Some(pinned)) => Some(pinned),
            (None, None) => None,
            (Some(list), None) => {
                let set: CpuSet = list
                    .parse()
                    .map_err(|error| wrong(number, format!("cpus is `{list}`: {error}")))?;
                // A program that was bound to CPUs that this machine does not have may use all.
                let there = set.iter().all(|cpu| allowed.contains(cpu));
                match there {
                    true => Some(set.resized(allowed.capacity())),
                    false => None,
                }
            }
        };
        let semaphores =
            (0..head.threads).map(|_| builder.object(ObjectSpec::Semaphore { initial: 0 }));
        let semaphores = semaphores.collect();
        let percent = |own: u64| own.saturating_mul(options.percent("work")) / 100;
        tasks.push(Task {
            comm: match head.background {
                true => format!("{OTHER}{}", head.comm),
                false => head.comm.clone(),
            },
            process: head.process,
            nice: match options.is_given("nice") {
                true => builder.placement().nice(number),
                false => head.nice,
            },
            class: match options.is_given("policy") {
                true => builder.placement().class,
                false => own,
            },
            affinity,
            background: head.background,
            work_percent: percent(head.work_percent.saturating_mul(parsed.head.work_percent) / 100),
            jitter_percent: head.jitter_percent,
            semaphores,
            steps: parsed.steps[number]
                .iter()
                .copied()
                .filter(|step| match *step {
                    Step::Fork(child) => kept(child as usize - 1),
                    _ => true,
                })
                .collect(),
        });
    }
    let barriers = parsed.head.barriers.iter().map(|barrier| {
        let members = barrier
            .tasks
            .iter()
            .map(|task| parsed.head.tasks[*task as usize - 1].threads);
        builder.object(ObjectSpec::Barrier {
            parties: members.fold(0, u32::saturating_add),
        })
    });
    let program = Arc::new(Program {
        barriers: barriers.collect(),
        tasks,
        think_percent: parsed
            .head
            .think_percent
            .saturating_mul(options.percent("think"))
            / 100,
        jitter_percent: options
            .is_given("jitter")
            .then(|| options.percent("jitter")),
    });
    for (task, first) in parsed.is_first().into_iter().enumerate() {
        if first && kept(task) {
            for copy in 0..program.tasks[task].semaphores.len() {
                builder.push(spec(&program, task, copy));
            }
        }
    }
    Ok(())
}

fn spec(program: &Arc<Program>, task: usize, copy: usize) -> TaskSpec {
    let own = &program.tasks[task];
    TaskSpec {
        comm: own.comm.clone(),
        nice: own.nice,
        class: own.class,
        affinity: own.affinity.clone(),
        address_space: Some(own.process),
        start: Instant::ZERO,
        working_set_bytes: 0,
        behaviour: Box::new(Replay {
            program: Arc::clone(program),
            task,
            copy,
            begun: None,
            at: 0,
            waiting: VecDeque::new(),
        }),
    }
}

/// A task's scheduling class as the file has it.
fn class(task: &TaskHead) -> Result<SchedClass, String> {
    let Some(policy) = &task.policy else {
        return Ok(SchedClass::Normal);
    };
    match Kind::Policy.read(policy) {
        Some(Value::Policy(class)) => Ok(class),
        _ => Err(format!("policy is `{policy}`; it takes {}", Kind::Policy)),
    }
}

/// `percent` of `ns`.
fn scaled(ns: u64, percent: u64) -> Duration {
    let ns = u128::from(ns) * u128::from(percent) / 100;
    Duration::from_ns(u64::try_from(ns).unwrap_or(u64::MAX / 4))
}

impl Replay {
    /// Puts down the actions of a step.
    fn act(&mut self, step: Step, context: &mut Context<'_>) {
        let program = &*self.program;
        let own = &program.tasks[self.task];
        match step {
            Step::Run(ns) => {
                let mean = scaled(ns, own.work_percent);
                let jitter = program.jitter_percent.unwrap_or(own.jitter_percent);
                let time = drawn(mean, jitter, context.rng);
                if time > Duration::ZERO {
                    self.waiting.push_back(Action::Compute(time));
                }
            }
            Step::Post(to) => {
                let posts = program.tasks[to as usize - 1].semaphores.iter();
                self.waiting
                    .extend(posts.map(|semaphore| Action::Post(*semaphore)));
            }
            Step::Wait => self
                .waiting
                .push_back(Action::Acquire(own.semaphores[self.copy])),
            // The time that was measured has the timer's slack in it.
            Step::Sleep(ns) => self
                .waiting
                .push_back(Action::Io(scaled(ns, program.think_percent))),
            Step::Until(ns) => {
                let begun = self.begun.unwrap_or(context.now);
                self.waiting.push_back(Action::SleepUntil(
                    begun + scaled(ns, program.think_percent),
                ));
            }
            Step::Device(ns) => self.waiting.push_back(Action::Io(Duration::from_ns(ns))),
            Step::Fork(child) => {
                let child = child as usize - 1;
                for copy in 0..program.tasks[child].semaphores.len() {
                    let spec = spec(&self.program, child, copy);
                    self.waiting.push_back(Action::Fork(Box::new(spec)));
                }
            }
            Step::Yield => self.waiting.push_back(Action::Yield),
            Step::Meet(barrier) => self
                .waiting
                .push_back(Action::Barrier(program.barriers[barrier as usize - 1])),
        }
        if !own.background {
            self.waiting.push_back(Action::Work(1));
        }
    }
}

impl Behaviour for Replay {
    fn next(&mut self, context: &mut Context<'_>) -> Action {
        self.begun.get_or_insert(context.now);
        loop {
            if let Some(action) = self.waiting.pop_front() {
                return action;
            }
            let own = &self.program.tasks[self.task];
            let Some(&step) = own.steps.get(self.at) else {
                return Action::Exit;
            };
            self.at += 1;
            self.act(step, context);
        }
    }

    fn is_background(&self) -> bool {
        self.program.tasks[self.task].background
    }
}
