//! Measures an idle machine: the tasks that wake by themselves, and how much they compute.
//!
//! The source is /proc alone, read twice: it is there without privileges, wakes nobody between the two looks, and has the
//! only two numbers of a task that a profile can say, how often it woke and how long it computed. A trace of the
//! scheduler would also tell when, for which a profile has no words; and its reader would wake beside the tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use schedlab_machine::Background;

/// No more sections than this are written.
const SECTIONS_MAX: usize = 12;
/// They make up at least this share of the CPU time and of the wakeups.
const COVERED_PCT: u64 = 95;
/// A machine whose CPUs work more than this share of the time is not idle.
const BUSY_PCT: f64 = 10.0;
/// Flags of a task in the kernel (`include/linux/sched.h`).
const PF_KTHREAD: u64 = 0x0020_0000;
/// The longest name of a section.
const NAME_MAX: usize = 15;

/// The tasks of a machine at one moment.
#[derive(Clone, Default, Debug)]
pub struct Snapshot {
    tasks: BTreeMap<Key, Task>,
    /// Tasks that were made since the machine started.
    forks: Option<u64>,
    /// Idle and total time of all CPUs, in ticks.
    times: Option<[u64; 2]>,
}

/// Process, thread, and its start, as numbers are used again.
type Key = (u32, u32, u64);

#[derive(Clone, Debug)]
struct Task {
    name: String,
    kind: Kind,
    cpu_ns: u64,
    /// How often it gave up its CPU because it had to wait.
    sleeps: u64,
    is_kernel: bool,
}

/// Tasks with the same name and kind are one section.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Kind {
    /// A kernel thread that may run on one CPU alone.
    bound: bool,
    nice: i8,
    realtime: bool,
}

/// A section of a profile, with the sources of its numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Its numbers.
    pub task: Background,
    /// How often its tasks woke.
    pub wakeups: u64,
    /// How long they computed.
    pub cpu_ns: u64,
}

/// The background of a machine.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Idle {
    /// In the order of their names.
    pub sections: Vec<Section>,
    /// Facts that no section has, in words for people.
    pub notes: Vec<String>,
}

impl Snapshot {
    /// Reads the tasks below `proc` (`/proc` but in tests). A task that ends meanwhile is left out.
    pub fn read(proc: &Path) -> Snapshot {
        let mut tasks = BTreeMap::new();
        for process in numbered(proc) {
            let folder = proc.join(process.to_string()).join("task");
            for thread in numbered(&folder) {
                if let Some((start, task)) = Task::read(&folder.join(thread.to_string())) {
                    tasks.insert((process, thread, start), task);
                }
            }
        }
        let stat = fs::read_to_string(proc.join("stat")).unwrap_or_default();
        let line = |key: &str| stat.lines().find_map(|line| line.strip_prefix(key));
        Snapshot {
            tasks,
            forks: line("processes ").and_then(|number| number.trim().parse().ok()),
            times: line("cpu ").and_then(times),
        }
    }

    /// The share of the CPUs' time that was not idle from `before` until this; `None` where /proc/stat lacks it.
    fn busy_pct_since(&self, before: &Snapshot) -> Option<f64> {
        let [idle, all] = before.times?;
        let [idle_after, all_after] = self.times?;
        let all = all_after.checked_sub(all).filter(|&all| all > 0)?;
        let idle = idle_after.saturating_sub(idle).min(all);
        Some(100.0 * (all - idle) as f64 / all as f64)
    }
}

/// Idle and total time in a line of /proc/stat: waiting for I/O is idle, and guests are in user time already.
fn times(line: &str) -> Option<[u64; 2]> {
    let words = line
        .split_whitespace()
        .take(8)
        .map(|word| word.parse().ok());
    let fields: Vec<u64> = words.collect::<Option<_>>()?;
    Some([fields.get(3)? + fields.get(4)?, fields.iter().sum()])
}

impl Task {
    /// Reads a thread's folder: when it started, and itself (proc(5)).
    fn read(folder: &Path) -> Option<(u64, Task)> {
        let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
        let stat = read("stat")?;
        // The name may contain anything, so what follows begins at its last parenthesis.
        let (head, rest) = stat.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        // The state is field 3.
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<i64>().ok();
        let status = read("status")?;
        let line = |key: &str| {
            let mut lines = status.lines();
            lines.find_map(|line| Some(line.strip_prefix(key)?.trim()))
        };
        let allowed = line("Cpus_allowed_list:")?;
        let is_kernel = field(9)? as u64 & PF_KTHREAD != 0;
        let kind = Kind {
            bound: is_kernel && allowed.parse::<u32>().is_ok(),
            nice: field(19)?.clamp(-20, 19) as i8,
            realtime: field(40).is_some_and(|priority| priority > 0),
        };
        let task = Task {
            name: base(&name),
            kind,
            cpu_ns: read("schedstat")?.split_whitespace().next()?.parse().ok()?,
            sleeps: line("voluntary_ctxt_switches:")?.parse().ok()?,
            is_kernel,
        };
        Some((field(22)? as u64, task))
    }
}

/// The numbers among the names in a folder.
fn numbered(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.filter_map(number).collect()
}

/// The name that all tasks of a sort share: `kworker` of `kworker/0:1-events`, `kswapd` of `kswapd0`.
fn base(name: &str) -> String {
    let end = name.find(['/', ':']).unwrap_or(name.len());
    let is_allowed = |c: &char| c.is_ascii_alphanumeric() || "_-".contains(*c);
    let mut base: String = name[..end].chars().filter(is_allowed).collect();
    base.truncate(NAME_MAX);
    if end == name.len() {
        let is_number = |c: char| c.is_ascii_digit() || "_-".contains(c);
        base.truncate(base.trim_end_matches(is_number).len());
    }
    if base.is_empty() {
        base.push_str("task");
    }
    base
}

/// Tasks of one name and kind.
#[derive(Clone, Copy, Default, Debug)]
struct Sum {
    cpu_ns: u64,
    wakeups: u64,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.cpu_ns += other.cpu_ns;
        self.wakeups += other.wakeups;
    }

    /// The shares of CPU time and of wakeups in `all`, in per cent.
    fn shares(self, all: Sum) -> [f64; 2] {
        let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
        [
            share(self.cpu_ns, all.cpu_ns),
            share(self.wakeups, all.wakeups),
        ]
    }

    fn is_most_of(self, all: Sum) -> bool {
        self.cpu_ns * 100 >= all.cpu_ns * COVERED_PCT
            && self.wakeups * 100 >= all.wakeups * COVERED_PCT
    }
}

/// Returns the work of all tasks but process `own`'s between two looks at a machine of `nr_cpus` CPUs.
pub fn background(
    before: &Snapshot,
    after: &Snapshot,
    between: Duration,
    nr_cpus: u64,
    own: u32,
) -> Idle {
    let mut idle = Idle::default();
    let us = (between.as_micros() as u64).max(1);
    let of_cpu = |ns: u64| ns as f64 / 10.0 / us as f64;
    let mut all = Sum::default();
    let mut mine = Sum::default();
    let mut groups: BTreeMap<(String, Kind), Sum> = BTreeMap::new();
    for (key, task) in &after.tasks {
        let (cpu_ns, sleeps) = before
            .tasks
            .get(key)
            .map_or((0, 0), |old| (old.cpu_ns, old.sleeps));
        let did = Sum {
            cpu_ns: task.cpu_ns.saturating_sub(cpu_ns),
            wakeups: task.sleeps.saturating_sub(sleeps),
        };
        if key.0 == own {
            mine.add(did);
            continue;
        }
        all.add(did);
        if did.cpu_ns > 0 || did.wakeups > 0 {
            let kind = Kind {
                // Whether a task of a machine with one CPU is bound to it makes no difference.
                bound: task.kind.bound && nr_cpus > 1,
                ..task.kind
            };
            groups
                .entry((task.name.clone(), kind))
                .or_default()
                .add(did);
        }
    }
    if after.tasks.is_empty() {
        idle.notes.push(
            "/proc tells the CPU time of no task (schedstat): the profile has no background"
                .to_owned(),
        );
        return idle;
    }
    // Tasks that have ended are in the CPUs' time alone.
    let busy_pct = after.busy_pct_since(before).unwrap_or(0.0);
    let busy_pct = busy_pct.max(of_cpu(all.cpu_ns) / nr_cpus as f64);
    if busy_pct > BUSY_PCT {
        idle.notes.push(format!(
            "other programs took {busy_pct:.1} % of the CPUs' time in the {} s that were to show the idle machine, and an \
             idle one takes at most {BUSY_PCT:.0} %: the profile has no background; repeat the calibration on an idle machine",
            seconds(between)
        ));
        return idle;
    }
    let (kept, rest) = choose(groups, all, us, nr_cpus, &mut idle.notes);
    idle.sections = kept;
    if !after.tasks.values().any(|task| task.is_kernel) {
        idle.notes.push(
            "no kernel thread can be seen from here (a container, or /proc with hidepid): the background has none"
                .to_owned(),
        );
    }
    let [cpu, wakeups] = rest.shares(all);
    idle.notes.push(format!(
        "the background is what the machine did in {} s: {:.2} % of a CPU and {:.1} wakeups a second; of these, {cpu:.1} % and \
         {wakeups:.1} % are in no section; this program's own {:.2} % of a CPU were not counted",
        seconds(between),
        of_cpu(all.cpu_ns),
        all.wakeups as f64 * 1e6 / us as f64,
        of_cpu(mine.cpu_ns),
    ));
    if !idle.sections.is_empty() {
        idle.notes.push(
            "sections of the background are means: their tasks wake evenly, while real ones wake in bursts"
                .to_owned(),
        );
    }
    let forks = before.forks.zip(after.forks);
    let made = forks.map_or(0, |(before, after)| after.saturating_sub(before));
    let old: BTreeSet<&Key> = before.tasks.keys().collect();
    let there = after.tasks.keys().filter(|key| !old.contains(key)).count() as u64;
    if made > there {
        idle.notes.push(format!(
            "{} began and ended meanwhile: their work is in no section",
            schedlab_trace::counted(made - there, "task")
        ));
    }
    idle
}

fn seconds(time: Duration) -> String {
    let tenths = (time.as_millis() + 50) / 100;
    match tenths % 10 {
        0 => (tenths / 10).to_string(),
        rest => format!("{}.{rest}", tenths / 10),
    }
}

/// The sections that make up most of `all`, and what is in none of them.
fn choose(
    groups: BTreeMap<(String, Kind), Sum>,
    all: Sum,
    us: u64,
    nr_cpus: u64,
    notes: &mut Vec<String>,
) -> (Vec<Section>, Sum) {
    let mut rest = Sum::default();
    let mut possible = Vec::new();
    for ((name, kind), sum) in groups {
        match task(kind, sum, us, nr_cpus) {
            Some(task) => possible.push((name, kind, sum, task)),
            None => {
                rest.add(sum);
                let share = sum.shares(all).into_iter().fold(0.0, f64::max);
                if share >= (100 - COVERED_PCT) as f64 {
                    notes.push(format!(
                        "{name} computed for {:.1} ms in {} of {} ms, which no section of a background can say: it is left out",
                        sum.cpu_ns as f64 / 1e6,
                        schedlab_trace::counted(sum.wakeups, "wakeup"),
                        us / 1_000,
                    ));
                }
            }
        }
    }
    let larger = |sum: Sum| sum.shares(all).into_iter().fold(0.0, f64::max);
    // Of equal ones, the first by name.
    possible.sort_by(|a, b| larger(b.2).total_cmp(&larger(a.2)));
    let mut sum_possible = Sum::default();
    possible.iter().for_each(|one| sum_possible.add(one.2));
    let mut covered = Sum::default();
    let mut kept = Vec::new();
    for one in possible {
        if kept.len() < SECTIONS_MAX && !covered.is_most_of(sum_possible) {
            covered.add(one.2);
            kept.push(one);
        } else {
            rest.add(one.2);
        }
    }
    let mut sections: Vec<Section> = Vec::new();
    for (name, kind, sum, task) in &kept {
        let others = kept.iter().filter(|one| one.0 == *name).map(|one| one.1);
        let suffix = suffix(*kind, &others.collect::<Vec<_>>());
        let is_taken = |name: &str| sections.iter().any(|one| one.name == name);
        let name = free_name(name, &suffix, is_taken);
        if kind.realtime {
            notes.push(format!(
                "{name} has a real-time priority, for which a background has no word: its section says nice -20"
            ));
        }
        sections.push(Section {
            name,
            task: task.clone(),
            wakeups: sum.wakeups,
            cpu_ns: sum.cpu_ns,
        });
    }
    sections.sort_by(|a, b| a.name.cmp(&b.name));
    (sections, rest)
}

/// The numbers of a section; `None` if it cannot have them.
fn task(kind: Kind, sum: Sum, us: u64, nr_cpus: u64) -> Option<Background> {
    let copies = if kind.bound { nr_cpus } else { 1 };
    let rounded = |whole: u64, parts: u64| whole.checked_add(parts / 2)?.checked_div(parts);
    let period_us = rounded(us.checked_mul(copies)?, sum.wakeups)?;
    let run_us = rounded(sum.cpu_ns, sum.wakeups.checked_mul(1_000)?)?.max(1);
    let nice = if kind.realtime { -20 } else { kind.nice };
    let is_possible = (10..=1_000_000_000).contains(&period_us) && run_us <= period_us / 2;
    is_possible.then_some(Background {
        period_us,
        run_us,
        per_cpu: kind.bound,
        static_prio: (nice != 0).then_some((i32::from(nice) + 20) as u32),
    })
}

/// Distinguishes `kind` from all `kinds` of its name: `-u` is bound to no CPU, as in the names of the kernel's workers.
fn suffix(kind: Kind, kinds: &[Kind]) -> String {
    let bound = match kinds.iter().any(|one| one.bound) && !kind.bound {
        true => "-u",
        false => "",
    };
    let nice = match kinds {
        [_] => String::new(),
        _ if kind.realtime => "-rt".to_owned(),
        _ if kind.nice == 0 => String::new(),
        _ => format!("-p{}", i32::from(kind.nice) + 20),
    };
    format!("{bound}{nice}")
}

/// `name` and `suffix` within the length of a name, with a number where that is taken.
fn free_name(name: &str, suffix: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let fitting = |suffix: &str| {
        let room = NAME_MAX - suffix.len();
        format!("{}{suffix}", &name[..name.len().min(room)])
    };
    let numbered = (2..).map(|number| fitting(&format!("{suffix}{number}")));
    let mut names = std::iter::once(fitting(suffix)).chain(numbered);
    names
        .find(|name| !is_taken(name))
        .expect("there are more numbers than sections")
}
