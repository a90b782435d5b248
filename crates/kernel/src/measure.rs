//! Measures a workload by the kernel's tracepoints: `bpf/measure.bpf.c` counts, this reads.
//!
//! A measure without a tracepoint in this kernel is absent, never zero.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Func, Typedef};
use libbpf_rs::{
    Link, MapCore as _, MapFlags, ObjectBuilder, ProgramInput, RingBuffer, RingBufferBuilder,
};

use schedlab_report::histogram::coarse;
use schedlab_report::{Measures, Sources, weight};
use schedlab_trace::Listener;

use crate::error::{Doing as _, Error, Result};
use crate::load::{per_cpu, set_rodata};
use crate::raw::RawEvent;
use crate::topology::{self, Place};
use crate::trace::{EventStream, SHOWN};
use crate::vars::{self, Variable};
use crate::verdict;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/measure.bpf.o"));

/// As in `measure.h`.
const HIST_STEP_BITS: u32 = 7;
const SERVICE_UNIT: f64 = (1 << 24) as f64;
const MAX_CPUS: usize = 1024;

/// Bytes of the ring buffer where events are streamed.
const RING_BYTES: u32 = 64 << 20;

/// The options of a measurement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Want {
    /// Tell every event besides counting.
    pub events: bool,
    /// Judge the events by the invariants.
    pub check: bool,
    /// The command is the program of a workload: counting begins when its tasks may begin, and processes
    /// that only start and await tasks are left out.
    pub root_is_starter: bool,
}

impl Want {
    /// Whether events are streamed at all.
    pub fn hears(&self) -> bool {
        self.events || self.check
    }
}

/// Measurement programs that are attached to this kernel.
pub struct Measurement {
    /// Where events come from. It maps the buffer, which takes milliseconds, so it is made once.
    ring: RingBuffer<'static>,
    object: libbpf_rs::Object,
    links: Vec<Link>,
    /// Names of the programs that are attached.
    attached: BTreeSet<String>,
    layout: Layout,
    bss: Vec<Variable>,
    /// Records that have come out of the buffer.
    events: Arc<Mutex<Vec<RawEvent>>>,
    stream: EventStream,
    rq_locks_known: bool,
    idle_jiffies: Vec<u64>,
    began_ns: u64,
}

/// The counts.
pub struct Counted {
    /// Every measure that this kernel shows.
    pub measures: Measures,
    /// Latencies from wakeup to running: smallest value, largest value, count.
    pub wakeup_latency: Vec<(u64, u64, u64)>,
    /// Records that were lost, or came too late for their place; measures that depend on them are absent.
    pub lost: u64,
    /// Whether the run had begun to count and nothing was lost.
    pub is_whole: bool,
}

/// Offsets in `struct cpu_counters`.
struct Layout(Vec<(String, usize, usize)>);

impl Layout {
    fn of(btf: &Btf<'_>) -> Layout {
        Layout(vars::members(btf, "cpu_counters"))
    }

    fn offset(&self, name: &str) -> (usize, usize) {
        let (_, offset, size) = self
            .0
            .iter()
            .find(|(known, _, _)| known == name)
            .unwrap_or_else(|| panic!("measure.h has no counter {name}"));
        (*offset, *size)
    }

    /// Of each CPU.
    fn values<'a>(&self, cpus: &'a [Vec<u8>], name: &str) -> impl Iterator<Item = u64> + 'a {
        let (offset, size) = self.offset(name);
        cpus.iter().map(move |bytes| number(bytes, offset, size))
    }

    fn sum(&self, cpus: &[Vec<u8>], name: &str) -> u64 {
        self.values(cpus, name).sum()
    }

    fn max(&self, cpus: &[Vec<u8>], name: &str) -> u64 {
        self.values(cpus, name).max().unwrap_or(0)
    }
}

fn rejected(error: &libbpf_rs::Error) -> Error {
    verdict::rejected("the measuring programs", &format!("{error:#}"))
}

fn number(bytes: &[u8], offset: usize, size: usize) -> u64 {
    match size {
        4 => u32::from_ne_bytes(bytes[offset..offset + 4].try_into().expect("four bytes")).into(),
        _ => u64::from_ne_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes")),
    }
}

impl Measurement {
    /// Attaches whatever of the programs this kernel supports. Nothing is counted yet.
    ///
    /// # Errors
    /// The kernel refuses the programs, or lacks the tracepoints without which nothing is known.
    pub fn attach(want: Want) -> Result<Measurement> {
        let failed = |doing: &'static str| {
            move |cause| Error::Bpf {
                doing: format!("{doing} the measuring programs"),
                cause,
            }
        };
        verdict::listen(|| Self::attach_logged(want, failed))
    }

    fn attach_logged<F>(want: Want, failed: impl Fn(&'static str) -> F) -> Result<Measurement>
    where
        F: FnOnce(libbpf_rs::Error) -> Error,
    {
        let btf = Btf::from_raw("measure", OBJECT)
            .map_err(failed("reading"))?
            .expect("the build script compiles with -g");
        let kernel = Btf::from_vmlinux().doing("reading the kernel's types")?;
        // A kernel may allow programs at tracepoints and none at functions, or not tell where its variables are: that
        // costs the measures that need it.
        let mut refused = None;
        for optional in [
            &["fentry", "fexit", "syscall"][..],
            &["fentry", "fexit"],
            &["syscall"],
            &[],
        ] {
            match Self::load(want, &btf, &kernel, optional, &failed)? {
                Ok((object, attachable)) => {
                    return Self::attach_loaded(object, &attachable, &btf);
                }
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Err(rejected(&refused.expect("none was loaded")))
    }

    /// Loads the programs at tracepoints, and those of the `optional` kinds. Answers with the names of those that can be
    /// attached.
    #[allow(
        clippy::type_complexity,
        reason = "two kinds of failure: ours and the kernel's"
    )]
    fn load<F>(
        want: Want,
        btf: &Btf<'_>,
        kernel: &Btf<'_>,
        optional: &[&str],
        failed: &impl Fn(&'static str) -> F,
    ) -> Result<libbpf_rs::Result<(libbpf_rs::Object, BTreeSet<String>)>>
    where
        F: FnOnce(libbpf_rs::Error) -> Error,
    {
        let mut open = ObjectBuilder::default()
            .name("measure")
            .and_then(|builder| builder.open_memory(OBJECT))
            .map_err(failed("opening"))?;

        let rodata = vars::of_section(btf, ".rodata");
        let mut bytes: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut set = |name: &str, value: Vec<u8>| {
            let variable = rodata
                .iter()
                .find(|v| v.name == name)
                .unwrap_or_else(|| panic!("measure.bpf.c has no {name}"));
            bytes.push((variable.offset, value));
        };
        let places = topology::places();
        set("stream", vec![u8::from(want.hears())]);
        let follows_masks = optional.contains(&"fentry")
            && kernel
                .type_by_name::<Func<'_>>("set_cpus_allowed_common")
                .is_some();
        set("follows_masks", vec![u8::from(follows_masks)]);
        set("nr_cpus", (places.len() as u32).to_ne_bytes().into());
        let online = topology::online().len().max(1) as u32;
        set("nr_online", online.to_ne_bytes().into());
        set("tells", vec![u8::from(want.root_is_starter)]);
        set("weights", words((-20..20).map(weight::of_nice)));
        let placed = places.iter().take(MAX_CPUS);
        set(
            "places",
            words(placed.flat_map(|&Place { core, llc, node }| [core, llc, node])),
        );
        set_rodata(&mut open, &bytes);
        for mut map in open.maps_mut() {
            if map.name() == "events" {
                let size = if want.hears() { RING_BYTES } else { 4096 };
                map.set_max_entries(size).map_err(failed("sizing"))?;
            }
        }

        let mut attachable = BTreeSet::new();
        for mut program in open.progs_mut() {
            let section = program.section().to_string_lossy().into_owned();
            let there = match section.split_once('/') {
                Some(("tp_btf", name)) => kernel
                    .type_by_name::<Typedef<'_>>(&format!("btf_trace_{name}"))
                    .is_some(),
                Some((kind, function)) => {
                    optional.contains(&kind) && kernel.type_by_name::<Func<'_>>(function).is_some()
                }
                None => optional.contains(&section.as_str()),
            };
            program.set_autoload(there);
            if there && section != "syscall" {
                attachable.insert(program.name().to_string_lossy().into_owned());
            }
        }
        Ok(open.load().map(|object| (object, attachable)))
    }

    fn attach_loaded(
        object: libbpf_rs::Object,
        attachable: &BTreeSet<String>,
        btf: &Btf<'_>,
    ) -> Result<Measurement> {
        let mut rq_locks_known = false;
        for program in object.progs_mut() {
            if program.name() == "find_rq_locks" {
                let output = program.test_run(ProgramInput::default());
                rq_locks_known =
                    output.is_ok_and(|o| o.return_value as usize >= topology::possible_cpus());
            }
        }
        let mut links = Vec::new();
        let mut attached = BTreeSet::new();
        for program in object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            if !attachable.contains(&name) {
                continue;
            }
            // A tracer that this kernel does not allow costs the measures that need it.
            if let Ok(link) = program.attach() {
                links.push(link);
                attached.insert(name);
            }
        }
        for needed in [
            "on_switch",
            "on_waking",
            "on_wakeup",
            "on_fork",
            "on_exec",
            "on_rename",
            "on_exit",
        ] {
            if !attached.contains(needed) {
                return Err(Error::Kernel {
                    reason: format!("it does not let '{needed}' attach to its tracepoint"),
                });
            }
        }
        let events = Arc::default();
        Ok(Measurement {
            ring: ring(&object, Arc::clone(&events)).doing("reading events")?,
            links,
            attached,
            layout: Layout::of(btf),
            bss: vars::of_section(btf, ".bss"),
            events,
            stream: EventStream::default(),
            rq_locks_known,
            idle_jiffies: Vec::new(),
            began_ns: 0,
            object,
        })
    }

    /// Begins to follow what `root_pid` and its descendants do, from its next `execve` on.
    ///
    /// # Errors
    /// A map cannot be written.
    pub fn begin(&mut self, root_pid: u32) -> Result<()> {
        let now = monotonic_ns();
        self.began_ns = now;
        self.idle_jiffies = idle_jiffies();
        let zero = 0_u32.to_ne_bytes();
        let map = self.map("counters");
        let size = map.value_size() as usize;
        let mut start = vec![0; size];
        let (offset, _) = self.layout.offset("last_switch_ns");
        start[offset..offset + 8].copy_from_slice(&now.to_ne_bytes());
        let cpus = vec![start; topology::possible_cpus()];
        map.update_percpu(&zero, &cpus, MapFlags::ANY)
            .doing("starting the counters")?;
        self.set_bss("root_pid", &root_pid.to_ne_bytes())?;
        self.set_bss("counting", &[1])
    }

    fn map(&self, name: &str) -> libbpf_rs::Map<'_> {
        map(&self.object, name)
    }

    fn bss_variable(&self, name: &str) -> &Variable {
        self.bss
            .iter()
            .find(|v| v.name == name)
            .unwrap_or_else(|| panic!("measure.bpf.c has no {name}"))
    }

    fn bss(&self) -> Result<Vec<u8>> {
        let map = self.map(".bss");
        let data = map
            .lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)
            .doing("reading the measuring programs' variables")?;
        Ok(data.expect("a map of variables has one entry"))
    }

    fn set_bss(&self, name: &str, value: &[u8]) -> Result<()> {
        let mut data = self.bss()?;
        let offset = self.bss_variable(name).offset;
        data[offset..offset + value.len()].copy_from_slice(value);
        self.map(".bss")
            .update(&0_u32.to_ne_bytes(), &data, MapFlags::ANY)
            .doing("setting the measuring programs' variables")
    }

    /// Which events this kernel shows.
    pub fn shown(&self) -> Sources {
        Sources {
            yields: self.has(&["on_yield", "after_yield"]),
            migrations: self.has(&["on_migrate"]),
            ipis: self.has(&["on_ipi"]),
            ..SHOWN
        }
    }

    /// Tells the events that have come so far, which makes room for others.
    ///
    /// # Errors
    /// The ring buffer cannot be read.
    pub fn tell_events(&mut self, listener: &mut dyn Listener) -> Result<()> {
        self.ring.consume().doing("reading events")?;
        let come = self
            .events
            .lock()
            .map(|mut come| std::mem::take(&mut *come));
        for record in come.unwrap_or_default() {
            self.stream.take(record, listener);
        }
        Ok(())
    }

    /// Stops counting, streams the last events and reads everything.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn end(mut self, listener: &mut dyn Listener) -> Result<Counted> {
        self.set_bss("counting", &[0])?;
        let ended_ns = monotonic_ns();
        // Programs that are still inside a handler finish before the link is gone.
        self.links.clear();
        self.tell_events(listener)?;
        let late = self.stream.end(listener);
        let cpus = per_cpu(&self.object, "counters")?
            .and_then(|entries| entries.into_iter().next())
            .unwrap_or_default();
        let lost = self.layout.sum(&cpus, "lost") + late;
        let histogram = match lost {
            0 => self.histogram()?,
            _ => Vec::new(),
        };
        let measures = self.measures(&cpus, &histogram, ended_ns, lost)?;
        Ok(Counted {
            is_whole: lost == 0 && measures.get("switches.total").is_some(),
            measures,
            wakeup_latency: coarse(histogram.iter().map(|&(low, _, count)| (low, count))),
            lost,
        })
    }

    fn histogram(&self) -> Result<Vec<(u64, u64, u64)>> {
        let entries = per_cpu(&self.object, "wakeup_latency")?.unwrap_or_default();
        let mut buckets = Vec::new();
        for (index, cpus) in entries.iter().enumerate() {
            let count: u64 = cpus.iter().map(|bytes| number(bytes, 0, 8)).sum();
            if count > 0 {
                let (low, high) = bucket(index as u32);
                buckets.push((low, high, count));
            }
        }
        Ok(buckets)
    }

    fn measures(
        &self,
        cpus: &[Vec<u8>],
        histogram: &[(u64, u64, u64)],
        ended_ns: u64,
        lost: u64,
    ) -> Result<Measures> {
        let mut m = Measures::default();
        let sum = |name: &str| self.layout.sum(cpus, name);
        let max = |name: &str| self.layout.max(cpus, name);
        let bss = self.bss()?;
        let time = |name: &str| number(&bss, self.bss_variable(name).offset, 8);
        let (began, over, done) = (time("began_ns"), time("over_ns"), time("done_ns"));
        let (exec, exit) = (time("root_exec_ns"), time("root_exit_ns"));
        if exec > 0 && exit >= exec {
            m.int("makespan_ns", exit - exec);
        }
        if lost > 0 {
            // Every counter may miss something, and it is not known which.
            m.int("lost_records", lost);
            return Ok(m);
        }
        if began == 0 {
            // It ended before there was anything to count.
            return Ok(m);
        }
        m.int("schedule.picked_elsewhere", sum("elsewhere"));
        if cpus.len() <= MAX_CPUS {
            m.int("schedule.priority_inversions", sum("inversions"));
        }
        let lengths = sum("lengths");
        if lengths > 0 {
            m.mean("runqueue.len_mean", sum("length_sum").into(), lengths);
            m.int("runqueue.len_max", max("length_max"));
        }
        if self.rq_locks_known && self.has(&["on_contention", "on_contention_end"]) {
            let waits = sum("rq_contentions");
            m.int("lock.rq.queued_waits", waits);
            if waits > 0 {
                m.mean(
                    "lock.rq.queued_wait_ns_mean",
                    sum("rq_wait_sum_ns").into(),
                    waits,
                );
                m.int("lock.rq.queued_wait_ns_max", max("rq_wait_max_ns"));
            }
            let waits = sum("spin_contentions");
            m.int("lock.spin.queued_waits", waits);
            if waits > 0 {
                m.mean(
                    "lock.spin.queued_wait_ns_mean",
                    sum("spin_wait_sum_ns").into(),
                    waits,
                );
                m.int("lock.spin.queued_wait_ns_max", max("spin_wait_max_ns"));
            }
        }
        m.int("switches.total", sum("switches_in"));
        m.int("switches.voluntary", sum("switches_voluntary"));
        m.int("switches.involuntary", sum("switches_involuntary"));
        if self.has(&["on_yield", "after_yield"]) {
            m.int("switches.yielded", sum("switches_yielded"));
        }
        m.int("switches.system", sum("switches_all"));
        if self.has(&["on_migrate"]) && cpus.len() <= MAX_CPUS {
            let (offset, _) = self.layout.offset("migrations");
            let reach = |n: usize| -> u64 {
                cpus.iter()
                    .map(|bytes| number(bytes, offset + 8 * n, 8))
                    .sum()
            };
            m.int("migrations.total", (0..4).map(reach).sum());
            for (n, name) in ["smt", "llc", "node", "remote"].iter().enumerate() {
                m.int(format!("migrations.{name}"), reach(n));
            }
        }
        if self.has(&["on_ipi"]) {
            m.int("ipis", sum("reschedule_ipis"));
        }
        let longest = max("latency_max_ns");
        for (permille, name) in [(500, "p50"), (900, "p90"), (990, "p99"), (999, "p99_9")] {
            if let Some(ns) = quantile(histogram, permille) {
                m.int(format!("wakeup.latency_ns_{name}"), ns.min(longest));
            }
        }
        let latencies = sum("latency_count");
        if latencies > 0 {
            m.mean(
                "wakeup.latency_ns_mean",
                sum("latency_sum_ns").into(),
                latencies,
            );
            m.int("wakeup.latency_ns_max", longest);
        }
        // As ended() in measure.bpf.c; what was stopped has no end of its own.
        let ends = [over, done, exit, ended_ns];
        let end = ends.into_iter().find(|&ns| ns > 0).unwrap_or(began);
        let (idle, all) = self.idle(cpus, began, end);
        m.percent("cpu.idle_pct", idle, all);
        let tasks = sum("tasks_ended") as f64;
        let total = sum("service_sum") as f64 / SERVICE_UNIT;
        let words = f64::from(u32::MAX) + 1.0;
        let squares =
            sum("service_squares_high") as f64 * words + sum("service_squares_low") as f64;
        if squares > 0.0 {
            let squares = squares / (SERVICE_UNIT * SERVICE_UNIT);
            m.float("fairness.jain", total * total / (tasks * squares));
        }
        Ok(m)
    }

    fn has(&self, programs: &[&str]) -> bool {
        programs.iter().all(|p| self.attached.contains(*p))
    }

    /// Idle time and all time of the CPUs that are online, in the part of the run that counts.
    fn idle(&self, cpus: &[Vec<u8>], began: u64, end: u64) -> (u64, u64) {
        let window = end.saturating_sub(began);
        let jiffies = idle_jiffies();
        let since_attached = monotonic_ns().saturating_sub(self.began_ns);
        let of = |name: &str, cpu: usize| {
            let (offset, size) = self.layout.offset(name);
            cpus.get(cpu).map_or(0, |bytes| number(bytes, offset, size))
        };
        let online = topology::online();
        let mut idle = 0;
        for &cpu in &online {
            let cpu = cpu as usize;
            let last = of("last_switch_ns", cpu);
            if last > self.began_ns {
                let rest = end.saturating_sub(last.max(began));
                idle += of("idle_ns", cpu) + if of("idle_now", cpu) != 0 { rest } else { 0 };
            } else {
                // It never switched: it idled or ran one task all along. The tick knows which.
                let before = self.idle_jiffies.get(cpu).copied().unwrap_or(0);
                let ticks = jiffies.get(cpu).map_or(0, |now| now.saturating_sub(before));
                let half = since_attached / 2 / (1_000_000_000 / JIFFIES_PER_S);
                if ticks > half {
                    idle += window;
                }
            }
        }
        (idle, window * online.len() as u64)
    }
}

/// `USER_HZ`: the unit of /proc/stat on every architecture we run on.
const JIFFIES_PER_S: u64 = 100;

/// Idle time of each CPU since boot from `/proc/stat`, in 1/100 s, waiting for disks included.
fn idle_jiffies() -> Vec<u64> {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let mut cpus = Vec::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("cpu") else {
            continue;
        };
        let mut words = rest.split_whitespace();
        let Some(cpu) = rest
            .starts_with(|c: char| c.is_ascii_digit())
            .then(|| words.next()?.parse::<usize>().ok())
            .flatten()
        else {
            continue;
        };
        let columns: Vec<u64> = words.filter_map(|w| w.parse().ok()).collect();
        if cpus.len() <= cpu {
            cpus.resize(cpu + 1, 0);
        }
        cpus[cpu] = columns.get(3).unwrap_or(&0) + columns.get(4).unwrap_or(&0);
    }
    cpus
}

fn map<'o>(object: &'o libbpf_rs::Object, name: &str) -> libbpf_rs::Map<'o> {
    object
        .maps()
        .find(|map| map.name().to_string_lossy().ends_with(name))
        .unwrap_or_else(|| panic!("measure.bpf.c has no map {name}"))
}

/// Reads the events of `object` into `kept`.
fn ring(
    object: &libbpf_rs::Object,
    kept: Arc<Mutex<Vec<RawEvent>>>,
) -> libbpf_rs::Result<RingBuffer<'static>> {
    let map = map(object, "events");
    let mut builder = RingBufferBuilder::new();
    builder.add(&map, move |bytes| {
        if let (Ok(mut kept), Some(event)) = (kept.lock(), RawEvent::parse(bytes)) {
            kept.push(event);
        }
        0
    })?;
    builder.build()
}

/// CLOCK_MONOTONIC, as `bpf_ktime_get_ns()` reads it.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

fn words(values: impl Iterator<Item = u32>) -> Vec<u8> {
    values.flat_map(u32::to_ne_bytes).collect()
}

/// Smallest and largest value of a bucket: the inverse of `bucket_of()` in `measure.bpf.c`.
fn bucket(index: u32) -> (u64, u64) {
    let steps = 1_u64 << HIST_STEP_BITS;
    let index = u64::from(index);
    if index < steps {
        return (index, index);
    }
    let shift = index / steps - 1;
    let low = (steps + index % steps) << shift;
    (low, low + (1 << shift) - 1)
}

/// The upper end of the bucket below or in which this share (in thousandths) of all values lies.
fn quantile(histogram: &[(u64, u64, u64)], permille: u64) -> Option<u64> {
    let all: u64 = histogram.iter().map(|(_, _, count)| count).sum();
    let rank = (all * permille).div_ceil(1000).max(1);
    let mut seen = 0;
    histogram.iter().find_map(|(_, high, count)| {
        seen += count;
        (seen >= rank).then_some(*high)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        let mut next = 0;
        for index in 0..(34 << HIST_STEP_BITS) {
            let (low, high) = bucket(index);
            assert_eq!(low, next);
            assert!(high >= low && (high - low) * 128 <= high);
            next = high + 1;
        }
        assert_eq!(next, 1 << 40);
    }

    /// The names by which a workload's program announces its actions are written down twice.
    #[test]
    fn names_are_those_of_the_workloads_program() {
        let header = include_str!("bpf/measure.h");
        let program = include_str!("../../programs/src/sys.rs");
        let names: Vec<&str> = header
            .lines()
            .filter(|line| line.starts_with("#define NAME_"))
            .filter_map(|line| line.split('"').nth(1))
            .collect();
        assert_eq!(names.len(), 3);
        for name in names {
            assert!(program.contains(&format!("c\"{name}\"")), "{name}");
        }
    }

    #[test]
    fn coarse_buckets_keep_every_count() {
        let coarse = coarse((0..1000).map(|index| (bucket(index).0, 1)));
        assert_eq!(coarse.iter().map(|b| b.2).sum::<u64>(), 1000);
        assert!(coarse.windows(2).all(|pair| pair[0].1 < pair[1].0));
        assert!(coarse.contains(&(128, 143, 16)), "{coarse:?}");
    }

    #[test]
    fn quantiles_on_known_cases() {
        let histogram = [(1, 1, 50), (2, 3, 49), (100, 101, 1)];
        assert_eq!(quantile(&histogram, 500), Some(1));
        assert_eq!(quantile(&histogram, 900), Some(3));
        assert_eq!(quantile(&histogram, 999), Some(101));
        assert_eq!(quantile(&[], 500), None);
    }
}
