//! How often the kernel has called a policy.

use std::fs;

use libbpf_rs::ProgramType;
use libbpf_rs::query::ProgInfoIter;

/// Makes the kernel count the calls of BPF programs.
pub fn count() -> Result<(), String> {
    let file = "/proc/sys/kernel/bpf_stats_enabled";
    fs::write(file, "1").map_err(|error| format!("{file}: {error}"))
}

/// Calls so far of `ops.dispatch()`, entered from schedule(), of whatever policy is loaded; 0 without one.
pub fn of_dispatch() -> u64 {
    ProgInfoIter::default()
        .filter(|program| program.ty == ProgramType::StructOps)
        // The kernel keeps 15 characters of a name.
        .filter(|program| program.name.to_string_lossy().contains("_disp"))
        .map(|program| program.run_cnt)
        .sum()
}
