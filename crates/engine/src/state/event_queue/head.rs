//! When an event is due, and on which CPU.

/// Bits of a CPU's number in a [`Head`].
pub(super) const CPU_BITS: u32 = 13;

/// When the next event is due, and on which CPU: one word, so that comparing it is one comparison.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Head(u64);

impl Default for Head {
    fn default() -> Self {
        Head::NEVER
    }
}

impl Head {
    /// Later than everything.
    pub const NEVER: Head = Head(u64::MAX);

    /// The last instant, after 26 days.
    pub const LAST: u64 = (1 << (64 - CPU_BITS)) - 2;

    /// An event due after [`Head::LAST`] counts as due then: no run lasts that long.
    #[inline]
    pub(super) fn new(time: u64, cpu: u32) -> Head {
        Head(time.min(Head::LAST) << CPU_BITS | u64::from(cpu))
    }

    /// The time in nanoseconds; of [`Head::NEVER`] one that no run gets to.
    #[inline]
    pub fn time(self) -> u64 {
        self.0 >> CPU_BITS
    }

    #[inline]
    pub fn cpu(self) -> u32 {
        (self.0 & ((1 << CPU_BITS) - 1)) as u32
    }
}
