//! Measures the cost of one access to the cache model: `cargo bench -p schedlab-machine`.
//!
//! Each line is a profile and a number of tasks; every access is to a task's scheduling fields, and every CPU's
//! application evicts after 4,096 accesses. "one CPU scans": CPU 0 reads all of them in order. "CPUs in turn": one after
//! another reads all of them, in an order that has nothing to do with where they lie, as under one run queue. "all CPUs
//! mix": a random CPU reads or, every fourth time, writes the fields of a random task.

use std::time::Instant as Clock;

use schedlab_machine::{CacheIx, CacheModel, Machine, TaskAddresses};
use schedlab_trace::{CpuId, Instant, TaskId};

const ACCESSES: u64 = 20_000_000;

/// The CPU and the line of each access.
#[derive(Clone, Copy)]
enum Kind {
    OneScans,
    InTurn,
    Mix,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::OneScans => "one CPU scans",
            Kind::InTurn => "CPUs in turn",
            Kind::Mix => "all CPUs mix",
        }
    }
}

fn main() {
    for (name, tasks) in [
        ("netfinity-8500r", 400),
        ("netfinity-8500r", 1_200),
        ("server-2x96x2", 400),
        ("server-2x96x2", 5_000),
        ("numa-8x64x2", 1_000_000),
    ] {
        let machine = Machine::builtin(name).expect("a built-in profile");
        let addresses = TaskAddresses::new(&machine);
        let nr_cpus = machine.topology.nr_cpus() as u64;
        // A prime that divides none of the numbers of tasks: every task comes once.
        let order: Vec<u32> = (0..tasks).map(|i| (i * 7_919 % tasks) as u32).collect();
        for kind in [Kind::OneScans, Kind::InTurn, Kind::Mix] {
            let mut cache = CacheModel::new(&machine);
            let mut random = 1u64;
            let mut picoseconds = 0;
            let (mut scanned, mut turn) = (0, 0);
            let start = Clock::now();
            for i in 0..ACCESSES {
                // Knuth's MMIX generator: the cheapest one that is random enough here.
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let (cpu, task, write) = match kind {
                    Kind::OneScans => {
                        scanned = if scanned + 1 == tasks { 0 } else { scanned + 1 };
                        (CpuId(0), scanned, false)
                    }
                    Kind::InTurn => {
                        if scanned + 1 == tasks {
                            scanned = 0;
                            turn = if turn + 1 == nr_cpus { 0 } else { turn + 1 };
                        } else {
                            scanned += 1;
                        }
                        (
                            CpuId(turn as u32),
                            u64::from(order[scanned as usize]),
                            false,
                        )
                    }
                    Kind::Mix => {
                        let cpu = CpuId(((random >> 40) % nr_cpus) as u32);
                        (cpu, (random >> 20) % tasks, random >> 62 == 0)
                    }
                };
                if i % 4_096 == 0 {
                    cache.evict(CacheIx::of(&machine, cpu), 50_000);
                }
                let address = addresses.of(TaskId(task as u32));
                let now = Instant::from_ns(picoseconds / 1_000);
                picoseconds += cache.touch(cpu, now, address, write);
            }
            let ns = start.elapsed().as_nanos() as u64;
            let mib = cache.memory_bytes() as f64 / f64::from(1 << 20);
            println!(
                "{name:16} {tasks:8} tasks, {:14} {:6.1} ns an access, {mib:7.1} MiB, {} ps an access in the model",
                kind.name(),
                ns as f64 / ACCESSES as f64,
                picoseconds / ACCESSES,
            );
        }
    }
}
