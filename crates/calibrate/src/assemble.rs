//! Puts measurements into a profile: which difference of which measurements is which number.

use schedlab_machine::{Change, Machine};

use crate::sample::Sample;
use crate::sysfs::{CacheLevel, Described};
use crate::{Report, memory, paths, pin};

/// Memory that a chain must exceed to be served by memory, at least and at most.
const CHAIN_BYTES: (u64, u64) = (64 << 20, 256 << 20);

/// The profile while it grows.
struct Draft {
    base: Machine,
    changes: Vec<Change>,
    notes: Vec<String>,
}

impl Draft {
    fn put(&mut self, field: &str, value: impl ToString, source: String) {
        self.changes.push(Change {
            field: field.to_owned(),
            value: value.to_string(),
            source,
        });
    }

    /// A measured number in nanoseconds, at least 1: nothing that happens takes no time.
    fn put_ns(&mut self, field: &str, sample: &Sample, what: &str) -> u64 {
        self.note_noise(field, sample);
        let ns = ((sample.median() + 500) / 1_000).max(1);
        self.put(field, ns, sample.source(what));
        ns
    }

    fn put_ps(&mut self, field: &str, sample: &Sample, what: &str) -> u64 {
        self.note_noise(field, sample);
        let ps = sample.median().max(1);
        self.put(field, ps, sample.source(what));
        ps
    }

    /// A measured number, or `ps` where that is more: what was measured nearer by.
    fn put_raised(&mut self, field: &str, ps: u64, sample: &Sample, what: &str) {
        if ps <= sample.median().max(1) {
            self.put_ps(field, sample, what);
            return;
        }
        self.note_noise(field, sample);
        let told = sample.source(what).replace("measured: ", "");
        self.put(
            field,
            ps,
            format!("derived: raised to what is nearer; {told}"),
        );
    }

    fn note_noise(&mut self, field: &str, sample: &Sample) {
        if sample.is_noisy() {
            self.note(format!(
                "{field} is uncertain: a tenth of the measurements is more than twice the median"
            ));
        }
    }

    fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}

pub(crate) fn assemble(described: Described, progress: &mut dyn FnMut(&str)) -> Report {
    let several = described.topology.nr_llcs() > 1 || described.topology.nr_nodes() > 1;
    let base = if several { "server-2x96x2" } else { "laptop" };
    let mut machine = Machine::builtin(base).expect("the built-in profiles are tested to load");
    machine.topology = described.topology.clone();
    machine.name = "this-machine".to_owned();
    machine.summary = format!(
        "{}, {} CPUs, Linux {}",
        described
            .processor
            .as_deref()
            .unwrap_or("unknown processor"),
        described.cpus.len(),
        described.kernel.as_deref().unwrap_or("of unknown version"),
    );
    machine.calibrated_on = Vec::new();
    machine.tuning_candidates = Vec::new();
    let mut draft = Draft {
        base: machine,
        changes: Vec::new(),
        notes: described.notes.clone(),
    };
    draft.note(format!(
        "what was not measured is copied from the profile {base}"
    ));
    description(&mut draft, &described);
    let site = Site::new(&described);
    let Some(first) = site.first() else {
        draft.note("threads cannot be bound to CPUs here: nothing was measured");
        return finish(draft);
    };
    if site.usable.len() < described.cpus.len() {
        draft.note(format!(
            "this process may use only {} of {} CPUs: distances between the others stay a guess",
            site.usable.len(),
            described.cpus.len()
        ));
    }
    progress("caches and memory");
    memory_costs(&mut draft, &described, first);
    progress("transfers between CPUs");
    transfers(&mut draft, &site);
    progress("paths through the kernel");
    kernel_paths(&mut draft, &site, first, progress);
    finish(draft)
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

    /// The kernel's number of the first CPU.
    fn first(&self) -> Option<usize> {
        let cpu = self.cpus[*self.usable.first()?];
        paths::clock(cpu).map(|_| cpu)
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

/// The profile must load whatever was measured: a contradiction is our bug.
fn finish(draft: Draft) -> Report {
    let machine = draft
        .base
        .with_changes(&draft.changes)
        .unwrap_or_else(|error| panic!("calibration made an impossible profile: {error}"));
    Report {
        machine,
        notes: draft.notes,
    }
}

/// What the kernel tells.
fn description(draft: &mut Draft, described: &Described) {
    let topology = &described.topology;
    let source = "measured: /sys/devices/system/cpu and /sys/devices/system/node";
    match topology.regular() {
        Some(shape) => {
            let fields = [
                "nodes",
                "llcs_per_node",
                "cores_per_llc",
                "threads_per_core",
            ];
            for (field, value) in fields.iter().zip(shape) {
                draft.put(&format!("topology.{field}"), value, source.to_owned());
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
        None => draft.note("the coarse clock does not show the tick: hz stays a guess"),
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

/// The cache that is modelled, and the last level if that is another one.
fn modelled(caches: &[CacheLevel]) -> (Option<&CacheLevel>, Option<&CacheLevel>) {
    match caches {
        [] => (None, None),
        [only] => (Some(only), None),
        // The last one may be shared, the one below it is the core's own.
        [.., own, last] if last.level >= 3 => (Some(own), Some(last)),
        [.., own] => (Some(own), None),
    }
}

/// Sizes and latencies of caches and memory.
fn memory_costs(draft: &mut Draft, described: &Described, cpu: usize) {
    let (own, last) = modelled(&described.caches);
    let mut line_bytes = draft.base.memory.line_bytes;
    let mut own_bytes = draft.base.memory.cache_bytes;
    if let Some(own) = own {
        let source = format!("measured: /sys/devices/system/cpu, level {}", own.level);
        let usable = usable(own);
        if let Some((line, ways)) = usable {
            line_bytes = line;
            own_bytes = own.bytes;
            draft.put("memory.line_bytes", line, source.clone());
            draft.put("memory.cache_bytes", own.bytes, source.clone());
            draft.put("memory.ways", ways, source);
        } else {
            draft.note(format!(
                "the kernel's description of the level {} cache cannot be ({} bytes, {} ways, lines of {} bytes): the cache stays a guess",
                own.level, own.bytes, own.ways, own.line_bytes
            ));
        }
    }
    // Each level costs at least what the level before it does.
    let mut floor = 0;
    let mut level = |draft: &mut Draft, field: &str, bytes: u64, what: &str| {
        let what = format!("chain of dependent loads over {} KB, {what}", bytes >> 10);
        match memory::chase(cpu, bytes, line_bytes) {
            Some(sample) if sample.median() > floor => {
                floor = draft.put_ps(field, &sample, &what);
            }
            Some(sample) => {
                let told = format!(
                    "derived: raised to the level before it; {}",
                    sample.source(&what)
                );
                draft.put(field, floor, told.replace("measured: ", ""));
            }
            None => {}
        }
    };
    level(
        draft,
        "memory.hit_ps",
        own_bytes / 2,
        "which the CPU's own cache holds",
    );
    let last_bytes = last.map_or(own_bytes, |last| last.bytes);
    if last.is_some() {
        let bytes = (own_bytes * 4).min(last_bytes / 2).max(own_bytes * 2);
        level(
            draft,
            "memory.llc_hit_ps",
            bytes,
            "which the last-level cache holds",
        );
    } else {
        let source = "measured: /sys/devices/system/cpu shows no further level".to_owned();
        draft.put("memory.llc_hit_ps", 0, source);
    }
    let bytes = (last_bytes * 4).clamp(CHAIN_BYTES.0, CHAIN_BYTES.1);
    if bytes < last_bytes * 2 {
        draft.note("the last-level cache is so large that part of the memory chain fits into it");
    }
    level(draft, "memory.miss_ps", bytes, "TLB misses included");
    if let Some(sample) = memory::atomic(cpu) {
        let what = "fetch_add on an owned line, the access included";
        draft.put_ps("memory.atomic_ps", &sample, what);
    }
}

/// Line and ways if the modelled cache can be made of them.
fn usable(cache: &CacheLevel) -> Option<(u32, u32)> {
    let (line, ways) = (cache.line_bytes, cache.ways);
    let way = u64::from(line) * u64::from(ways);
    let fits = way > 0
        && line.is_power_of_two()
        && (16..=4_096).contains(&line)
        && ways <= 64
        && cache.bytes.is_multiple_of(way)
        && (cache.bytes / way).is_power_of_two()
        && cache.bytes <= 1 << 30;
    fits.then_some((line, ways))
}

/// What each step outwards costs: what was measured, and `base` where nothing was. Nothing costs less
/// than what was measured further inwards. A guess gives way to measurements on both sides of it.
fn rising<const N: usize>(measured: [Option<u64>; N], base: [u64; N]) -> [u64; N] {
    let mut floor = 0;
    std::array::from_fn(|step| match measured[step] {
        Some(ps) => {
            floor = ps.max(floor);
            floor
        }
        None => {
            let outwards = measured[step..].iter().flatten().next();
            let ceiling = outwards.map_or(u64::MAX, |&ps| ps.max(floor));
            base[step].clamp(floor, ceiling)
        }
    })
}

/// Transfers between CPUs at each distance, and what follows from them.
fn transfers(draft: &mut Draft, site: &Site<'_>) {
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
    let median = |sample: &Option<Sample>| sample.as_ref().map_or(0, Sample::median);
    let clock = median(&paths::clock(cpu));
    let syscall = paths::syscall(cpu);
    if let Some(sample) = &syscall {
        draft.put_ns("paths.syscall_ns", sample, "getppid()");
    }
    let syscall = median(&syscall);

    let schedule = paths::yield_alone(cpu).map(|sample| sample.less(syscall));
    if let Some(sample) = &schedule {
        let what = "sched_yield() with nobody else to run, less a system call";
        draft.put_ns("paths.schedule_ns", sample, what);
    }
    let futex = paths::futex_nobody(cpu).map(|sample| sample.less(syscall));
    if let Some(sample) = &futex {
        let what = "futex wake of nobody, less a system call";
        draft.put_ns("paths.futex_ns", sample, what);
    }
    let pipe = paths::pipe_alone(cpu).map(|sample| sample.divided(2).less(syscall));
    if let Some(sample) = &pipe {
        let what = "mean of a write and a read of a byte that wait for nothing, less a system call";
        draft.put_ns("paths.pipe_ns", sample, what);
    }
    progress("sockets");
    match paths::socket_alone(cpu) {
        Some((sent, received)) => {
            let contained = syscall + clock;
            let what = "100 bytes on a loopback TCP socket, nobody waiting, less a system call";
            draft.put_ns("paths.socket_send_ns", &sent.less(contained), what);
            draft.put_ns("paths.socket_recv_ns", &received.less(contained), what);
        }
        None => draft.note("no loopback socket could be used: socket costs stay a guess"),
    }
    progress("wakeups and context switches");
    let wakeup = paths::wake_same_cpu(cpu);
    let wakeup = wakeup.map(|sample| sample.less(syscall + median(&futex)));
    match &wakeup {
        Some(sample) => {
            let what = "futex wakes of threads on the same CPU, less a futex wake of nobody";
            draft.put_ns("paths.wakeup_ns", sample, what);
        }
        None => draft.note("no wakeup could be measured: it stays a guess"),
    }
    let calls = 2 * (syscall + median(&pipe));
    let hop = paths::pipe_hop(cpu, cpu);
    let switch = hop.map(|hop| hop.less(calls + median(&wakeup) + median(&schedule)));
    if let Some(sample) = &switch {
        let what = "hop through a pipe between threads on one CPU, less a write, a read, a wakeup and schedule()";
        draft.put_ns("paths.switch_ns", sample, what);
    }
    let known = calls + median(&wakeup) + median(&schedule) + median(&switch);
    let switch_mm = paths::pipe_hop_processes(cpu).map(|hop| hop.less(known));
    if let Some(sample) = &switch_mm {
        let what = "hop through a pipe between processes on one CPU, less one between threads";
        draft.put_ns("paths.switch_mm_ns", sample, what);
    }
    let cores = (0..3).find_map(|distance| site.cores(distance));
    let hop = cores.and_then(|(a, b)| {
        let hop = paths::pipe_hop(site.cpus[a], site.cpus[b])?;
        Some((a, b, hop))
    });
    match hop {
        Some((a, b, hop)) => {
            let known = known + ipi_ps(&draft.base);
            let what = format!(
                "hop through a pipe between CPUs {a} and {b}, less one on a single CPU and less the guessed costs of the interrupt"
            );
            draft.put_ns("paths.idle_exit_ns", &hop.less(known), &what);
        }
        None => draft.note("no two cores could be measured: leaving idle stays a guess"),
    }
    progress("fork and exit");
    match paths::fork_and_exit(cpu) {
        Some((fork, whole)) => {
            draft.put_ns(
                "paths.fork_ns",
                &fork,
                "fork() of a small process, as its caller sees it",
            );
            let switches = 2 * (median(&schedule) + median(&switch) + median(&switch_mm));
            let known = fork.median() + switches + 2 * syscall;
            let what = "from fork() until the exit is collected, less fork(), two switches and two system calls";
            draft.put_ns("paths.exit_ns", &whole.less(known), what);
        }
        None => draft.note("no process could be forked: fork and exit stay a guess"),
    }
    progress("timer tick");
    let ticks = paths::hz().and_then(|hz| paths::tick_gaps(cpu, hz));
    match ticks {
        Some(gaps) => {
            let what =
                "gaps in a loop that reads the clock, less the guessed entry of an interrupt";
            let irq = draft.base.paths.irq_ns * 1_000;
            draft.put_ns("paths.tick_ns", &gaps.less(irq), what);
        }
        None => draft.note("no timer tick could be seen: its cost stays a guess"),
    }
}

/// What a remote wakeup's interrupt costs by the profile that the guesses are from.
fn ipi_ps(base: &Machine) -> u64 {
    let paths = &base.paths;
    let ns = paths.ipi_send_ns + paths.ipi_delay_ns + paths.irq_ns + paths.ipi_handle_ns;
    ns * 1_000
}

#[cfg(test)]
mod tests {
    use schedlab_machine::Topology;

    use super::*;

    fn cache(level: u32, bytes: u64, ways: u32, line_bytes: u32) -> CacheLevel {
        CacheLevel {
            level,
            bytes,
            ways,
            line_bytes,
        }
    }

    #[test]
    fn the_modelled_cache_is_the_one_below_the_shared_one() {
        let l1 = cache(1, 32 << 10, 8, 64);
        let l2 = cache(2, 1 << 20, 8, 64);
        let l3 = cache(3, 32 << 20, 16, 64);
        let all = [l1.clone(), l2.clone(), l3.clone()];
        assert_eq!(modelled(&all), (Some(&l2), Some(&l3)));
        assert_eq!(modelled(&all[..2]), (Some(&l2), None));
        assert_eq!(modelled(&[]), (None, None));
    }

    #[test]
    fn nonsense_of_virtual_machines_is_not_taken_for_a_cache() {
        assert_eq!(usable(&cache(2, 1 << 20, 8, 64)), Some((64, 8)));
        assert_eq!(usable(&cache(2, 1 << 20, 0, 64)), None);
        assert_eq!(usable(&cache(2, 3 << 19, 8, 64)), None);
        assert_eq!(usable(&cache(2, 1 << 20, 8, 0)), None);
    }

    #[test]
    fn what_was_measured_is_never_replaced_by_a_guess() {
        let base = [18_000, 23_000, 80_000];
        let cases = [
            ([None, None, None], base),
            ([None, Some(15_700), None], [15_700, 15_700, 80_000]),
            ([None, Some(90_000), None], [18_000, 90_000, 90_000]),
            ([Some(30_000), None, None], [30_000, 30_000, 80_000]),
            ([Some(9_000), None, Some(12_000)], [9_000, 12_000, 12_000]),
            ([None, None, Some(5_000)], [5_000; 3]),
            // Farther is not faster: two measurements that say so are of one distance.
            ([Some(30_000), Some(20_000), None], [30_000, 30_000, 80_000]),
            ([Some(30_000), None, Some(20_000)], [30_000; 3]),
        ];
        for (measured, values) in cases {
            assert_eq!(rising(measured, base), values, "{measured:?}");
        }
    }

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
