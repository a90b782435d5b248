//! Cost arithmetic. The numbers come from the machine profile alone.

use schedlab_trace::{CpuId, CpuMode, MigrationReach, Recorder};

use crate::contract::policy::Policy;
use crate::paths::kernel::Kernel;
use crate::state::costs::{FULL_SPEED, wall_ns};
use crate::state::cpu::{Cpu, Wait};
use crate::state::event_queue::CpuEvent;
use crate::state::task::Task;

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// How fast `c` runs `p`, of [`FULL_SPEED`]. In the kernel only the core's capacity counts.
    #[inline(always)]
    pub(crate) fn speed(&self, c: &Cpu, p: &Task, is_user: bool) -> u32 {
        if c.is_plain {
            return FULL_SPEED;
        }
        self.own_speed(c, p, is_user)
    }

    #[inline(never)]
    fn own_speed(&self, c: &Cpu, p: &Task, is_user: bool) -> u32 {
        let traits = &self.costs.traits[c.id.index()];
        if !is_user {
            return traits.capacity * 100;
        }
        let running = |&&s: &&CpuId| self.cpu(s).curr().is_some();
        let others = c.slowed_by.iter().filter(running).count();
        let speed = traits.capacity * traits.share_pct(others);
        if !self.costs.watches_llcs {
            return speed;
        }
        let llc = self.machine.topology.cpu(c.id).llc;
        let (more, of) = self.machine.overflow(p.memory.working_set_bytes, llc);
        // No more than `speed`, so it fits; a task that is slowed down without end goes on.
        ((u128::from(speed) * of / (of + more)) as u32).max(1)
    }

    /// How fast `c` runs `p` in user mode beside what runs now, its bus included.
    pub(crate) fn user_speed(&self, c: &Cpu, p: &Task) -> u32 {
        let speed = self.speed(c, p, true);
        match p.program.traffic() {
            0 => speed,
            _ => self.traffic.limited(c.id, speed),
        }
    }

    /// `c` has begun or ceased to run tasks: its siblings go on at another speed.
    pub(crate) fn sibling_speed_changed(&self, c: &Cpu) {
        let (mut asked, mut shares_change) = (false, false);
        for &sibling in &c.slowed_by {
            let s = self.cpu(sibling);
            if s.segment.asks_bus()
                && let Some(task) = s.curr()
            {
                let p = self.task(task);
                let speed = self.speed(s, p, true);
                asked = true;
                shares_change |= self.traffic.ask(sibling, p.program.traffic(), speed);
            }
        }
        self.speeds_changed(c, &c.slowed_by);
        if asked {
            self.bus_demand_changed(c, shares_change);
        }
    }

    /// These CPUs, but for `c`, go on at another speed.
    fn speeds_changed(&self, c: &Cpu, others: &[CpuId]) {
        for &other in others {
            let s = self.cpu(other);
            let Some(task) = s.curr() else { continue };
            if other == c.id || s.wait() != Wait::Segment || s.mode() != CpuMode::User {
                continue;
            }
            let p = self.task(task);
            s.this.now.set(s.this.now.get().max(c.this.now.get()));
            self.account_segment(s, p);
            let speed = self.user_speed(s, p);
            s.segment.change_speed(speed);
            let end = s.this.now.get() + wall_ns(p.program.left_ns(), speed);
            self.set_event(other, CpuEvent::Main, end);
        }
    }

    /// `c` asks its bus for the traffic of the application that it runs, or for none any more: others on the bus get
    /// another share. Nothing earlier may be pending.
    pub(crate) fn ask_bus(&self, c: &Cpu, p: &Task, is_user: bool) {
        c.segment.ask_bus(is_user);
        let (lines_per_ms, speed) = match is_user {
            true => (p.program.traffic(), self.speed(c, p, true)),
            false => (0, 0),
        };
        let shares_change = self.traffic.ask(c.id, lines_per_ms, speed);
        self.bus_demand_changed(c, shares_change);
    }

    /// Applications ask more or less of the bus of `c`.
    fn bus_demand_changed(&self, c: &Cpu, shares_change: bool) {
        let (bus, load) = self.traffic.load(c.id);
        self.shared.cache.borrow_mut().load_bus(bus, load);
        if shares_change {
            self.speeds_changed(c, self.traffic.neighbours(c.id));
        }
    }

    /// Returns the cost of refilling the caches for a task that now runs on `to` and last ran on `from`.
    pub(crate) fn refill_ns(&self, p: &Task, from: CpuId, to: CpuId) -> u64 {
        let costs = &self.machine.interference;
        let topology = &self.machine.topology;
        let reach = topology.reach(from, to);
        let per_kb = match reach {
            MigrationReach::Smt => return 0,
            MigrationReach::Llc => costs.refill_llc_ns_per_kb,
            MigrationReach::Node => self.refill_from_memory_ns_per_kb(to),
            MigrationReach::Remote => {
                let [from, to] = [from, to].map(|cpu| topology.cpu(cpu).node);
                self.remote_refill_ns_per_kb(from, to)
            }
        };
        // No more than the caches that are new to it hold has to come again: the private one, and the last-level cache
        // where the profile gives its size.
        let own = self.costs.traits[to.index()].cache_bytes;
        let holds = match reach {
            MigrationReach::Smt | MigrationReach::Llc => own,
            MigrationReach::Node | MigrationReach::Remote => {
                let llc = topology.llc_bytes(topology.cpu(to).llc);
                llc.unwrap_or(0).max(own)
            }
        };
        p.memory.working_set_bytes.min(holds) * per_kb / 1_024
    }

    /// Returns the cost of a KB of memory for the node of `cpu`, which may lie on another node.
    fn refill_from_memory_ns_per_kb(&self, cpu: CpuId) -> u64 {
        let topology = &self.machine.topology;
        let node = topology.cpu(cpu).node;
        match topology.memory_of(node) {
            memory if memory == node => self.machine.interference.refill_node_ns_per_kb,
            memory => self.remote_refill_ns_per_kb(memory, node),
        }
    }

    /// Returns the cost of a KB between two nodes: the profile has the number of the nearest ones, and others take longer as
    /// they are farther by the firmware's table, which compares latencies (ACPI, System Locality Information Table).
    fn remote_refill_ns_per_kb(&self, from: u32, to: u32) -> u64 {
        let topology = &self.machine.topology;
        let ns = self.machine.interference.refill_remote_ns_per_kb;
        ns * u64::from(topology.distance(from, to)) / u64::from(topology.distance_min())
    }
}
