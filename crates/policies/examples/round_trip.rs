//! How much processor time calling an op takes, with and without a request on the way. Run it in release:
//! `cargo run --release -p schedlab-policies --example round_trip [POLICY [CPUS]]`.

use std::cell::{Cell, RefCell};

use schedlab_abi::KernelVersion;
use schedlab_engine::policy::{
    Answer, Env, OpCall, Policy as _, Reply, Request, Shared, TaskView, ThisCpu,
};
use schedlab_fiber::{Fibers, State, Switch};
use schedlab_machine::{CacheModel, Machine};
use schedlab_trace::{CpuId, CpuSet, Scheduler, TaskId};
use schedlab_workload::{Rng, SchedClass};

const CALLS: u32 = 5_000_000;

/// Answers 0, whatever is asked.
struct Zero {
    requests: Cell<u64>,
}

impl Answer for Zero {
    fn answer(&self, _: Request) -> Reply {
        self.requests.set(self.requests.get() + 1);
        Reply::Int(0)
    }

    fn fault(&self, message: String) -> ! {
        panic!("{message}")
    }
}

fn main() {
    let kernel = Zero {
        requests: Cell::new(0),
    };
    let switch = Switch::default();
    let mut fiber = Fibers::new(&switch);
    fiber.spawn(|| measure(&kernel)).expect("a stack");
    assert_eq!(fiber.resume(0), State::Done);
}

fn measure(kernel: &Zero) {
    let name = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "vtime".to_owned());
    let selection = schedlab_policies::select(&Scheduler::parse(&name))
        .unwrap_or_else(|error| panic!("{error}"));
    let machine = Machine::builtin("laptop").expect("a built-in profile");
    let nr_cpus = match std::env::args().nth(2) {
        Some(cpus) => cpus.parse().expect("a number of CPUs to take turns"),
        None => machine.topology.nr_cpus() as u32,
    };
    let policy = selection
        .load(&machine, KernelVersion::V7_2)
        .unwrap_or_else(|error| panic!("{error}"));
    let shared = Shared {
        cache: RefCell::new(CacheModel::new(&machine)),
        random: RefCell::new(Rng::new(1)),
    };
    let horizon = Cell::new(u64::MAX);
    let cpus: Vec<ThisCpu> = (0..nr_cpus).map(|cpu| ThisCpu::new(CpuId(cpu))).collect();
    let mut env = Env {
        cpu: &cpus[0],
        shared: &shared,
        horizon: &horizon,
        kernel,
    };
    let allowed = CpuSet::all(machine.topology.nr_cpus());
    let task = TaskId(0);
    policy.sync_task(
        task,
        &TaskView {
            comm: "bench",
            tgid: task.pid(),
            parent: None,
            nice: 0,
            class: SchedClass::Normal,
            prio: 120,
            weight: 100,
            allowed: &allowed,
            address_space: Some(1),
            flags: 0,
            migration_disabled: false,
            cgroup: schedlab_workload::CgroupId::ROOT,
        },
    );
    for op in [
        OpCall::Init,
        OpCall::InitTask { task, fork: false },
        OpCall::Enqueue { task, enq_flags: 1 },
        OpCall::Running { task },
        OpCall::Stopping {
            task,
            runnable: true,
        },
    ] {
        let begun = processor_ns();
        kernel.requests.set(0);
        for number in 0..CALLS {
            env.cpu = &cpus[(number % nr_cpus) as usize];
            env.cpu.op.set(Some(op.kind()));
            policy.call(&env, &op);
        }
        let ns = (processor_ns() - begun) as f64 / f64::from(CALLS);
        let requests = kernel.requests.get() as f64 / f64::from(CALLS);
        println!("{ns:6.1} ns a call with {requests} requests: {op:?}");
    }
}

/// Processor time of this thread.
fn processor_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let first = text.split(' ').next().expect("three numbers");
    first.parse().expect("nanoseconds")
}
