//! The columns of the file, and how an event becomes a row and a row an event.

use schedlab_trace::{
    CpuId, CpuMode, Duration, Event, LockClass, LockId, LockPath, MigrationReach, PrevState, TaskId,
};

/// Rows that are written, and read, together.
pub const GROUP: usize = 1 << 16;

/// The kind of a row. The names are the file's.
macro_rules! kinds {
    ($($kind:ident $name:literal,)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Kind { $($kind,)* }

        pub(crate) const KINDS: &[(Kind, &str)] = &[$((Kind::$kind, $name),)*];
    };
}

kinds! {
    Starter "define_starter",
    Task "define_task",
    AllowedCpus "define_affinity",
    Lock "define_lock",
    Mode "mode",
    TaskNew "task_new",
    TaskExit "task_exit",
    Wakeup "wakeup",
    Migrate "migrate",
    Affinity "affinity",
    Priority "priority",
    Running "running",
    Begin "begin",
    ScheduleEnter "schedule_enter",
    ScheduleExit "schedule_exit",
    Switch "switch",
    LockContended "lock_contended",
    LockAcquired "lock_acquired",
    LockTryFailed "lock_try_failed",
    LockReleased "lock_released",
    Ipi "ipi",
    Tick "tick",
    Throttled "throttled",
    Replenished "replenished",
    DeadlineMissed "deadline_missed",
    Work "work",
    End "end",
}

/// Words of the column `detail`.
pub(crate) const DETAILS: &[&str] = &[
    "idle",
    "user",
    "kernel",
    "sched",
    "spin", // modes
    "preempted",
    "yielded",
    "blocked",
    "exited", // how a task left
    "smt",
    "llc",
    "node",
    "remote", // how far it moved
    "schedule",
    "wakeup",
    "other", // on whose behalf a lock was taken
    "run_queue",
    "dsq",
    "kernel_rq",
    "other_lock",  // what it protects
    "idle_policy", // the class of a task
    "shared",      // what a lock protects
];

fn detail(word: &str) -> Option<u8> {
    let index = DETAILS.iter().position(|known| *known == word);
    Some(index.expect("a word of the list") as u8)
}

const MODES: [(CpuMode, &str); 5] = [
    (CpuMode::Idle, "idle"),
    (CpuMode::User, "user"),
    (CpuMode::Kernel, "kernel"),
    (CpuMode::Sched, "sched"),
    (CpuMode::Spin, "spin"),
];
const STATES: [(PrevState, &str); 4] = [
    (PrevState::Preempted, "preempted"),
    (PrevState::Yielded, "yielded"),
    (PrevState::Blocked, "blocked"),
    (PrevState::Exited, "exited"),
];
const REACHES: [(MigrationReach, &str); 4] = [
    (MigrationReach::Smt, "smt"),
    (MigrationReach::Llc, "llc"),
    (MigrationReach::Node, "node"),
    (MigrationReach::Remote, "remote"),
];
const PATHS: [(LockPath, &str); 3] = [
    (LockPath::Schedule, "schedule"),
    (LockPath::Wakeup, "wakeup"),
    (LockPath::Other, "other"),
];
const CLASSES: [(LockClass, &str); 5] = [
    (LockClass::RunQueue, "run_queue"),
    (LockClass::Dsq, "dsq"),
    (LockClass::KernelRq, "kernel_rq"),
    (LockClass::Other, "other_lock"),
    (LockClass::Shared, "shared"),
];

fn word_of<T: PartialEq>(words: &[(T, &str)], value: &T) -> Option<u8> {
    let known = words.iter().find(|(known, _)| known == value);
    detail(known.expect("each value has its word").1)
}

fn value_of<T: Copy>(words: &[(T, &str)], index: Option<u8>) -> Option<T> {
    let word = DETAILS.get(usize::from(index?))?;
    Some(words.iter().find(|(_, known)| known == word)?.0)
}

pub(crate) fn class_word(class: LockClass) -> Option<u8> {
    word_of(&CLASSES, &class)
}

pub(crate) fn class_of(index: Option<u8>) -> Option<LockClass> {
    value_of(&CLASSES, index)
}

pub(crate) fn idle_policy_word(is_idle: bool) -> Option<u8> {
    if is_idle { detail("idle_policy") } else { None }
}

/// A row. Only the columns that its kind has are set.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct Row {
    pub at_ns: u64,
    pub cpu: u32,
    /// Index in [`KINDS`].
    pub kind: u8,
    pub task: Option<u32>,
    /// The other task.
    pub other: Option<u32>,
    pub from: Option<u32>,
    pub to: Option<u32>,
    pub lock: Option<u32>,
    /// Index in [`DETAILS`].
    pub detail: Option<u8>,
    pub n: Option<i64>,
    pub m: Option<i64>,
    pub ns: Option<i64>,
    pub ps: Option<i64>,
    pub contended: Option<bool>,
    pub trylock: Option<bool>,
    pub name: Option<String>,
    pub cpus: Option<String>,
}

impl Row {
    pub(crate) fn of_kind(kind: Kind) -> Row {
        Row {
            kind: kind as u8,
            ..Row::default()
        }
    }

    /// An event without its time and CPU.
    pub(crate) fn of(event: Event) -> Row {
        let row = Row::of_kind;
        let of_task = |kind, task: TaskId| Row {
            task: Some(task.0),
            ..row(kind)
        };
        let ns = |duration: Duration| Some(duration.ns() as i64);
        match event {
            Event::Mode(mode) => Row {
                detail: word_of(&MODES, &mode),
                ..row(Kind::Mode)
            },
            Event::TaskNew { task, parent } => Row {
                other: parent.map(|parent| parent.0),
                ..of_task(Kind::TaskNew, task)
            },
            Event::TaskExit { task } => of_task(Kind::TaskExit, task),
            Event::Wakeup { task, to, since } => Row {
                to: Some(to.0),
                ns: ns(since),
                ..of_task(Kind::Wakeup, task)
            },
            Event::Migrate {
                task,
                from,
                to,
                reach,
            } => Row {
                from: Some(from.0),
                to: Some(to.0),
                detail: word_of(&REACHES, &reach),
                ..of_task(Kind::Migrate, task)
            },
            Event::Affinity { task } => of_task(Kind::Affinity, task),
            Event::Priority { task } => of_task(Kind::Priority, task),
            Event::Running { task } => of_task(Kind::Running, task),
            Event::Begin => row(Kind::Begin),
            Event::ScheduleEnter { runnable, queue } => Row {
                n: Some(runnable.into()),
                m: Some(queue.into()),
                ..row(Kind::ScheduleEnter)
            },
            Event::ScheduleExit {
                examined,
                recalculations,
                memory_wait_ps,
            } => Row {
                n: Some(examined.into()),
                m: Some(recalculations.into()),
                ps: Some(memory_wait_ps as i64),
                ..row(Kind::ScheduleExit)
            },
            Event::Switch {
                prev,
                prev_state,
                next,
            } => Row {
                task: prev.map(|task| task.0),
                other: next.map(|task| task.0),
                detail: word_of(&STATES, &prev_state),
                ..row(Kind::Switch)
            },
            Event::LockContended { lock, path } => Row {
                lock: Some(lock.0),
                detail: word_of(&PATHS, &path),
                ..row(Kind::LockContended)
            },
            Event::LockAcquired {
                lock,
                path,
                waited,
                contended,
                trylock,
            } => Row {
                lock: Some(lock.0),
                detail: word_of(&PATHS, &path),
                ns: ns(waited),
                contended: Some(contended),
                trylock: Some(trylock),
                ..row(Kind::LockAcquired)
            },
            Event::LockTryFailed { lock, path } => Row {
                lock: Some(lock.0),
                detail: word_of(&PATHS, &path),
                ..row(Kind::LockTryFailed)
            },
            Event::LockReleased { lock, held } => Row {
                lock: Some(lock.0),
                ns: ns(held),
                ..row(Kind::LockReleased)
            },
            Event::Ipi { to } => Row {
                to: Some(to.0),
                ..row(Kind::Ipi)
            },
            Event::Tick => row(Kind::Tick),
            Event::Throttled { task } => of_task(Kind::Throttled, task),
            Event::Replenished { task } => of_task(Kind::Replenished, task),
            Event::DeadlineMissed { task } => of_task(Kind::DeadlineMissed, task),
            Event::Work { task, n } => Row {
                n: Some(n.into()),
                ..of_task(Kind::Work, task)
            },
            Event::End => row(Kind::End),
        }
    }

    /// The kind; `None` if the file has a number that is none.
    pub(crate) fn kind(&self) -> Option<Kind> {
        Some(KINDS.get(usize::from(self.kind))?.0)
    }

    /// The event of the row; `None` if it is none, or lacks what its kind has.
    pub(crate) fn event(&self) -> Option<Event> {
        let task = || self.task.map(TaskId);
        let other = self.other.map(TaskId);
        let lock = || self.lock.map(LockId);
        let to = || self.to.map(CpuId);
        let count = |n: Option<i64>| u32::try_from(n?).ok();
        let ns = || Some(Duration::from_ns(u64::try_from(self.ns?).ok()?));
        let path = || value_of(&PATHS, self.detail);
        Some(match self.kind()? {
            Kind::Starter | Kind::Task | Kind::AllowedCpus | Kind::Lock => return None,
            Kind::Mode => Event::Mode(value_of(&MODES, self.detail)?),
            Kind::TaskNew => Event::TaskNew {
                task: task()?,
                parent: other,
            },
            Kind::TaskExit => Event::TaskExit { task: task()? },
            Kind::Wakeup => Event::Wakeup {
                task: task()?,
                to: to()?,
                since: ns()?,
            },
            Kind::Migrate => Event::Migrate {
                task: task()?,
                from: CpuId(self.from?),
                to: to()?,
                reach: value_of(&REACHES, self.detail)?,
            },
            Kind::Affinity => Event::Affinity { task: task()? },
            Kind::Priority => Event::Priority { task: task()? },
            Kind::Running => Event::Running { task: task()? },
            Kind::Begin => Event::Begin,
            Kind::ScheduleEnter => Event::ScheduleEnter {
                runnable: count(self.n)?,
                queue: count(self.m)?,
            },
            Kind::ScheduleExit => Event::ScheduleExit {
                examined: count(self.n)?,
                recalculations: count(self.m)?,
                memory_wait_ps: u64::try_from(self.ps?).ok()?,
            },
            Kind::Switch => Event::Switch {
                prev: task(),
                prev_state: value_of(&STATES, self.detail)?,
                next: other,
            },
            Kind::LockContended => Event::LockContended {
                lock: lock()?,
                path: path()?,
            },
            Kind::LockAcquired => Event::LockAcquired {
                lock: lock()?,
                path: path()?,
                waited: ns()?,
                contended: self.contended?,
                trylock: self.trylock?,
            },
            Kind::LockTryFailed => Event::LockTryFailed {
                lock: lock()?,
                path: path()?,
            },
            Kind::LockReleased => Event::LockReleased {
                lock: lock()?,
                held: ns()?,
            },
            Kind::Ipi => Event::Ipi { to: to()? },
            Kind::Tick => Event::Tick,
            Kind::Throttled => Event::Throttled { task: task()? },
            Kind::Replenished => Event::Replenished { task: task()? },
            Kind::DeadlineMissed => Event::DeadlineMissed { task: task()? },
            Kind::Work => Event::Work {
                task: task()?,
                n: count(self.n)?,
            },
            Kind::End => Event::End,
        })
    }
}
