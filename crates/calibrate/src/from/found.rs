//! The facts of a machine that a file holds, in one form for all kinds of files.

/// One CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FoundCpu {
    /// The number that its kernel gives it.
    pub number: usize,
    /// Its core, cache and node by whatever names them there; equal ones are the same.
    pub core: String,
    pub llc: String,
    pub node: usize,
    /// Its last private cache in bytes.
    pub cache_bytes: Option<u64>,
    /// Its capacity, of whatever is the highest.
    pub capacity: Option<u64>,
}

/// The last private cache of the first CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Private {
    pub bytes: u64,
    /// 0 if unknown.
    pub ways: u32,
    /// 0 if unknown.
    pub line_bytes: u32,
}

/// The machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Found {
    /// The origin, for source texts: `lstopo's XML`.
    pub told_by: &'static str,
    /// In the order of their numbers.
    pub cpus: Vec<FoundCpu>,
    /// Bytes of last-level caches by their names.
    pub llc_bytes: Vec<(String, u64)>,
    pub private: Option<Private>,
    /// The numbers of all nodes, ascending: of those with CPUs and of others.
    pub nodes: Vec<usize>,
    /// By place in `nodes`.
    pub distances: Option<Vec<Vec<u32>>>,
    /// Of these it is known that they have no memory.
    pub nodes_without_memory: Vec<usize>,
    pub processor: Option<String>,
    /// The origin of capacities, if not the kernel's own numbers.
    pub capacity_source: Option<&'static str>,
    /// Facts that were missing or strange.
    pub notes: Vec<String>,
}
