//! Charts as SVG, and pages as one HTML file that needs no network and no script.
//!
//! Everything here is a pure function of its input: the same chart gives the same bytes.
#![forbid(unsafe_code)]

mod chart;
mod page;
mod tree;

pub use chart::{Axis, Chart, Mark, Point, Scale, Series};
pub use page::{Page, Section, Table};
pub use tree::{Node, Tree, Verdict};
