//! Compares built-in policies as native builds and as objects for BPF, which the same simulator runs.
//!
//! `cargo bench -p schedlab-kernel --bench objects`, a part of `make bench-decisions`, prints the host's times, and writes the simulated
//! ones, which are the same on every machine, into docs/object-cost.md. `-- --prices` only writes.

#[path = "../tests/objects/profile.rs"]
mod profile;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use schedlab_kernel::bpf_policy::POLICIES;
use schedlab_sim::{Scheduler, SimSpec};

const MACHINE: &str = "laptop";

/// Waiting tasks of the simulated prices.
const WAITING: [u32; 2] = [4, 256];

/// Pairs of runs that are timed one after another.
const PAIRS: usize = 9;

fn main() {
    let objects: Vec<(&str, Scheduler, Scheduler)> = POLICIES
        .iter()
        .map(|policy| {
            let name = format!("{}.bpf.o", policy.name);
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
            std::fs::write(&path, policy.object()).expect("a temporary file");
            let object = Scheduler::plain(path.display().to_string());
            (policy.name, Scheduler::plain(policy.name), object)
        })
        .collect();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = include_str!("objects/page.md.in")
        .replace("PRICES\n", &prices(&objects))
        .replace("CANDIDATE\n", &candidate(&objects, &docs));
    std::fs::write(docs.join("object-cost.md"), page).expect("docs/ can be written");
    if std::env::args().any(|argument| argument == "--prices") {
        return;
    }
    println!("{}", translations(&objects));
    println!("{}", host(&objects));
}

/// The simulated time of schedule(), natively and as an object, and what makes the difference.
fn prices(objects: &[(&str, Scheduler, Scheduler)]) -> String {
    let plain = profile::with(MACHINE, "plain", &[]);
    let no_instructions = profile::with(MACHINE, "no-instructions", profile::NO_INSTRUCTIONS);
    let no_memory = profile::with(MACHINE, "no-memory", profile::NO_MEMORY);
    let mut table = String::from(
        "| policy | waiting | native ns | object ns | object / native | instructions ns | more loads and stores ns | rest ns |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (name, native, object) in objects {
        for waiting in WAITING {
            let of = |scheduler: &Scheduler, machine: &PathBuf| choice(scheduler, machine, waiting);
            let (n, o) = (of(native, &plain), of(object, &plain));
            let instructions = o - of(object, &no_instructions);
            let memory = (o - of(object, &no_memory)) - (n - of(native, &no_memory));
            let rest = o - n - instructions - memory;
            writeln!(
                table,
                "| `{name}` | {waiting} | {n:.0} | {o:.0} | {:.2} | {instructions:.0} | {memory:.0} | {rest:.0} |",
                o / n
            )
            .expect("a string grows");
        }
    }
    table
}

/// The price of a further candidate under `dss`, which looks at all of them: simulated, and measured natively (docs/decision-cost.md).
fn candidate(objects: &[(&str, Scheduler, Scheduler)], docs: &Path) -> String {
    let plain = profile::with(MACHINE, "plain", &[]);
    let dss = objects.iter().find(|(name, ..)| *name == "dss");
    let (_, native, object) = dss.expect("it is built in");
    let [few, many] = WAITING;
    let each = |few_ns: f64, many_ns: f64| (many_ns - few_ns) / f64::from(many - few);
    let simulated = |scheduler| {
        each(
            choice(scheduler, &plain, few),
            choice(scheduler, &plain, many),
        )
    };
    let costs =
        std::fs::read_to_string(docs.join("decision-cost/costs.csv")).expect("a page's data");
    let measured = |tasks: u32| -> f64 {
        let row = costs
            .lines()
            .find_map(|line| line.strip_prefix(&format!("dss,{tasks},")));
        let ns = row
            .and_then(|row| row.split(',').next())
            .expect("a row of dss");
        ns.parse().expect("nanoseconds")
    };
    let (native, object) = (simulated(native), simulated(object));
    let measured = each(measured(few), measured(many));
    format!(
        "Under `dss` a further candidate costs {native:.1} ns natively and {object:.1} ns as an object. On the AMD EPYC of [The cost of a choice](decision-cost.md)\n\
         it took {measured:.2} ns.\n"
    )
}

/// The mean simulated time of schedule() in ns, where a task blocks and `waiting` others are runnable. The result is the difference of two
/// runs, the shorter of which is the beginning of the other: the beginning, in which tasks still come, does not count.
fn choice(scheduler: &Scheduler, machine: &Path, waiting: u32) -> f64 {
    let [first, whole] = [1_000, 2_000].map(|ms| {
        let workload = format!(
            "cpu:tasks={},run=1ms,sleep=1us,jitter=0,offset=0,duration={ms}ms",
            waiting + 1
        );
        let spec = SimSpec {
            cpus: Some(1),
            ..SimSpec::new(workload, scheduler.clone(), machine.display().to_string())
        };
        let result = schedlab_sim::run(&spec, None).unwrap_or_else(|error| panic!("{error}"));
        assert!(result.is_done(), "{scheduler}: {:?}", result.message);
        let number = |name| result.measures.number(name).expect("every run has it");
        let calls = number("schedule.calls");
        [
            calls,
            calls * number("schedule.time_ns_mean"),
            calls * number("runqueue.len_mean"),
        ]
    });
    let [calls, ns, length] = [0, 1, 2].map(|at| whole[at] - first[at]);
    let length = length / calls;
    assert!(
        (length / f64::from(waiting + 1) - 1.0).abs() < 0.01,
        "{scheduler}: {waiting} are to wait, and the run queue has {length}"
    );
    ns / calls
}

/// How long the first run of a process takes longer than the next ones, which share its code.
fn translations(objects: &[(&str, Scheduler, Scheduler)]) -> String {
    let mut table = String::from("| policy | translation ms | a further run ms |\n|---|---|---|\n");
    for (name, _, object) in objects {
        let timed = || {
            let spec = SimSpec {
                cpus: Some(1),
                ..SimSpec::new("cpu:tasks=1,duration=1ms", object.clone(), MACHINE)
            };
            let begin = Instant::now();
            let result = schedlab_sim::run(&spec, None).unwrap_or_else(|error| panic!("{error}"));
            assert!(result.is_done(), "{object}: {:?}", result.message);
            begin.elapsed().as_secs_f64() * 1e3
        };
        let first = timed();
        let mut further: Vec<f64> = (0..21).map(|_| timed()).collect();
        further.sort_by(f64::total_cmp);
        let further = further[further.len() / 2];
        writeln!(
            table,
            "| `{name}` | {:.1} | {further:.2} |",
            first - further
        )
        .expect("a string grows");
    }
    table
}

/// The host's time for a simulated switch, natively and as an object: pairs of runs beside each other, and the median of their ratios.
fn host(objects: &[(&str, Scheduler, Scheduler)]) -> String {
    let mut table = String::from(
        "| policy | native ns a switch | object ns a switch | object / native |\n|---|---|---|---|\n",
    );
    for (name, native, object) in objects {
        let mut pairs: Vec<(f64, f64)> = Vec::new();
        for _ in 0..PAIRS {
            pairs.push((a_switch(native), a_switch(object)));
        }
        pairs.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
        let (native, object) = pairs[PAIRS / 2];
        writeln!(
            table,
            "| `{name}` | {native:.0} | {object:.0} | {:.2} |",
            object / native
        )
        .expect("a string grows");
    }
    table
}

/// Nanoseconds of the host for a simulated switch: the difference of two runs.
fn a_switch(scheduler: &Scheduler) -> f64 {
    let [short, long] = [10, 40].map(|ms| {
        let workload =
            format!("cpu:tasks=400,run=50us,sleep=200us,jitter=0,offset=0,duration={ms}ms");
        let spec = SimSpec {
            cpus: Some(8),
            ..SimSpec::new(workload, scheduler.clone(), "server-2x96x2")
        };
        let begin = Instant::now();
        let result = schedlab_sim::run(&spec, None).unwrap_or_else(|error| panic!("{error}"));
        let took: Duration = begin.elapsed();
        assert!(result.is_done(), "{scheduler}: {:?}", result.message);
        let switches = result.measures.number("switches.total");
        (
            took.as_secs_f64() * 1e9,
            switches.expect("every run has it"),
        )
    });
    (long.0 - short.0) / (long.1 - short.1)
}
