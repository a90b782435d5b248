//! A virtual kernel of one's own: tests answer a policy's requests themselves.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use schedlab_abi::{KernelVersion, NativePolicy, Object, ObjectError, compiler};
use schedlab_engine::policy::{Env, OpCall, Policy as _, Probes, Reply, Request, Step, TaskView};
use schedlab_machine::{CacheModel, Machine};
use schedlab_trace::{CpuId, CpuSet, Instant, LockPath, TaskId};
use schedlab_workload::{Rng, SchedClass};

/// Compiles a fixture with the compiler at hand.
pub fn object(fixture: &str) -> Arc<Object> {
    object_with(fixture, &compiler::default_compiler())
}

/// Compiles a fixture with a compiler of one's choice.
pub fn object_with(fixture: &str, cc: &str) -> Arc<Object> {
    try_object(fixture, cc).unwrap_or_else(|error| panic!("{error}"))
}

/// Compiles a fixture that may be no policy.
pub fn try_object(fixture: &str, cc: &str) -> Result<Arc<Object>, ObjectError> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = std::env::temp_dir().join(format!("schedlab-{}-{number}.so", std::process::id()));
    let source = PathBuf::from(format!("tests/fixtures/{fixture}.bpf.c"));
    let text = std::fs::read_to_string(folder.join(&source)).unwrap();
    compiler::run(&compiler::Job {
        compiler: cc,
        folder,
        source: &source,
        include: &[
            folder.join("../../include/native"),
            folder.join("../../include"),
        ],
        output: &output,
    })
    .unwrap_or_else(|error| panic!("{error}"));
    let elf = std::fs::read(&output).unwrap();
    std::fs::remove_file(output).unwrap();
    Object::from_elf(fixture, &text, elf)
}

/// A policy with what it needs around it.
pub struct Bench {
    pub policy: NativePolicy,
    pub machine: Machine,
    pub cache: CacheModel,
    pub probes: Probes,
    pub random: Rng,
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

    pub fn of(object: &Arc<Object>, options: &str) -> Bench {
        Bench::on(
            object,
            options,
            Machine::builtin("xeon-e5645-2x6x2").unwrap(),
        )
    }

    pub fn on(object: &Arc<Object>, options: &str, machine: Machine) -> Bench {
        let settings = object.settings(options).unwrap();
        Bench {
            policy: NativePolicy::load(object, &settings, &machine, KernelVersion::V7_2).unwrap(),
            cache: CacheModel::new(&machine),
            machine,
            probes: Probes::default(),
            random: Rng::new(42),
            now: Instant::ZERO,
            horizon: Instant::NEVER,
            cpu: CpuId(0),
            asked: Vec::new(),
        }
    }

    /// One resumption.
    pub fn step(&mut self, input: Result<OpCall, Reply>) -> Step {
        let mut env = Env {
            cpu: self.cpu,
            now: self.now,
            carry_ps: 0,
            horizon: self.horizon,
            path: LockPath::Schedule,
            machine: &self.machine,
            cache: &mut self.cache,
            probes: &mut self.probes,
            random: &mut self.random,
        };
        let step = match input {
            Ok(op) => self.policy.call(&mut env, op),
            Err(reply) => self.policy.reply(&mut env, reply),
        };
        self.now = env.now;
        step
    }

    /// Runs an op to its end; `answer` is the virtual kernel. The error is a fault.
    pub fn run(
        &mut self,
        op: OpCall,
        mut answer: impl FnMut(&Request) -> Reply,
    ) -> Result<i64, String> {
        let mut step = self.step(Ok(op));
        loop {
            match step {
                Step::Done(result) => return Ok(result),
                Step::Fault(message) => return Err(message),
                Step::Ask(request) => {
                    let reply = answer(&request);
                    self.asked.push(request);
                    step = self.step(Err(reply));
                }
            }
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
            weight: 335,
            allowed,
            address_space: Some(7),
            flags: 0,
            migration_disabled: false,
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
        | Request::ExitPolicy { .. } => Reply::Done,
        Request::TryLock { .. }
        | Request::DsqInsert { .. }
        | Request::DsqMoveToLocal { .. }
        | Request::DsqMove { .. }
        | Request::TestAndClearIdle { .. }
        | Request::TaskRunning { .. }
        | Request::TaskSet { .. } => Reply::Bool(true),
        Request::DsqPeek { .. }
        | Request::IterNext { .. }
        | Request::CpuCurr { .. }
        | Request::TaskFromPid { .. } => Reply::Task(None),
        _ => Reply::Int(0),
    }
}
