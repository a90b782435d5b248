//! Says why runs of a workload differ: where the time of each went, who waited behind whom, what locks cost; as sentences, as text
//! and as a page with a timeline. It runs nothing and writes no files.
#![forbid(unsafe_code)]

mod differs;
mod page;
mod path;
mod text;
mod watched;
mod words;

pub use differs::Differs;
pub use page::{BYTES_MAX, page};
pub use path::{Decomposed, Decomposer, Lock, OfName, SLOTS, Times};
pub use text::text;
pub use watched::{Behind, Longest, Slow, Watched};
pub use words::{
    Shown, against, changes, critical_path, is_same, parts, percent, scores, sentences, time, waits,
};
