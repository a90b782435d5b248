//! Puts measurements into a profile: which difference of which measurements is which number.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use schedlab_machine::{KernelPath, Machine, Numbering};
use schedlab_trace::counted;

use crate::caches::{Node, memory_costs, streams};
use crate::draft::{Draft, rising};
use crate::idle::{self, Idle, Snapshot};
use crate::rings::Switches;
use crate::sample::{Figure, Sample};
use crate::sysfs::Described;
use crate::{Report, memory, paths, pin, rings};

/// Time between two messages while the idle machine is watched: long, as the terminal that shows them wakes.
const TOLD_EVERY: Duration = Duration::from_secs(5);

pub(crate) fn assemble(
    described: Described,
    idle: Duration,
    progress: &mut dyn FnMut(&str),
) -> Report {
    let several = described.topology.nr_llcs() > 1 || described.topology.nr_nodes() > 1;
    let base = if several { "server-2x96x2" } else { "laptop" };
    let mut draft = Draft::new(base, described.notes.clone());
    let machine = &mut draft.base;
    machine.topology = described.topology.clone();
    machine.name = "this-machine".to_owned();
    machine.summary = format!(
        "{}, {}, Linux {}",
        described
            .processor
            .as_deref()
            .unwrap_or("unknown processor"),
        counted(described.cpus.len() as u64, "CPU"),
        described.kernel.as_deref().unwrap_or("of unknown version"),
    );
    machine.calibrated_on = Vec::new();
    machine.tuning_candidates = Vec::new();
    machine.background.clear();
    draft.note(format!(
        "what was not measured is copied from the profile {base}"
    ));
    description(&mut draft, &described);
    // First, as the other measurements leave work behind.
    if idle.is_zero() {
        draft.note("the idle machine was not watched (--idle 0): the profile has no background");
    } else {
        let nr_cpus = described.cpus.len() as u64;
        background(&mut draft, watch(idle, nr_cpus, progress), idle);
    }
    let site = Site::new(&described);
    let Some(first) = site.first() else {
        draft.note("threads cannot be bound to CPUs here: nothing was measured");
        return draft.finish();
    };
    if site.usable.len() < described.cpus.len() {
        draft.note(format!(
            "this process may use only {} of {} CPUs: distances between the others stay a guess",
            site.usable.len(),
            described.cpus.len()
        ));
    }
    progress("caches and memory");
    let miss_ps = memory_costs(&mut draft, &described, first);
    streams(&mut draft, &described.caches, miss_ps, &site.first_node());
    progress("transfers between CPUs");
    transfers(&mut draft, &site, described.threads_known);
    progress("paths through the kernel");
    kernel_paths(&mut draft, &site, first, progress);
    draft.finish()
}

/// The CPUs that can be measured.
struct Site<'a> {
    /// The kernel's number of each CPU of the profile.
    cpus: &'a [usize],
    /// `[core, llc, node]` of each CPU of the profile.
    triples: Vec<[u32; 3]>,
    /// The profile's numbers of the CPUs that this process may use.
    usable: Vec<usize>,
}

impl<'a> Site<'a> {
    fn new(described: &'a Described) -> Self {
        let cpus = &described.cpus;
        Site {
            cpus,
            triples: described.topology.triples(),
            usable: (0..cpus.len()).filter(|&n| pin::allowed(cpus[n])).collect(),
        }
    }

    /// Returns the kernel's number of the first CPU.
    fn first(&self) -> Option<usize> {
        let cpu = self.cpus[*self.usable.first()?];
        paths::clock(cpu).map(|_| cpu)
    }

    /// Returns the first CPU's node; with that CPU alone where not all of it may be used, as the bus is the others', too.
    fn first_node(&self) -> Node {
        let first = self.usable.first().copied();
        let in_node = |&cpu: &usize| {
            first.is_some_and(|first| self.triples[cpu][2] == self.triples[first][2])
        };
        let mut all: Vec<usize> = (0..self.cpus.len()).filter(in_node).collect();
        if all.iter().any(|cpu| !self.usable.contains(cpu)) {
            all = first.into_iter().collect();
        }
        let firsts_of = |level: usize| {
            let mut seen = BTreeSet::new();
            let firsts = all
                .iter()
                .filter(move |&&cpu| seen.insert(self.triples[cpu][level]));
            firsts.map(|&cpu| self.cpus[cpu]).collect::<Vec<_>>()
        };
        Node {
            cores: firsts_of(0),
            nr_llcs: firsts_of(1).len() as u64,
            cpus: all.iter().map(|&cpu| self.cpus[cpu]).collect(),
        }
    }

    /// The first two CPUs, by the profile's numbers, of which `of` holds.
    fn pair(&self, of: impl Fn([u32; 3], [u32; 3]) -> bool) -> Option<(usize, usize)> {
        let all = self.usable.iter().enumerate();
        let pairs = all.flat_map(|(i, &a)| self.usable[i + 1..].iter().map(move |&b| (a, b)));
        let mut fitting = pairs.filter(|&(a, b)| of(self.triples[a], self.triples[b]));
        fitting.next()
    }

    /// Two cores at a distance (0 = same last-level cache, 1 = same node, 2 = other node).
    fn cores(&self, distance: usize) -> Option<(usize, usize)> {
        self.pair(|a, b| match distance {
            0 => a[0] != b[0] && a[1] == b[1],
            1 => a[1] != b[1] && a[2] == b[2],
            _ => a[2] != b[2],
        })
    }

    /// Two hardware threads of a core.
    fn siblings(&self) -> Option<(usize, usize)> {
        self.pair(|a, b| a[0] == b[0])
    }
}

/// Looks at the machine for so long.
fn watch(idle: Duration, nr_cpus: u64, progress: &mut dyn FnMut(&str)) -> Idle {
    let proc = Path::new("/proc");
    let before = Snapshot::read(proc);
    let start = Instant::now();
    while let Some(left) = idle.checked_sub(start.elapsed()).filter(|d| !d.is_zero()) {
        progress(&format!(
            "the idle machine, {} s more",
            left.as_millis().div_ceil(1_000)
        ));
        std::thread::sleep(left.min(TOLD_EVERY));
    }
    let between = start.elapsed();
    let after = Snapshot::read(proc);
    idle::background(&before, &after, between, nr_cpus, std::process::id())
}

/// Puts down the tasks of the idle machine.
fn background(draft: &mut Draft, found: Idle, idle: Duration) {
    let seconds = idle.as_secs_f64();
    for section in found.sections {
        let task = &section.task;
        let put = |draft: &mut Draft, field: &str, value: String, source: String| {
            let field = format!("background.{}.{field}", section.name);
            draft.put(&field, value, format!("measured: {source}"));
        };
        let wakeups = counted(section.wakeups, "wakeup");
        let each = if task.per_cpu { " on all CPUs" } else { "" };
        let source = format!("/proc, {wakeups}{each} in {seconds} s");
        put(draft, "period_us", task.period_us.to_string(), source);
        let source = format!(
            "/proc, {:.3} ms of CPU time in {wakeups}",
            section.cpu_ns as f64 / 1e6
        );
        put(draft, "run_us", task.run_us.to_string(), source);
        let source = "/proc, the CPUs that kernel threads may use".to_owned();
        put(draft, "per_cpu", task.per_cpu.to_string(), source);
        if let Some(prio) = task.static_prio {
            let source = "/proc, nice levels".to_owned();
            put(draft, "static_prio", prio.to_string(), source);
        }
        draft
            .base
            .background
            .insert(section.name.clone(), section.task.clone());
    }
    found.notes.into_iter().for_each(|note| draft.note(note));
}

/// The description by the kernel.
fn description(draft: &mut Draft, described: &Described) {
    let topology = &described.topology;
    let source = match described.cpus_known {
        true => "measured: /sys/devices/system/cpu and /sys/devices/system/node",
        false => "guess: the kernel does not report it",
    };
    match topology.regular() {
        Some((shape, numbering)) => {
            let fields = [
                "nodes",
                "llcs_per_node",
                "cores_per_llc",
                "threads_per_core",
            ];
            for (field, value) in fields.iter().zip(shape) {
                draft.put(&format!("topology.{field}"), value, source.to_owned());
            }
            if numbering == Numbering::CoreByCore {
                let value = "\"core-by-core\"".to_owned();
                draft.put("topology.numbering", value, source.to_owned());
            }
        }
        None => {
            let list: Vec<String> = topology
                .triples()
                .iter()
                .map(|triple| format!("{triple:?}"))
                .collect();
            let list = format!("[{}]", list.join(", "));
            draft.put("topology.cpus", list, source.to_owned());
        }
    }
    if let Some(mhz) = described.clock_mhz {
        let source = "measured: /proc/cpuinfo, the clock rate of the moment";
        draft.put("clock_mhz", mhz, source.to_owned());
    }
    match paths::hz().filter(|hz| (1..=10_000).contains(hz)) {
        Some(hz) => {
            let source =
                "measured: the resolution of CLOCK_MONOTONIC_COARSE, which moves once a tick";
            draft.put("hz", hz, source.to_owned());
        }
        None => {
            draft.note("the coarse clock does not show the tick: hz stays a guess");
            draft.put_guess("hz", draft.base.hz.into());
        }
    }
    if let Some(preemptible) = described.preemptible {
        let source = "measured: /proc/version".to_owned();
        draft.put("preemptible_kernel", preemptible, source);
    }
    if let Some(slack) = paths::timer_slack_ns() {
        draft.note(format!(
            "timers of ordinary processes have a slack of {slack} ns here"
        ));
    }
}

/// Transfers between CPUs at each distance, and what follows from them.
fn transfers(draft: &mut Draft, site: &Site<'_>, threads_known: bool) {
    let fields = [
        (
            "memory.transfer_llc_ps",
            draft.base.memory.transfer_llc_ps,
            "in the same last-level cache",
        ),
        (
            "memory.transfer_node_ps",
            draft.base.memory.transfer_node_ps,
            "in the same node, under different last-level caches",
        ),
        (
            "memory.transfer_remote_ps",
            draft.base.memory.transfer_remote_ps,
            "in different nodes",
        ),
    ];
    let measured = [0, 1, 2].map(|distance| {
        let (a, b) = site.cores(distance)?;
        let sample = memory::transfer(site.cpus[a], site.cpus[b])?;
        Some((
            sample,
            format!("half a hop of a token between CPUs {a} and {b}"),
        ))
    });
    let medians = measured
        .each_ref()
        .map(|one| Some(one.as_ref()?.0.median()));
    let values = rising(medians, fields.map(|(_, base_ps, _)| base_ps));
    for (distance, (field, _, where_)) in fields.into_iter().enumerate() {
        match &measured[distance] {
            Some((sample, what)) => {
                draft.put_raised(
                    field,
                    values[distance],
                    sample,
                    &format!("{what}, {where_}"),
                );
            }
            None => {
                let source = match site.cores(distance) {
                    Some((a, b)) => {
                        format!("guess: CPUs {a} and {b}, {where_}, never ran together")
                    }
                    None => format!("guess: no two CPUs here are {where_}"),
                };
                draft.put(field, values[distance], source);
            }
        }
    }
    match medians.into_iter().flatten().next() {
        Some(ps) => {
            let source = "derived: one transfer at the nearest distance";
            draft.put("locks.handover_ns", (ps / 1_000).max(1), source.to_owned());
        }
        None => draft.note("no two cores could be measured: transfers between CPUs stay a guess"),
    }
    match site.siblings() {
        Some((a, b)) => {
            let share = memory::smt_share(site.cpus[a], site.cpus[b]);
            if let Some(sample) = share {
                let source = format!(
                    "measured: median of the work of CPU {a} while its sibling {b} works too, in percent of its work alone"
                );
                draft.put("interference.smt_share_pct", sample.median(), source);
            }
        }
        None if !threads_known => {}
        None if draft.base.topology.nr_cores() as usize == site.cpus.len() => {
            let source = "measured: /sys/devices/system/cpu shows no hardware threads".to_owned();
            draft.put("interference.smt_share_pct", 100, source);
        }
        None => {
            draft.note("no two hardware threads of a core may be used: their share stays a guess")
        }
    }
}

/// Everything that enters the kernel.
fn kernel_paths(draft: &mut Draft, site: &Site<'_>, cpu: usize, progress: &mut dyn FnMut(&str)) {
    // Everything is computed of what was measured, not of other results: so each measurement is in it once.
    let clock = paths::clock(cpu);
    let syscall = paths::syscall(cpu);
    if let Some(sample) = &syscall {
        draft.put_ns("paths.syscall_ns", sample, "getppid()");
    }
    let [clock, syscall] = [clock, syscall].map(|sample| sample.as_ref().map(Figure::from));
    let figure = |sample: Option<Sample>| sample.as_ref().map(Figure::from);
    let guess = draft.base.paths.clone();
    let put = |draft: &mut Draft, field: &str, guess: u64, figure: Option<Figure>, what: &str| {
        if let Some(figure) = figure {
            draft.put_figure(&format!("paths.{field}"), guess, 1_000, figure, what);
        }
        figure.is_some()
    };

    let futex = figure(paths::futex_nobody(cpu));
    let what = "futex wake of nobody, less a system call";
    put(
        draft,
        "futex_ns",
        guess.futex_ns,
        less(futex, &[syscall]),
        what,
    );
    let pipe = figure(paths::pipe_alone(cpu));
    let what = "mean of a write and a read of a byte that wait for nothing, less a system call";
    let half = pipe.map(|pipe| pipe.times(0.5));
    put(
        draft,
        "pipe_ns",
        guess.pipe_ns,
        less(half, &[syscall]),
        what,
    );
    progress("sockets");
    match paths::socket_alone(cpu) {
        Some((sent, received)) => {
            let what = "100 bytes on a loopback TCP socket, nobody waiting, less a system call";
            let [sent, received] =
                [sent, received].map(|sample| less(Some(Figure::from(&sample)), &[syscall, clock]));
            put(draft, "socket_send_ns", guess.socket_send_ns, sent, what);
            put(
                draft,
                "socket_recv_ns",
                guess.socket_recv_ns,
                received,
                what,
            );
        }
        None => draft.note("no loopback socket could be used: socket costs stay a guess"),
    }
    progress("wakeups and context switches");
    let switches = rings::switches(cpu);
    match &switches {
        Some(switches) => switch_paths(draft, switches),
        None => draft.note("no ring of tasks could be made: wakeups and switches stay a guess"),
    }
    let hop = switches.as_ref().and_then(|switches| switches.hop);
    let cores = (0..3).find_map(|distance| site.cores(distance));
    let remote = cores.and_then(|(a, b)| {
        let hop = paths::pipe_hop(site.cpus[a], site.cpus[b])?;
        Some((a, b, Figure::from(&hop)))
    });
    match remote {
        Some((a, b, remote)) => {
            let interrupt = Figure::exactly(ipi_ps(&draft.base));
            let what = format!(
                "hop through a pipe between CPUs {a} and {b}, less one in a ring on a single CPU and less the guessed costs of the interrupt"
            );
            let idle = less(Some(remote), &[hop, Some(interrupt)]);
            put(draft, "idle_exit_ns", guess.idle_exit_ns, idle, &what);
        }
        None => draft.note("no two cores could be measured: leaving idle stays a guess"),
    }
    progress("fork and exit");
    match paths::fork_and_exit(cpu) {
        Some((fork, whole)) => {
            let whole_fork = Some(Figure::from(&fork));
            let what = "fork() of a small process, as its caller sees it, less what it shares";
            let fork = less(whole_fork, &[shared(draft, KernelPath::Fork)]);
            put(draft, "fork_ns", guess.fork_ns, fork, what);
            let switches = switches.and_then(|switches| switches.processes);
            let [switches, calls] = [switches, syscall].map(|one| Some(one?.times(2.0)));
            let exits = shared(draft, KernelPath::Exit);
            let exit = less(
                Some(Figure::from(&whole)),
                &[whole_fork, switches, calls, exits],
            );
            let what = "from fork() until the exit is collected, less fork(), two switches, two system calls and what an exit shares";
            put(draft, "exit_ns", guess.exit_ns, exit, what);
        }
        None => draft.note("no process could be forked: fork and exit stay a guess"),
    }
    progress("page faults");
    match paths::page_fault(cpu) {
        Some(fault) => {
            let what = "the first access of a page of private memory, and giving it back, less what it shares";
            let parts = [shared(draft, KernelPath::Fault)];
            let fault = less(Some(Figure::from(&fault)), &parts);
            put(draft, "fault_ns", guess.fault_ns(), fault, what);
        }
        None => draft.note("no memory could be mapped: page faults stay a guess"),
    }
    progress("timer tick");
    match figure(paths::hz().and_then(|hz| paths::tick_gaps(cpu, hz))) {
        Some(gaps) => {
            let what =
                "gaps in a loop that reads the clock, less the guessed entry of an interrupt";
            let irq = Figure::exactly(guess.irq_ns * 1_000);
            put(draft, "tick_ns", guess.tick_ns, Some(gaps.less(irq)), what);
        }
        None => draft.note("no timer tick could be seen: its cost stays a guess"),
    }
}

/// Puts down wakeups and switches as rings of tasks show them. A hop takes as long in the profile as it did in the ring.
fn switch_paths(draft: &mut Draft, switches: &Switches) {
    let guess = draft.base.paths.clone();
    let Switches { method, growth, .. } = switches;
    let figures = [
        (
            "schedule_ns",
            guess.schedule_ns,
            switches.schedule,
            "sched_yield() with nobody else to run, less a system call".to_owned(),
        ),
        (
            "wakeup_ns",
            guess.wakeup_ns,
            switches.wakeup,
            "write to a pipe that wakes a thread on the same CPU, less a write to an own pipe, in a ring of 2".to_owned(),
        ),
        (
            "switch_ns",
            guess.switch_ns,
            less(switches.threads, &[switches.schedule]),
            format!(
                "hop in a ring of 2 threads on one CPU, less a write, a read, a wakeup and schedule() ({method}){}",
                growth[0]
            ),
        ),
        (
            "switch_mm_ns",
            guess.switch_mm_ns,
            switches.change,
            format!(
                "hop in a ring of 2 processes on one CPU, less one of 2 threads ({method}){}",
                growth[1]
            ),
        ),
    ];
    for (field, guess, figure, what) in figures {
        let field = format!("paths.{field}");
        match figure {
            Some(figure) => draft.put_figure(&field, guess, 1_000, figure, &what),
            None => draft.note(format!(
                "{field} stays a guess: nearly always another thread ran, too ({method})"
            )),
        }
    }
}

/// Returns the time of a call's shared objects, which the profile has beside the call.
fn shared(draft: &Draft, path: KernelPath) -> Option<Figure> {
    Some(Figure::exactly(draft.base.shared_alone_ps(path)))
}

/// `whole` without its parts, if all of them were measured.
fn less(whole: Option<Figure>, parts: &[Option<Figure>]) -> Option<Figure> {
    let mut parts = parts.iter();
    parts.try_fold(whole?, |rest, part| Some(rest.less((*part)?)))
}

/// Returns the cost of a remote wakeup's interrupt in the profile that the guesses are from.
fn ipi_ps(base: &Machine) -> u64 {
    let paths = &base.paths;
    let ns = paths.ipi_send_ns + paths.ipi_delay_ns + paths.irq_ns + paths.ipi_handle_ns;
    ns * 1_000
}

#[cfg(test)]
mod tests {
    use schedlab_machine::Topology;

    use super::*;

    #[test]
    fn pairs_are_found_at_each_distance() {
        let topology = Topology::new(2, 2, 2, 2);
        let cpus: Vec<usize> = (100..116).collect();
        let mut site = Site {
            cpus: &cpus,
            triples: topology.triples(),
            usable: (0..16).collect(),
        };
        assert_eq!(site.cores(0), Some((0, 1)));
        assert_eq!(site.cores(1), Some((0, 2)));
        assert_eq!(site.cores(2), Some((0, 4)));
        assert_eq!(site.siblings(), Some((0, 8)));
        site.usable = vec![3, 11, 4];
        assert_eq!(site.cores(0), None);
        assert_eq!(site.cores(2), Some((3, 4)));
        assert_eq!(site.siblings(), Some((3, 11)));
        site.usable = vec![5];
        assert_eq!(site.siblings(), None);
    }
}
