//! What a run consists of: data that knows no executor.

pub(crate) mod dsq;
pub(crate) mod event_queue;
pub(crate) mod object;
pub(crate) mod sorted;
pub(crate) mod task;
