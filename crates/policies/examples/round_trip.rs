//! How much processor time calling an op takes, with and without a request on the way. Run it in release:
//! `cargo run --release -p schedlab-policies --example round_trip [POLICY [CPUS]]`.

use schedlab_abi::KernelVersion;
use schedlab_engine::policy::{Env, OpCall, Policy as _, Probes, Reply, Step, TaskView};
use schedlab_machine::{CacheModel, Machine};
use schedlab_trace::{CpuId, CpuSet, Instant, LockPath, TaskId};
use schedlab_workload::{Rng, SchedClass};

const CALLS: u32 = 5_000_000;

fn main() {
    let name = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "vtime".to_owned());
    let selection = schedlab_policies::select(&name).unwrap_or_else(|error| panic!("{error}"));
    let machine = Machine::builtin("laptop").expect("a built-in profile");
    let nr_cpus = match std::env::args().nth(2) {
        Some(cpus) => cpus.parse().expect("a number of CPUs to take turns"),
        None => machine.topology.nr_cpus() as u32,
    };
    let mut policy = selection
        .load(&machine, KernelVersion::V7_2)
        .unwrap_or_else(|error| panic!("{error}"));
    let mut cache = CacheModel::new(&machine);
    let (mut probes, mut random) = (Probes::default(), Rng::new(1));
    let mut env = Env {
        cpu: CpuId(0),
        now: Instant::ZERO,
        carry_ps: 0,
        horizon: Instant::NEVER,
        path: LockPath::Wakeup,
        machine: &machine,
        cache: &mut cache,
        probes: &mut probes,
        random: &mut random,
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
            weight: 100,
            allowed: &allowed,
            address_space: Some(1),
            flags: 0,
            migration_disabled: false,
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
        let mut requests = 0u64;
        for number in 0..CALLS {
            env.cpu = CpuId(number % nr_cpus);
            let mut step = policy.call(&mut env, op.clone());
            while let Step::Ask(_) = step {
                requests += 1;
                step = policy.reply(&mut env, Reply::Int(0));
            }
            assert!(matches!(step, Step::Done(_)), "{step:?}");
        }
        let ns = (processor_ns() - begun) as f64 / f64::from(CALLS);
        let requests = requests as f64 / f64::from(CALLS);
        println!("{ns:6.1} ns a call with {requests} requests: {op:?}");
    }
}

/// Processor time of this thread.
fn processor_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let first = text.split(' ').next().expect("three numbers");
    first.parse().expect("nanoseconds")
}
