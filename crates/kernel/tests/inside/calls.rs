//! How often the kernel has called a policy.

use std::collections::BTreeMap;
use std::fs;

use libbpf_rs::ProgramType;
use libbpf_rs::query::ProgInfoIter;

/// Makes the kernel count the calls of BPF programs.
pub fn count() -> Result<(), String> {
    let file = "/proc/sys/kernel/bpf_stats_enabled";
    fs::write(file, "1").map_err(|error| format!("{file}: {error}"))
}

/// Counts the calls so far of `ops.dispatch()`, entered from schedule(), by program.
///
/// The kernel frees the programs of an unloaded policy some time later, so a sum over all of them may fall.
pub fn of_dispatch() -> BTreeMap<u32, u64> {
    ProgInfoIter::default()
        .filter(|program| program.ty == ProgramType::StructOps)
        // The kernel keeps 15 characters of a name.
        .filter(|program| program.name.to_string_lossy().contains("_disp"))
        .map(|program| (program.id, program.run_cnt))
        .collect()
}

/// Counts the calls of `ops.dispatch()` since `before`, an earlier [`of_dispatch`].
pub fn of_dispatch_since(before: &BTreeMap<u32, u64>) -> u64 {
    of_dispatch()
        .into_iter()
        .map(|(id, calls)| calls - before.get(&id).copied().unwrap_or(0))
        .sum()
}
