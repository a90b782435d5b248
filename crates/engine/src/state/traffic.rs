//! The memory traffic of applications: the CPUs of a bus share it.

use std::cell::Cell;

use schedlab_machine::Machine;
use schedlab_trace::CpuId;

use crate::state::costs::FULL_SPEED;

/// Demand is counted in 1/1,024 of a line per millisecond.
const PARTS: u64 = 1 << 10;

/// The applications' demand for one bus.
struct BusDemand {
    /// Its CPUs.
    cpus: Box<[CpuId]>,
    /// Of all of them.
    sum: Cell<u64>,
    /// The most that one CPU gets; `u64::MAX` while each gets what it asks for.
    level: Cell<u64>,
}

/// The applications' demand for all buses.
pub(crate) struct Traffic {
    /// The demand that a bus can satisfy.
    capacity: u64,
    /// By CPU.
    bus_of: Box<[u32]>,
    /// By CPU; 0 while it computes nothing.
    demand_of: Box<[Cell<u64>]>,
    buses: Box<[BusDemand]>,
}

impl Traffic {
    pub fn new(machine: &Machine) -> Traffic {
        let cpus = || (0..machine.topology.nr_cpus() as u32).map(CpuId);
        let bus_of: Box<[u32]> = cpus().map(|cpu| machine.bus_of(cpu)).collect();
        let nr_buses = bus_of.iter().max().map_or(0, |&last| last + 1);
        Traffic {
            capacity: machine.bus_lines_per_ms(PARTS).unwrap_or(u64::MAX),
            demand_of: cpus().map(|_| Cell::new(0)).collect(),
            buses: (0..nr_buses)
                .map(|bus| BusDemand {
                    cpus: cpus().filter(|cpu| bus_of[cpu.index()] == bus).collect(),
                    sum: Cell::new(0),
                    level: Cell::new(u64::MAX),
                })
                .collect(),
            bus_of,
        }
    }

    /// Notes that `cpu` runs an application at `speed` from now on that asks for so many lines per millisecond at full
    /// speed. Returns whether the shares of other CPUs change by that.
    pub fn ask(&self, cpu: CpuId, lines_per_ms: u32, speed: u32) -> bool {
        let bus = self.bus(cpu);
        let demand = u64::from(lines_per_ms) * PARTS * u64::from(speed) / u64::from(FULL_SPEED);
        let before = self.demand_of[cpu.index()].replace(demand);
        bus.sum.set(bus.sum.get() - before + demand);
        let level = self.level(bus);
        bus.level.replace(level) != level
    }

    /// Max-min fairness, as an arbiter that serves the CPUs in turn gives it: a CPU that asks for less than the level gets
    /// all that it asks for, and the others get the level.
    fn level(&self, bus: &BusDemand) -> u64 {
        if bus.sum.get() <= self.capacity {
            return u64::MAX;
        }
        let mut level = 0;
        loop {
            let demands = bus.cpus.iter().map(|&cpu| self.demand(cpu));
            let (served, hungry) =
                demands.fold((0, 0), |(served, hungry), demand| match demand <= level {
                    true => (served + demand, hungry),
                    false => (served, hungry + 1),
                });
            // More is asked for than there is, so somebody is hungry.
            let next = self.capacity.saturating_sub(served) / hungry.max(1);
            if next <= level {
                return next.max(1);
            }
            level = next;
        }
    }

    /// Returns the CPUs of the bus of `cpu`.
    pub fn neighbours(&self, cpu: CpuId) -> &[CpuId] {
        &self.bus(cpu).cpus
    }

    /// Returns the speed of an application on `cpu` that would have `speed` if the bus were its own.
    pub fn limited(&self, cpu: CpuId, speed: u32) -> u32 {
        let (demand, level) = (self.demand(cpu), self.bus(cpu).level.get());
        if demand <= level {
            return speed;
        }
        // Less than `speed`, so it fits; an application that is slowed down without end goes on.
        ((u128::from(speed) * u128::from(level) / u128::from(demand)) as u32).max(1)
    }

    /// Returns the bus of `cpu`, and the share of it that applications take, in units of 1/2^32. The arbiter serves
    /// the CPUs in turn, so the kernel's accesses of one CPU get at least as much as the applications of each other.
    pub fn load(&self, cpu: CpuId) -> (u32, u32) {
        let bus = self.bus(cpu);
        let asking = bus.cpus.iter().filter(|&&cpu| self.demand(cpu) > 0).count() as u128;
        let all = 1u128 << 32;
        let asked = all * u128::from(bus.sum.get()) / u128::from(self.capacity.max(1));
        let load = asked.min(all * asking / (asking + 1));
        (self.bus_of[cpu.index()], load as u32)
    }

    fn demand(&self, cpu: CpuId) -> u64 {
        self.demand_of[cpu.index()].get()
    }

    fn bus(&self, cpu: CpuId) -> &BusDemand {
        &self.buses[self.bus_of[cpu.index()] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four CPUs on a bus that carries 1,000 lines a millisecond.
    fn traffic(demands: [u32; 4]) -> Traffic {
        let mut machine = Machine::builtin("laptop").unwrap().with_cpus(4).unwrap();
        machine.memory.bus_ps = 1_000_000;
        let traffic = Traffic::new(&machine);
        for (cpu, demand) in demands.into_iter().enumerate() {
            traffic.ask(CpuId(cpu as u32), demand, FULL_SPEED);
        }
        traffic
    }

    fn speeds(demands: [u32; 4]) -> [u32; 4] {
        let traffic = traffic(demands);
        [0, 1, 2, 3].map(|cpu| traffic.limited(CpuId(cpu), 1_200))
    }

    #[test]
    fn the_bus_is_shared_fairly() {
        // It carries all of it.
        assert_eq!(speeds([0, 0, 0, 0]), [1_200; 4]);
        assert_eq!(speeds([400, 300, 200, 100]), [1_200; 4]);
        // Half of what is asked for.
        assert_eq!(speeds([500; 4]), [600; 4]);
        assert_eq!(speeds([1_000, 1_000, 0, 0]), [600, 600, 1_200, 1_200]);
        // 100 are served; the others share 900.
        assert_eq!(speeds([100, 600, 600, 600]), [1_200, 600, 600, 600]);
        // 100 and 200 are served; 700 are left for two.
        assert_eq!(speeds([100, 200, 700, 1_400]), [1_200, 1_200, 600, 300]);
    }

    #[test]
    fn only_a_change_of_shares_is_one() {
        let traffic = traffic([500, 0, 0, 0]);
        let ask = |cpu, lines| traffic.ask(CpuId(cpu), lines, FULL_SPEED);
        assert!(!ask(1, 500));
        assert!(ask(2, 500));
        assert!(ask(2, 0));
        assert!(!ask(1, 0));
    }

    #[test]
    fn a_slow_cpu_asks_for_less() {
        let traffic = traffic([500, 0, 0, 0]);
        // Half of 1,000: the bus carries both, and neither is slower than it is by itself.
        assert!(!traffic.ask(CpuId(1), 1_000, FULL_SPEED / 2));
        assert_eq!(traffic.limited(CpuId(1), 600), 600);
        // Half of 2,000: what is left of the bus is half of that again.
        assert!(traffic.ask(CpuId(1), 2_000, FULL_SPEED / 2));
        assert_eq!(traffic.limited(CpuId(0), 600), 600);
        assert_eq!(traffic.limited(CpuId(1), 600), 300);
    }

    #[test]
    fn the_kernel_has_its_turn_on_a_full_bus() {
        let of = |demands| f64::from(traffic(demands).load(CpuId(0)).1) / 2f64.powi(32);
        assert_eq!(of([0; 4]), 0.0);
        assert_eq!(of([250, 0, 0, 0]), 0.25);
        assert!((of([900, 0, 0, 0]) - 0.5).abs() < 1e-9);
        assert!((of([900; 4]) - 0.8).abs() < 1e-9);
    }

    #[test]
    fn a_bus_without_limit_slows_nobody_down() {
        let mut machine = Machine::builtin("laptop").unwrap();
        machine.memory.bus_ps = 0;
        let traffic = Traffic::new(&machine);
        assert!((0..16).all(|cpu| !traffic.ask(CpuId(cpu), u32::MAX, FULL_SPEED)));
        assert_eq!(traffic.limited(CpuId(3), 600), 600);
    }
}
