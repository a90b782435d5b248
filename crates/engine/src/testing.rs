//! Stub policies and small workloads for this crate's tests.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll, Waker};

use schedlab_machine::Machine;
use schedlab_trace::check::{Checkers, Start};
use schedlab_trace::{
    CpuId, CpuSet, Duration, Event, Instant, Listener, LockClass, LockId, TaskId, TaskMeta,
};
use schedlab_workload::{
    Action, Behaviour, Context, ObjectSpec, SchedClass, Score, ScoreRule, TaskSpec, Workload,
};

use crate::contract::consts::dsq_id;
use crate::contract::outcome::ExitKind;
use crate::contract::policy::{
    Env, OpCall, OpKind, OpSet, OpsInfo, Policy, PolicyLock, Reply, Request, TaskView,
};
use crate::contract::scenario::{RunEnd, Scenario};

/// How a stub's op talks to the virtual kernel.
#[derive(Clone)]
pub(crate) struct Asker {
    shared: Rc<Shared>,
}

struct Shared {
    request: RefCell<Option<Request>>,
    reply: RefCell<Option<Reply>>,
    slices: RefCell<BTreeMap<u32, u64>>,
    vtimes: RefCell<BTreeMap<u32, u64>>,
    /// `cpus_ptr`.
    allowed: RefCell<BTreeMap<u32, CpuSet>>,
    charge_ns: Cell<u64>,
    /// Where the op that goes on runs.
    cpu: Cell<u32>,
}

struct Ask<'a> {
    shared: &'a Shared,
    request: Option<Request>,
}

impl Future for Ask<'_> {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, _: &mut PollContext<'_>) -> Poll<Reply> {
        match self.request.take() {
            Some(request) => {
                *self.shared.request.borrow_mut() = Some(request);
                Poll::Pending
            }
            None => Poll::Ready(self.shared.reply.borrow_mut().take().expect("a reply")),
        }
    }
}

impl Asker {
    pub async fn ask(&self, request: Request) -> Reply {
        Ask {
            shared: &self.shared,
            request: Some(request),
        }
        .await
    }

    pub async fn insert(&self, task: TaskId, dsq: u64, slice: u64, enq_flags: u64) {
        self.ask(Request::DsqInsert {
            task,
            dsq,
            slice,
            enq_flags,
        })
        .await;
    }

    pub async fn insert_vtime(&self, task: TaskId, dsq: u64, slice: u64, vtime: u64) {
        self.ask(Request::DsqInsertVtime {
            task,
            dsq,
            slice,
            vtime,
            enq_flags: 0,
        })
        .await;
    }

    pub async fn move_to_local(&self, dsq: u64) -> bool {
        let request = Request::DsqMoveToLocal { dsq, enq_flags: 0 };
        self.ask(request).await == Reply::Bool(true)
    }

    pub async fn create_dsq(&self, dsq: u64) -> i64 {
        match self.ask(Request::CreateDsq { dsq, node: -1 }).await {
            Reply::Int(errno) => errno,
            reply => panic!("{reply:?}"),
        }
    }

    pub async fn kick(&self, cpu: u32, flags: u64) {
        let cpu = cpu as i32;
        self.ask(Request::Kick { cpu, flags }).await;
    }

    pub async fn nr_queued(&self, dsq: u64) -> i64 {
        match self.ask(Request::DsqNrQueued { dsq }).await {
            Reply::Int(nr) => nr,
            reply => panic!("{reply:?}"),
        }
    }

    /// Lets policy code take this long.
    pub fn spend(&self, ns: u64) {
        self.shared.charge_ns.set(self.shared.charge_ns.get() + ns);
    }

    /// `bpf_get_smp_processor_id()`.
    pub fn cpu(&self) -> u32 {
        self.shared.cpu.get()
    }

    /// The CPUs where `task` may run.
    pub fn allowed(&self, task: TaskId) -> Vec<CpuId> {
        self.shared.allowed.borrow()[&task.0].iter().collect()
    }

    pub fn slice(&self, task: TaskId) -> u64 {
        self.shared
            .slices
            .borrow()
            .get(&task.0)
            .copied()
            .unwrap_or(0)
    }
}

type OpFuture = Pin<Box<dyn Future<Output = i64>>>;
type Handler = Box<dyn Fn(Asker, OpCall) -> OpFuture>;

/// One line per op: time, CPU, op.
pub(crate) type Log = Rc<RefCell<Vec<(u64, u32, OpCall)>>>;

/// A policy whose ops are an `async` function. It notes every op that is called.
pub(crate) struct Stub {
    pub info: OpsInfo,
    handler: Handler,
    shared: Rc<Shared>,
    pub log: Log,
    disallowed: Vec<TaskId>,
    op_ns: u64,
    kfunc_ns: u64,
}

impl Stub {
    pub fn new<F>(ops: &[OpKind], handler: impl Fn(Asker, OpCall) -> F + 'static) -> Stub
    where
        F: Future<Output = i64> + 'static,
    {
        let mut present = OpSet::default();
        for &op in ops {
            present = present.with(op);
        }
        let costs = machine(1).sched_ext;
        Stub {
            info: OpsInfo {
                name: "stub".to_owned(),
                flags: 0,
                timeout_ms: 0,
                dispatch_max_batch: 0,
                hotplug_seq: 0,
                sub_schedulers: false,
                present,
            },
            handler: Box::new(move |asker, op| Box::pin(handler(asker, op))),
            shared: Rc::new(Shared {
                request: RefCell::new(None),
                reply: RefCell::new(None),
                slices: RefCell::default(),
                vtimes: RefCell::default(),
                allowed: RefCell::default(),
                charge_ns: Cell::new(0),
                cpu: Cell::new(0),
            }),
            log: Log::default(),
            disallowed: Vec::new(),
            op_ns: costs.op_ns,
            kfunc_ns: costs.kfunc_ns,
        }
    }

    /// Everything to the global DSQ, by the virtual kernel itself.
    pub fn minimal() -> Stub {
        Stub::new(&[], |_, _| async { 0 })
    }

    /// A FIFO in one DSQ, and a log of the ops named.
    pub fn fifo(more_ops: &[OpKind]) -> Stub {
        let mut ops = vec![OpKind::Init, OpKind::Enqueue, OpKind::Dispatch];
        ops.extend_from_slice(more_ops);
        Stub::new(&ops, |a, op| async move {
            match op {
                OpCall::Init => return a.create_dsq(1).await,
                OpCall::Enqueue { task, enq_flags } => {
                    a.insert(task, 1, 5_000_000, enq_flags).await
                }
                OpCall::Dispatch { .. } => {
                    a.move_to_local(1).await;
                }
                OpCall::SelectCpu { prev_cpu, .. } => return i64::from(prev_cpu.0),
                _ => {}
            }
            0
        })
    }

    pub fn has(&self, op: OpKind) -> bool {
        self.info.present.has(op)
    }

    pub fn flags(mut self, flags: u64) -> Stub {
        self.info.flags = flags;
        self
    }

    pub fn timeout_ms(mut self, timeout_ms: u32) -> Stub {
        self.info.timeout_ms = timeout_ms;
        self
    }

    /// Each op takes this much longer.
    pub fn op_ns(mut self, ns: u64) -> Stub {
        self.op_ns += ns;
        self
    }

    /// Kfuncs cost nothing.
    pub fn free_kfuncs(mut self) -> Stub {
        self.kfunc_ns = 0;
        self
    }

    pub fn disallow(mut self, task: TaskId) -> Stub {
        self.disallowed.push(task);
        self
    }
}

impl Policy for Stub {
    fn info(&self) -> &OpsInfo {
        &self.info
    }

    fn call(&self, env: &Env<'_>, op: &OpCall) -> i64 {
        let cpu = env.cpu;
        let entry = (cpu.now.get(), cpu.id.0, *op);
        self.log.borrow_mut().push(entry);
        // As the policy's side does: the virtual kernel leaves the costs of calls to it.
        cpu.charge_ns(self.op_ns);
        let shared = &self.shared;
        let asker = Asker {
            shared: shared.clone(),
        };
        let mut future = (self.handler)(asker, *op);
        let mut context = PollContext::from_waker(Waker::noop());
        loop {
            shared.cpu.set(cpu.id.0);
            let polled = future.as_mut().poll(&mut context);
            cpu.charge_ps(shared.charge_ns.take() * 1_000);
            if let Poll::Ready(result) = polled {
                return result;
            }
            let request = shared.request.borrow_mut().take().expect("a request");
            let is_kfunc = !matches!(
                request,
                Request::Sync
                    | Request::Lock { .. }
                    | Request::Unlock { .. }
                    | Request::TryLock { .. }
                    | Request::LockUnlessDeadlock { .. }
            );
            if is_kfunc {
                cpu.charge_ns(self.kfunc_ns);
            }
            *shared.reply.borrow_mut() = Some(request.ask(env.kernel));
        }
    }

    fn sync_task(&self, task: TaskId, view: &TaskView<'_>) {
        let mut allowed = self.shared.allowed.borrow_mut();
        allowed.insert(task.0, view.allowed.clone());
    }

    fn set_task_cpu(&self, _task: TaskId, _cpu: CpuId) {}

    fn drop_task(&self, _task: TaskId) {}

    fn slice(&self, task: TaskId) -> u64 {
        self.shared
            .slices
            .borrow()
            .get(&task.0)
            .copied()
            .unwrap_or(0)
    }

    fn set_slice(&self, task: TaskId, slice: u64) {
        self.shared.slices.borrow_mut().insert(task.0, slice);
    }

    fn vtime(&self, task: TaskId) -> u64 {
        self.shared
            .vtimes
            .borrow()
            .get(&task.0)
            .copied()
            .unwrap_or(0)
    }

    fn set_vtime(&self, task: TaskId, vtime: u64) {
        self.shared.vtimes.borrow_mut().insert(task.0, vtime);
    }

    fn disallowed(&self, task: TaskId) -> bool {
        self.disallowed.contains(&task)
    }
}

/// A behaviour that is a function of the number of actions so far.
struct Steps<F>(u32, F);

impl<F: FnMut(u32, &mut Context<'_>) -> Option<Action> + Send> Behaviour for Steps<F> {
    fn next(&mut self, context: &mut Context<'_>) -> Action {
        self.0 += 1;
        (self.1)(self.0 - 1, context).unwrap_or(Action::Exit)
    }
}

/// A task that does what `step` says until it says `None`.
pub(crate) fn task(
    comm: &str,
    step: impl FnMut(u32, &mut Context<'_>) -> Option<Action> + Send + 'static,
) -> TaskSpec {
    TaskSpec {
        comm: comm.to_owned(),
        nice: 0,
        class: SchedClass::Normal,
        affinity: None,
        address_space: Some(0),
        start: Instant::ZERO,
        working_set_bytes: 0,
        behaviour: Box::new(Steps(0, step)),
    }
}

/// A task that computes `run_us` and sleeps `sleep_us`, `rounds` times.
pub(crate) fn periodic(comm: &str, run_us: u64, sleep_us: u64, rounds: u32) -> TaskSpec {
    task(comm, move |n, _| {
        (n < 2 * rounds).then(|| match n % 2 {
            0 => Action::Compute(Duration::from_us(run_us)),
            _ => Action::Sleep(Duration::from_us(sleep_us)),
        })
    })
}

/// A task that only computes.
pub(crate) fn hog(comm: &str, ms: u64) -> TaskSpec {
    task(comm, move |n, _| {
        (n == 0).then(|| Action::Compute(Duration::from_ms(ms)))
    })
}

pub(crate) fn on_cpus(mut spec: TaskSpec, cpus: &str) -> TaskSpec {
    spec.affinity = Some(cpus.parse().expect("a CPU list"));
    spec
}

pub(crate) fn workload(objects: Vec<ObjectSpec>, tasks: Vec<TaskSpec>) -> Workload {
    Workload {
        name: "test".to_owned(),
        params: Vec::new(),
        objects,
        tasks,
        // Each task is where its test expects it.
        start: schedlab_workload::Start::Together,
        duration: Some(Duration::from_secs(60)),
        score: Score {
            name: "makespan_ns",
            unit: "ns",
            higher_is_better: false,
            rule: ScoreRule::Makespan,
        },
        ..Workload::parse("cpu", 1).expect("a workload of that name")
    }
}

/// A current machine with so many CPUs.
pub(crate) fn machine(nr_cpus: usize) -> Machine {
    Machine::builtin("laptop")
        .expect("a built-in profile")
        .with_cpus(nr_cpus)
        .expect("so many CPUs")
}

pub(crate) fn scenario(nr_cpus: usize, tasks: Vec<TaskSpec>) -> Scenario {
    scenario_of(machine(nr_cpus), workload(Vec::new(), tasks))
}

/// A scenario in which sleeps end when their time is over.
pub(crate) fn scenario_of(machine: Machine, workload: Workload) -> Scenario {
    Scenario {
        timer_slack_ns: 0,
        ..Scenario::new(machine, workload, 1)
    }
}

/// All events of a run.
#[derive(Default)]
pub(crate) struct Events {
    pub events: Vec<(u64, u32, Event)>,
    pub affinities: Vec<(TaskId, CpuSet)>,
    /// Tasks that no measure of tasks counts.
    pub starters: Vec<TaskId>,
    /// Objects that calls of tasks share.
    pub shared_locks: Vec<LockId>,
}

impl Listener for Events {
    fn define_starter(&mut self, task: TaskId) {
        self.starters.push(task);
    }

    fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
        self.affinities.push((task, meta.affinity.clone()));
    }

    fn define_lock(&mut self, lock: LockId, _: &str, class: LockClass) {
        if class == LockClass::Shared {
            self.shared_locks.push(lock);
        }
    }

    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        self.events.push((at.ns(), cpu.0, event));
    }
}

/// The result of a checked run.
pub(crate) struct Checked {
    pub end: RunEnd<Stub, (Option<Checkers>, Events)>,
    pub events: Vec<(u64, u32, Event)>,
}

/// Runs and checks the invariants over the events.
pub(crate) fn run_checked(scenario: Scenario, policy: Stub) -> Checked {
    let nr_cpus = scenario.machine.topology.nr_cpus();
    let checkers = Checkers::new(nr_cpus, Start::Idle, Duration::from_secs(31));
    let mut end = crate::run(scenario, policy, (Some(checkers), Events::default()));
    let violations = end.recorder.0.take().expect("the checkers").finish();
    let found: Vec<String> = violations.first().iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{found:#?}");
    let events = std::mem::take(&mut end.recorder.1.events);
    let ended = events.iter().filter(|(_, _, event)| *event == Event::End);
    let ended = ended.map(|&(at, ..)| at).min().expect("every CPU ends");
    assert!(ended >= end.end.ns(), "{ended} {:?}", end.end);
    assert!(end.makespan.is_none_or(|last| last <= end.end));
    assert_eq!(end.stuck, None);
    no_switch_within_a_choice(&events, nr_cpus);
    Checked { end, events }
}

/// The time of schedule() is the choice's: it begins and ends once each, and no switch is in it.
fn no_switch_within_a_choice(events: &[(u64, u32, Event)], nr_cpus: usize) {
    let mut choosing = vec![false; nr_cpus];
    for &(at, cpu, event) in events {
        let choosing = &mut choosing[cpu as usize];
        match event {
            Event::ScheduleEnter { .. } => assert!(!std::mem::replace(choosing, true), "@{at}"),
            Event::ScheduleExit { .. } => assert!(std::mem::replace(choosing, false), "@{at}"),
            Event::Switch { .. } => assert!(!*choosing, "a switch at {at} on {cpu}"),
            _ => {}
        }
    }
}

impl Checked {
    /// The policy was not ejected.
    #[track_caller]
    pub fn is_done(&self) {
        assert_eq!(self.end.exit.kind, ExitKind::Done, "{:?}", self.end.exit);
    }

    /// The ops of one kind, with their times.
    pub fn ops(&self, kind: OpKind) -> Vec<(u64, OpCall)> {
        let log = self.end.policy.log.borrow();
        log.iter()
            .filter(|(_, _, op)| op.kind() == kind)
            .map(|&(at, _, op)| (at, op))
            .collect()
    }

    /// The kinds of ops that name `task`, in order.
    pub fn life(&self, task: u32) -> Vec<OpKind> {
        let log = self.end.policy.log.borrow();
        log.iter()
            .filter(|(_, _, op)| op.task() == Some(TaskId(task)))
            .map(|(_, _, op)| op.kind())
            .collect()
    }

    /// The tasks that ran on `cpu`, in order.
    pub fn ran_on(&self, cpu: u32) -> Vec<u32> {
        self.events
            .iter()
            .filter_map(|&(_, on, event)| match event {
                Event::Switch {
                    next: Some(next), ..
                } if on == cpu => Some(next.0),
                _ => None,
            })
            .collect()
    }
}

/// Every op there is, for stubs that note them.
pub(crate) const ALL_TASK_OPS: &[OpKind] = &[
    OpKind::SelectCpu,
    OpKind::Dequeue,
    OpKind::Runnable,
    OpKind::Running,
    OpKind::Stopping,
    OpKind::Quiescent,
    OpKind::SetWeight,
    OpKind::SetCpumask,
    OpKind::InitTask,
    OpKind::ExitTask,
    OpKind::Enable,
    OpKind::Disable,
];

/// The request for a lock of the policy's, as of a run queue.
pub fn take(lock: PolicyLock) -> Request {
    Request::Lock {
        lock,
        address: schedlab_machine::address::ARENA,
        class: schedlab_trace::LockClass::RunQueue,
    }
}

/// The local DSQ of a CPU.
pub(crate) fn local_on(cpu: u32) -> u64 {
    dsq_id::LOCAL_ON | u64::from(cpu)
}
