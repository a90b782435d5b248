//! The modelled address space: where the things that scheduling touches lie.
//!
//! No host address ever reaches the cache model. Every region starts at a multiple of the largest
//! way of any cache, so which lines collide depends on the layout inside a region alone.
//!
//! | region | from | holds |
//! |---|---|---|
//! | [`GLOBALS`] | 256 MiB | the policy's global variables, at their offset in the object |
//! | [`RUNQUEUES`] | 512 MiB | the kernel's per-CPU run queues ([`runqueue`]) |
//! | [`DSQS`] | 1 GiB | dispatch queues ([`dsq`]) |
//! | [`LOCKS`] | 2 GiB | locks of the kernel outside of the structures above ([`kernel_lock`]) |
//! | [`ARENA`] | 4 GiB | the policy's arena, at the offset in it (up to 4 GiB) |
//! | [`TASKS`] | 16 GiB | the kernel's task structures ([`TaskAddresses`]) |
//!
//! Everything lies below [`END`], so that a line number fits 32 bits.

use schedlab_trace::{CpuId, TaskId};

use crate::Machine;

/// The policy's global variables.
pub const GLOBALS: u64 = 0x1000_0000;
/// The kernel's per-CPU run queues.
pub const RUNQUEUES: u64 = 0x2000_0000;
/// Dispatch queues.
pub const DSQS: u64 = 0x4000_0000;
/// Locks of the kernel that stand alone.
pub const LOCKS: u64 = 0x8000_0000;
/// The policy's arena.
pub const ARENA: u64 = 0x1_0000_0000;
/// The kernel's task structures.
pub const TASKS: u64 = 0x4_0000_0000;
/// No address is at or above this one: even the numbers of 16-byte lines, the shortest, fit 32 bits.
pub const END: u64 = 0xF_F000_0000;

/// The kind of data at an address, by its region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Structure {
    /// The policy's global variables, locks among them included.
    Globals,
    /// The kernel's per-CPU run queues with their locks.
    RunQueue,
    /// Dispatch queues with their locks.
    Dsq,
    /// Locks of the kernel that stand alone: the locks of pipes, sockets and other objects of the workload.
    Lock,
    /// The policy's arena: its queues, task contexts and the locks among them.
    Arena,
    /// The kernel's task structures.
    Task,
}

impl Structure {
    /// All of them, in the order of their discriminants and of their addresses.
    pub const ALL: [Structure; 6] = [
        Structure::Globals,
        Structure::RunQueue,
        Structure::Dsq,
        Structure::Lock,
        Structure::Arena,
        Structure::Task,
    ];

    /// Name in measures.
    pub const fn name(self) -> &'static str {
        match self {
            Structure::Globals => "globals",
            Structure::RunQueue => "rq",
            Structure::Dsq => "dsq",
            Structure::Lock => "lock",
            Structure::Arena => "arena",
            Structure::Task => "task",
        }
    }

    /// Returns the kind of data at `address`.
    #[inline]
    pub fn of(address: u64) -> Structure {
        match address {
            TASKS.. => Structure::Task,
            ARENA.. => Structure::Arena,
            LOCKS.. => Structure::Lock,
            DSQS.. => Structure::Dsq,
            RUNQUEUES.. => Structure::RunQueue,
            _ => Structure::Globals,
        }
    }
}

/// Distance of the run queues: a page and a line, so that one CPU's look at all of them does not
/// meet in one set.
const RUNQUEUE_STRIDE: u64 = 4_096 + 64;

/// Objects that calls of tasks share ([`crate::shared`]): the upper half of [`LOCKS`], with as many locks below.
pub const SHARED: u64 = LOCKS + (ARENA - LOCKS) / 2;
/// The end of those objects. The last place is a lock's, as [`kernel_lock`] counts.
pub const SHARED_END: u64 = ARENA - ALONE;

/// A dispatch queue or a lock has a line (of the longest kind, 128 bytes) to itself.
pub const ALONE: u64 = 128;

/// Returns the run queue of `cpu`; its lock is the first word.
pub fn runqueue(cpu: CpuId) -> u64 {
    RUNQUEUES + u64::from(cpu.0) * RUNQUEUE_STRIDE
}

/// Returns the `index`-th dispatch queue; its lock is the first word.
pub fn dsq(index: u32) -> u64 {
    DSQS + u64::from(index) % ((LOCKS - DSQS) / ALONE) * ALONE
}

/// Returns the `index`-th lock of the kernel that stands alone.
pub fn kernel_lock(index: u32) -> u64 {
    LOCKS + u64::from(index) % ((ARENA - LOCKS) / ALONE) * ALONE
}

/// Where task structures lie: the layout of the profile with its numbers prepared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskAddresses {
    stride: u64,
    offset: u64,
    way_shift: u32,
    line_bytes: u64,
    colours: u64,
    /// So many structures fit.
    places: u32,
}

/// Bytes from one entry to the next where the scheduling fields are stored separately: whole lines,
/// so that no two tasks share one.
fn separate_stride(machine: &Machine) -> u64 {
    u64::from(machine.task_layout.examine_bytes)
        .next_multiple_of(u64::from(machine.memory.line_bytes))
}

impl TaskAddresses {
    /// Returns the addresses on `machine`.
    pub fn new(machine: &Machine) -> Self {
        let (memory, layout) = (&machine.memory, &machine.task_layout);
        let (stride, offset, colours) = if layout.separate {
            (separate_stride(machine), 0, 1)
        } else {
            (
                layout.stride_bytes.into(),
                layout.offset_bytes.into(),
                layout.colours.into(),
            )
        };
        TaskAddresses {
            stride,
            offset,
            // A way is a power of two: the profile's reader saw to it.
            way_shift: (memory.cache_bytes / u64::from(memory.ways)).trailing_zeros(),
            line_bytes: memory.line_bytes.into(),
            colours,
            // Fields lie within the stride whatever their colour: the profile's reader saw to that, too.
            places: u32::try_from((END - TASKS) / stride).unwrap_or(u32::MAX),
        }
    }

    /// Returns the scheduling fields of `task`.
    ///
    /// Model: beyond as many tasks as fit below [`END`] (5.3 million of 9,600 bytes), two share a place.
    #[inline(always)]
    pub fn of(&self, task: TaskId) -> u64 {
        // Far cheaper than a division at each look at a task.
        let place = if task.0 < self.places {
            task.0
        } else {
            task.0 % self.places
        };
        let block = TASKS + u64::from(place) * self.stride;
        block + self.offset + self.colour_shift(block)
    }

    /// By how many bytes the structure in `block` is shifted: the address bits just above the index
    /// of the cache choose the line (Yamamura, Hirai, Sato, Yamamoto, Naruse, Kumon: *Speeding up
    /// kernel scheduler by reducing cache misses*, FREENIX 2002, section 3).
    #[inline(always)]
    fn colour_shift(&self, block: u64) -> u64 {
        // Each look at a task comes here, and most layouts need no division.
        if self.colours == 1 {
            return 0;
        }
        (block >> self.way_shift) % self.colours * self.line_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(cache_bytes: u64, ways: u32, colours: u32) -> TaskAddresses {
        let mut machine = Machine::builtin("ppro-200x4").unwrap();
        machine.memory.cache_bytes = cache_bytes;
        machine.memory.ways = ways;
        machine.task_layout.colours = colours;
        TaskAddresses::new(&machine)
    }

    #[test]
    fn colours_come_from_the_address_bits_above_the_cache_index() {
        let four = addresses(1 << 20, 4, 4);
        for (block, shift) in [
            (0xC010_0000, 0x00),
            (0xC014_0000, 0x20),
            (0xC018_0000, 0x40),
            (0xC01C_0000, 0x60),
            (0xC020_0000, 0x00),
            (0xC014_2000, 0x20),
            (0xC010_2000, 0x00),
        ] {
            assert_eq!(four.colour_shift(block), shift, "{block:#x}");
        }
        assert_eq!(addresses(1 << 20, 4, 1).colour_shift(0xC014_0000), 0);
    }

    #[test]
    fn tasks_are_a_stride_apart_and_the_fields_at_their_offset() {
        let plain = addresses(512 << 10, 4, 1);
        assert_eq!(plain.of(TaskId(0)), TASKS + 0x20);
        assert_eq!(plain.of(TaskId(3)), TASKS + 3 * 8_192 + 0x20);
    }

    #[test]
    fn a_structure_is_known_by_its_region() {
        let machine = Machine::builtin("ppro-200x4").unwrap();
        let task = TaskAddresses::new(&machine).of(TaskId(3));
        for (address, structure) in [
            (GLOBALS, Structure::Globals),
            (RUNQUEUES - 1, Structure::Globals),
            (runqueue(CpuId(0)), Structure::RunQueue),
            (runqueue(CpuId(8_191)), Structure::RunQueue),
            (dsq(0), Structure::Dsq),
            (dsq(u32::MAX), Structure::Dsq),
            (kernel_lock(0), Structure::Lock),
            (kernel_lock(u32::MAX), Structure::Lock),
            (ARENA, Structure::Arena),
            (TASKS - 1, Structure::Arena),
            (task, Structure::Task),
        ] {
            assert_eq!(Structure::of(address), structure, "{address:#x}");
        }
        for (index, structure) in Structure::ALL.into_iter().enumerate() {
            assert_eq!(structure as usize, index);
        }
    }

    #[test]
    fn the_largest_system_fits_below_the_end() {
        for name in Machine::builtin_names() {
            let machine = Machine::builtin(name).unwrap();
            let last = TaskAddresses::new(&machine).of(TaskId(1_000_000));
            assert!(last + 4_096 < END, "{name}: {last:#x}");
        }
        assert!(runqueue(CpuId(8_191)) < DSQS);
        assert!(dsq(u32::MAX) < LOCKS && kernel_lock(u32::MAX) < ARENA);
    }

    /// As many tasks as a task number can say: beyond those that fit, two share a place.
    #[test]
    fn every_task_lies_in_the_modelled_space() {
        for name in Machine::builtin_names() {
            for layout in ["plain", "coloured:2", "separate"] {
                let machine = Machine::builtin(name).unwrap();
                let machine = machine.with_layout(layout.parse().unwrap()).unwrap();
                let bytes = u64::from(machine.task_layout.examine_bytes);
                let addresses = TaskAddresses::new(&machine);
                let places = addresses.places;
                assert!(places > 1_000_000, "{name}, {layout}: {places}");
                for task in [0, places - 1, places, 6_900_000, u32::MAX] {
                    let at = addresses.of(TaskId(task));
                    let lies_there = TASKS <= at && at + bytes <= END;
                    assert!(lies_there, "{name}, {layout}, task {task}: {at:#x}");
                }
                for task in [0, 7] {
                    let again = addresses.of(TaskId(places + task));
                    assert_eq!(again, addresses.of(TaskId(task)), "{name}, {layout}");
                }
            }
        }
    }
}
