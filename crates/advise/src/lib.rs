//! Advises which scheduler suits a program on a machine: how much better it is and how sure that is, why, about how
//! much could be won, and what was not modelled. It parses no arguments and writes no files.
#![forbid(unsafe_code)]

mod advice;
mod ask;
mod contest;
mod estimate;
mod page;
mod runs;
mod words;

pub use advice::{
    Advice, Confirmed, Features, Finalist, NoEstimate, Recording, Round, Tried, Verdict,
};
pub use ask::{AdviseError, Ask, Limit, advise};
pub use estimate::Estimate;
pub use page::page;
pub use runs::Progress;
pub use words::text;
