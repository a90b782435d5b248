//! A file of events keeps every event and definition in few bytes; any other file is refused in one line.

use std::fs;
use std::path::Path;

use schedlab_events::{About, EventFile, EventWriter, FORMAT, GROUP};
use schedlab_report::{Measures, RunResult, Sources};
use schedlab_trace::{
    CpuId, CpuMode, CpuSet, Duration, Event, Instant, Listener, LockClass, LockId, LockPath,
    MigrationReach, PrevState, TaskId, TaskMeta,
};

/// All that a listener hears, in words.
#[derive(Default, PartialEq, Debug)]
struct Told(Vec<String>);

impl Listener for Told {
    fn define_starter(&mut self, task: TaskId) {
        self.0.push(format!("starter {task}"));
    }
    fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
        self.0.push(format!("{task} is {meta:?}"));
    }
    fn define_affinity(&mut self, task: TaskId, allowed: &CpuSet) {
        self.0.push(format!("{task} may use {allowed}"));
    }
    fn define_lock(&mut self, lock: LockId, name: &str, class: LockClass) {
        self.0.push(format!("{lock} is {name} of {class:?}"));
    }
    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        self.0.push(format!("{} {cpu} {event:?}", at.ns()));
    }
}

fn about() -> About {
    let mut beside = Measures::default();
    beside.float("cache.misses", 2.5);
    beside.text("score_unit", "s");
    About {
        format: FORMAT,
        nr_cpus: 4,
        clock_mhz: Some(700),
        shows: Sources::ALL,
        starts_idle: true,
        stall_bound_ns: None,
        lost: 0,
        result: RunResult {
            workload: "pipe".to_owned(),
            ..RunResult::default()
        },
        beside,
    }
}

/// Each kind of event and definition, with values at the ends of their ranges.
fn tell_all(listener: &mut dyn Listener) {
    let (a, b) = (TaskId(0), TaskId(1));
    let lock = LockId(1);
    listener.define_starter(a);
    let meta = |nice, rt_priority, idle| TaskMeta {
        comm: "täsk, \"a\"".to_owned(),
        nice,
        affinity: CpuSet::all(4),
        rt_priority,
        idle,
    };
    listener.define_task(a, &meta(-20, 0, true));
    listener.define_task(b, &meta(19, 100, false));
    listener.define_affinity(b, &"1,3".parse().unwrap());
    listener.define_lock(LockId(0), "", LockClass::Other);
    listener.define_lock(lock, "rq 1", LockClass::KernelRq);
    let mut events = vec![
        Event::TaskNew {
            task: a,
            parent: None,
        },
        Event::TaskNew {
            task: b,
            parent: Some(a),
        },
        Event::TaskExit { task: b },
        Event::Wakeup {
            task: b,
            to: CpuId(3),
            since: Duration::ZERO,
        },
        Event::Affinity { task: b },
        Event::Priority { task: b },
        Event::Running { task: a },
        Event::Begin,
        Event::ScheduleEnter {
            runnable: u32::MAX,
            queue: 0,
        },
        Event::ScheduleExit {
            examined: 1,
            recalculations: u32::MAX,
            memory_wait_ps: 1 << 60,
        },
        Event::Switch {
            prev: None,
            prev_state: PrevState::Preempted,
            next: None,
        },
        Event::LockReleased {
            lock,
            held: Duration::from_ns(1 << 50),
        },
        Event::Ipi { to: CpuId(0) },
        Event::Tick,
        Event::Throttled { task: b },
        Event::Replenished { task: b },
        Event::DeadlineMissed { task: b },
        Event::Work {
            task: a,
            n: u32::MAX,
        },
    ];
    events.extend(CpuMode::ALL.map(Event::Mode));
    for reach in [
        MigrationReach::Smt,
        MigrationReach::Llc,
        MigrationReach::Node,
        MigrationReach::Remote,
    ] {
        events.push(Event::Migrate {
            task: a,
            from: CpuId(0),
            to: CpuId(3),
            reach,
        });
    }
    for prev_state in [PrevState::Yielded, PrevState::Blocked, PrevState::Exited] {
        events.push(Event::Switch {
            prev: Some(a),
            prev_state,
            next: Some(b),
        });
    }
    for path in [LockPath::Schedule, LockPath::Wakeup, LockPath::Other] {
        events.push(Event::LockContended { lock, path });
        events.push(Event::LockTryFailed { lock, path });
        for is in [false, true] {
            events.push(Event::LockAcquired {
                lock,
                path,
                waited: Duration::from_ns(7),
                contended: is,
                trylock: !is,
            });
        }
    }
    events.push(Event::End);
    // CPUs may be behind each other.
    for (n, event) in events.into_iter().enumerate() {
        let at = Instant::from_ns(1_000 * n as u64 + if n % 2 == 0 { 700 } else { 0 });
        listener.record(at, CpuId(n as u32 % 4), event);
    }
}

fn write(path: &Path, about: &About, tell: impl Fn(&mut dyn Listener)) {
    let mut writer = EventWriter::new(fs::File::create(path).unwrap()).unwrap();
    tell(&mut writer);
    writer.finish(about).unwrap();
}

fn read(path: &Path) -> Result<Told, String> {
    let file = EventFile::open(path).map_err(|error| error.to_string())?;
    let mut told = Told::default();
    file.tell(&mut told).map_err(|error| error.to_string())?;
    Ok(told)
}

#[test]
fn everything_comes_back_as_it_was_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.events");
    write(&path, &about(), tell_all);
    let mut expected = Told::default();
    tell_all(&mut expected);
    assert_eq!(read(&path).unwrap(), expected);
    assert_eq!(EventFile::open(&path).unwrap().about(), &about());
    // The same events are the same bytes.
    let again = folder.path().join("again.events");
    write(&again, &about(), tell_all);
    assert_eq!(fs::read(&path).unwrap(), fs::read(&again).unwrap());
}

#[test]
fn groups_follow_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.events");
    let ticks = 2 * GROUP as u64 + 17;
    write(&path, &about(), |listener| {
        for n in 0..ticks {
            listener.record(Instant::from_ns(n), CpuId(0), Event::Tick);
        }
    });
    let told = read(&path).unwrap();
    assert_eq!(told.0.len() as u64, ticks);
    assert_eq!(told.0.last().unwrap(), &format!("{} 0 Tick", ticks - 1));
}

#[test]
fn whatever_is_no_such_file_is_told_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.events");
    write(&path, &about(), tell_all);
    let whole = fs::read(&path).unwrap();
    let with = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let error = read(&path).unwrap_err();
        assert!(
            !error.contains('\n') && error.contains("a.events"),
            "{error}"
        );
        error
    };
    for cut in [0, 3, 100, whole.len() / 2, whole.len() - 1] {
        let error = with(&whole[..cut]);
        assert!(
            error.contains("no file of events, or it was cut off"),
            "{error}"
        );
    }
    assert!(with(b"{\"measures\": 1}").contains("no file of events"));
    // A sum covers each byte of the rows, and another one the facts about the run.
    let after = |text: &str| {
        let found = whole
            .windows(text.len())
            .position(|bytes| bytes == text.as_bytes());
        found.expect("it is in the footer") + text.len()
    };
    let length = String::from_utf8_lossy(&whole[after("schedlab.sum")..]).into_owned();
    let digits = length.trim_start_matches(|c: char| !c.is_ascii_digit());
    let rows: usize = digits.split(':').next().unwrap().parse().unwrap();
    assert!(rows > 1_000 && rows < whole.len());
    for at in (0..rows).step_by(7).chain([after("\"workload\":\"pi")]) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        assert!(with(&damaged).contains("damaged") || at < 4, "byte {at}");
    }
    let missing = EventFile::open(&folder.path().join("none")).err().unwrap();
    assert!(missing.to_string().contains("cannot read"), "{missing}");
    let error = EventFile::open(folder.path()).err().unwrap();
    assert!(error.to_string().contains("directory"), "{error}");
}

#[test]
fn events_that_no_run_can_have_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.events");
    let a = TaskId(0);
    let tick = |at, cpu| {
        move |listener: &mut dyn Listener| {
            listener.record(Instant::from_ns(at), CpuId(cpu), Event::Tick);
        }
    };
    let event = |event| {
        move |listener: &mut dyn Listener| {
            listener.record(Instant::from_ns(5), CpuId(0), event);
        }
    };
    let refused = |tell: &dyn Fn(&mut dyn Listener)| {
        write(&path, &about(), tell);
        let error = read(&path).unwrap_err();
        assert!(
            error.ends_with("row 1 is none that a run can have"),
            "{error}"
        );
    };
    refused(&tick(1, 4));
    refused(&tick(1 << 51, 0));
    refused(&event(Event::TaskExit { task: a }));
    refused(&event(Event::Ipi { to: CpuId(4) }));
    refused(&event(Event::LockTryFailed {
        lock: LockId(0),
        path: LockPath::Other,
    }));
    refused(&|listener: &mut dyn Listener| listener.define_starter(TaskId(9)));
    let sound = |listener: &mut dyn Listener| {
        listener.define_starter(a);
        event(Event::TaskExit { task: a })(listener);
    };
    write(&path, &about(), sound);
    assert_eq!(read(&path).unwrap().0.len(), 2);
}

#[test]
fn another_format_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.events");
    let about = About {
        format: FORMAT + 1,
        ..about()
    };
    write(&path, &about, tell_all);
    let error = read(&path).unwrap_err();
    assert!(
        error.contains("is of format 2, and this program reads format 1"),
        "{error}"
    );
}
