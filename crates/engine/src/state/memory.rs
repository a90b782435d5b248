//! What is kept of a task's memory.

use schedlab_trace::CpuId;

/// What of a task's buffer is in a cache.
#[derive(Clone, Copy, Default)]
pub(crate) struct Buffer {
    /// The CPU whose cache it is.
    pub cpu: Option<CpuId>,
    /// What had come into that cache when the buffer was last touched.
    pub filled_bytes: u64,
    /// Lines of the buffer that are there.
    pub lines: u64,
}
