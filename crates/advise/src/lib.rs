//! Advises which scheduler suits a program on a machine: how much better it is and how sure that is, why, how much any
//! scheduler could win, and what was not modelled. It parses no arguments and writes no files.
#![forbid(unsafe_code)]

mod advice;
mod ask;
mod bounds;
mod contest;
mod page;
mod path;
mod runs;
mod words;

pub use advice::{Advice, Features, Finalist, Recording, Tried, Verdict};
pub use ask::{AdviseError, Ask, Limit, advise};
pub use bounds::Bounds;
pub use page::page;
pub use path::{Decomposed, Decomposer, OfName, Times};
pub use runs::Progress;
pub use words::text;
