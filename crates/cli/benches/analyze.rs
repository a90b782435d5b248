//! How long `schedlab analyze` takes over a whole sweep: the feature tree's 5,832 schedulers on seven workloads, and
//! how much memory. `cargo bench -p schedlab --bench analyze`
//!
//! The rows are made up: a few features and one pair of them decide, and noise covers the rest.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use schedlab_sim::{Scheduler, SimSpec};
use schedlab_sweep::{Asked, Definition, MEASURES, Options, Row, Shard, Space, SweepError};

/// An analysis that takes longer is too slow to use.
const AIM: Duration = Duration::from_secs(10);
const REPEAT: usize = 3;
const WORKLOADS: [&str; 7] = [
    "blackscholes",
    "bodytrack",
    "canneal",
    "facesim",
    "ferret",
    "fluidanimate",
    "streamcluster",
];

fn definition() -> Result<Definition, SweepError> {
    Definition::new(Asked {
        workloads: WORKLOADS.map(str::to_owned).to_vec(),
        space: Space::of("feature", &[])?,
        sample: None,
        repeat: 1,
        run: SimSpec::new("", Scheduler::parse("feature"), "xeon-e5645-2x6x2"),
        seed: 1,
        live: None,
        each: false,
        budget: None,
    })
}

/// Between 0 and 1, the same for the same number (Steele, Lea, Flood: SplitMix64).
fn noise(number: u64) -> f64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z >> 11) as f64 / (1_u64 << 53) as f64
}

fn row(definition: &Definition, job: u64) -> Row {
    let spec = definition.spec(job);
    let (place, workload, _) = definition.parts(job);
    let choices = definition.space.choices(definition.points()[place]);
    let named = definition.space.features.iter().zip(&choices);
    let seconds = 10.0
        + choices[0] as f64
        + choices[workload % choices.len()] as f64
        + f64::from(u8::from(choices[1] == 0 && choices[2] == 0))
        + noise(job);
    Row {
        job,
        workload: definition.workloads[workload].clone(),
        scheduler: spec.scheduler.to_string(),
        choices: named
            .map(|(feature, &choice)| feature.alternatives[choice].clone())
            .collect(),
        seed: spec.seed,
        exit: schedlab_report::Exit::Done,
        message: None,
        score_unit: Some("s".into()),
        score_better: Some("lower".into()),
        values: (0..MEASURES.len())
            .map(|index| Some(seconds * (index + 1) as f64))
            .collect(),
    }
}

/// One call of the program: how long, and the greatest memory of all calls so far in KiB.
fn analyze(folder: &Path) -> (Duration, i64) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    command.arg("analyze").arg(folder).arg("--html");
    command.arg(folder.join("page.html")).arg("--json");
    command.arg(folder.join("all.json"));
    command.stdout(std::process::Stdio::null());
    let started = Instant::now();
    let status = command.status().expect("the program starts");
    let taken = started.elapsed();
    assert!(status.success(), "{status}");
    (taken, peak_kib(libc::RUSAGE_CHILDREN))
}

/// The greatest resident memory so far, in KiB.
fn peak_kib(whose: libc::c_int) -> i64 {
    // SAFETY: an all-zero rusage is valid, and only written to.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a plain system call; `usage` outlives it.
    unsafe { libc::getrusage(whose, &mut usage) };
    usage.ru_maxrss
}

fn main() {
    let definition = definition().expect("the feature tree can be swept");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let started = Instant::now();
    let options = Options {
        threads: std::num::NonZeroUsize::MIN,
        keep_after: Duration::from_secs(3_600),
    };
    schedlab_sweep::run_by(
        &definition,
        folder.path(),
        Shard::WHOLE,
        options,
        &AtomicBool::new(false),
        &|run| {
            let jobs = definition.jobs_of(run);
            Ok::<Vec<Row>, SweepError>(jobs.map(|job| row(&definition, job)).collect())
        },
        |_| {},
    )
    .expect("a temporary folder can be written");
    println!(
        "{} rows made up and kept in {:.2} s, {} MiB",
        definition.jobs(),
        started.elapsed().as_secs_f64(),
        peak_kib(libc::RUSAGE_SELF) / 1_024
    );
    let mut slow = false;
    for _ in 0..REPEAT {
        let (taken, kib) = analyze(folder.path());
        slow |= taken > AIM;
        println!(
            "schedlab analyze: {:.2} s, {} MiB",
            taken.as_secs_f64(),
            kib / 1_024
        );
    }
    if slow {
        println!("more than {} s", AIM.as_secs());
        std::process::exit(1);
    }
}
