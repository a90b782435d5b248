//! How fast the program could be at best, whatever the scheduler.

use schedlab_machine::Machine;
use serde::Serialize;

use crate::path::Decomposed;

/// Lower bounds of the makespan. Times in ns.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Bounds {
    /// All CPUs busy all the time with the least work that was seen: own code and calls, without any scheduler.
    pub work_ns: u64,
    /// The shortest critical path that was seen, without its waits for a CPU; absent if none was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_ns: Option<u64>,
}

impl Bounds {
    /// Of runs of the same program. The bound is as good as these runs: another scheduler may lead to less work, or order
    /// the program's tasks so that another path is critical.
    pub fn of(runs: &[&Decomposed], machine: &Machine) -> Option<Bounds> {
        let work = runs.iter().map(|run| work_ns(run, machine));
        let path = runs
            .iter()
            .filter_map(|run| run.path.as_ref())
            .map(|path| path.total_ns() - path.waits_ns());
        Some(Bounds {
            work_ns: work.min()?,
            path_ns: path.min(),
        })
    }

    /// The greater one: no run can be shorter.
    pub fn least_ns(&self) -> u64 {
        self.work_ns.max(self.path_ns.unwrap_or(0))
    }
}

/// The time that all CPUs together need for a run's work. Own code is at least as much work as it takes on a thread
/// whose siblings all compute; calls run at the core's full speed.
fn work_ns(run: &Decomposed, machine: &Machine) -> u64 {
    let traits = machine.core_traits();
    let capacity = |cpu: usize| f64::from(traits[cpu].capacity);
    let slowest = |cpu: usize| {
        let others = traits[cpu].shares_pct.len() - 1;
        let others = if machine
            .topology
            .smt(schedlab_trace::CpuId(cpu as u32))
            .len()
            > 1
        {
            others
        } else {
            0
        };
        capacity(cpu) * f64::from(traits[cpu].share_pct(others)) / 100.0
    };
    let part = |times: &[u64], speed: &dyn Fn(usize) -> f64| {
        let work = times.iter().enumerate().take(traits.len());
        let work: f64 = work.map(|(cpu, ns)| *ns as f64 * speed(cpu)).sum();
        work / (0..traits.len()).map(speed).sum::<f64>()
    };
    (part(&run.user_ns, &slowest) + part(&run.kernel_ns, &capacity)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Times;

    fn run(user_ns: &[u64], kernel_ns: &[u64], running_ns: u64, woken_ns: u64) -> Decomposed {
        Decomposed {
            user_ns: user_ns.to_vec(),
            kernel_ns: kernel_ns.to_vec(),
            path: Some(Times {
                running_ns,
                woken_ns,
                ..Times::default()
            }),
            ..Decomposed::default()
        }
    }

    #[test]
    fn a_bound_is_the_work_of_all_cpus_or_the_longest_chain() {
        let machine = Machine::builtin("laptop").unwrap().with_cpus(2).unwrap();
        let one = run(&[600, 200], &[100, 100], 450, 900);
        let bounds = Bounds::of(&[&one], &machine).unwrap();
        // 1,000 ns on two equal CPUs; the chain is 450 ns without its waits.
        assert_eq!((bounds.work_ns, bounds.path_ns), (500, Some(450)));
        assert_eq!(bounds.least_ns(), 500);
        let other = run(&[400, 400], &[50, 50], 700, 0);
        let both = Bounds::of(&[&one, &other], &machine).unwrap();
        assert_eq!((both.work_ns, both.path_ns), (450, Some(450)));
        assert_eq!(Bounds::of(&[], &machine), None);
    }

    /// Threads that share cores do less in the same time, so their time is less work.
    #[test]
    fn time_on_shared_cores_is_no_more_work_than_it_may_be() {
        let machine = Machine::builtin("xeon-e5645-2x6x2").unwrap();
        let cpus = machine.topology.nr_cpus();
        let even = run(&vec![1_000; cpus], &vec![0; cpus], 0, 0);
        let bounds = Bounds::of(&[&even], &machine).unwrap();
        assert_eq!(bounds.work_ns, 1_000);
    }
}
