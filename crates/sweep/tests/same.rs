//! Schedulers that differ in mute features alone: they have one run together, and it is each one's own.

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use schedlab_sim::{Scheduler, SimSpec};
use schedlab_sweep::{Asked, Definition, Options, Row, Shard, Space, read, run};

/// Two nodes, two threads a core: a task that is placed or balanced elsewhere shows.
const MACHINE: &str = "xeon-e5645-2x6x2";

fn definition(fixed: &[(&str, &str)], workloads: &[&str]) -> Definition {
    let fixed: Vec<(String, String)> = fixed
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    Definition::new(Asked {
        workloads: workloads.iter().map(|text| text.to_string()).collect(),
        space: Space::of("feature", &fixed).unwrap(),
        sample: None,
        repeat: 1,
        run: SimSpec::new("", Scheduler::parse("feature"), MACHINE),
        seed: 3,
        live: None,
        each: false,
        budget: None,
    })
    .unwrap()
}

/// The measures, without the identity of the scheduler.
fn measured(row: &Row) -> Vec<Option<u64>> {
    assert!(row.is_done(), "{}: {:?}", row.scheduler, row.message);
    row.values
        .iter()
        .map(|value| value.map(f64::to_bits))
        .collect()
}

#[test]
fn mute_features_change_nothing() {
    // Long enough for the random balancer, and tasks that wake all the time.
    let workloads = [
        "hackbench:groups=1,fds=3,loops=30",
        "cpu:tasks=40,run=3ms,sleep=1ms,duration=1600ms",
    ];
    // A CPU whose threads have blocked is not without load, so that an idle one's imbalance counts.
    let fixed = [("election", "fifo"), ("metric", "nr_run_block")];
    let definition = definition(&fixed, &workloads);
    let space = &definition.space;
    let (mut alike, mut placements, mut executors) = (0, 0, 0);
    // All of them are 648 for each workload; every 7th meets every rule often.
    for point in (0..space.len()).step_by(7) {
        let first = space.same_as(point);
        for workload in 0..workloads.len() {
            let row = |point: u64| {
                let job = definition.job(usize::try_from(point).unwrap(), workload, 0);
                definition.row(job).unwrap()
            };
            let (own, other) = (row(point), row(first));
            if first != point {
                assert_eq!(measured(&own), measured(&other), "{}", own.scheduler);
                alike += 1;
                continue;
            }
            // The same comparison sees it where a feature is not mute.
            let mut choices = space.choices(point);
            let at = |name: &str| space.features.iter().position(|f| f.name == name).unwrap();
            for (name, seen) in [("placement", &mut placements), ("executor", &mut executors)] {
                let before = choices[at(name)];
                choices[at(name)] = 2;
                let changed = space.point(&choices);
                choices[at(name)] = before;
                if space.same_as(changed) == changed && changed != point {
                    *seen += u32::from(measured(&row(changed)) != measured(&own));
                }
            }
        }
    }
    assert!(alike > 40, "{alike}");
    assert!(placements > 5 && executors > 5, "{placements} {executors}");
}

#[test]
fn a_run_gives_the_rows_of_all_its_jobs() {
    let fixed = [
        ("election", "fifo"),
        ("slice", "split"),
        ("metric", "nr_run"),
        ("idle", "off"),
    ];
    let definition = definition(&fixed, &["hackbench:groups=1,fds=2,loops=5"]);
    // Never (1) or periodically (2 × 3 × 2), and placed (3) or not (1).
    assert_eq!(
        (definition.jobs(), definition.runs()),
        (3 * 2 * 3 * 2 * 3, 13 * 4)
    );
    let mut jobs: Vec<u64> = (0..definition.runs())
        .flat_map(|run| definition.jobs_of(run))
        .collect();
    jobs.sort_unstable();
    assert!(jobs.into_iter().eq(0..definition.jobs()));

    let options = Options {
        threads: NonZeroUsize::new(2).unwrap(),
        keep_after: Duration::from_secs(10),
    };
    let folder = tempfile::tempdir().unwrap();
    let mut simulated = 0;
    for index in 1..=3 {
        let shard = Shard { index, count: 3 };
        let never = AtomicBool::new(false);
        let summary = run(&definition, folder.path(), shard, options, &never, |_| ()).unwrap();
        assert_eq!(summary.new, summary.progress.jobs);
        simulated += summary.runs;
    }
    assert_eq!(simulated, definition.runs());
    let (_, rows) = read(folder.path()).unwrap();
    assert_eq!(rows.len() as u64, definition.jobs());
    for row in rows {
        assert_eq!(row, definition.row(row.job).unwrap());
    }
}
