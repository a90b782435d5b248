//! The names of the measures: every policy has all of them.

use schedlab_report::RunResult;
use schedlab_report::catalogue::{self, CACHE_PREFIXES};
use schedlab_sim::{Scheduler, SimSpec};
use schedlab_workload::list;

/// The measures that any run of any policy must have. They exclude events that may not occur in a run: if no task
/// waited, waits have no mean.
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
    "schedule.memory_wait_ns_mean",
    "schedule.memory_wait_pct",
    "cache.misses_first",
    "cache.misses_coherence",
    "cache.misses_absent",
    "cache.bus_memory",
    "cache.bus_transfers",
    "cache.bus_invalidations",
];

fn run(scheduler: &str, machine: &str) -> RunResult {
    run_workload("chat:rooms=3,users=6,messages=10", scheduler, machine, 8)
}

fn run_workload(workload: &str, scheduler: &str, machine: &str, cpus: usize) -> RunResult {
    let spec = SimSpec {
        cpus: Some(cpus),
        check: true,
        ..SimSpec::new(workload, Scheduler::parse(scheduler), machine)
    };
    schedlab_sim::run(&spec, None)
        .unwrap_or_else(|error| panic!("{workload}, {scheduler}: {error}"))
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
            // Causes and structures divide the whole, and what is waited for memory is a part of schedule().
            let sum = |names: &[&str]| -> f64 {
                names
                    .iter()
                    .map(|name| measures.number(name).unwrap())
                    .sum()
            };
            let by_structure = |of: &str| -> f64 {
                let names = CACHE_PREFIXES.map(|prefix| format!("{prefix}.{of}"));
                sum(&names.each_ref().map(String::as_str))
            };
            let misses = sum(&["cache.misses"]);
            assert!(misses > 0.0, "{}", policy.name);
            assert_eq!(
                misses,
                sum(&[
                    "cache.misses_first",
                    "cache.misses_coherence",
                    "cache.misses_absent"
                ])
            );
            assert_eq!(misses, by_structure("misses"));
            let bus = sum(&["cache.bus_transactions"]);
            assert_eq!(
                bus,
                sum(&[
                    "cache.bus_memory",
                    "cache.bus_transfers",
                    "cache.bus_invalidations"
                ])
            );
            assert_eq!(bus, by_structure("bus_transactions"));
            let share = sum(&["schedule.memory_wait_pct"]);
            assert!(0.0 < share && share < 100.0, "{}: {share}", policy.name);
            // If some task waited, waits have a mean and a maximum.
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

/// A short run of every workload, with the options that make it count what it can count.
const WORKLOADS: &[&str] = &[
    "blackscholes:iterations=2,threads=3,phase=1ms,serial=1ms",
    "bodytrack:iterations=2,threads=3,serial=1ms",
    "canneal:iterations=2,threads=3,phase=1ms,serial=1ms",
    "chat:rooms=1,users=3,messages=5,turns=room,io_yield=before",
    "chat:rooms=2,users=6,messages=20,server=queue,read=all,queue=1,lock_yields=0",
    "cpu:tasks=3,run=1ms,sleep=1ms,duration=20ms",
    "facesim:iterations=1,threads=3,phases=2,serial=1ms",
    "ferret:iterations=3,threads=2,serial=1ms",
    "fluidanimate:iterations=1,threads=3,serial=1ms",
    "hackbench:groups=1,fds=2,loops=3",
    "httpd:workers=3,connections=3,duration=20ms",
    "kbuild:jobs=2,units=3",
    "lat_ctx:rounds=3",
    "pipe:loops=5",
    "reflex:active_sets=2,rounds=20",
    "schbench:workers=2,duration=50ms",
    "service:clients=3,think=1ms,duration=50ms",
    "service:rate=1000/s,duration=50ms",
    "faults:threads=2,pages=512",
    "stream:threads=2,size=1M,passes=2",
    "streamcluster:iterations=3,threads=3,phase=1ms,serial=1ms",
    "tpch:queries=1,operators=1,batches=20",
    "volano:rooms=1,users=3,messages=5,runs=2",
];

/// Every name in results has an explanation, and every explained name exists.
#[test]
fn every_measure_of_every_workload_is_documented() {
    let mut seen = std::collections::BTreeSet::new();
    for text in WORKLOADS {
        let name = text.split(':').next().unwrap();
        let model = list().iter().find(|model| model.name == name).unwrap();
        let result = run_workload(text, "dss", "netfinity-8500r", 2);
        assert!(result.is_done(), "{text}: {:?}", result.message);
        for (measure, _) in result.measures.iter() {
            let own = model.measures.iter().find(|own| own.is_called(measure));
            assert!(
                own.is_some() || catalogue::find(measure).is_some(),
                "{text}: nothing explains {measure}"
            );
            seen.extend(own.map(|own| (name, own.name)));
        }
        // No task ends after the run.
        let ns = |name| result.measures.number(name).unwrap();
        assert!(ns("makespan_ns") <= ns("end_ns"), "{text}");
        // The score's own name is not taken by another measure.
        let score = match text.contains("rate=") {
            true => "response_ns_p99",
            false => model.measures[0].name,
        };
        assert_eq!(
            result.measures.number(score),
            result.measures.number("score"),
            "{text}"
        );
    }
    for model in list() {
        for own in model.measures {
            // Volano's server always has queues, but its wait at a full one needs more messages than a short run.
            let measured = seen.contains(&(model.name, own.name))
                || model.name == "volano" && seen.contains(&("chat", own.name));
            assert!(measured, "{}: no run has {}", model.name, own.name);
        }
    }
}

#[test]
fn every_measure_of_an_rt_app_file_is_documented() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../workloads/rt-app/periodic.json"
    );
    let result = run_workload(file, "dss", "netfinity-8500r", 2);
    assert!(result.is_done(), "{:?}", result.message);
    let own = schedlab_workload::rtapp::MEASURES;
    let mut seen = 0;
    for (measure, _) in result.measures.iter() {
        let is_own = own.iter().any(|own| own.is_called(measure));
        assert!(is_own || catalogue::find(measure).is_some(), "{measure}");
        seen += usize::from(measure.starts_with("rtapp."));
    }
    assert!(seen > 10, "{seen}");
}
