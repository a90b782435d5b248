//! Measures the cost of one choice, by policy and number of waiting tasks: nanoseconds and instructions of
//! `ops.dispatch()` compiled for this machine (`decisions/decision.c`), and the simulated time of schedule() in the
//! same situation. Writes `docs/decision-cost.md` with its data and pictures.
//!
//! `make bench-decisions`, or `cargo bench -p schedlab-sim --bench decisions -- dss,o1` for some
//! policies only, which writes nothing but prints; `-- --redraw` draws the pictures of the last measurement;
//! `-- --simulate` renews what is simulated, the same on every machine, and keeps what was measured natively;
//! `-- --count` renews the instructions, the same on a busy machine, and keeps everything else.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use schedlab_figures::{Axis, Chart, Mark, Point, Series};
use schedlab_sim::{Scheduler, SimSpec};
use serde::Deserialize;

const TASKS: [u32; 9] = [1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536];
const MACHINE: &str = "laptop";

/// The cost of a choice among n tasks that each scheduler's authors claim, or that its structures promise.
const CLAIMS: [(&str, &str); 18] = [
    ("bfs", "O(n), O(1) once a deadline has passed"),
    ("bmqs", "O(n)"),
    ("cfs", "O(log n)"),
    ("dss", "O(n)"),
    ("eevdf", "O(log n)"),
    ("elsc", "O(1)"),
    ("elsc-heap", "O(a + log n), a address spaces: here a = n"),
    ("feature", "O(log n)"),
    ("fifo", "O(1)"),
    ("mq", "O(n)"),
    ("mq-local", "O(n)"),
    ("mq-pool", "O(n)"),
    ("muqss", "O(1)"),
    ("o1", "O(1)"),
    ("o1-26", "O(1)"),
    (
        "pls",
        "O(n) at worst, O(1) where the first task of the best list ran here last",
    ),
    ("ule", "O(1)"),
    ("vtime", "O(1)"),
];

/// One policy among so many tasks.
#[derive(Default)]
struct Cost {
    /// The typical value, with the quartiles; absent if the policy needs a kernel's queues.
    ns: Option<[f64; 3]>,
    /// Absent also where there is no valgrind.
    instructions: Option<f64>,
    simulated_ns: f64,
    examined: f64,
}

type Costs = BTreeMap<u32, Cost>;

fn main() {
    check_the_fit();
    if env::args().any(|argument| argument == "--redraw") {
        draw(&read());
        return;
    }
    if env::args().any(|argument| argument == "--simulate") {
        let mut all = read();
        for (policy, costs) in &mut all {
            for (&tasks, cost) in costs {
                let again = simulate(policy, tasks);
                (cost.simulated_ns, cost.examined) = (again.simulated_ns, again.examined);
                println!("{}", row(policy, tasks, cost));
            }
        }
        write_documents(&all, &table(&all));
        return;
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    if env::args().any(|argument| argument == "--count") {
        let mut all = read();
        for policy in schedlab_policies::builtin() {
            let Some(costs) = all.get_mut(policy.name) else {
                continue;
            };
            if costs.values().all(|cost| cost.instructions.is_none()) {
                continue;
            }
            let program = compile(policy.name, policy.object().ops_name(), &folder)
                .expect("it was counted the last time");
            for (&tasks, cost) in costs {
                cost.instructions = Some(count(&program, tasks));
                println!("{}", row(policy.name, tasks, cost));
            }
        }
        write_documents(&all, &table(&all));
        return;
    }
    // cargo adds arguments of its own.
    let only: Option<Vec<String>> = env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'))
        .map(|list| list.split(',').map(str::to_owned).collect());
    let valgrind = Command::new("valgrind").arg("--version").output().is_ok();
    if !valgrind {
        eprintln!("valgrind is not installed: instructions are not counted");
    }
    let before = read();
    let mut all = BTreeMap::new();
    let wanted = |name: &str| {
        only.as_ref()
            .is_none_or(|only| only.iter().any(|one| one == name))
    };
    for policy in schedlab_policies::builtin()
        .iter()
        .filter(|policy| wanted(policy.name))
    {
        let program = compile(policy.name, policy.object().ops_name(), &folder);
        let mut costs = Costs::new();
        for tasks in TASKS {
            let cost = measure(policy.name, program.as_deref(), tasks, valgrind);
            // A page without it would look complete.
            let last = before.get(policy.name).and_then(|costs| costs.get(&tasks));
            assert!(
                cost.ns.is_some() || last.is_none_or(|cost| cost.ns.is_none()),
                "{}: measured natively the last time and not now (above: why); nothing is written",
                policy.name
            );
            println!("{}", row(policy.name, tasks, &cost));
            costs.insert(tasks, cost);
        }
        all.insert(policy.name, costs);
    }
    let fits = table(&all);
    println!("\n{fits}");
    if only.is_none() {
        write_documents(&all, &fits);
    }
}

/// The driver around a policy, or nothing if it does not fit in.
fn compile(policy: &str, ops: &str, folder: &Path) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = folder.join(format!("decision-{policy}"));
    let file = root.join(format!("policies/{policy}.bpf.c"));
    let compiler = env::var("SCHEDLAB_CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(compiler)
        .args(["-std=gnu11", "-O2", "-g", "-w"])
        // The script is the kernel: it writes what policies may not.
        .arg("-DLAB_OF_KERNEL=")
        .arg(format!("-DPOLICY=\"{}\"", file.display()))
        .arg(format!("-DOPS={}", ops))
        .arg("-I")
        .arg(root.join("include/native"))
        .arg("-I")
        .arg(root.join("include"))
        .arg(root.join("crates/sim/benches/decisions/decision.c"))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a C compiler is needed to build this at all");
    if output.status.success() {
        return Some(program);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let first = text.lines().find(|line| line.contains("error"));
    eprintln!(
        "{policy}: not measured natively: {}",
        first.unwrap_or(&text)
    );
    None
}

fn measure(policy: &str, program: Option<&Path>, tasks: u32, valgrind: bool) -> Cost {
    let mut cost = simulate(policy, tasks);
    let Some(program) = program else { return cost };
    // About as long for few tasks as for many, of a policy that looks at all.
    let choices = (4_000_000 / tasks).clamp(200, 20_000);
    let output = choose(&mut Command::new(program), tasks, choices);
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        eprintln!("{policy}: not measured natively: {}", text.trim());
        return cost;
    }
    let numbers = |clock: bool| {
        let lines = text
            .lines()
            .filter(move |line| line.starts_with('c') == clock);
        let mut numbers: Vec<f64> = lines
            .map(|line| line.trim_start_matches("c ").parse().expect("a number"))
            .collect();
        numbers.sort_by(f64::total_cmp);
        numbers
    };
    // The first choices find cold caches, and now and then something interrupts.
    let trimmed = |numbers: &[f64]| {
        let middle = &numbers[numbers.len() / 10..numbers.len() * 9 / 10];
        middle.iter().sum::<f64>() / middle.len() as f64
    };
    let (chosen, empty) = (numbers(false), trimmed(&numbers(true)));
    assert_eq!(chosen.len(), choices as usize);
    let net = |ns: f64| (ns - empty).max(0.0);
    // Where the clock's steps do not matter, what the machine's other users do should not either.
    let median = chosen[chosen.len() / 2];
    let typical = if median > 1_000.0 {
        median
    } else {
        trimmed(&chosen)
    };
    cost.ns = Some([
        net(typical),
        net(chosen[chosen.len() / 4]),
        net(chosen[chosen.len() * 3 / 4]),
    ]);
    if valgrind {
        cost.instructions = Some(count(program, tasks));
    }
    cost
}

/// Runs a policy's driver, by itself or under another program.
fn choose(command: &mut Command, tasks: u32, choices: u32) -> Output {
    let command = command.arg(tasks.to_string()).arg(choices.to_string());
    command.output().expect("it was just compiled")
}

/// Instructions of a choice, by valgrind.
fn count(program: &Path, tasks: u32) -> f64 {
    let counted = 16_u32;
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=choose")
        .arg(program);
    let output = choose(&mut command, tasks, counted);
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text
        .lines()
        .find_map(|line| line.split_once("Collected : "))
        .and_then(|(_, number)| number.trim().parse::<f64>().ok())
        .unwrap_or_else(|| panic!("callgrind said:\n{text}"));
    collected / f64::from(counted)
}

/// Tasks that run for 1 ms and sleep for 1 µs: whenever one blocks, `tasks` others wait. The result is the difference
/// of two runs, the shorter of which is the beginning of the other: the beginning does not count.
fn simulate(policy: &str, tasks: u32) -> Cost {
    // It takes a while until all are awake.
    let before_ms = 100 + tasks / 100;
    let [first, whole] = [before_ms, before_ms + 200].map(|ms| sums(policy, tasks, ms));
    let [calls, time_ns, examined, queue] =
        std::array::from_fn(|index| whole[index] - first[index]);
    let (queue, expected) = (queue / calls, f64::from(tasks + 1));
    assert!(
        (queue - expected).abs() <= 0.01 * expected,
        "{policy}: {queue} tasks were runnable, not {expected}"
    );
    Cost {
        simulated_ns: time_ns / calls,
        examined: examined / calls,
        ..Cost::default()
    }
}

/// Calls of schedule(), and sums over them: time in ns, tasks examined, runnable tasks.
fn sums(policy: &str, tasks: u32, ms: u32) -> [f64; 4] {
    let spec = SimSpec {
        cpus: Some(1),
        ..SimSpec::new(
            format!(
                "cpu:tasks={},run=1ms,sleep=1us,jitter=0,offset=0,duration={ms}ms",
                tasks + 1
            ),
            Scheduler::parse(policy),
            MACHINE,
        )
    };
    let result = schedlab_sim::run(&spec, None).unwrap_or_else(|error| panic!("{error}"));
    assert!(result.is_done(), "{policy}: {:?}", result.message);
    let number = |name| result.measures.number(name).expect("every run has it");
    let calls = number("schedule.calls");
    [
        calls,
        calls * number("schedule.time_ns_mean"),
        calls * number("schedule.examined_mean"),
        calls * number("runqueue.len_mean"),
    ]
}

const HEADER: &str = "policy,tasks,ns,ns_p25,ns_p75,instructions,simulated_ns,simulated_examined";

fn row(policy: &str, tasks: u32, cost: &Cost) -> String {
    let number = |value: Option<f64>| value.map_or_else(String::new, |x| format!("{x:.1}"));
    let ns = |index: usize| number(cost.ns.map(|ns| ns[index]));
    format!(
        "{policy},{tasks},{},{},{},{},{:.1},{:.2}",
        ns(0),
        ns(1),
        ns(2),
        number(cost.instructions),
        cost.simulated_ns,
        cost.examined
    )
}

/// y = a + b · f(n).
#[derive(Clone, Copy, PartialEq, Debug)]
struct Fit {
    growth: Growth,
    a: f64,
    b: f64,
    /// Root mean square of the relative errors.
    error: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Growth {
    Constant,
    Logarithmic,
    Linear,
}

impl Growth {
    fn of(self, n: f64) -> f64 {
        match self {
            Growth::Constant => 0.0,
            Growth::Logarithmic => n.log2(),
            Growth::Linear => n,
        }
    }
}

/// The growth that fits best (least squares of the relative error) where there are many tasks: constant
/// if that is off by no more than 2 %, otherwise logarithm or line. `None` without values.
fn fit(points: &[(f64, f64)]) -> Option<Fit> {
    let points: Vec<_> = points.iter().copied().filter(|&(n, _)| n >= MANY).collect();
    if points.is_empty() {
        return None;
    }
    let line = |growth: Growth| {
        // Weighted by 1/y², so that errors count by their share.
        let (mut s, mut sx, mut sy, mut sxx, mut sxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for &(n, y) in &points {
            let (x, w) = (growth.of(n), 1.0 / (y * y));
            s += w;
            sx += w * x;
            sy += w * y;
            sxx += w * x * x;
            sxy += w * x * y;
        }
        let b = match growth {
            Growth::Constant => 0.0,
            _ => (s * sxy - sx * sy) / (s * sxx - sx * sx),
        };
        let a = (sy - b * sx) / s;
        let squares = |&(n, y): &(f64, f64)| ((a + b * growth.of(n) - y) / y).powi(2);
        let sum: f64 = points.iter().map(squares).sum();
        let error = (sum / points.len() as f64).sqrt();
        Fit {
            growth,
            a,
            b,
            error,
        }
    };
    let constant = line(Growth::Constant);
    if constant.error <= 0.02 {
        return Some(constant);
    }
    let (logarithm, linear) = (line(Growth::Logarithmic), line(Growth::Linear));
    Some(if logarithm.error <= linear.error {
        logarithm
    } else {
        linear
    })
}

/// With fewer tasks than that, other things matter more than how many they are.
const MANY: f64 = 64.0;

fn check_the_fit() {
    let of = |f: fn(f64) -> f64| {
        let points: Vec<_> = TASKS
            .iter()
            .map(|&n| (f64::from(n), f(f64::from(n))))
            .collect();
        fit(&points).unwrap()
    };
    assert_eq!(of(|_| 50.0).growth, Growth::Constant);
    let line = of(|n| 30.0 + 12.0 * n);
    assert!(line.growth == Growth::Linear && (line.b - 12.0).abs() < 1e-6);
    let logarithm = of(|n| 30.0 + 12.0 * n.log2());
    assert!(logarithm.growth == Growth::Logarithmic && (logarithm.a - 30.0).abs() < 1e-6);
}

fn told(fit: Option<Fit>) -> String {
    let Some(Fit {
        growth,
        a,
        b,
        error,
    }) = fit
    else {
        return "–".to_owned();
    };
    let a = a.round().to_string().replace('-', "−");
    let mut text = match growth {
        Growth::Constant => a,
        Growth::Logarithmic => format!("{a} + {b:.1} log₂ n"),
        Growth::Linear => format!("{a} + {b:.3} n"),
    };
    if error > 0.05 {
        let _ = write!(text, " (± {:.0} %)", 100.0 * error);
    }
    text
}

fn fit_of(costs: &Costs, value: impl Fn(&Cost) -> Option<f64>) -> Option<Fit> {
    let points: Vec<_> = costs
        .iter()
        .filter_map(|(&tasks, cost)| Some((f64::from(tasks), value(cost)?)))
        .collect();
    fit(&points)
}

/// The claimed cost, and the fitted one.
fn table(all: &BTreeMap<&str, Costs>) -> String {
    let mut text = String::from(
        "| policy | claimed | instructions | native ns at n = 1, 1,024, 65,536 | simulated ns |\n|---|---|---|---|---|\n",
    );
    for (policy, costs) in all {
        let claim = CLAIMS.iter().find(|claim| claim.0 == *policy);
        let ns = |tasks: u32| match costs[&tasks].ns {
            Some([ns, ..]) => format!("{ns:.0}"),
            None => "–".to_owned(),
        };
        let _ = writeln!(
            text,
            "| `{policy}` | {} | {} | {}, {}, {} | {} |",
            claim.map_or("–", |claim| claim.1),
            told(fit_of(costs, |cost| cost.instructions)),
            ns(1),
            ns(1_024),
            ns(65_536),
            told(fit_of(costs, |cost| Some(cost.simulated_ns))),
        );
    }
    text
}

/// Charts of policies that look at every task, and of the others.
fn charts(all: &BTreeMap<&str, Costs>) -> Vec<(&'static str, Chart)> {
    let looks_at_all = |costs: &Costs| {
        let most = costs.last_key_value();
        most.is_some_and(|(&tasks, cost)| cost.examined > 0.5 * f64::from(tasks))
    };
    let chart = |title: &str, every: bool, value: &dyn Fn(&Cost) -> Option<[f64; 3]>| Chart {
        title: title.to_owned(),
        x: Axis::log("tasks that wait"),
        y: Axis::log("ns a choice"),
        series: all
            .iter()
            .filter(|(_, costs)| looks_at_all(costs) == every)
            .map(|(policy, costs)| Series {
                name: (*policy).to_owned(),
                mark: Mark::Line,
                points: costs
                    .iter()
                    .filter_map(|(&tasks, cost)| {
                        let [y, low, high] = value(cost)?;
                        Some(Point {
                            x: f64::from(tasks),
                            y,
                            spread: (low < high).then_some((low, high)),
                        })
                    })
                    .collect(),
            })
            .filter(|series| !series.points.is_empty())
            .collect(),
    };
    let native = |cost: &Cost| cost.ns;
    let simulated = |cost: &Cost| Some([cost.simulated_ns; 3]);
    vec![
        (
            "native-all",
            chart("Native: every task is looked at", true, &native),
        ),
        (
            "simulated-all",
            chart("Simulated: every task is looked at", true, &simulated),
        ),
        (
            "native-few",
            chart("Native: few tasks are looked at", false, &native),
        ),
        (
            "simulated-few",
            chart("Simulated: few tasks are looked at", false, &simulated),
        ),
    ]
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// A line of `costs.csv`.
#[derive(Deserialize)]
struct Row {
    policy: String,
    tasks: u32,
    ns: Option<f64>,
    ns_p25: Option<f64>,
    ns_p75: Option<f64>,
    instructions: Option<f64>,
    simulated_ns: f64,
    simulated_examined: f64,
}

/// The last measurement.
fn read() -> BTreeMap<&'static str, Costs> {
    let file = docs().join("decision-cost/costs.csv");
    let mut reader = csv::Reader::from_path(file).expect("it is there");
    let mut all: BTreeMap<&str, Costs> = BTreeMap::new();
    for row in reader.deserialize() {
        let row: Row = row.unwrap_or_else(|wrong| panic!("costs.csv: {wrong}"));
        let policy = schedlab_policies::builtin()
            .iter()
            .find(|policy| policy.name == row.policy)
            .expect("a policy that there is");
        let cost = Cost {
            ns: row
                .ns
                .zip(row.ns_p25)
                .zip(row.ns_p75)
                .map(|((ns, low), high)| [ns, low, high]),
            instructions: row.instructions,
            simulated_ns: row.simulated_ns,
            examined: row.simulated_examined,
        };
        all.entry(policy.name).or_default().insert(row.tasks, cost);
    }
    all
}

/// Writes the charts; answers their names and titles.
fn draw(all: &BTreeMap<&str, Costs>) -> Vec<(&'static str, String)> {
    let folder = docs().join("decision-cost");
    charts(all)
        .into_iter()
        .map(|(name, chart)| {
            fs::write(folder.join(format!("{name}.svg")), chart.svg())
                .expect("docs/ can be written");
            (name, chart.title)
        })
        .collect()
}

fn write_documents(all: &BTreeMap<&str, Costs>, fits: &str) {
    let docs = docs();
    let folder = docs.join("decision-cost");
    fs::create_dir_all(&folder).expect("docs/ can be written");
    let mut data = format!("{HEADER}\n");
    for (policy, costs) in all {
        for (&tasks, cost) in costs {
            data += &row(policy, tasks, cost);
            data.push('\n');
        }
    }
    fs::write(folder.join("costs.csv"), data).expect("docs/ can be written");
    let mut pictures = String::new();
    for (name, title) in draw(all) {
        let _ = writeln!(pictures, "![{title}](decision-cost/{name}.svg)");
    }
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("an unknown processor", |(_, name)| name);
    let text = include_str!("decisions/page.md.in")
        .replace("PROCESSOR", processor)
        .replace("MACHINE", MACHINE)
        .replace("FITS\n", fits)
        .replace("PICTURES\n", &pictures);
    fs::write(docs.join("decision-cost.md"), text).expect("docs/ can be written");
}
