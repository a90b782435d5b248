//! Reads the log of a virtual machine's kernel during a command.

/// The lines that the guest hands over, as `grep -E` takes it.
pub(crate) const COLLECTED: &str = "WARNING:|BUG:|Oops|INFO: task|rcu_.*stall|lockup|LOCKUP|possible recursive locking|possible circular locking|suspicious RCU usage|sched_ext:";

/// Returns the lines of a [log](crate::vm::Output::kernel_log) that must not occur under any policy: warnings,
/// faults, and findings of the kernel's watchdogs (lockups, stalls of RCU, hung tasks, lockdep). Messages of
/// sched_ext about policies are not among them.
pub fn complaints(log: &str) -> Vec<&str> {
    log.lines()
        .filter(|line| !line.trim().is_empty() && !line.contains("sched_ext:"))
        .collect()
}

/// Returns all [`complaints`] as one error, if there are any.
pub fn no_complaints(log: &str) -> Result<(), String> {
    match complaints(log) {
        none if none.is_empty() => Ok(()),
        some => Err(format!("the kernel complains:\n{}", some.join("\n"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_what_sched_ext_tells_are_complaints() {
        let bad = [
            "[   12.345678] WARNING: CPU: 1 PID: 77 at kernel/rcu/tree_stall.h:1234 rcu_check_gp_start_stall+0x1/0x2",
            "[   12.345678] BUG: kernel NULL pointer dereference, address: 0000000000000008",
            "[   12.345678] BUG: scheduling while atomic: cpu/77/0x00000002",
            "[   12.345678] Oops: int3: 0000 [#1] SMP NOPTI",
            "[   12.345678] BUG: KASAN: slab-use-after-free in enqueue_task_scx+0x1/0x2",
            "[   40.000000] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "[   40.000000] rcu: INFO: rcu_preempt self-detected stall on CPU",
            "[   40.000000] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [cpu:77]",
            "[   40.000000] watchdog: CPU1: Watchdog detected hard LOCKUP on cpu 1",
            "[   40.000000] BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 31s!",
            "[   40.000000] WARNING: possible circular locking dependency detected",
            "[  140.000000] INFO: task kworker/0:1:12 blocked for more than 120 seconds.",
        ];
        let log = format!(
            "{}\n\n{}\n{}\n",
            bad[..3].join("\n"),
            [
                "[   10.000000] sched_ext: BPF scheduler \"fifo\" enabled",
                "[   11.000000] sched_ext: fifo: BPF scheduler disabled (runnable task stall)",
            ]
            .join("\n"),
            bad[3..].join("\n"),
        );
        assert_eq!(complaints(&log), bad);
        assert!(complaints("").is_empty());
        assert_eq!(no_complaints(""), Ok(()));
        let told = no_complaints(bad[0]).unwrap_err();
        assert_eq!(told, format!("the kernel complains:\n{}", bad[0]));
    }
}
