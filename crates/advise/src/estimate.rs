//! About how fast the program could be under another scheduler, by the runs that were made.

use schedlab_compare::Decomposed;
use schedlab_machine::Machine;
use schedlab_trace::CpuId;
use serde::Serialize;

/// Estimates of the shortest makespan, from runs of the same program. Times in ns. They are no bounds: another scheduler may
/// lead to less work, as fewer misses of caches, and order the program's tasks so that another path is critical.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Estimate {
    /// All CPUs busy all the time with the least work that was seen: own code and calls, without any scheduler.
    pub work_ns: u64,
    /// The shortest critical path that was seen, without its waits for a CPU, all of it on the fastest core and without
    /// siblings that compute; absent if none was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_ns: Option<u64>,
}

impl Estimate {
    /// Of runs of the same program.
    pub fn of(runs: &[&Decomposed], machine: &Machine) -> Option<Estimate> {
        let speeds = Speeds::of(machine);
        let work = runs.iter().map(|run| speeds.work_ns(run));
        let path = runs.iter().filter_map(|run| speeds.path_ns(run));
        Some(Estimate {
            work_ns: work.min()?,
            path_ns: path.min(),
        })
    }

    /// The greater one.
    pub fn least_ns(&self) -> u64 {
        self.work_ns.max(self.path_ns.unwrap_or(0))
    }
}

/// Work of each CPU in a time, of which 1,024 is a core's of full capacity.
struct Speeds {
    /// With idle siblings.
    alone: Vec<f64>,
    /// While all siblings compute.
    beside: Vec<f64>,
}

impl Speeds {
    fn of(machine: &Machine) -> Speeds {
        let traits = machine.core_traits();
        let alone = traits.iter().map(|core| f64::from(core.capacity));
        let alone: Vec<f64> = alone.collect();
        let beside = (0..).zip(&traits).map(|(cpu, core)| {
            let threads = machine.topology.smt(CpuId(cpu)).len();
            let others = match threads {
                0 | 1 => 0,
                _ => core.shares_pct.len() - 1,
            };
            alone[cpu as usize] * f64::from(core.share_pct(others)) / 100.0
        });
        Speeds {
            beside: beside.collect(),
            alone,
        }
    }

    /// The time that all CPUs together need for a run's work. Own code is at least as much work as it takes on a thread
    /// whose siblings all compute; calls run at the core's full speed.
    fn work_ns(&self, run: &Decomposed) -> u64 {
        let part = |times: &[u64], speeds: &[f64]| {
            let work: f64 = times
                .iter()
                .zip(speeds)
                .map(|(ns, speed)| *ns as f64 * speed)
                .sum();
            work / speeds.iter().sum::<f64>()
        };
        (part(&run.user_ns, &self.beside) + part(&run.kernel_ns, &self.alone)) as u64
    }

    /// The time of a run's critical path without waits, if all of it ran on the fastest core.
    fn path_ns(&self, run: &Decomposed) -> Option<u64> {
        let path = run.path.as_ref()?;
        let fastest = self.alone.iter().copied().fold(1.0, f64::max);
        let slower = run.path_cpus_ns.iter().zip(&self.beside);
        let saved: f64 = slower
            .map(|(ns, speed)| *ns as f64 * (1.0 - speed / fastest))
            .sum();
        Some((path.total_ns() - path.waits_ns()).saturating_sub(saved as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_compare::Times;

    fn run(user_ns: &[u64], kernel_ns: &[u64], path_cpus_ns: &[u64], woken_ns: u64) -> Decomposed {
        Decomposed {
            user_ns: user_ns.to_vec(),
            kernel_ns: kernel_ns.to_vec(),
            path: Some(Times {
                running_ns: path_cpus_ns.iter().sum(),
                woken_ns,
                ..Times::default()
            }),
            path_cpus_ns: path_cpus_ns.to_vec(),
            ..Decomposed::default()
        }
    }

    #[test]
    fn it_is_the_work_of_all_cpus_or_the_longest_chain() {
        let machine = Machine::builtin("laptop").unwrap().with_cpus(2).unwrap();
        let one = run(&[600, 200], &[100, 100], &[450, 0], 900);
        let estimate = Estimate::of(&[&one], &machine).unwrap();
        // 1,000 ns on two equal CPUs; the chain is 450 ns without its waits.
        assert_eq!((estimate.work_ns, estimate.path_ns), (500, Some(450)));
        assert_eq!(estimate.least_ns(), 500);
        let other = run(&[400, 400], &[50, 50], &[0, 700], 0);
        let both = Estimate::of(&[&one, &other], &machine).unwrap();
        assert_eq!((both.work_ns, both.path_ns), (450, Some(450)));
        assert_eq!(Estimate::of(&[], &machine), None);
    }

    /// Threads that share cores do less in the same time, so their time is less work: 2,000 ns beside a sibling that
    /// computes are 1,000 ns on each of two threads, and less than 2,000 ns on a thread alone.
    #[test]
    fn time_on_shared_cores_is_less_work() {
        let machine = Machine::builtin("xeon-e5645-2x6x2").unwrap();
        let cpus = machine.topology.nr_cpus();
        let share = machine.interference.smt_share_pct;
        assert!(share < 100);
        let one_cpu = |ns: u64| {
            let mut times = vec![0; cpus];
            times[0] = ns;
            times
        };
        let even = run(&vec![1_000; cpus], &vec![0; cpus], &one_cpu(1_000), 0);
        let estimate = Estimate::of(&[&even], &machine).unwrap();
        assert_eq!(estimate.work_ns, 1_000);
        // The chain may have had its core to itself.
        assert_eq!(estimate.path_ns, Some(u64::from(share) * 10));
    }

    /// A chain on a slow core takes less time on a fast one.
    #[test]
    fn a_chain_on_a_slow_core_is_shorter_on_a_fast_one() {
        let machine = Machine::builtin("phone").unwrap();
        let traits = machine.core_traits();
        let cpus = traits.len();
        let slow = (0..cpus).min_by_key(|cpu| traits[*cpu].capacity).unwrap();
        assert_eq!(traits[slow].capacity, 160);
        let mut times = vec![0; cpus];
        times[slow] = 10_240;
        let one = run(&times, &vec![0; cpus], &times, 500);
        let estimate = Estimate::of(&[&one], &machine).unwrap();
        assert_eq!(estimate.path_ns, Some(1_600));
    }
}
