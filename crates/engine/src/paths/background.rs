//! The tasks that run on a machine beside any workload (`[background.NAME]` of a profile).

use rand_core::RngCore;
use schedlab_machine::Machine;
use schedlab_trace::{CpuId, CpuSet, Duration, Instant};
use schedlab_workload::{Action, Behaviour, Context, SchedClass, TaskSpec};

/// Wakes, computes and sleeps for ever.
struct Daemon {
    period_ns: u64,
    run_ns: u64,
    /// When it was to wake last; unknown before it has begun.
    woke: Option<Instant>,
    computes: bool,
}

impl Behaviour for Daemon {
    fn next(&mut self, context: &mut Context<'_>) -> Action {
        self.computes = !self.computes;
        if self.computes {
            return Action::Compute(Duration::from_ns(self.run_ns));
        }
        // From half of the period to one and a half.
        let random = u128::from(context.rng.next_u32());
        let more_ns = (u128::from(self.period_ns) * random) >> 32;
        let pause_ns = self.period_ns / 2 + more_ns as u64;
        let next = self.woke.unwrap_or(context.now) + Duration::from_ns(pause_ns);
        // A wakeup that it has missed does not come again.
        let next = next.max(context.now);
        self.woke = Some(next);
        Action::SleepUntil(next)
    }

    fn is_background(&self) -> bool {
        true
    }
}

/// Returns the tasks, each with the CPU that it begins on.
pub(crate) fn specs(machine: &Machine) -> Vec<(TaskSpec, CpuId)> {
    let nr_cpus = machine.topology.nr_cpus() as u32;
    let mut specs = Vec::new();
    for (name, task) in &machine.background {
        let copies = if task.per_cpu { nr_cpus } else { 1 };
        for copy in 0..copies {
            let period_ns = task.period_us * 1_000;
            // They begin one after another over the period, the first one not at once.
            let start = period_ns * u64::from(copy + 1) / u64::from(copies + 1);
            let own = CpuSet::from_iter([CpuId(copy)]);
            let spec = TaskSpec {
                comm: match task.per_cpu {
                    true => format!("{name}/{copy}"),
                    false => name.clone(),
                },
                nice: task.nice(),
                class: SchedClass::Normal,
                // The whole machine: the workload's CPUs (`--taskset`) are not its own.
                affinity: Some(match task.per_cpu {
                    true => own,
                    false => CpuSet::all(nr_cpus as usize),
                }),
                address_space: None,
                start: Instant::from_ns(start),
                working_set_bytes: 0,
                behaviour: Box::new(Daemon {
                    period_ns,
                    run_ns: task.run_us * 1_000,
                    woke: None,
                    computes: false,
                }),
            };
            specs.push((spec, CpuId(if task.per_cpu { copy } else { 0 })));
        }
    }
    specs
}
