//! A virtual kernel of one's own: tests answer a policy's requests themselves.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schedlab_abi::{KernelVersion, NativeObject, NativePolicy, ObjectErrors, compiler};
use schedlab_engine::policy::{
    Answer, Env, OpCall, Policy as _, Probes, Reply, Request, Shared, TaskView, ThisCpu,
};
use schedlab_fiber::{Fibers, State, Switch};
use schedlab_machine::{CacheModel, Machine};
use schedlab_trace::{CpuId, CpuSet, Instant, Scheduler, TaskId};
use schedlab_workload::{Rng, SchedClass};

/// Compiles a fixture with the compiler at hand.
pub fn object(fixture: &str) -> Arc<NativeObject> {
    object_with(fixture, &compiler::default_compiler())
}

/// Compiles a fixture with a compiler of one's choice.
pub fn object_with(fixture: &str, cc: &str) -> Arc<NativeObject> {
    try_object(fixture, cc).unwrap_or_else(|error| panic!("{error}"))
}

/// Compiles a fixture that may be no policy.
pub fn try_object(fixture: &str, cc: &str) -> Result<Arc<NativeObject>, ObjectErrors> {
    try_object_as(fixture, cc, &[])
}

/// The same with further arguments of the compiler.
pub fn try_object_as(
    fixture: &str,
    cc: &str,
    further: &[String],
) -> Result<Arc<NativeObject>, ObjectErrors> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = tempfile::tempdir().unwrap();
    let output = built.path().join("policy.so");
    let source = PathBuf::from(format!("tests/fixtures/{fixture}.bpf.c"));
    let text = std::fs::read_to_string(folder.join(&source)).unwrap();
    let job = compiler::Compilation {
        compiler: cc,
        arch: std::env::consts::ARCH,
        folder,
        source: &source,
        include: &[
            folder.join("../../include/native"),
            folder.join("../../include"),
        ],
        output: &output,
        audit: false,
    };
    compiler::run_with(&job, further).unwrap_or_else(|error| panic!("{error}"));
    let elf = std::fs::read(&output).unwrap();
    NativeObject::from_elf(fixture, &text, elf)
}

/// A policy with what it needs around it.
pub struct Bench {
    pub policy: NativePolicy,
    pub machine: Machine,
    pub shared: Shared,
    pub probes: RefCell<Probes>,
    pub now: Instant,
    pub horizon: Instant,
    /// The CPU that executes.
    pub cpu: CpuId,
    /// Every request so far.
    pub asked: Vec<Request>,
}

impl Bench {
    pub fn new(fixture: &str, options: &str) -> Bench {
        Bench::of(&object(fixture), options)
    }

    pub fn of(object: &Arc<NativeObject>, options: &str) -> Bench {
        Bench::on(
            object,
            options,
            Machine::builtin("xeon-e5645-2x6x2").unwrap(),
        )
    }

    pub fn on(object: &Arc<NativeObject>, options: &str, machine: Machine) -> Bench {
        Bench::in_kernel(object, options, machine, KernelVersion::V7_2)
    }

    pub fn in_kernel(
        object: &Arc<NativeObject>,
        options: &str,
        machine: Machine,
        version: KernelVersion,
    ) -> Bench {
        let settings = object.settings(&Scheduler::parse_options(options)).unwrap();
        Bench {
            policy: NativePolicy::load(object, &settings, &machine, version).unwrap(),
            shared: Shared {
                cache: RefCell::new(CacheModel::new(&machine)),
                random: RefCell::new(Rng::new(42)),
            },
            machine,
            probes: RefCell::default(),
            now: Instant::ZERO,
            horizon: Instant::NEVER,
            cpu: CpuId(0),
            asked: Vec::new(),
        }
    }

    /// Runs an op to its end; `answer` is the virtual kernel. The error is a fault.
    pub fn run(
        &mut self,
        op: OpCall,
        answer: impl FnMut(&Request) -> Reply,
    ) -> Result<i64, String> {
        let switch = Switch::default();
        let asked = RefCell::new(std::mem::take(&mut self.asked));
        let kernel = Answers {
            answer: RefCell::new(answer),
            asked: &asked,
            held: Cell::new(0),
            fault: RefCell::new(None),
            switch: &switch,
        };
        let cpu = ThisCpu::new(self.cpu);
        cpu.now.set(self.now.ns());
        cpu.op.set(Some(op.kind()));
        cpu.probes.swap(&self.probes);
        let horizon = Cell::new(self.horizon.ns());
        let env = Env {
            cpu: &cpu,
            shared: &self.shared,
            horizon: &horizon,
            kernel: &kernel,
        };
        let result = Cell::new(0);
        let mut fiber = Fibers::new(&switch);
        fiber
            .spawn(|| result.set(self.policy.call(&env, &op)))
            .unwrap();
        let state = fiber.resume(0);
        drop(fiber);
        let (fault, held) = (kernel.fault.take(), kernel.held.get());
        self.now = cpu.now();
        cpu.probes.swap(&self.probes);
        self.asked = asked.into_inner();
        match (state, fault) {
            (State::Done, _) if held > 0 => Err(self.policy.describe_held_locks(&cpu, held)),
            (State::Done, _) => Ok(result.get()),
            (State::Trapped(trap), _) => Err(self.policy.describe(&cpu, &trap)),
            (State::Suspended, fault) => Err(fault.expect("only a fault suspends an op here")),
        }
    }

    /// Runs an op that is answered `Done`, `true` or 0 whatever it asks.
    pub fn simply(&mut self, op: OpCall) -> Result<i64, String> {
        self.run(op, simple)
    }

    pub fn add_task(&mut self, task: TaskId) {
        let allowed = CpuSet::all(self.machine.topology.nr_cpus());
        self.add_task_on(task, &allowed);
    }

    pub fn add_task_on(&mut self, task: TaskId, allowed: &CpuSet) {
        let view = TaskView {
            comm: "a-rather-long-name",
            tgid: task.pid(),
            parent: None,
            nice: 5,
            class: SchedClass::Normal,
            prio: 125,
            weight: 335,
            allowed,
            address_space: Some(7),
            flags: 0,
            migration_disabled: false,
            cgroup: schedlab_workload::CgroupId::ROOT,
        };
        self.policy.sync_task(task, &view);
    }

    /// The value of a global of 8 bytes.
    pub fn global(&self, name: &str) -> u64 {
        let bytes = self
            .policy
            .global(name)
            .unwrap_or_else(|| panic!("no global {name}"));
        let mut all = [0; 8];
        all[..bytes.len()].copy_from_slice(&bytes);
        u64::from_le_bytes(all)
    }
}

/// Answers requests by a function.
struct Answers<'a, F> {
    answer: RefCell<F>,
    asked: &'a RefCell<Vec<Request>>,
    /// Locks that have been taken and not released.
    held: Cell<u32>,
    fault: RefCell<Option<String>>,
    switch: &'a Switch,
}

impl<F: FnMut(&Request) -> Reply> Answer for Answers<'_, F> {
    fn answer(&self, request: Request) -> Reply {
        let reply = (self.answer.borrow_mut())(&request);
        let (held, got) = (self.held.get(), reply != Reply::Bool(false));
        self.held.set(match request {
            Request::Lock { .. } => held + 1,
            Request::TryLock { .. } | Request::LockUnlessDeadlock { .. } if got => held + 1,
            Request::Unlock { .. } => held - 1,
            _ => held,
        });
        self.asked.borrow_mut().push(request);
        reply
    }

    fn fault(&self, message: String) -> ! {
        *self.fault.borrow_mut() = Some(message);
        loop {
            self.switch.suspend();
        }
    }
}

/// The plainest answer to a request.
pub fn simple(request: &Request) -> Reply {
    match request {
        Request::Sync
        | Request::Lock { .. }
        | Request::Unlock { .. }
        | Request::Kick { .. }
        | Request::DestroyDsq { .. }
        | Request::DispatchCancel
        | Request::IterDestroy { .. }
        | Request::MoveSetSlice { .. }
        | Request::MoveSetVtime { .. }
        | Request::Error { .. }
        | Request::Violation { .. }
        | Request::ExitPolicy { .. } => Reply::Done,
        Request::TryLock { .. }
        | Request::LockUnlessDeadlock { .. }
        | Request::DsqInsert { .. }
        | Request::DsqInsertVtime { .. }
        | Request::DsqMoveToLocal { .. }
        | Request::DsqMove { .. }
        | Request::TestAndClearIdle { .. }
        | Request::TaskRunning { .. }
        | Request::TaskSetSlice { .. }
        | Request::TaskSetVtime { .. } => Reply::Bool(true),
        Request::DsqPeek { .. }
        | Request::IterNext { .. }
        | Request::CpuCurr { .. }
        | Request::TaskFromPid { .. } => Reply::Task(None),
        _ => Reply::Int(0),
    }
}
