//! Each checker finds its fault in a stream of the real kernel that was altered by hand.
//!
//! `fixtures/kernel.events` was recorded on Linux 6.18 with two CPUs:
//! `schedlab run -s kernel --warmup 0 --events kernel.events -- perf bench sched messaging -g 1 -l 100`.

use std::path::Path;

use schedlab_events::EventFile;
use schedlab_report::{Heard, MetricsRecorder};
use schedlab_trace::check::running_time::RunningTime;
use schedlab_trace::check::stall::Stall;
use schedlab_trace::check::{Check, Checkers, Start};
use schedlab_trace::{
    CpuId, CpuMode, CpuSet, DEADLINE_PRIORITY, Duration, Event, Instant, Listener, LockClass,
    LockId, LockPath, PrevState, TaskId, TaskMeta,
};

#[derive(Clone, Debug)]
enum Told {
    Starter(TaskId),
    Task(TaskId, TaskMeta),
    Affinity(TaskId, CpuSet),
    Lock(LockId, &'static str, LockClass),
    Event(Instant, CpuId, Event),
}

#[derive(Default)]
struct Kept(Vec<Told>);

impl Listener for Kept {
    fn define_starter(&mut self, task: TaskId) {
        self.0.push(Told::Starter(task));
    }
    fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
        self.0.push(Told::Task(task, meta.clone()));
    }
    fn define_affinity(&mut self, task: TaskId, allowed: &CpuSet) {
        self.0.push(Told::Affinity(task, allowed.clone()));
    }
    fn define_lock(&mut self, lock: LockId, _: &str, class: LockClass) {
        self.0.push(Told::Lock(lock, "", class));
    }
    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        self.0.push(Told::Event(at, cpu, event));
    }
}

fn file() -> EventFile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kernel.events");
    EventFile::open(&path).expect("a recording")
}

fn recording() -> Vec<Told> {
    let mut kept = Kept::default();
    file().tell(&mut kept).expect("a whole recording");
    kept.0
}

fn tell(stream: &[Told], listener: &mut dyn Listener) {
    for told in stream {
        match told {
            Told::Starter(task) => listener.define_starter(*task),
            Told::Task(task, meta) => listener.define_task(*task, meta),
            Told::Affinity(task, allowed) => listener.define_affinity(*task, allowed),
            Told::Lock(lock, name, class) => listener.define_lock(*lock, name, *class),
            Told::Event(at, cpu, event) => listener.record(*at, *cpu, *event),
        }
    }
}

/// Longer than any task of the recording waits, and shorter than the recording.
const BOUND: Duration = Duration::from_us(1_000_000);

/// The rules that are broken, each once, in their order.
fn rules(stream: &[Told]) -> Vec<&'static str> {
    let about = file();
    let about = about.about();
    let mut checkers = Checkers::new(about.nr_cpus as usize, about.start(), BOUND);
    tell(stream, &mut checkers);
    let mut rules: Vec<_> = checkers.finish().first().iter().map(|v| v.rule).collect();
    rules.dedup();
    rules
}

/// How often one rule is broken.
fn count(mut check: impl Check, stream: &[Told]) -> u64 {
    tell(stream, &mut check);
    let Some(Told::Event(end, _, Event::End)) = stream.last() else {
        panic!("a recording ends with its end");
    };
    check.finish(*end);
    check.violations().count()
}

/// The first event for which `wanted` holds, from the middle of the stream on.
fn find(stream: &[Told], wanted: impl Fn(Event) -> bool) -> (usize, Instant, CpuId, Event) {
    for (index, told) in stream.iter().enumerate().skip(stream.len() / 2) {
        if let Told::Event(at, cpu, event) = *told
            && wanted(event)
        {
            return (index, at, cpu, event);
        }
    }
    panic!("the recording has no such event");
}

fn is_start(event: Event) -> bool {
    matches!(event, Event::Switch { next: Some(_), .. })
}

fn other(cpu: CpuId) -> CpuId {
    CpuId(1 - cpu.0)
}

#[test]
fn the_recording_is_sound() {
    let stream = recording();
    assert!(stream.len() > 500, "{} rows", stream.len());
    assert_eq!(rules(&stream), [""; 0]);
}

#[test]
fn its_measures_are_those_of_its_run() {
    let file = file();
    let about = file.about();
    assert!(!about.starts_idle && about.lost == 0);
    let recorder = MetricsRecorder::new(about.nr_cpus as usize, about.shows);
    let mut heard = Heard::new(recorder, None);
    file.tell(&mut heard).unwrap();
    let measures = heard.recorder().measures(None);
    for (name, value) in EXPECTED {
        assert_eq!(measures.number(name), Some(value), "{name}");
    }
}

/// As `schedlab run --json` told them.
const EXPECTED: [(&str, f64); 11] = [
    ("switches.total", 4137.0),
    ("switches.voluntary", 3041.0),
    ("switches.involuntary", 1097.0),
    ("migrations.total", 89.0),
    ("ipis", 566.0),
    ("wakeup.latency_ns_p50", 26079.0),
    ("wakeup.latency_ns_max", 303676531.0),
    ("runqueue.len_mean", 23.28621577346127),
    ("runqueue.len_max", 41.0),
    ("fairness.jain", 0.8315317220011765),
    ("wait.ns_max", 324692942.0),
];

#[test]
fn a_dropped_switch_is_found() {
    let mut stream = recording();
    let (index, ..) = find(&stream, is_start);
    stream.remove(index);
    assert_eq!(rules(&stream), ["tasks", "running time"]);
    let check = || RunningTime::new(2, Start::Unknown);
    assert_eq!(
        (count(check(), &recording()), count(check(), &stream)),
        (0, 1)
    );
}

#[test]
fn a_task_on_two_cpus_is_found() {
    let mut stream = recording();
    let (index, at, cpu, event) = find(&stream, is_start);
    let Event::Switch { next, .. } = event else {
        unreachable!()
    };
    let again = Event::Switch {
        prev: None,
        prev_state: PrevState::Preempted,
        next,
    };
    stream.insert(index + 1, Told::Event(at, other(cpu), again));
    assert_eq!(rules(&stream), ["tasks"]);
}

#[test]
fn a_forbidden_cpu_is_found() {
    let mut stream = recording();
    let (index, _, cpu, event) = find(&stream, is_start);
    let Event::Switch {
        next: Some(task), ..
    } = event
    else {
        unreachable!()
    };
    let allowed = CpuSet::single(2, other(cpu));
    stream.insert(index, Told::Affinity(task, allowed));
    assert_eq!(rules(&stream), ["affinity"]);
}

#[test]
fn time_that_goes_back_is_found() {
    let mut stream = recording();
    let (index, at, ..) = find(&stream, is_start);
    if let Told::Event(time, ..) = &mut stream[index] {
        *time = Instant::from_ns(at.ns() / 2);
    }
    assert_eq!(rules(&stream), ["cpu time", "running time"]);
}

#[test]
fn a_task_that_waits_too_long_is_found() {
    let mut stream = recording();
    let (index, _, _, event) = find(&stream, |event| matches!(event, Event::Wakeup { .. }));
    let Event::Wakeup { task: woken, .. } = event else {
        unreachable!()
    };
    // It never runs again, and the run goes on for longer than the bound.
    let rest = stream.split_off(index + 1);
    let of_it = |told: &Told| match told {
        Told::Event(_, _, Event::Switch { prev, next, .. }) => {
            [*prev, *next].contains(&Some(woken))
        }
        Told::Event(_, _, Event::TaskExit { task } | Event::Wakeup { task, .. }) => *task == woken,
        _ => false,
    };
    stream.extend(rest.into_iter().filter(|told| !of_it(told)));
    let Some(Told::Event(end, _, Event::End)) = stream.last_mut() else {
        panic!("a recording ends with its end");
    };
    *end = *end + BOUND + BOUND;
    let check = || Stall::new(BOUND);
    assert_eq!(
        (count(check(), &recording()), count(check(), &stream)),
        (0, 1)
    );
}

#[test]
fn a_deadline_task_that_waits_for_a_lesser_one_is_found() {
    let mut stream = recording();
    let (index, at, cpu, event) = find(&stream, is_start);
    let Event::Switch {
        next: Some(starts), ..
    } = event
    else {
        unreachable!()
    };
    let task = TaskId(stream.len() as u32);
    let meta = TaskMeta {
        comm: "deadline".to_owned(),
        nice: 0,
        affinity: CpuSet::all(2),
        rt_priority: DEADLINE_PRIORITY,
        idle: false,
    };
    assert_ne!(task, starts);
    let before = |ns| Instant::from_ns(at.ns() - ns);
    let since = Duration::ZERO;
    let enter = Event::ScheduleEnter {
        runnable: 2,
        queue: 2,
    };
    stream.splice(
        index..index,
        [
            Told::Task(task, meta),
            Told::Event(
                before(2),
                cpu,
                Event::Wakeup {
                    task,
                    to: cpu,
                    since,
                },
            ),
            Told::Event(before(1), cpu, enter),
        ],
    );
    assert_eq!(rules(&stream), ["deadline"]);
}

#[test]
fn an_illegal_mode_is_found() {
    let mut stream = recording();
    let (index, at, cpu, _) = find(&stream, is_start);
    let modes = [CpuMode::Idle, CpuMode::User].map(|mode| Told::Event(at, cpu, Event::Mode(mode)));
    stream.splice(index..index, modes);
    assert_eq!(rules(&stream), ["cpu time", "modes"]);
}

#[test]
fn a_lock_with_two_holders_is_found() {
    let mut stream = recording();
    let (index, at, cpu, _) = find(&stream, is_start);
    let lock = LockId(0);
    let taken = Event::LockAcquired {
        lock,
        path: LockPath::Schedule,
        waited: Duration::ZERO,
        contended: false,
        trylock: false,
    };
    stream.splice(
        index..index,
        [
            Told::Lock(lock, "rq 0", LockClass::KernelRq),
            Told::Event(at, cpu, taken),
            Told::Event(at, other(cpu), taken),
        ],
    );
    assert_eq!(rules(&stream), ["locks"]);
}
