//! Says why a source is no policy.

use std::fmt;

/// Why a source is no policy that can be simulated: one or more lines for people.
#[derive(Debug, PartialEq, Eq)]
pub struct Diagnostics {
    /// Each `file:line: in function(): what`, as far as that is known.
    pub lines: Vec<String>,
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("\n"))
    }
}

impl std::error::Error for Diagnostics {}
