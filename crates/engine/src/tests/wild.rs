//! Random policies that call whatever there is, from any op, on machines of either kind: whatever a policy does,
//! its run ends with an outcome, and until then no task is lost, runs twice or where it may not.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use schedlab_machine::{LockKind, Machine, Topology};
use schedlab_trace::{CpuId, CpuSet, Duration, Instant, LockClass, TaskId};
use schedlab_workload::{ObjectSpec, Rng, below, stream};

use super::chaos::{draw, random_holder, random_task};
use crate::contract::consts::{dsq_id, enq, iter, kick, ops, reenq};
use crate::contract::policy::OpKind::*;
use crate::contract::policy::{OpCall, OpKind, OpSet, PolicyLock, Reply, Request, TimerId};
use crate::testing::*;
use crate::{ExitKind, Hotplug, KernelVersion, RtMode, Scenario};

/// Its DSQs: 1 and 3 are FIFO, 2 is ordered by vtime.
const DSQS: u64 = 3;

/// The behaviour of a policy, drawn from its seed.
#[derive(Clone, Copy, Debug)]
struct Temper {
    nr_cpus: u64,
    version: KernelVersion,
    slice_max: u64,
    /// It passes what waits to itself again, …
    reenqueues: bool,
    /// … inserts into other CPUs' local DSQs, …
    local_on: bool,
    /// … with promises, …
    immed: bool,
    /// … keeps tasks for itself, …
    holds: bool,
    /// … moves them between its queues, …
    moves: bool,
    /// … and asks for all sorts of things on the way.
    asides: u64,
    /// It breaks rules now and then.
    rude: bool,
}

struct State {
    rng: Rc<RefCell<Rng>>,
    held: RefCell<VecDeque<TaskId>>,
    /// Tasks that are there.
    known: RefCell<Vec<TaskId>>,
    temper: Temper,
}

impl State {
    fn draw(&self, bound: u64) -> u64 {
        draw(&self.rng, bound)
    }

    fn one_in(&self, n: u64) -> bool {
        self.draw(n) == 0
    }

    fn any_cpu(&self) -> u32 {
        self.draw(self.temper.nr_cpus) as u32
    }

    fn any_task(&self) -> Option<TaskId> {
        let known = self.known.borrow();
        let nr = known.len() as u64;
        (nr > 0).then(|| known[self.draw(nr) as usize])
    }

    fn any_local(&self, a: &Asker, task: TaskId) -> u64 {
        let allowed = a.allowed(task);
        local_on(allowed[self.draw(allowed.len() as u64) as usize].0)
    }

    fn slice(&self) -> u64 {
        1 + self.draw(self.temper.slice_max)
    }

    fn enq_flags(&self, local: bool) -> u64 {
        let flags = [0, 0, enq::HEAD, enq::PREEMPT][self.draw(4) as usize];
        if local && self.temper.immed && self.one_in(3) {
            flags | enq::IMMED
        } else {
            flags
        }
    }

    async fn kick(&self, a: &Asker) {
        let flags = [
            0,
            kick::IDLE,
            kick::PREEMPT,
            kick::PREEMPT,
            kick::WAIT,
            kick::PREEMPT | kick::WAIT,
        ];
        a.kick(self.any_cpu(), flags[self.draw(6) as usize]).await;
    }

    async fn reenqueue(&self, a: &Asker, op: &OpCall) {
        if !self.temper.version.has_immed() {
            // Nowhere else may it call that.
            if matches!(op, OpCall::CpuRelease { .. }) {
                let dsq = dsq_id::LOCAL;
                a.ask(Request::Reenqueue { dsq, flags: 0 }).await;
            }
            return;
        }
        let dsq = match self.draw(4) {
            0 => dsq_id::LOCAL,
            1 | 2 => local_on(self.any_cpu()),
            _ => 1 + self.draw(DSQS),
        };
        let flags = self.draw(2) * reenq::ANY;
        a.ask(Request::Reenqueue { dsq, flags }).await;
    }

    /// Something that any op may ask for.
    async fn aside(&self, a: &Asker, op: &OpCall) {
        let temper = self.temper;
        if temper.asides == 0 || !self.one_in(temper.asides) {
            return;
        }
        let cpu = self.any_cpu() as i32;
        let dsq = 1 + self.draw(DSQS);
        let task = self.any_task();
        let allowed = CpuSet::all(temper.nr_cpus as usize);
        let request = match (self.draw(20), task) {
            (0 | 1, _) if temper.reenqueues => return self.reenqueue(a, op).await,
            (2 | 3, _) => return self.kick(a).await,
            (4, _) => Request::DsqNrQueued { dsq },
            (5, _) => Request::DsqNrQueued {
                dsq: local_on(cpu as u32),
            },
            (6, _) => Request::DsqPeek { dsq },
            (7, _) => Request::TestAndClearIdle { cpu },
            (8, _) => Request::PickCpu {
                allowed,
                node: None,
                flags: 0,
                any: self.one_in(2),
            },
            (9, _) => Request::IdleMask {
                node: None,
                smt: self.one_in(2),
            },
            (10, _) => Request::OnlineMask,
            (11, _) => Request::CpuCurr { cpu },
            (12, Some(task)) => Request::TaskSetSlice {
                task,
                slice: self.slice(),
            },
            (13, Some(task)) => Request::TaskSetVtime {
                task,
                vtime: self.draw(100),
            },
            (14, Some(task)) => Request::TaskRunning { task },
            (15, Some(task)) => Request::TaskCpu { task },
            (16, _) => Request::TimerStart {
                timer: TimerId(1),
                ns: 1 + self.draw(200_000),
                flags: 0,
            },
            (17, _) => Request::TimerCancel { timer: TimerId(1) },
            (18, _) => return self.walk(a).await,
            (19, _) => {
                let lock = PolicyLock(1);
                let address = schedlab_machine::address::ARENA + 4096;
                let class = LockClass::Other;
                let request = Request::TryLock {
                    lock,
                    address,
                    class,
                };
                if a.ask(request).await == Reply::Bool(true) {
                    a.spend(self.draw(5_000));
                    a.ask(Request::Unlock { lock }).await;
                }
                return;
            }
            _ => Request::Sync,
        };
        a.ask(request).await;
    }

    /// Looks at a queue.
    async fn walk(&self, a: &Asker) {
        let flags = self.draw(2) * iter::REV;
        let dsq = 1 + self.draw(DSQS);
        let Reply::Iter(iter) = a.ask(Request::IterNew { dsq, flags }).await else {
            // The queue has been destroyed.
            return;
        };
        while let Reply::Task(Some(_)) = a.ask(Request::IterNext { iter }).await {
            a.spend(self.draw(500));
        }
        a.ask(Request::IterDestroy { iter }).await;
    }

    /// Moves some tasks of a queue to other ones.
    async fn move_some(&self, a: &Asker) {
        let from = 1 + self.draw(DSQS);
        let flags = self.draw(2) * iter::REV;
        let request = Request::IterNew { dsq: from, flags };
        let Reply::Iter(iter) = a.ask(request).await else {
            // The queue has been destroyed.
            return;
        };
        while let Reply::Task(Some(task)) = a.ask(Request::IterNext { iter }).await {
            if self.one_in(3) {
                continue;
            }
            if self.one_in(3) {
                let slice = self.slice();
                a.ask(Request::MoveSetSlice { iter, slice }).await;
            }
            let (dsq, priq) = match self.draw(4) {
                _ if self.temper.local_on && self.one_in(2) => (self.any_local(a, task), false),
                0 => (1, false),
                1 => (2, true),
                2 => (3, false),
                _ => (dsq_id::GLOBAL, false),
            };
            let is_local = dsq_id::is_local_on(dsq);
            let mut enq_flags = self.enq_flags(is_local);
            if dsq == 2 || !is_local {
                enq_flags = 0;
            }
            a.ask(Request::DsqMove {
                iter,
                task,
                dsq,
                enq_flags,
                priq,
            })
            .await;
        }
        a.ask(Request::IterDestroy { iter }).await;
    }

    /// Puts a task on a queue, or keeps it.
    async fn put(&self, a: &Asker, task: TaskId, may_hold: bool) {
        let temper = self.temper;
        let slice = self.slice();
        match self.draw(8) {
            _ if temper.local_on && self.one_in(2) => {
                let dsq = self.any_local(a, task);
                a.insert(task, dsq, slice, self.enq_flags(true)).await;
            }
            _ if temper.holds && may_hold && self.one_in(3) => {
                self.locked(a, || self.held.borrow_mut().push_back(task))
                    .await;
            }
            // In ops.dispatch() that is the local one of the CPU that asks.
            0 | 1 if may_hold || a.allowed(task).contains(&CpuId(a.cpu())) => {
                a.insert(task, dsq_id::LOCAL, slice, self.enq_flags(true))
                    .await
            }
            0..=2 => a.insert(task, dsq_id::GLOBAL, slice, 0).await,
            3 | 4 => a.insert(task, 1, slice, self.enq_flags(false)).await,
            5 | 6 => a.insert_vtime(task, 2, slice, self.draw(100)).await,
            _ => a.insert(task, 3, slice, self.enq_flags(false)).await,
        }
    }

    async fn locked<A>(&self, a: &Asker, work: impl FnOnce() -> A) -> A {
        let lock = PolicyLock(0);
        a.ask(crate::testing::take(lock)).await;
        a.spend(self.draw(3_000));
        let result = work();
        a.ask(Request::Unlock { lock }).await;
        result
    }

    /// Breaks a rule.
    async fn offend(&self, a: &Asker) {
        let Some(task) = self.any_task() else { return };
        let slice = self.slice();
        match self.draw(16) {
            0 => a.insert(task, local_on(self.any_cpu()), slice, 0).await,
            1 => a.insert(task, local_on(1_000), slice, 0).await,
            2 => a.insert(task, 77, slice, 0).await,
            3 => a.insert_vtime(task, dsq_id::LOCAL, slice, 1).await,
            4 => a.insert(task, 2, slice, 0).await,
            5 => a.insert_vtime(task, 1, slice, 1).await,
            6 => a.insert(task, 1, slice, enq::INTERNAL_MASK).await,
            7 => {
                for _ in 0..40 {
                    a.insert(task, 1, slice, 0).await;
                }
            }
            8 => {
                let dsq = 1 + self.draw(DSQS);
                a.ask(Request::DestroyDsq { dsq }).await;
            }
            9 => a.kick(1_000, 0).await,
            10 => a.kick(0, kick::IDLE | kick::PREEMPT).await,
            11 => {
                let message = "enough".to_owned();
                a.ask(Request::Error { message }).await;
            }
            12 => {
                let message = "bye".to_owned();
                a.ask(Request::ExitPolicy { code: 3, message }).await;
            }
            13 => {
                a.ask(Request::Unlock {
                    lock: PolicyLock(5),
                })
                .await;
            }
            14 => {
                let dsq = dsq_id::GLOBAL;
                a.ask(Request::Reenqueue { dsq, flags: 0 }).await;
            }
            _ => a.spend(self.draw(40_000_000)),
        }
    }

    async fn run(&self, a: Asker, op: OpCall) -> i64 {
        let temper = self.temper;
        if temper.rude && !matches!(op, OpCall::Init | OpCall::Exit { .. }) && self.one_in(2_000) {
            self.offend(&a).await;
        }
        match op {
            OpCall::Init => {
                for dsq in 1..=DSQS {
                    assert_eq!(a.create_dsq(dsq).await, 0);
                }
                self.arm(&a).await;
            }
            OpCall::TimerCallback { timer } => {
                if timer == TimerId(0) {
                    // A task that waits for no other gets a look.
                    for cpu in 0..temper.nr_cpus as u32 {
                        a.kick(cpu, self.draw(2) * kick::IDLE).await;
                    }
                    self.arm(&a).await;
                }
                if temper.moves && self.one_in(2) {
                    self.move_some(&a).await;
                }
                self.aside(&a, &op).await;
            }
            OpCall::InitTask { task, .. } => self.known.borrow_mut().push(task),
            OpCall::ExitTask { task, .. } => {
                self.known.borrow_mut().retain(|&other| other != task);
            }
            OpCall::SelectCpu {
                task,
                prev_cpu,
                wake_flags,
            } => {
                self.aside(&a, &op).await;
                if self.one_in(3) {
                    if self.one_in(4) {
                        self.put(&a, task, false).await;
                    }
                    if temper.rude && self.one_in(500) {
                        return 1_000;
                    }
                    return if self.one_in(2) {
                        i64::from(prev_cpu.0)
                    } else {
                        i64::from(self.any_cpu())
                    };
                }
                let request = Request::SelectCpuDfl {
                    task,
                    prev_cpu: prev_cpu.0 as i32,
                    wake_flags,
                };
                let Reply::Cpu(cpu, idle) = a.ask(request).await else {
                    panic!("a CPU")
                };
                if idle && self.draw(4) > 0 {
                    let slice = self.slice();
                    a.insert(task, dsq_id::LOCAL, slice, 0).await;
                }
                return i64::from(cpu);
            }
            OpCall::Enqueue { task, .. } => {
                self.aside(&a, &op).await;
                self.put(&a, task, true).await;
                if self.one_in(3) {
                    self.kick(&a).await;
                }
                if temper.reenqueues && self.one_in(8) {
                    self.reenqueue(&a, &op).await;
                }
            }
            OpCall::Dequeue { task, .. } => {
                if temper.local_on {
                    a.spend(self.draw(30_000));
                }
                self.locked(&a, || {
                    self.held.borrow_mut().retain(|&other| other != task);
                })
                .await;
                self.aside(&a, &op).await;
            }
            OpCall::Dispatch { .. } => {
                a.spend(self.draw(2_000));
                self.aside(&a, &op).await;
                if temper.moves && self.one_in(3) {
                    self.move_some(&a).await;
                }
                let first = self.draw(DSQS);
                for n in 0..DSQS {
                    if a.move_to_local(1 + (first + n) % DSQS).await {
                        break;
                    }
                }
                for _ in 0..self.draw(3) {
                    let task = self.locked(&a, || self.held.borrow_mut().pop_front()).await;
                    if let Some(task) = task {
                        self.put(&a, task, false).await;
                    }
                }
                if let Some(task) = self.any_task()
                    && self.one_in(20)
                {
                    // It need not be the policy's: then that is ignored.
                    self.put(&a, task, false).await;
                    if self.one_in(2) {
                        a.ask(Request::DispatchCancel).await;
                    }
                }
                if self.one_in(4) {
                    self.kick(&a).await;
                }
            }
            OpCall::Tick { .. } => {
                if temper.reenqueues && self.one_in(2) {
                    self.reenqueue(&a, &op).await;
                }
                self.aside(&a, &op).await;
            }
            OpCall::CpuRelease { .. } => {
                if temper.reenqueues {
                    self.reenqueue(&a, &op).await;
                }
            }
            _ => {
                a.spend(self.draw(200));
                self.aside(&a, &op).await;
            }
        }
        0
    }

    async fn arm(&self, a: &Asker) {
        a.ask(Request::TimerStart {
            timer: TimerId(0),
            ns: 1_000_000,
            flags: 0,
        })
        .await;
    }
}

/// Those that it has.
const OPS: [OpKind; 24] = [
    Init,
    Exit,
    SelectCpu,
    Enqueue,
    Dequeue,
    Dispatch,
    Tick,
    Runnable,
    Running,
    Stopping,
    Quiescent,
    CpuOnline,
    CpuOffline,
    UpdateIdle,
    CpuAcquire,
    CpuRelease,
    TimerCallback,
    Yield,
    InitTask,
    ExitTask,
    Enable,
    Disable,
    SetWeight,
    SetCpumask,
];

fn wild(seed: u64, temper: Temper) -> Stub {
    let state = Rc::new(State {
        rng: Rc::new(RefCell::new(stream(seed, 910))),
        held: RefCell::default(),
        known: RefCell::default(),
        temper,
    });
    Stub::new(&OPS, move |a, op| {
        let state = state.clone();
        async move { state.run(a, op).await }
    })
}

fn run_wild(seed: u64) {
    let mut rng = stream(seed, 911);
    let one_in = |rng: &mut Rng, n| below(rng, n) == 0;
    let shapes = [
        (1, 1, 1, 1),
        (1, 1, 2, 1),
        (1, 1, 4, 1),
        (1, 1, 4, 2),
        (2, 2, 2, 2),
        (1, 1, 16, 1),
    ];
    let (nodes, llcs, cores, threads) = shapes[below(&mut rng, 6) as usize];
    let mut machine = Machine::builtin("laptop").unwrap();
    machine.topology = Topology::new(nodes, llcs, cores, threads);
    machine.sched_ext.rq_locks = one_in(&mut rng, 3);
    machine.preemptible_kernel = one_in(&mut rng, 2);
    machine.hz = [100, 250, 1_000][below(&mut rng, 3) as usize];
    if one_in(&mut rng, 2) {
        machine.locks.kind = LockKind::Tas;
        machine.locks.handover_per_spinner_ns = 50;
    }
    let nr_cpus = machine.topology.nr_cpus();
    let nr_tasks = 1 + below(&mut rng, 40);
    let mut tasks: Vec<_> = (0..nr_tasks)
        .map(|_| random_task(&mut rng, nr_cpus, 0))
        .collect();
    tasks[0].start = Instant::ZERO;
    let mut objects = vec![
        ObjectSpec::Pipe {
            capacity: 1_000_000,
        },
        ObjectSpec::Semaphore { initial: 0 },
        ObjectSpec::Event,
    ];
    let mutexes = objects.len() as u32;
    // Kernels without run queue locks have no priority inheritance.
    objects.extend(match machine.sched_ext.rq_locks {
        true => [ObjectSpec::PiMutex; 3],
        false => [ObjectSpec::Mutex; 3],
    });
    let mut other = stream(seed, 912);
    for n in 0..below(&mut other, 12) {
        tasks.push(random_holder(&mut other, mutexes, 3, n < 8));
    }
    let mut scenario = Scenario::new(machine, workload(objects, tasks), seed);
    scenario.workload.duration = Some(Duration::from_secs(2));
    if one_in(&mut rng, 3) {
        scenario.version = KernelVersion::V6_18;
    }
    if one_in(&mut rng, 3) {
        scenario.rt_mode = RtMode::Policy;
    }
    if nr_cpus > 1 && one_in(&mut rng, 2) {
        for _ in 0..1 + below(&mut rng, 8) {
            let cpu = CpuId(1 + below(&mut rng, nr_cpus as u64 - 1) as u32);
            let down = below(&mut rng, 8_000_000);
            let up = down + below(&mut rng, 5_000_000);
            // Some never come back.
            let ends = 2 - usize::from(one_in(&mut rng, 4));
            for (at, online) in [(down, false), (up, true)].into_iter().take(ends) {
                scenario.hotplug.push(Hotplug {
                    at: Instant::from_ns(at),
                    cpu,
                    online,
                });
            }
        }
    }
    let temper = Temper {
        nr_cpus: nr_cpus as u64,
        version: scenario.version,
        slice_max: [20_000, 50_000, 8_000_000][below(&mut rng, 3) as usize],
        reenqueues: one_in(&mut rng, 2),
        local_on: one_in(&mut rng, 2),
        immed: scenario.version.has_immed() && one_in(&mut rng, 4),
        holds: one_in(&mut rng, 2),
        moves: one_in(&mut rng, 2),
        asides: [0, 1, 5, 20][below(&mut rng, 4) as usize],
        rude: one_in(&mut rng, 4),
    };
    let mut flags = ops::KEEP_BUILTIN_IDLE;
    for flag in [ops::ENQ_EXITING, ops::ENQ_LAST] {
        if one_in(&mut rng, 2) {
            flags |= flag;
        }
    }
    for flag in [ops::SWITCH_PARTIAL, ops::ALWAYS_ENQ_IMMED] {
        if one_in(&mut rng, 8) {
            flags |= flag;
        }
    }
    flags &= scenario.version.ops_flags();
    let mut policy = wild(seed, temper).flags(flags);
    // Some ignore a part of their calls, and leave more to the kernel.
    if one_in(&mut rng, 3) {
        let all = policy.info.present;
        let optional = [
            SelectCpu, Dequeue, Runnable, Running, Stopping, Quiescent, UpdateIdle, CpuAcquire,
            CpuRelease, Yield, Tick,
        ];
        policy.info.present = OpSet::default();
        for op in OPS {
            if all.has(op) && !(optional.contains(&op) && one_in(&mut rng, 2)) {
                policy.info.present = policy.info.present.with(op);
            }
        }
    }
    let checked = run_checked(scenario, policy);
    let end = &checked.end;
    if temper.rude && end.exit.kind != ExitKind::Done {
        return;
    }
    assert_eq!(end.exit.kind, ExitKind::Done, "seed {seed}: {:?}", end.exit);
    assert_eq!(end.failure, None, "seed {seed}");
    assert_eq!(end.unfinished, [], "seed {seed}");
}

#[test]
fn whatever_a_policy_does_is_an_outcome() {
    // WILD_SEED replays one, WILD_SEEDS tries so many from WILD_FROM on.
    #[expect(
        clippy::disallowed_methods,
        reason = "a person replays a seed; the engine itself reads nothing"
    )]
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let seeds = match number("WILD_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let from = number("WILD_FROM").unwrap_or(0);
            from..from + number("WILD_SEEDS").unwrap_or(40)
        }
    };
    // Without run queue locks a task was taken from who had chosen it, from who was putting it on a queue, or from who
    // passed it to the policy again, and ran on two CPUs. In the last one it was lost on a CPU that had just gone.
    let pinned = [
        777, 1429, 1688, 1961, 4010, 4151, 4516, 7023, 9522, 10695, 11642, 72581,
    ];
    let pinned = pinned.into_iter().filter(|_| number("WILD_SEED").is_none());
    let failing: Vec<u64> = seeds
        .chain(pinned)
        .filter(|&seed| std::panic::catch_unwind(|| run_wild(seed)).is_err())
        .collect();
    assert!(failing.is_empty(), "replay one with WILD_SEED: {failing:?}");
}
