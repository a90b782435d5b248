//! State of a task's memory.

use schedlab_trace::CpuId;

/// The part of a task's buffer that is in a cache.
#[derive(Clone, Copy, Default)]
pub(crate) struct Buffer {
    /// The CPU whose cache it is.
    pub cpu: Option<CpuId>,
    /// The amount that had come into that cache when the buffer was last touched.
    pub filled_bytes: u64,
    /// Lines of the buffer that are there.
    pub lines: u64,
}
