//! Says why runs of a workload differ: where the time of each went, who waited behind whom, what locks cost; as sentences, as text
//! and as a page with a timeline. It runs nothing and writes no files.
#![forbid(unsafe_code)]

mod differs;
mod page;
mod path;
#[cfg(test)]
mod story;
mod text;
mod watched;
mod words;

pub use differs::Differs;
pub use page::{BYTES_MAX, page, waiting_over_time};
pub use path::{Decomposed, Decomposer, Lock, OfName, SLOTS, Times};
pub use text::text;
pub use watched::{Behind, Longest, Runner, Slow, Watched};
pub use words::{
    Shown, against, changes, critical_path, cut, is_same, parts_beside, percent, scores, sentences,
    time, waits,
};
