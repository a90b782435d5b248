//! Describes a workload's own measure.

/// A measure of a workload's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measure {
    /// Name in results; `THREAD` in it stands for the name of a thread.
    pub name: &'static str,
    /// Unit; empty for a plain count.
    pub unit: &'static str,
    /// Definition.
    pub meaning: &'static str,
}

impl Measure {
    /// The placeholder for a thread's name.
    pub const THREAD: &str = "THREAD";

    /// Returns whether results call it `name`.
    pub fn is_called(&self, name: &str) -> bool {
        match self.name.split_once(Self::THREAD) {
            None => self.name == name,
            Some((before, after)) => name
                .strip_prefix(before)
                .and_then(|rest| rest.strip_suffix(after))
                .is_some_and(|thread| !thread.is_empty()),
        }
    }
}

/// Makes a measure; a constant expression for tables.
pub(crate) const fn measure(
    name: &'static str,
    unit: &'static str,
    meaning: &'static str,
) -> Measure {
    Measure {
        name,
        unit,
        meaning,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_threads_are_anything() {
        let plain = measure("a.b", "", "");
        assert!(plain.is_called("a.b") && !plain.is_called("a.c"));
        let of_thread = measure("rtapp.THREAD.run_ns_sum", "ns", "");
        assert!(of_thread.is_called("rtapp.thread0-0.run_ns_sum"));
        assert!(of_thread.is_called("rtapp.a.b.run_ns_sum"));
        assert!(!of_thread.is_called("rtapp..run_ns_sum"));
        assert!(!of_thread.is_called("rtapp.a.run_ns"));
    }
}
