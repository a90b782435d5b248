//! State of memory: what a task goes over, and the part of it that a CPU's cache has.

use std::cell::{Cell, RefCell};

use schedlab_trace::CpuId;

/// A CPU's part.
#[derive(Default)]
pub(crate) struct Cache {
    /// Bytes of buffers that came into it so far.
    filled_bytes: Cell<u64>,
}

/// The part of a task's buffer that is in a cache.
#[derive(Clone, Copy, Default)]
struct Buffer {
    /// The CPU whose cache it is.
    cpu: Option<CpuId>,
    /// The amount that had come into that cache when the buffer was last touched.
    filled_bytes: u64,
    /// Lines of the buffer that are there.
    lines: u64,
}

/// A touch of a buffer.
pub(crate) struct Visit {
    pub buffer: u32,
    /// The part of the buffer that it goes over.
    pub bytes: u64,
    /// Lines that it goes to, one after another, …
    pub visits: u64,
    /// … and how many of them are different ones, of all that the buffer's touches go to.
    pub lines: u64,
}

/// A task's part.
pub(crate) struct Memory {
    /// The memory that its computation goes over again and again.
    pub working_set_bytes: u64,
    /// The CPU whose cache has that.
    working_set_cpu: Cell<Option<CpuId>>,
    /// Of each buffer that it has touched, where it lies.
    buffers: RefCell<Vec<Buffer>>,
}

impl Memory {
    pub fn new(working_set_bytes: u64) -> Memory {
        Memory {
            working_set_bytes,
            working_set_cpu: Cell::new(None),
            buffers: RefCell::default(),
        }
    }

    /// Brings the working set into the cache of `cpu`. Returns where it was.
    #[inline(always)]
    pub fn come_to(&self, cpu: CpuId) -> Option<CpuId> {
        self.working_set_cpu.replace(Some(cpu))
    }

    /// Forgets the working set: another one is in no cache yet.
    pub fn renew(&self) {
        self.working_set_cpu.set(None);
    }

    /// Carries out a visit on `cpu`, whose `cache` holds `cache_bytes`. Returns how many lines are not there; those come.
    ///
    /// The lines there are gone when the task was elsewhere, or when as much came into the cache since then as it holds. A
    /// buffer that does not fit misses each time: its beginning is gone when its end is there.
    pub fn visit(&self, cpu: CpuId, cache: &Cache, cache_bytes: u64, visit: &Visit) -> u64 {
        let mut buffers = self.buffers.borrow_mut();
        let number = visit.buffer as usize;
        if buffers.len() <= number {
            buffers.resize(number + 1, Buffer::default());
        }
        let buffer = &mut buffers[number];
        let others = cache.filled_bytes.get().saturating_sub(buffer.filled_bytes);
        if buffer.cpu != Some(cpu) || others + visit.bytes > cache_bytes {
            buffer.lines = 0;
        }
        buffer.cpu = Some(cpu);
        if visit.bytes > cache_bytes {
            return visit.visits;
        }
        let misses = visit.visits.min(visit.lines.saturating_sub(buffer.lines));
        buffer.lines += misses;
        misses
    }

    /// Notes that so many bytes of a buffer have come into `cache`.
    pub fn fill(&self, buffer: u32, cache: &Cache, bytes: u64) {
        cache.filled_bytes.set(cache.filled_bytes.get() + bytes);
        if let Some(buffer) = self.buffers.borrow_mut().get_mut(buffer as usize) {
            buffer.filled_bytes = cache.filled_bytes.get();
        }
    }
}
