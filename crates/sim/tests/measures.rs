//! The names of the measures: every policy has all of them.

use schedlab_sim::{Scheduler, SimSpec};

/// What any run of any policy must tell. Not among them are the measures of what may not happen in a run: a wait
/// where nobody waited has no mean.
const ALWAYS: &[&str] = &[
    "score",
    "score_unit",
    "score_better",
    "throughput_per_s",
    "makespan_ns",
    "schedule.calls",
    "schedule.time_ns_mean",
    "schedule.cycles_mean",
    "schedule.examined_mean",
    "schedule.recalculations",
    "schedule.picked_elsewhere",
    "lock.runqueue.acquisitions",
    "lock.runqueue.contention_pct",
    "lock.runqueue.nf_contention_pct",
    "lock.runqueue.hold_ns_mean",
    "lock.runqueue.hold_ns_max",
    "runqueue.len_mean",
    "runqueue.len_max",
    "switches.voluntary",
    "switches.involuntary",
    "migrations.smt",
    "migrations.llc",
    "migrations.node",
    "ipis",
    "wakeup.latency_ns_p50",
    "wakeup.latency_ns_p90",
    "wakeup.latency_ns_p99",
    "wakeup.latency_ns_p99_9",
    "wakeup.latency_ns_max",
    "cpu.idle_pct",
    "sched.share_of_kernel_pct",
    "sched.share_of_all_pct",
    "fairness.jain",
    "cache.misses",
    "cache.bus_transactions",
    "cache.bus_transactions_per_work",
];

fn run(scheduler: &str, machine: &str) -> schedlab_report::RunResult {
    let spec = SimSpec {
        workload: "chat:rooms=3,users=6,messages=10".to_owned(),
        scheduler: Scheduler::parse(scheduler),
        machine: machine.to_owned(),
        cpus: Some(8),
        task_layout: None,
        seed: 1,
        rt_policy: false,
        kernel: SimSpec::KERNEL.to_owned(),
        time_limit_s: 100,
        check: true,
    };
    schedlab_sim::run(&spec, ()).unwrap_or_else(|error| panic!("{scheduler}: {error}"))
}

#[test]
fn every_policy_has_every_measure() {
    for policy in schedlab_policies::builtin() {
        for machine in ["netfinity-8500r", "server-2x96x2"] {
            let result = run(policy.name, machine);
            assert!(result.is_done(), "{}: {}", policy.name, result.exit);
            let measures = &result.measures;
            for name in ALWAYS {
                assert!(measures.get(name).is_some(), "{}: no {name}", policy.name);
            }
            // 3 rooms of 6 users who hear 10 messages of each of the 5 others.
            assert_eq!(measures.number("work"), Some(900.0));
            let per_work = measures.number("cache.bus_transactions").unwrap() / 900.0;
            assert_eq!(
                measures.number("cache.bus_transactions_per_work"),
                Some(per_work)
            );
            // Where somebody waited, waits have a mean and a maximum.
            let contended = measures.number("lock.runqueue.contention_pct").unwrap() > 0.0;
            let failed_only = measures.number("lock.runqueue.nf_contention_pct") == Some(0.0);
            if contended && !failed_only {
                for name in ["lock.runqueue.wait_ns_mean", "lock.runqueue.wait_ns_max"] {
                    assert!(measures.get(name).is_some(), "{}: no {name}", policy.name);
                }
            }
            let shares: f64 = [
                "cpu.idle_pct",
                "cpu.user_pct",
                "cpu.kernel_pct",
                "sched.share_of_all_pct",
            ]
            .iter()
            .map(|name| measures.number(name).unwrap())
            .sum();
            assert!((shares - 100.0).abs() < 1e-6, "{}: {shares}", policy.name);
            // A CPU that was never needed has no line.
            assert!((1..=8).contains(&result.series.len()), "{}", policy.name);
        }
    }
}
