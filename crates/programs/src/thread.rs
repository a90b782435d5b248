//! A task as a thread: asks its behaviour for one action after another and carries it out.

use std::fs::File;
use std::io::Write;
use std::num::NonZeroU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use schedlab_trace::{CpuId, CpuSet, Instant};
use schedlab_workload::{Action, Behaviour, CgroupId, Context, Outcome, Rng, TaskSpec, stream};

use crate::cgroups::Tree;
use crate::load::{Memory, Pages, Speed};
use crate::objects::{Objects, Reader};
use crate::sys::{self, SharedMemory, Tell};

/// The data that all processes of a run share.
pub struct Run {
    pub objects: Objects,
    memory: SharedMemory,
    pub seed: u64,
    /// The time after which nothing counts, in ns since the start: the duration is over, or the limit reached.
    pub end_ns: u64,
    pub speed: Speed,
    /// The CPUs of the process that starts the run: where tasks run that may run anywhere.
    allowed: CpuSet,
    cgroups: Option<Tree>,
}

// SAFETY: the memory holds one `Board` of atomics and lives as long as the run does.
unsafe impl Send for Run {}
// SAFETY: as above.
unsafe impl Sync for Run {}

/// Words in shared memory.
#[derive(Default)]
pub struct Board {
    /// Tasks that wait at the gate.
    pub ready: AtomicU32,
    /// 1: the gate is open.
    pub open: AtomicU32,
    /// When the run began, in ns of CLOCK_MONOTONIC.
    pub start_ns: AtomicU64,
    /// When its measured part began, in ns since then.
    pub begun_ns: AtomicU64,
    /// When all had ended that the run waits for, in ns since then; 0: not yet.
    pub over_ns: AtomicU64,
    /// Tasks created so far: the next one's number.
    pub created: AtomicU32,
}

impl Board {
    /// A bare futex: a woken thread goes on, and meets no other at a lock.
    fn wait_at_gate(&self) {
        self.ready.fetch_add(1, Relaxed);
        while self.open.load(Acquire) == 0 {
            sys::futex_wait(&self.open, 0);
        }
    }

    pub fn open_gate(&self) {
        self.open.store(1, Release);
        sys::futex_wake_all(&self.open);
    }
}

impl Run {
    pub fn new(
        objects: Objects,
        seed: u64,
        end_ns: u64,
        allowed: CpuSet,
        cgroups: Option<Tree>,
    ) -> std::io::Result<Run> {
        let memory = SharedMemory::new(std::mem::size_of::<Board>())?;
        // SAFETY: aligned to a page and large enough; no other code has it yet.
        unsafe { memory.start().cast::<Board>().write(Board::default()) };
        Ok(Run {
            objects,
            memory,
            seed,
            end_ns,
            speed: Speed::measure(),
            allowed,
            cgroups,
        })
    }

    pub fn board(&self) -> &Board {
        // SAFETY: written by `new`; only shared references are made from then on.
        unsafe { &*self.memory.start().cast::<Board>() }
    }

    /// Time since the start of the run.
    pub fn now(&self) -> Instant {
        let start_ns = self.board().start_ns.load(Relaxed);
        Instant::from_ns(sys::monotonic_ns().saturating_sub(start_ns))
    }

    /// Has the calling thread run on `cpus`; `None` = anywhere, as are all CPUs that there are.
    fn set_affinity(&self, cpus: Option<&CpuSet>) -> Result<(), String> {
        let cpus = cpus.filter(|cpus| !self.allowed.is_subset(cpus));
        sys::set_affinity(cpus.unwrap_or(&self.allowed)).map_err(|e| refused("CPUs", &e))
    }

    /// Moves the calling thread to a cgroup of the workload.
    fn join(&self, cgroup: CgroupId) -> Result<(), String> {
        let cgroups = self.cgroups.as_ref();
        cgroups
            .map_or(Ok(()), |cgroups| cgroups.join(cgroup))
            .map_err(|e| refused("cgroup", &e))
    }

    /// Returns whether what happens at `now` counts no more.
    fn is_over(&self, now: Instant) -> bool {
        let over_ns = self.board().over_ns.load(Relaxed);
        now.ns() >= self.end_ns || over_ns > 0 && now.ns() >= over_ns
    }
}

/// The tasks of one process.
pub struct Process {
    pub run: Arc<Run>,
    pub address_space: Option<u32>,
    /// Everybody who was ever there.
    pub tasks: Mutex<Vec<Arc<Task>>>,
    /// Threads that have not ended.
    pub live: Mutex<usize>,
    pub changed: Condvar,
    /// The first of its tasks has passed the gate.
    pub begun: AtomicBool,
    /// The run is over.
    pub stop: AtomicBool,
    /// The first thing that went wrong.
    pub failure: Mutex<Option<String>>,
}

/// A task, as far as others look at it.
pub struct Task {
    pub comm: String,
    /// The run does not wait for it.
    pub is_background: bool,
    /// Held while the behaviour is asked, never while an action is carried out.
    pub mind: Mutex<Mind>,
    /// Place in [`DOING`] of what it does.
    doing: AtomicU8,
    /// When it was asked last what it does, in ns since the start of the run.
    pub asked_ns: AtomicU64,
    /// The kernel's number of its thread.
    thread: AtomicI32,
    /// When it ended, in ns since the start of the run; [`u64::MAX`] while it has not.
    pub ended_ns: AtomicU64,
}

pub struct Mind {
    pub behaviour: Box<dyn Behaviour>,
    rng: Rng,
    pub work: u64,
}

/// The possible activities of a thread, for the report on those that did not end.
const DOING: [&str; 12] = [
    "waiting for the start",
    "running",
    "sleeping",
    "in a write",
    "in a read",
    "at a mutex",
    "waiting for a condition",
    "at a barrier",
    "at a semaphore",
    "suspended",
    "yielding",
    "ended",
];

const AT_MUTEX: u8 = 5;

/// Places in [`DOING`] of what ends by what others do.
const WAITING: std::ops::RangeInclusive<u8> = 3..=9;

/// Takes a lock whose holder may have panicked: the counts behind it stay meaningful.
pub fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Task {
    pub fn doing(&self) -> String {
        let what = DOING[usize::from(self.doing.load(Relaxed))];
        format!("{} ({what})", self.comm)
    }

    /// Returns whether it sleeps until another thread wakes it.
    pub fn waits(&self) -> bool {
        WAITING.contains(&self.doing.load(Relaxed)) && sys::is_asleep(self.thread.load(Relaxed))
    }

    pub fn is_at_mutex(&self) -> bool {
        self.doing.load(Relaxed) == AT_MUTEX
    }
}

impl Process {
    /// Starts a thread for a task; one of the first waits for the start of the run.
    pub fn start(
        self: &Arc<Process>,
        spec: TaskSpec,
        number: u32,
        first: bool,
    ) -> Result<(), String> {
        let task = Arc::new(Task {
            comm: spec.comm.clone(),
            is_background: spec.behaviour.is_background(),
            mind: Mutex::new(Mind {
                behaviour: spec.behaviour,
                rng: stream(self.run.seed, number),
                work: 0,
            }),
            doing: AtomicU8::new(0),
            asked_ns: AtomicU64::new(0),
            thread: AtomicI32::new(0),
            ended_ns: AtomicU64::new(u64::MAX),
        });
        held(&self.tasks).push(Arc::clone(&task));
        *held(&self.live) += 1;
        let settings = Settings {
            nice: spec.nice,
            class: spec.class,
            cpus: spec.affinity,
            start: spec.start,
        };
        let process = Arc::clone(self);
        let started = std::thread::Builder::new()
            .name(spec.comm.clone())
            .stack_size(256 << 10)
            .spawn(move || {
                let result = process.body(&task, settings, first);
                if let Err(message) = result {
                    process.fail(format!("task {}: {message}", task.comm));
                }
                let mut live = held(&process.live);
                *live -= 1;
                // The others end in peace: waking the process's own thread would take them a CPU.
                if *live == 0 {
                    process.changed.notify_all();
                }
            });
        started.map(drop).map_err(|error| {
            *held(&self.live) -= 1;
            format!("cannot start a thread: {error}; fewer tasks, or a higher limit on threads (ulimit -u, /proc/sys/kernel/threads-max)")
        })
    }

    /// The process's own thread may wait for the end of the run from now on.
    fn tell_start(&self) {
        // The first one alone: at a lock the others would sleep, on the run's time.
        if !self.begun.swap(true, Relaxed) {
            let _live = held(&self.live);
            self.changed.notify_all();
        }
    }

    /// Ends the run because of an error.
    pub fn fail(&self, message: String) {
        held(&self.failure).get_or_insert(message);
        let _live = held(&self.live);
        self.stop.store(true, Relaxed);
        self.changed.notify_all();
    }

    fn body(
        self: &Arc<Process>,
        task: &Task,
        settings: Settings,
        first: bool,
    ) -> Result<(), String> {
        let run = &*self.run;
        task.thread.store(sys::thread_id(), Relaxed);
        settings.apply(run)?;
        if first {
            // Others begin in the cgroup of the task that creates them.
            run.join(CgroupId::ROOT)?;
            run.board().wait_at_gate();
            self.tell_start();
        }
        if settings.start > run.now() {
            let start_ns = run.board().start_ns.load(Relaxed);
            sys::sleep_until(start_ns + settings.start.ns());
        }
        let mut own = Own {
            reader: Reader::default(),
            memory: Memory::default(),
            pages: Pages::default(),
            null: None,
            is_exact: false,
        };
        let mut outcome = Outcome::Done;
        loop {
            let now = run.now();
            task.asked_ns.store(now.ns(), Relaxed);
            let Some(action) = self.ask(task, outcome, now) else {
                break;
            };
            if let Action::Exit = action {
                break;
            }
            task.doing.store(doing(&action), Relaxed);
            outcome = self.act(action, &mut own)?;
            task.doing.store(1, Relaxed);
        }
        Ok(())
    }

    /// Returns the next action of the task, once it has done what takes no time; `None` when the run is over.
    ///
    /// The end is a matter of the clock, as in the simulator, and not of when the process's own thread gets a CPU to
    /// announce it: a behaviour is asked for the last time before it, so that neither work nor counters grow
    /// afterwards.
    fn ask(&self, task: &Task, mut outcome: Outcome, mut now: Instant) -> Option<Action> {
        let run = &*self.run;
        let mind = &mut *held(&task.mind);
        while !self.stop.load(Relaxed) && !run.is_over(now) {
            let action = mind.behaviour.next(&mut Context {
                now,
                outcome,
                cpu: CpuId(rustix::thread::sched_getcpu() as u32),
                rng: &mut mind.rng,
            });
            match action {
                Action::Work(n) => mind.work += u64::from(n),
                Action::Begin => run.board().begun_ns.store(now.ns(), Relaxed),
                Action::Exit => {
                    task.ended_ns.store(now.ns(), Relaxed);
                    task.doing.store(11, Relaxed);
                    return Some(action);
                }
                action => return Some(action),
            }
            outcome = Outcome::Done;
            now = run.now();
        }
        // Before it ends, and each by itself: the first thread to notice may have lost its CPU before it could
        // announce it.
        if run.is_over(now) {
            sys::tell(Tell::Over);
        }
        None
    }

    fn act(self: &Arc<Process>, action: Action, own: &mut Own) -> Result<Outcome, String> {
        let run = &*self.run;
        let objects = &run.objects;
        match action {
            Action::Compute(time) => run.speed.burn(time.ns(), || {
                self.stop.load(Relaxed) || run.is_over(run.now())
            }),
            Action::Yield => rustix::thread::sched_yield(),
            Action::Sleep(time) => {
                own.set_exact(false);
                sys::sleep_for(time.ns());
            }
            Action::Io(time) => {
                own.set_exact(true);
                sys::sleep_for(time.ns());
            }
            Action::SleepUntil(until) => {
                own.set_exact(false);
                let start_ns = run.board().start_ns.load(Relaxed);
                sys::sleep_until(start_ns.saturating_add(until.ns()));
            }
            Action::Write { to, bytes } => objects.write(to, bytes)?,
            Action::Read { from, limit } => {
                return objects
                    .read(from, limit, &mut own.reader)
                    .map(Outcome::Messages);
            }
            Action::Lock(mutex) => objects.lock(mutex)?,
            Action::Unlock(mutex) => objects.unlock(mutex)?,
            Action::TryUserLock(lock) => {
                return Ok(match objects.try_user_lock(lock) {
                    true => Outcome::Taken,
                    false => Outcome::Busy,
                });
            }
            Action::UserUnlock(lock) => objects.user_unlock(lock),
            Action::Wait { condition, mutex } => objects.wait(condition, mutex)?,
            Action::Signal(condition) => objects.signal(condition, false),
            Action::Broadcast(condition) => objects.signal(condition, true),
            Action::Barrier(barrier) => objects.barrier(barrier),
            Action::Post(semaphore) => objects.post(semaphore)?,
            Action::Acquire(semaphore) => objects.acquire(semaphore),
            Action::Suspend(event) => objects.suspend(event),
            Action::Notify(event) => objects.notify(event),
            Action::Fork(spec) => {
                if spec.address_space != self.address_space {
                    return Err(forks_processes(&spec.comm));
                }
                let number = run.board().created.fetch_add(1, Relaxed);
                self.start(*spec, number, false)?;
            }
            Action::SetNice(nice) => sys::set_nice(nice).map_err(|e| refused("nice level", &e))?,
            Action::SetAffinity(cpus) => run.set_affinity(Some(&cpus))?,
            Action::SetClass(class) => sys::set_class(class).map_err(|e| refused("policy", &e))?,
            Action::JoinCgroup(cgroup) => run.join(cgroup)?,
            Action::Touch(touch) => own.memory.touch(touch),
            Action::Fault(pages) => (0..pages)
                .try_for_each(|_| own.pages.fault())
                .map_err(|e| format!("no memory for its pages: {e}"))?,
            Action::Exec => return Err(begins_programs()),
            Action::Syscall => own.write_null()?,
            Action::Work(_) | Action::Begin | Action::Exit => {
                unreachable!("handled where the behaviour is asked")
            }
        }
        Ok(Outcome::Done)
    }
}

/// Why a task that creates processes is not carried out.
pub fn forks_processes(comm: &str) -> String {
    format!(
        "`{comm}` creates processes; real programs create threads of their own process only: run the real thing instead, for example `schedlab run -s … -- sh -c 'make clean; make -j4'`"
    )
}

/// Why a task that begins another program is not carried out.
fn begins_programs() -> String {
    "it begins another program; real programs are threads, which cannot: run the real thing instead, for example `schedlab run -s … -- sh -c 'make clean; make -j4'`".to_owned()
}

fn refused(what: &str, error: &std::io::Error) -> String {
    let remedy = match error.raw_os_error() {
        // It must be able to write the file of the cgroup that both are beneath.
        Some(libc::EPERM | libc::EACCES) if what == "cgroup" => {
            "; start it by `systemd-run --user --scope -p Delegate=yes schedlab …`, or as root"
        }
        Some(libc::EPERM | libc::EACCES) => {
            "; run it as root, or leave out nice and policy; one under SCHED_DEADLINE must be allowed on all CPUs"
        }
        Some(libc::EINVAL) if what == "CPUs" => "; none of them is online",
        Some(libc::EBUSY) if what == "CPUs" => {
            "; a task under SCHED_DEADLINE must be allowed on all CPUs"
        }
        Some(libc::EBUSY) => "; the reservations of all deadline tasks do not fit, reserve less",
        _ => "",
    };
    format!("the kernel refuses its {what}: {error}{remedy}")
}

/// Place in [`DOING`].
fn doing(action: &Action) -> u8 {
    match action {
        Action::Sleep(_) | Action::SleepUntil(_) | Action::Io(_) => 2,
        Action::Write { .. } => 3,
        Action::Read { .. } => 4,
        Action::Lock(_) => 5,
        Action::Wait { .. } => 6,
        Action::Barrier(_) => 7,
        Action::Acquire(_) => 8,
        Action::Suspend(_) => 9,
        Action::Yield => 10,
        _ => 1,
    }
}

/// The attributes that a thread sets for itself before it begins.
struct Settings {
    nice: i8,
    class: schedlab_workload::SchedClass,
    cpus: Option<CpuSet>,
    start: Instant,
}

impl Settings {
    /// Everything explicitly, since a thread inherits from who creates it.
    fn apply(&self, run: &Run) -> Result<(), String> {
        run.set_affinity(self.cpus.as_ref())?;
        sys::set_class(self.class).map_err(|e| refused("policy", &e))?;
        sys::set_nice(self.nice).map_err(|e| refused("nice level", &e))
    }
}

/// The data that only the thread itself uses.
struct Own {
    reader: Reader,
    memory: Memory,
    pages: Pages,
    null: Option<File>,
    /// Its sleeps end without timer slack.
    is_exact: bool,
}

impl Own {
    /// Has the kernel's timers end the next sleeps as a device's interrupt would, or as the sleeps of other programs
    /// end.
    fn set_exact(&mut self, exact: bool) {
        if self.is_exact != exact {
            self.is_exact = exact;
            sys::set_timer_slack(exact.then_some(NonZeroU64::MIN));
        }
    }

    fn write_null(&mut self) -> Result<(), String> {
        let file = match &mut self.null {
            Some(file) => file,
            none => {
                let opened = File::options().write(true).open("/dev/null");
                none.insert(opened.map_err(|e| format!("/dev/null: {e}"))?)
            }
        };
        file.write_all(&[0]).map_err(|e| format!("/dev/null: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does work for ever, and counts how often it was asked.
    struct Endless(Arc<AtomicU32>);

    impl Behaviour for Endless {
        fn next(&mut self, _: &mut Context<'_>) -> Action {
            match self.0.fetch_add(1, Relaxed) % 2 {
                0 => Action::Compute(schedlab_trace::Duration::from_us(1)),
                _ => Action::Work(1),
            }
        }
    }

    #[test]
    fn what_ends_after_the_end_does_not_count() {
        let objects = Objects::new(&[]).unwrap();
        let run = Run::new(objects, 1, 1_000, CpuSet::all(1), None).unwrap();
        let process = Process {
            run: Arc::new(run),
            address_space: None,
            tasks: Mutex::default(),
            live: Mutex::default(),
            changed: Condvar::new(),
            begun: AtomicBool::new(true),
            stop: AtomicBool::new(false),
            failure: Mutex::default(),
        };
        let asked = Arc::new(AtomicU32::new(0));
        let task = Task {
            comm: "endless".to_owned(),
            is_background: false,
            mind: Mutex::new(Mind {
                behaviour: Box::new(Endless(Arc::clone(&asked))),
                rng: stream(1, 0),
                work: 0,
            }),
            doing: AtomicU8::new(0),
            asked_ns: AtomicU64::new(0),
            thread: AtomicI32::new(0),
            ended_ns: AtomicU64::new(u64::MAX),
        };
        let ask = |at_ns| process.ask(&task, Outcome::Done, Instant::from_ns(at_ns));
        let work = || (held(&task.mind).work, asked.load(Relaxed));
        assert!(matches!(ask(0), Some(Action::Compute(_))));
        assert_eq!(work(), (0, 1));
        // The burst has ended before the end, so its work counts; by then, on the clock since boot, the end is past.
        assert!(ask(999).is_none());
        assert_eq!(work(), (1, 2));
        assert!(ask(1_000).is_none());
        assert_eq!(work(), (1, 2), "nobody is told, nobody has stopped it");
        assert!(!process.stop.load(Relaxed));
        assert_eq!(task.ended_ns.load(Relaxed), u64::MAX);
    }
}
