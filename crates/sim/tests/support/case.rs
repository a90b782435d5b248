//! Random scenarios: machines, tasks and what they do.

use std::str::FromStr;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use schedlab_engine::Scenario;
use schedlab_trace::{CpuId, CpuSet, Duration, Instant};
use schedlab_workload::Start;

use crate::support::script::{self, Kind, Step};
use crate::virtual_kernel::machine;

/// The number in an environment variable, if it is set.
pub fn number<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    let number = text.parse().ok();
    Some(number.unwrap_or_else(|| panic!("{name}: `{text}` is not a number")))
}

/// Which scenarios are tried, as SCHEDLAB_PROPERTY_SEED says; failures are kept nowhere.
pub fn config() -> ProptestConfig {
    ProptestConfig {
        rng_seed: RngSeed::Fixed(number("SCHEDLAB_PROPERTY_SEED").unwrap_or(20_261_121)),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// A scenario without its policy.
#[derive(Clone, Debug)]
pub struct Case {
    machine: &'static str,
    /// Number of CPUs.
    pub cpus: usize,
    seed: u64,
    start: Start,
    tasks: Vec<Kind>,
    child: Kind,
}

impl Case {
    /// With the seed it was drawn with.
    pub fn scenario(&self) -> Scenario {
        let children = std::slice::from_ref(&self.child);
        let mut workload = script::workload("random", &self.tasks, children);
        workload.start = self.start;
        Scenario::new(machine(self.machine, self.cpus), workload, self.seed)
    }
}

fn duration(us_max: u64) -> impl Strategy<Value = Duration> {
    // Uneven numbers: tasks that march in step meet few others.
    (1..us_max * 1_000).prop_map(Duration::from_ns)
}

fn some_cpus(cpus: usize) -> impl Strategy<Value = CpuSet> {
    (1..1_u32 << cpus).prop_map(move |bits| {
        let mut set = CpuSet::empty(cpus);
        for cpu in (0..cpus as u32).filter(|cpu| bits & 1 << cpu != 0) {
            set.insert(CpuId(cpu));
        }
        set
    })
}

fn step(cpus: usize, forks: bool) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => duration(3_000).prop_map(Step::Compute),
        4 => duration(2_000).prop_map(Step::Sleep),
        2 => Just(Step::Yield),
        1 => (-20_i8..20).prop_map(Step::Nice),
        1 => some_cpus(cpus).prop_map(Step::Cpus),
        1 => Just(if forks { Step::Fork("child".to_owned()) } else { Step::Work(1) }),
    ]
}

/// One kind of task; its first step takes time, so that no loop is without any.
fn kind(cpus: usize, comm: &'static str, forks: bool) -> impl Strategy<Value = Kind> {
    (
        1..4_u32,
        1..12_u32,
        duration(500),
        vec(step(cpus, forks), 0..5),
        vec(some_cpus(cpus), 0..2),
        vec(-20_i8..20, 0..3),
        0..5_000_000_u64,
    )
        .prop_map(
            move |(count, repeat, first, mut steps, cpus, nice, start)| {
                steps.insert(0, Step::Compute(first));
                Kind {
                    comm: comm.to_owned(),
                    count,
                    repeat,
                    steps,
                    cpus,
                    nice,
                    start: Instant::from_ns(start),
                }
            },
        )
}

/// A writer and a reader of pipe `pipe` that agree on the number of messages.
fn pair(pipe: u32) -> impl Strategy<Value = [Kind; 2]> {
    (1..40_u32, duration(200), duration(200)).prop_map(move |(messages, writes, reads)| {
        let one = |comm: &str, steps: Vec<Step>| Kind {
            comm: comm.to_owned(),
            count: 1,
            repeat: messages,
            steps,
            cpus: Vec::new(),
            nice: Vec::new(),
            start: Instant::ZERO,
        };
        [
            one("writer", vec![Step::Compute(writes), Step::Write(pipe)]),
            one("reader", vec![Step::Read(pipe), Step::Compute(reads)]),
        ]
    })
}

/// Any case.
pub fn case() -> impl Strategy<Value = Case> {
    let machines = prop_oneof![
        Just("laptop"),
        Just("netfinity-8500r"),
        Just("numa-8x64x2"),
        Just("server-2x96x2"),
        Just("xeon-e5645-2x6x2"),
    ];
    let starts = prop_oneof![Just(Start::Fork), Just(Start::Together)];
    (machines, 1..=8_usize, any::<u64>(), 0..3_usize, starts).prop_flat_map(
        |(machine, cpus, seed, pairs, start)| {
            let pairs: Vec<_> = (0..pairs as u32).map(pair).collect();
            (
                vec(kind(cpus, "task", true), 1..5),
                pairs,
                kind(cpus, "child", false),
            )
                .prop_map(move |(mut tasks, pairs, child)| {
                    tasks.extend(pairs.into_iter().flatten());
                    Case {
                        machine,
                        cpus,
                        seed,
                        start,
                        tasks,
                        child,
                    }
                })
        },
    )
}
