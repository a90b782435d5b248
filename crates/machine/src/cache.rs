//! A set-associative cache per CPU with line ownership, for the lines that scheduling touches.
//!
//! Addresses are modelled ones, handed out by a deterministic allocator; host addresses never get here.

use schedlab_trace::CpuId;

/// What one access did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// What it cost.
    pub cost_ps: u64,
    /// Whether it missed the CPU's cache.
    pub miss: bool,
}

/// Counts of one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// Accesses.
    pub accesses: u64,
    /// Accesses that missed the CPU's cache.
    pub misses: u64,
    /// Transactions on the bus (misses, transfers, invalidations).
    pub bus_transactions: u64,
}

/// The caches of all CPUs.
#[derive(Debug)]
pub struct CacheModel {}

impl CacheModel {
    /// Empty caches for `machine`.
    pub fn new(_machine: &crate::Machine) -> Self {
        CacheModel {}
    }

    /// `cpu` accesses the line that holds `address`.
    pub fn touch(&mut self, _cpu: CpuId, _address: u64, _write: bool) -> Access {
        Access {
            cost_ps: 0,
            miss: false,
        }
    }
}
