//! Which built-in profile a machine is nearest to.

use schedlab_machine::{CAPACITY_SCALE, Machine, Topology};

/// The facts of a machine that are compared.
struct Shape {
    cpus: f64,
    threads: f64,
    llcs: f64,
    nodes: f64,
    is_hybrid: bool,
}

impl Shape {
    fn of(topology: &Topology, is_hybrid: bool) -> Shape {
        let cpus = topology.nr_cpus() as f64;
        Shape {
            cpus,
            threads: cpus / f64::from(topology.nr_cores()),
            llcs: f64::from(topology.nr_llcs()),
            nodes: f64::from(topology.nr_nodes_with_cpus()),
            is_hybrid,
        }
    }

    /// In doublings: of the CPUs, hardware threads a core, last-level caches and nodes, all alike; a machine whose cores
    /// differ is two doublings from one whose cores do not.
    fn distance(&self, other: &Shape) -> f64 {
        let doublings = |a: f64, b: f64| (a / b).log2().abs();
        let kinds = if self.is_hybrid == other.is_hybrid {
            0.0
        } else {
            2.0
        };
        doublings(self.cpus, other.cpus)
            + doublings(self.threads, other.threads)
            + doublings(self.llcs, other.llcs)
            + doublings(self.nodes, other.nodes)
            + kinds
    }
}

/// The rule in words, for the profile's head.
pub(super) const RULE: &str = "of the profiles of kernels with sched_ext the one whose numbers of CPUs, hardware threads a \
     core, last-level caches and nodes are the fewest doublings away, where cores that differ among each other count as two; \
     among equals the first by name";

/// The nearest profile by [`RULE`].
pub(super) fn nearest(topology: &Topology, is_hybrid: bool) -> Machine {
    let shape = Shape::of(topology, is_hybrid);
    let profiles = Machine::builtin_names().filter_map(|name| Machine::builtin(name).ok());
    let recent =
        profiles.filter(|machine| machine.sched_ext.rq_locks && machine.sched_ext.watchdog);
    let far = |machine: &Machine| {
        let traits = machine.core_traits();
        let differ = traits.iter().any(|one| one.capacity != CAPACITY_SCALE);
        Shape::of(&machine.topology, differ).distance(&shape)
    };
    recent
        .map(|machine| (far(&machine), machine))
        .reduce(|best, one| if one.0 < best.0 { one } else { best })
        .expect("there are profiles of kernels with sched_ext")
        .1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_recent_profile_is_nearest_to_itself() {
        for name in Machine::builtin_names() {
            let machine = Machine::builtin(name).unwrap();
            if machine.sched_ext.rq_locks && machine.sched_ext.watchdog {
                let traits = machine.core_traits();
                let differ = traits.iter().any(|one| one.capacity != CAPACITY_SCALE);
                let found = nearest(&machine.topology, differ);
                assert_eq!(found.name, name);
            }
        }
    }

    #[test]
    fn machines_are_near_their_like() {
        let of = |nodes, llcs, cores, threads| {
            nearest(&Topology::new(nodes, llcs, cores, threads), false).name
        };
        assert_eq!(of(1, 1, 4, 2), "laptop");
        assert_eq!(of(2, 12, 8, 2), "server-2x96x2");
        assert_eq!(of(1, 1, 80, 1), "arm-server-64");
        assert_eq!(
            nearest(&Topology::new(1, 2, 5, 1), true).name,
            "hybrid-laptop"
        );
    }
}
