//! Computes the cost of going over memory for a task.

use schedlab_trace::Recorder;
use schedlab_workload::{Access, Touch};

use crate::contract::policy::Policy;
use crate::paths::kernel::Kernel;
use crate::state::cpu::Cpu;
use crate::state::memory::Visit;
use crate::state::task::Task;

/// The cost of a touch on a machine.
#[derive(PartialEq, Eq, Debug)]
struct Way {
    /// Lines that are gone to, one after another.
    visits: u64,
    /// Different lines among all that the buffer's touches go to.
    lines: u64,
    /// Accesses of single bytes or pointers.
    accesses: u64,
}

fn way(touch: &Touch, line_bytes: u64) -> Way {
    let Touch {
        size_bytes, count, ..
    } = *touch;
    let visits = count.div_ceil(line_bytes);
    let lines = count.min(size_bytes).div_ceil(line_bytes);
    match touch.access {
        Access::Lines | Access::Fill => Way {
            visits,
            lines,
            accesses: 0,
        },
        Access::Read | Access::Write => Way {
            visits,
            lines,
            accesses: count,
        },
        Access::Chase {
            stride_bytes,
            random,
        } => {
            let apart = stride_bytes.min(line_bytes);
            let pointers = Touch::pointers(size_bytes, stride_bytes);
            // Neighbours within a line are visited one after another only where the order is theirs.
            let visits = match random {
                true => count,
                false => (count * apart).div_ceil(line_bytes),
            };
            Way {
                visits,
                lines: (pointers * apart).div_ceil(line_bytes),
                accesses: count,
            }
        }
    }
}

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// Returns the time that a touch takes on an idle machine, and the lines that cross the bus for it in a millisecond.
    ///
    /// The time is a hit for each line that is still in this CPU's cache, a miss for any other, and a
    /// cycle for each byte or pointer. Misses in order take `stream_ps`, as the CPU fetches lines ahead. A line that is
    /// written crosses the bus twice.
    ///
    /// Model: hits are hits of the last private cache, whatever a smaller one would hold, and misses go to memory.
    /// No other task has the lines. Computation beside it takes nothing from the cache.
    pub(crate) fn touch(&self, c: &Cpu, p: &Task, touch: Touch) -> (u64, u32) {
        let memory = &self.machine.memory;
        let line_bytes = u64::from(memory.line_bytes.max(1));
        let way = way(&touch, line_bytes);
        let visit = Visit {
            buffer: touch.buffer,
            bytes: touch.size_bytes.min(way.lines * line_bytes),
            visits: way.visits,
            lines: way.lines,
        };
        let misses = p.memory.visit(c.id, &c.memory, memory.cache_bytes, &visit);
        let filled = misses.min(way.lines) * line_bytes;
        p.memory.fill(touch.buffer, &c.memory, filled);
        let (miss_ps, crossings) = match touch.access {
            Access::Chase { random: true, .. } => (memory.miss_ps, 1),
            Access::Chase { .. } | Access::Read => (memory.stream_ps.unwrap_or(memory.miss_ps), 1),
            Access::Lines | Access::Fill | Access::Write => {
                (memory.stream_ps.unwrap_or(memory.miss_ps), 2)
            }
        };
        let lines_ps = (way.visits - misses) * memory.hit_ps + misses * miss_ps;
        let accesses_ps = way.accesses * 1_000_000 / u64::from(self.machine.clock_mhz.max(1));
        let ns = (lines_ps + accesses_ps).div_ceil(1_000);
        let traffic = match memory.bus_ps {
            0 => 0,
            _ => {
                let lines = u128::from(misses * crossings) * 1_000_000 / u128::from(ns.max(1));
                u32::try_from(lines).unwrap_or(u32::MAX)
            }
        };
        (ns, traffic)
    }
}
