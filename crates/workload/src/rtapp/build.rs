//! From an understood file to objects and threads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use schedlab_trace::{CpuId, CpuSet, Duration, nearest};

use super::grammar::{Cgroup, Cpus, Event, File, MemKind, MemRun, Phase, Task, Timer};
use super::thread::{FOREVER, Op, Program, ProgramPhase, Shared, TimerSlot, UNSET};
use super::values::Place;
use crate::{
    Access, Builder, CgroupId, ObjectId, ObjectSpec, Options, SchedClass, Touch, WorkloadError,
};

/// How long a file runs that would go on until it is interrupted.
pub const ENDLESS: Duration = Duration::from_secs(10);

pub(super) fn build(
    file: File,
    options: &Options,
    builder: &mut Builder,
) -> Result<(), WorkloadError> {
    for note in &file.notes {
        builder.note(note);
    }
    set_cgroups(&file, builder)?;
    check_locks(&file)?;
    check_buffers(&file)?;
    check_suspends(&file, builder);
    check_devices(&file, builder)?;
    let by_name = by_name(&file);
    let forked = forked_tasks(&file, &by_name)?;
    let mut names = Names {
        objects: BTreeMap::new(),
        timers: BTreeMap::new(),
        parties: parties(&file, &forked, builder),
        woken: woken(&file),
        mutex: match file.global.pi_enabled {
            true => ObjectSpec::PiMutex,
            false => ObjectSpec::Mutex,
        },
        shared_timers: shared_timers(&file),
        absolute: absolute(&file),
        tasks: by_name,
    };
    let threads = file.tasks.iter().map(|task| u64::from(task.instances));
    builder.room_for(options, threads.sum())?;
    let placement = builder.placement().clone();
    let mut programs = Vec::with_capacity(file.tasks.len());
    for task in &file.tasks {
        let compiled = compile(task, &file, &mut names, builder, options)?;
        programs.push(compiled);
    }
    let names_cgroup = |program: &Program| {
        let mut phases = program.phases.iter();
        program.cgroup.is_some() || phases.any(|phase| phase.cgroup.is_some())
    };
    let shared = Arc::new(Shared {
        has_cgroups: programs.iter().any(names_cgroup),
        programs,
        timers: names.timers.iter().map(|_| AtomicU64::new(UNSET)).collect(),
        forks: file.tasks.iter().map(|_| AtomicU32::new(0)).collect(),
        created: AtomicU32::new(0),
        cumulative_slack: file.global.cumulative_slack,
        jitter_pct: options.percent("jitter"),
        placement,
        pin_given: options.is_given("pin"),
        nice_given: options.is_given("nice"),
        class_given: options.is_given("policy"),
    });
    for (program, task) in file.tasks.iter().enumerate() {
        for _ in 0..task.instances {
            builder.push(Shared::spawn(&shared, program, None));
        }
    }
    end(&file, &forked, options, builder)
}

/// When the run ends, if not by itself.
fn end(
    file: &File,
    forked: &BTreeSet<usize>,
    options: &Options,
    builder: &mut Builder,
) -> Result<(), WorkloadError> {
    let mut endless = false;
    let mut any = false;
    let moving = moving(file);
    for (i, task) in file.tasks.iter().enumerate() {
        if task.instances == 0 && !forked.contains(&i) {
            builder.note(format!(
                "`{}` never runs: its `instance` is 0 and no task forks it",
                task.place.path
            ));
            continue;
        }
        any |= task.instances > 0;
        let for_ever = |phase: &&Phase| phase.loops.is_none();
        let never_ends = |phase: &Phase| {
            phase.loops.is_none() || phase.events.iter().any(|(event, _)| is_endless(event))
        };
        endless |=
            task.loops.is_none() || task.delay_us.is_none() || task.phases.iter().any(never_ends);
        let idle = |phase: &Phase| {
            let mut events = phase.events.iter();
            events.all(|(event, _)| takes_no_time(event, &moving))
        };
        let spins = task.loops.is_none() && task.phases.iter().all(idle)
            || task.phases.iter().filter(for_ever).any(idle);
        if spins {
            return Err(task.place.error(
                "would loop for ever without taking time: give it a run, a sleep or a timer",
            ));
        }
    }
    if !any {
        return Err(file.tasks[0]
            .place
            .error("and all other tasks have `instance` 0: nothing runs"));
    }
    let duration = match (options.time("duration"), file.global.duration_s) {
        (Duration::ZERO, None) if endless => {
            builder.note(format!(
                "the file would run until it is interrupted; the run ends after {} s (duration=…)",
                ENDLESS.ns() / 1_000_000_000
            ));
            Some(ENDLESS)
        }
        (Duration::ZERO, seconds) => seconds.map(Duration::from_secs),
        (given, _) => Some(given),
    };
    if let Some(duration) = duration {
        builder.duration(duration);
    }
    Ok(())
}

/// Returns whether an event alone keeps its thread until the run ends.
fn is_endless(event: &Event) -> bool {
    match event {
        Event::Run { us } | Event::Sleep { us } => us.is_none(),
        Event::Mem { bytes } | Event::IoRun { bytes } => bytes.is_none(),
        Event::MemRun(run) => run.count.is_none(),
        Event::Timer(timer) => timer.period_us.is_none(),
        _ => false,
    }
}

fn takes_no_time(event: &Event, moving: &BTreeSet<&str>) -> bool {
    match event {
        Event::Run { us: Some(0) }
        | Event::Mem { bytes: Some(0) }
        | Event::IoRun { bytes: Some(0) } => true,
        Event::MemRun(run) => run.count == Some(0),
        // Others may move a timer that is not the thread's own.
        Event::Timer(timer) if timer.is_unique() => timer.period_us == Some(0),
        Event::Timer(timer) => !moving.contains(timer.name.as_str()),
        _ => false,
    }
}

/// Returns the timers that some event moves on.
fn moving(file: &File) -> BTreeSet<&str> {
    timers(file)
        .filter(|(_, timer)| timer.period_us != Some(0))
        .map(|(_, timer)| timer.name.as_str())
        .collect()
}

fn timers(file: &File) -> impl Iterator<Item = (&Task, &Timer)> {
    events(file).filter_map(|(task, event, _)| match event {
        Event::Timer(timer) => Some((task, timer)),
        _ => None,
    })
}

/// Returns the timers that are absolute since one of their uses says so: by name, and by task where each has its own
/// (the flag is the resource's, not the event's).
fn absolute(file: &File) -> BTreeSet<(Option<String>, String)> {
    timers(file)
        .filter(|(_, timer)| timer.absolute)
        .map(|(task, timer)| whose(timer, task))
        .collect()
}

fn whose(timer: &Timer, task: &Task) -> (Option<String>, String) {
    let owner = timer.is_unique().then(|| task.name.clone());
    (owner, timer.name.clone())
}

/// Places in the list of tasks.
fn by_name(file: &File) -> BTreeMap<String, usize> {
    let names = file.tasks.iter().map(|task| task.name.clone());
    names.zip(0..).collect()
}

/// Checks that what `mem` and `iorun` need is there.
fn check_devices(file: &File, builder: &mut Builder) -> Result<(), WorkloadError> {
    let mut is_written = false;
    for (_, event, place) in events(file) {
        match event {
            Event::Mem { bytes } if *bytes != Some(0) && file.global.mem_buffer_bytes < 0 => {
                return Err(place.error(format!(
                    "has no memory: `global.mem_buffer_size` is {}, with which rt-app fails; make it at least 1",
                    file.global.mem_buffer_bytes
                )));
            }
            Event::IoRun { .. } => is_written = true,
            _ => {}
        }
    }
    match &file.global.io_device {
        Some((device, place)) if is_written => Err(place.error(format!(
            "not supported: `{device}`; no device but /dev/null is modelled"
        ))),
        Some((_, place)) => {
            builder.note(format!(
                "line {}: `{}` has no effect: no `iorun` writes there",
                place.line, place.path
            ));
            Ok(())
        }
        None => Ok(()),
    }
}

/// Returns the names under which threads wake: suspended threads wait on a condition as those that `wait` do.
fn woken(file: &File) -> BTreeSet<String> {
    events(file)
        .filter_map(|(_, event, _)| match event {
            Event::Resume(name) | Event::Signal(name) | Event::Broadcast(name) => Some(name),
            Event::Sync { condition, .. } => Some(condition),
            _ => None,
        })
        .cloned()
        .collect()
}

fn events(file: &File) -> impl Iterator<Item = (&Task, &Event, &Place)> {
    file.tasks.iter().flat_map(|task| {
        let phases = task.phases.iter();
        phases.flat_map(move |phase| {
            let events = phase.events.iter();
            events.map(move |(event, place)| (task, event, place))
        })
    })
}

/// Returns the name under which a suspended thread waits.
fn suspend_name<'a>(task: &'a Task, given: Option<&'a str>, woken: &BTreeSet<String>) -> &'a str {
    match given {
        Some(given) if !woken.contains(&task.name) && woken.contains(given) => given,
        _ => &task.name,
    }
}

/// Notes suspends that nothing ends, resumes that wake no thread, and strings that count as names.
fn check_suspends(file: &File, builder: &mut Builder) {
    let woken = woken(file);
    let mut waited: BTreeSet<&str> = BTreeSet::new();
    let mut told: BTreeSet<&str> = BTreeSet::new();
    let mut resumed: BTreeSet<&str> = BTreeSet::new();
    for (task, event, place) in events(file) {
        let given = match event {
            Event::Suspend(given) => given,
            Event::Wait { condition, .. } | Event::Sync { condition, .. } => {
                waited.insert(condition);
                continue;
            }
            Event::Resume(name) => {
                resumed.insert(name);
                continue;
            }
            _ => continue,
        };
        let name = suspend_name(task, given.as_deref(), &woken);
        waited.insert(name);
        if name != task.name && told.insert(&task.name) {
            builder.note(format!(
                "`{}` waits under the name `{name}`, as in rt-app before May 2025: no task resumes `{}`",
                place.path, task.name
            ));
        }
        if !woken.contains(name) && told.insert(&task.name) {
            builder.note(format!(
                "`{}` sleeps until the run ends: no task resumes `{name}`",
                place.path
            ));
        }
    }
    for name in resumed.difference(&waited) {
        builder.note(format!(
            "resume `{name}` wakes no task: none suspends under that name"
        ));
    }
}

/// Places in the list of tasks of those that some task forks.
fn forked_tasks(
    file: &File,
    by_name: &BTreeMap<String, usize>,
) -> Result<BTreeSet<usize>, WorkloadError> {
    const SHOWN: usize = 20;
    events(file)
        .filter_map(|(_, event, place)| match event {
            Event::Fork(name) => Some((name, place)),
            _ => None,
        })
        .map(|(name, place)| {
            by_name.get(name).copied().ok_or_else(|| {
                let names: Vec<&str> = file.tasks.iter().map(|task| task.name.as_str()).collect();
                let more = if names.len() > SHOWN { ", …" } else { "" };
                place.error(format!(
                    "forks `{name}`, which is not a task{}; there are: {}{more}",
                    nearest(name, &names),
                    names[..names.len().min(SHOWN)].join(", ")
                ))
            })
        })
        .collect()
}

/// Returns how many threads meet at each barrier: each place where it is named counts the instances that its task
/// begins with. Forked threads meet there, too, and nobody has counted them, as in rt-app.
fn parties(file: &File, forked: &BTreeSet<usize>, builder: &mut Builder) -> BTreeMap<String, u32> {
    let mut parties: BTreeMap<String, u32> = BTreeMap::new();
    let mut told = BTreeSet::new();
    for (i, task) in file.tasks.iter().enumerate() {
        let phases = task.phases.iter();
        for (event, place) in phases.flat_map(|phase| &phase.events) {
            let Event::Barrier(name) = event else {
                continue;
            };
            if forked.contains(&i) && told.insert(name) {
                builder.note(format!(
                    "line {}: `{}` is in a task that is forked, and the barrier `{name}` opens for as many threads as there are from the start, as in rt-app",
                    place.line, place.path
                ));
            }
            *parties.entry(name.clone()).or_default() += task.instances;
        }
    }
    parties
}

/// Follows the mutexes that each task holds through its phases, twice where they loop.
fn check_locks(file: &File) -> Result<(), WorkloadError> {
    let woken = woken(file);
    for task in &file.tasks {
        let mut held: BTreeSet<&str> = BTreeSet::new();
        let twice = |loops: Option<u64>| loops.map_or(2, |n| n.min(2));
        for _ in 0..twice(task.loops) {
            for phase in &task.phases {
                for _ in 0..twice(phase.loops) {
                    for (event, place) in &phase.events {
                        let taken = match event {
                            Event::Resume(name) => Some(name.as_str()),
                            Event::Suspend(given) => {
                                Some(suspend_name(task, given.as_deref(), &woken))
                            }
                            _ => None,
                        };
                        if let Some(name) = taken.filter(|&name| held.contains(name)) {
                            return Err(place.error(format!(
                                "takes the mutex `{name}` that goes with that name, which the thread holds already: it would wait for itself"
                            )));
                        }
                        follow(event, &mut held).map_err(|message| place.error(message))?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn follow<'a>(event: &'a Event, held: &mut BTreeSet<&'a str>) -> Result<(), String> {
    match event {
        Event::Lock(name) if held.contains(name.as_str()) => Err(format!(
            "locks `{name}`, which the thread holds already: it would wait for itself"
        )),
        Event::Lock(name) => {
            held.insert(name);
            Ok(())
        }
        Event::Unlock(name) if held.remove(name.as_str()) => Ok(()),
        Event::Unlock(name) => Err(format!(
            "unlocks `{name}`, which the thread does not hold: put a `lock` before it"
        )),
        Event::Wait { mutex, .. } if !held.contains(mutex.as_str()) => Err(format!(
            "needs the mutex `{mutex}` to be held: put a `lock` before it"
        )),
        Event::Sync { mutex, .. } if !held.contains(mutex.as_str()) => Err(format!(
            "needs the mutex `{mutex}` to be held, since rt-app, other than its tutorial says, does not lock it: put a `lock` before it and an `unlock` after it"
        )),
        _ => Ok(()),
    }
}

/// Buffers under one name (`ref`) are one buffer.
fn check_buffers(file: &File) -> Result<(), WorkloadError> {
    let mut known: BTreeMap<(u8, &str), &MemRun> = BTreeMap::new();
    for (_, event, place) in events(file) {
        let Event::MemRun(run) = event else { continue };
        let Some(name) = &run.shared else { continue };
        let sort = match run.kind {
            MemKind::Read => 0,
            MemKind::Write => 1,
            MemKind::Chase { .. } => 2,
        };
        let first = *known.entry((sort, name)).or_insert(run);
        if (first.kind, first.size_bytes) != (run.kind, run.size_bytes) {
            return Err(place.error(format!(
                "uses the buffer `{name}` with another size, stride or pattern than elsewhere; rt-app refuses it too: make them equal, or give it another `ref`"
            )));
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sort {
    Mutex,
    /// Of `wait`, `signal`, `broad` and `sync` as of `suspend` and `resume`.
    Condition,
    Barrier,
    Semaphore,
}

/// The objects that names in the file stand for.
struct Names {
    objects: BTreeMap<(Sort, String), ObjectId>,
    /// Timers that several threads share.
    timers: BTreeMap<String, usize>,
    parties: BTreeMap<String, u32>,
    woken: BTreeSet<String>,
    /// The kinds of mutexes, those that go with conditions included.
    mutex: ObjectSpec,
    /// Timers that several threads have together.
    shared_timers: BTreeSet<String>,
    /// The absolute timers.
    absolute: BTreeSet<(Option<String>, String)>,
    /// Places in the list of tasks.
    tasks: BTreeMap<String, usize>,
}

impl Names {
    fn object(&mut self, builder: &mut Builder, sort: Sort, name: &str) -> ObjectId {
        // A barrier at which no thread was counted does not open.
        let counted = self.parties.get(name).copied().filter(|&n| n > 0);
        let parties = counted.unwrap_or(u32::MAX);
        let mutex = self.mutex;
        let key = (sort, name.to_owned());
        *self.objects.entry(key).or_insert_with(|| {
            builder.object(match sort {
                Sort::Mutex => mutex,
                Sort::Condition => ObjectSpec::Condition,
                Sort::Barrier => ObjectSpec::Barrier { parties },
                Sort::Semaphore => ObjectSpec::Semaphore { initial: 0 },
            })
        })
    }
}

fn compile(
    task: &Task,
    file: &File,
    names: &mut Names,
    builder: &mut Builder,
    options: &Options,
) -> Result<Program, WorkloadError> {
    let nr_cpus = builder.placement().nr_cpus();
    let cpus = |asked: &Option<Cpus>| -> Result<Option<CpuSet>, WorkloadError> {
        let Some(Cpus { list, place }) = asked else {
            return Ok(None);
        };
        if options.is_given("pin") {
            return Ok(None);
        }
        if let Some(cpu) = list.iter().find(|&&cpu| cpu as usize >= nr_cpus) {
            return Err(place.error(format!(
                "asks for CPU {cpu}, but the machine has {nr_cpus}, numbered from 0: give it more CPUs, or pin=false to ignore the file's lists"
            )));
        }
        let mut set = CpuSet::empty(nr_cpus);
        list.iter().for_each(|&cpu| set.insert(CpuId(cpu)));
        Ok(Some(set))
    };
    let own_cpus = cpus(&task.cpus)?;
    // Timers of the thread's own, by name.
    let mut own_timers: BTreeMap<String, usize> = BTreeMap::new();
    let mut buffers = Buffers(BTreeMap::new());
    let mut phases = Vec::with_capacity(task.phases.len());
    let mut class = task.class;
    for phase in &task.phases {
        class = phase.sched.map_or(class, |(class, _)| class);
        let list = phase.cpus.as_ref().or(task.cpus.as_ref());
        if let Some(Cpus { list, place }) = list
            && matches!(class, SchedClass::Deadline(_))
            && !options.is_given("pin")
            && !options.is_given("policy")
            && (0..nr_cpus as u32).any(|cpu| !list.contains(&cpu))
        {
            return Err(place.error(format!(
                "cannot go with SCHED_DEADLINE, under which a thread must be allowed on all {nr_cpus} CPUs: the kernel refuses it (EBUSY), and rt-app fails; remove the list"
            )));
        }
        let mut ops = Vec::with_capacity(phase.events.len());
        for (event, _) in &phase.events {
            if let Event::Timer(timer) = event {
                let slots = if timer.is_unique() {
                    &mut own_timers
                } else {
                    &mut names.timers
                };
                let next = slots.len();
                let at = *slots.entry(timer.name.clone()).or_insert(next);
                ops.push(Op::Timer {
                    slot: if timer.is_unique() {
                        TimerSlot::Own(at)
                    } else {
                        TimerSlot::Shared(at)
                    },
                    period: time(timer.period_us),
                    absolute: names.absolute.contains(&whose(timer, task)),
                });
                continue;
            }
            ops.push(operation(event, task, file, names, &mut buffers, builder));
        }
        phases.push(ProgramPhase {
            cgroup: place_of(&phase.cgroup, builder)?,
            loops: phase.loops,
            sched: phase.sched,
            cpus: match cpus(&phase.cpus)? {
                Some(set) => Some(set),
                None => own_cpus.clone(),
            },
            ops,
        });
    }
    Ok(Program {
        cgroup: place_of(&task.cgroup, builder)?,
        name: task.name.clone(),
        delay: time(task.delay_us),
        offset: offset(task, names, options),
        loops: task.loops,
        class: task.class,
        nice: task.nice,
        timers: own_timers.len(),
        phases,
    })
}

/// Returns the place of a cgroup among the workload's.
fn place_of(
    cgroup: &Option<Cgroup>,
    builder: &mut Builder,
) -> Result<Option<CgroupId>, WorkloadError> {
    let Some(Cgroup { path, place }) = cgroup else {
        return Ok(None);
    };
    let found = builder.cgroups().at(path);
    found.map(Some).map_err(|why| place.error(why))
}

/// Gives the file's cgroups their settings.
fn set_cgroups(file: &File, builder: &mut Builder) -> Result<(), WorkloadError> {
    for (Cgroup { path, place }, settings) in &file.cgroups {
        let cgroup = builder.cgroups().at(path).map_err(|why| place.error(why))?;
        if cgroup == CgroupId::ROOT {
            return Err(place.error("is the root, which has no settings"));
        }
        let set = builder.cgroups().set(cgroup, *settings);
        set.map_err(|_| place.error("has other settings already: name each cgroup once"))?;
    }
    Ok(())
}

/// Returns a time of the file, [`FOREVER`] for one that never ends.
fn time(us: Option<u64>) -> Duration {
    us.map_or(FOREVER, Duration::from_us)
}

/// Returns by how much threads of a task begin later at most. A thread that waits for others, or is waited for,
/// begins as in rt-app, where all begin at once; so does a thread with a `delay`.
fn offset(task: &Task, names: &Names, options: &Options) -> Duration {
    let is_free = task.delay_us == Some(0) && !shares(task, names);
    if !is_free && !options.is_given("offset") {
        return Duration::ZERO;
    }
    Duration::from_ns(period(&task.phases[0]).ns() * options.percent("offset") / 100)
}

/// Returns how often a thread comes back to a phase that it sleeps in: its first timer's period, or else what it runs
/// and sleeps. Zero where it does not sleep, or for ever.
fn period(phase: &Phase) -> Duration {
    let events = || phase.events.iter().map(|(event, _)| event);
    let timer = events().find_map(|event| match event {
        Event::Timer(timer) => Some(timer.period_us),
        _ => None,
    });
    let sleeps = events().any(|event| matches!(event, Event::Sleep { .. }));
    let times = events().map(|event| match event {
        Event::Run { us } | Event::Sleep { us } => *us,
        Event::Runtime { us } => Some(*us),
        _ => Some(0),
    });
    let us = timer.unwrap_or_else(|| if sleeps { times.sum() } else { Some(0) });
    Duration::from_us(us.unwrap_or(0))
}

/// Returns whether what a thread of the task does depends on other threads, or theirs on it.
fn shares(task: &Task, names: &Names) -> bool {
    let mut events = task.phases.iter().flat_map(|phase| &phase.events);
    events.any(|(event, _)| match event {
        Event::Timer(timer) => !timer.is_unique() && names.shared_timers.contains(&timer.name),
        Event::Run { .. }
        | Event::Runtime { .. }
        | Event::Sleep { .. }
        | Event::Mem { .. }
        | Event::MemRun(_)
        | Event::IoRun { .. }
        | Event::Yield => false,
        _ => true,
    })
}

/// Returns the timers that several threads have together, by name.
fn shared_timers(file: &File) -> BTreeSet<String> {
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    let mut shared = BTreeSet::new();
    for (task, timer) in timers(file).filter(|(_, timer)| !timer.is_unique()) {
        let owner = *owners.entry(&timer.name).or_insert(&task.name);
        if owner != task.name || task.instances != 1 {
            shared.insert(timer.name.clone());
        }
    }
    shared
}

/// The buffers of a thread: one of `mem`, and for `memrun` one of each kind and size, or of each name.
struct Buffers(BTreeMap<Option<MemRun>, u32>);

impl Buffers {
    fn number(&mut self, run: Option<&MemRun>) -> u32 {
        // How much is gone over makes no other buffer of it.
        let key = run.map(|run| MemRun {
            count: None,
            ..run.clone()
        });
        let next = self.0.len() as u32;
        *self.0.entry(key).or_insert(next)
    }
}

/// Returns the action of an event.
fn operation(
    event: &Event,
    task: &Task,
    file: &File,
    names: &mut Names,
    buffers: &mut Buffers,
    builder: &mut Builder,
) -> Op {
    let buffer_bytes = u64::try_from(file.global.mem_buffer_bytes);
    let woken_as = match event {
        Event::Suspend(given) => suspend_name(task, given.as_deref(), &names.woken).to_owned(),
        _ => String::new(),
    };
    let mut get = |sort, name: &str| names.object(builder, sort, name);
    match event {
        Event::Run { us } => us.map_or(Op::Spin, |us| Op::Run(Duration::from_us(us))),
        Event::Runtime { us } => Op::Runtime(Duration::from_us(*us)),
        Event::Sleep { us } => Op::Sleep(time(*us)),
        // Both take the mutex of that name.
        Event::Suspend(_) => Op::Suspend {
            condition: get(Sort::Condition, &woken_as),
            mutex: get(Sort::Mutex, &woken_as),
        },
        Event::Resume(name) => Op::Resume {
            condition: get(Sort::Condition, name),
            mutex: get(Sort::Mutex, name),
        },
        Event::Lock(name) => Op::Lock(get(Sort::Mutex, name)),
        Event::Unlock(name) => Op::Unlock(get(Sort::Mutex, name)),
        Event::Wait { condition, mutex } => Op::Wait {
            condition: get(Sort::Condition, condition),
            mutex: get(Sort::Mutex, mutex),
        },
        Event::Sync { condition, mutex } => Op::Sync {
            condition: get(Sort::Condition, condition),
            mutex: get(Sort::Mutex, mutex),
        },
        Event::Signal(name) => Op::Signal(get(Sort::Condition, name)),
        Event::Broadcast(name) => Op::Broadcast(get(Sort::Condition, name)),
        Event::Barrier(name) => Op::Barrier(get(Sort::Barrier, name)),
        Event::SemPost(name) => Op::Post(get(Sort::Semaphore, name)),
        Event::SemWait(name) => Op::Acquire(get(Sort::Semaphore, name)),
        // memset() of no bytes, for ever.
        Event::Mem { bytes } if buffer_bytes == Ok(0) && *bytes != Some(0) => Op::Spin,
        Event::Mem { bytes } => touch(
            buffers.number(None),
            buffer_bytes.unwrap_or(1),
            *bytes,
            Access::Fill,
        ),
        Event::MemRun(run) => touch(
            buffers.number(Some(run)),
            run.size_bytes,
            run.count,
            match run.kind {
                MemKind::Read => Access::Read,
                MemKind::Write => Access::Write,
                MemKind::Chase {
                    stride_bytes,
                    random,
                } => Access::Chase {
                    stride_bytes,
                    random,
                },
            },
        ),
        // One write() a buffer; /dev/null takes everything, and nothing of an empty one.
        Event::IoRun { bytes } => Op::Syscalls(match (bytes, buffer_bytes) {
            (Some(0), _) => Some(0),
            (None, _) | (_, Ok(0)) => None,
            (Some(bytes), Ok(buffer_bytes)) => Some(bytes.div_ceil(buffer_bytes) as u32),
            (Some(_), Err(_)) => Some(1),
        }),
        Event::Yield => Op::Yield,
        Event::Fork(name) => Op::Fork(names.tasks[name]),
        Event::Timer(_) => unreachable!("timers are compiled by their slots"),
    }
}

/// The block of an endless access, in bytes or pointers.
const ENDLESS_STEP: u64 = 1 << 20;

/// Goes over memory; without a `count` for ever.
fn touch(buffer: u32, size_bytes: u64, count: Option<u64>, access: Access) -> Op {
    let touch = |count| Touch {
        buffer,
        size_bytes,
        count,
        access,
    };
    match count {
        Some(count) => Op::Touch(touch(count)),
        None => Op::TouchForEver(touch(ENDLESS_STEP)),
    }
}
