//! How policies name queues, locks, timers and iterators.

/// A dispatch queue's 64-bit id, as policies give it (`SCX_DSQ_*` included).
pub type DsqId = u64;

/// A lock of the policy, numbered by the policy's side in the order of first use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PolicyLock(pub u32);

/// A `bpf_timer`, numbered in the order of its initialisation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TimerId(pub u32);

/// A DSQ iterator, numbered by the virtual kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IterId(pub u32);
