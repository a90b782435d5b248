//! Charts as SVG, and pages as one HTML file that needs no network. A page with a timeline has a script that shows parts of it;
//! all else needs none.
//!
//! Everything here is a pure function of its input: the same chart gives the same bytes.
#![forbid(unsafe_code)]

mod chart;
mod page;
mod timeline;
mod tree;

pub use chart::{Axis, Chart, Mark, Point, Scale, Series};
pub use page::{Page, Section, Table};
pub use timeline::{Kind, Lane, Mark as LaneMark, Stretch, Timeline};
pub use tree::{Node, Tree, Verdict};
