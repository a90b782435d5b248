//! The same yielders in the virtual kernel, and the comparison.
//!
//! The run times between two choices are given from outside: they are an input of a policy, like the order of
//! wakeups, and the one that no two machines share. So the machine here is one on which nothing takes time, and each
//! turn computes exactly as long as the kernel's did.

use std::collections::VecDeque;

use schedlab_abi::{KernelVersion, NativePolicy};
use schedlab_engine::Scenario;
use schedlab_machine::Machine;
use schedlab_trace::{CpuId, Duration, Event, Instant, Listener, PrevState, TaskId, TaskMeta};
use schedlab_workload::{
    Action, Behaviour, Context, ObjectId, ObjectSpec, SchedClass, Score, ScoreRule, Start,
    TaskSpec, Workload,
};

use super::record::{Case, End, Turn};

/// When the yielders are woken; before, they only go to sleep.
const WAKE_AT: Instant = Instant::from_ns(1_000_000);

/// The turns of the case's yielders under `policy`, which need not be the case's.
pub fn simulate(case: &Case, policy: &str, options: &[(&str, &str)]) -> Result<Vec<Turn>, String> {
    let file = schedlab_policies::find(policy).ok_or_else(|| format!("no policy {policy}"))?;
    let object = file.object();
    let options: Vec<_> = options
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    let settings = object.settings(&options).map_err(|e| e.to_string())?;
    let machine = machine_without_costs();
    let policy = NativePolicy::load(&object, &settings, &machine, KernelVersion::default())
        .map_err(|e| e.to_string())?;
    let scenario = Scenario::new(machine, workload(case), 1);
    let end = schedlab_engine::run(scenario, policy, Observer::new(case));
    if let Some(failure) = end.failure {
        return Err(format!("the simulated workload failed: {failure}"));
    }
    if !end.unfinished.is_empty() {
        return Err(format!("{:?}; unfinished: {:?}", end.exit, end.unfinished));
    }
    Ok(end.recorder.turns)
}

/// Compares order, ends, running times and examined tasks, turn by turn.
pub fn compare(kernel: &[Turn], simulated: &[Turn]) -> Result<(), String> {
    let shown = |turn: Option<&Turn>| match turn {
        Some(turn) => format!(
            "yielder {} ran {} ns ({:?}) after {} were examined",
            turn.task, turn.ran_ns, turn.end, turn.examined
        ),
        None => "nobody".to_owned(),
    };
    for index in 0..kernel.len().max(simulated.len()) {
        let (ours, theirs) = (simulated.get(index), kernel.get(index));
        // The engine reports no yields.
        let alike = |turn: &Turn| Turn { yields: 0, ..*turn };
        if ours.map(alike) != theirs.map(alike) {
            return Err(format!(
                "turn {index} of {}:\n    kernel:     {}\n    simulation: {}",
                kernel.len(),
                shown(theirs),
                shown(ours)
            ));
        }
    }
    Ok(())
}

fn machine_without_costs() -> Machine {
    let machine = Machine::builtin("laptop").and_then(|machine| machine.with_cpus(1));
    let mut m = machine.unwrap_or_else(|error| panic!("{error}"));
    let locks = &mut m.locks;
    for ns in [
        &mut locks.handover_ns,
        &mut locks.handover_per_spinner_ns,
        &mut locks.meter_ns,
    ] {
        *ns = 0;
    }
    let memory = &mut m.memory;
    for ps in [
        &mut memory.hit_ps,
        &mut memory.llc_hit_ps,
        &mut memory.miss_ps,
        &mut memory.transfer_llc_ps,
        &mut memory.transfer_node_ps,
        &mut memory.transfer_remote_ps,
        &mut memory.atomic_ps,
        &mut memory.bus_ps,
    ] {
        *ps = 0;
    }
    let paths = &mut m.paths;
    for ns in [
        &mut paths.schedule_ns,
        &mut paths.switch_ns,
        &mut paths.switch_mm_ns,
        &mut paths.wakeup_ns,
        &mut paths.tick_ns,
        &mut paths.irq_ns,
        &mut paths.idle_exit_ns,
        &mut paths.syscall_ns,
        &mut paths.exit_ns,
        &mut paths.futex_ns,
    ] {
        *ns = 0;
    }
    let scx = &mut m.sched_ext;
    for ns in [
        &mut scx.op_ns,
        &mut scx.kfunc_ns,
        &mut scx.dsq_fifo_ns,
        &mut scx.dsq_vtime_ns,
    ] {
        *ns = 0;
    }
    let policy = &mut m.policy;
    for ps in [
        &mut policy.examine_ps,
        &mut policy.loop_ps,
        &mut policy.recalculate_ps,
    ] {
        *ps = 0;
    }
    m
}

/// When all yielders wait again for sure; then they are woken to end.
fn end_at(case: &Case) -> Instant {
    let ran: u64 = case.turns.iter().map(|turn| turn.ran_ns).sum();
    WAKE_AT + Duration::from_ns(ran) + Duration::from_secs(1)
}

fn workload(case: &Case) -> Workload {
    let waker = TaskSpec {
        comm: "waker".to_owned(),
        // Above the policy, as who wakes the yielders in the kernel is.
        class: SchedClass::Fifo(50),
        behaviour: Box::new(Waker {
            yielders: case.yielders,
            steps: 0,
            end_at: end_at(case),
        }),
        ..spec()
    };
    let yielder = |number: u32| {
        let turns = case.turns.iter().filter(|turn| turn.task == number);
        let mut actions = VecDeque::from([Step::Wait]);
        for turn in turns {
            actions.push_back(Step::Compute(turn.ran_ns));
            actions.extend((0..turn.yields).map(|_| Step::Yield));
            if turn.end == End::Block {
                actions.push_back(Step::Wait);
            }
        }
        TaskSpec {
            comm: number.to_string(),
            behaviour: Box::new(Yielder { number, actions }),
            ..spec()
        }
    };
    Workload {
        name: "yielders".to_owned(),
        params: Vec::new(),
        objects: vec![ObjectSpec::Semaphore { initial: 0 }; case.yielders as usize],
        tasks: (0..case.yielders).map(yielder).chain([waker]).collect(),
        start: Start::Together,
        parts: Vec::new(),
        cgroups: Default::default(),
        duration: None,
        score: Score {
            name: "makespan_ns",
            unit: "ns",
            higher_is_better: false,
            rule: ScoreRule::Makespan,
        },
        notes: Vec::new(),
    }
}

fn spec() -> TaskSpec {
    TaskSpec {
        comm: String::new(),
        nice: 0,
        class: SchedClass::Normal,
        affinity: None,
        address_space: Some(1),
        start: Instant::ZERO,
        working_set_bytes: 0,
        behaviour: Box::new(Yielder {
            number: 0,
            actions: VecDeque::new(),
        }),
    }
}

enum Step {
    Compute(u64),
    Yield,
    Wait,
}

struct Yielder {
    number: u32,
    actions: VecDeque<Step>,
}

impl Behaviour for Yielder {
    fn next(&mut self, _: &mut Context<'_>) -> Action {
        match self.actions.pop_front() {
            Some(Step::Compute(ns)) => Action::Compute(Duration::from_ns(ns)),
            Some(Step::Yield) => Action::Yield,
            Some(Step::Wait) => Action::Acquire(ObjectId(self.number)),
            None => Action::Exit,
        }
    }
}

/// Wakes each yielder twice: to begin and to end.
struct Waker {
    yielders: u32,
    steps: u32,
    end_at: Instant,
}

impl Behaviour for Waker {
    fn next(&mut self, _: &mut Context<'_>) -> Action {
        let step = self.steps;
        self.steps += 1;
        let round = self.yielders + 1;
        match (step / round, step % round) {
            (0, 0) => Action::SleepUntil(WAKE_AT),
            (1, 0) => Action::SleepUntil(self.end_at),
            (0 | 1, n) => Action::Post(ObjectId(n - 1)),
            _ => Action::Exit,
        }
    }
}

/// Turns between the two rounds of wakeups.
struct Observer {
    end_at: Instant,
    /// Number of the yielder that a task is.
    numbers: Vec<Option<u32>>,
    turns: Vec<Turn>,
    /// The turn under way and since when.
    open: Option<(Turn, Instant)>,
    examined: u64,
}

impl Observer {
    fn new(case: &Case) -> Observer {
        Observer {
            end_at: end_at(case),
            numbers: Vec::new(),
            turns: Vec::new(),
            open: None,
            examined: 0,
        }
    }
}

impl Listener for Observer {
    fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
        let tasks = self.numbers.len().max(task.index() + 1);
        self.numbers.resize(tasks, None);
        self.numbers[task.index()] = meta.comm.parse().ok();
    }

    fn record(&mut self, at: Instant, _: CpuId, event: Event) {
        if at < WAKE_AT || at >= self.end_at {
            return;
        }
        match event {
            Event::ScheduleExit { examined, .. } => self.examined += u64::from(examined),
            Event::Switch {
                prev_state, next, ..
            } => {
                if let Some((mut turn, since)) = self.open.take() {
                    turn.ran_ns = at.since(since).ns();
                    turn.end = match prev_state {
                        PrevState::Yielded => End::Yield,
                        PrevState::Blocked | PrevState::Exited => End::Block,
                        PrevState::Preempted => End::Preempted,
                    };
                    self.turns.push(turn);
                }
                if let Some(task) = next.and_then(|next| self.numbers[next.index()]) {
                    let turn = Turn {
                        task,
                        ran_ns: 0,
                        yields: 0,
                        end: End::Preempted,
                        examined: std::mem::take(&mut self.examined),
                    };
                    self.open = Some((turn, at));
                }
            }
            _ => {}
        }
    }
}
