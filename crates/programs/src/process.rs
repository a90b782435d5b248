//! The processes of a run: one for each address space, supervised by the caller.

use std::io::{PipeReader, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use schedlab_workload::{Counters, SchedClass, Start, TaskSpec, Workload};
use serde::{Deserialize, Serialize};

use crate::cgroups::Tree;
use crate::objects::Objects;
use crate::sys::{self, Child, Tell};
use crate::thread::{Process, Run, forks_processes, held};
use crate::{End, Options, ProgramError, Report};

/// How long the processes get to start their threads, and to report after the end.
const GRACE: Duration = Duration::from_secs(20);

/// How often a process that the run does not wait for looks whether the run is over. Its tasks see that by themselves.
const LOOK: Duration = Duration::from_millis(20);

/// Interval of the notices that nothing changed.
const HEARTBEAT: Duration = Duration::from_millis(200);

/// The report of a process to the supervisor at its end.
#[derive(Default, Serialize, Deserialize)]
struct Summary {
    work: u64,
    tasks: u64,
    /// When its last task ended, in ns since the start of the run.
    ended_ns: u64,
    values: Vec<(String, i64)>,
    ratios: Vec<(String, String, String)>,
    /// Tasks that had not ended.
    left: Vec<String>,
    /// Where all of these wait for others: since when, by which one asked last, and until when at least.
    waiting_ns: Option<(u64, u64)>,
    /// One of them waits for a mutex.
    is_at_mutex: bool,
    failure: Option<String>,
}

fn system(doing: impl Into<String>, cause: std::io::Error, remedy: &'static str) -> ProgramError {
    ProgramError::System {
        doing: doing.into(),
        cause,
        remedy,
    }
}

pub(crate) fn check(workload: &Workload) -> Result<(), ProgramError> {
    let mut tasks = workload.tasks.iter();
    match tasks.find(|task| task.behaviour.forks_processes()) {
        Some(task) => Err(ProgramError::Refused(forks_processes(&task.comm))),
        None => Ok(()),
    }
}

pub(crate) fn run(
    workload: Workload,
    options: &Options,
    waiting: Option<&mut dyn FnMut()>,
) -> Result<Report, ProgramError> {
    check(&workload)?;
    let plan = Plan::of(&workload, options);
    let run = Arc::new(prepare(&workload, options.seed, plan)?);
    let nr_tasks = workload.tasks.len() as u32;
    run.board().created.store(nr_tasks, Relaxed);
    let mut processes = Processes(Vec::new());
    let deadline = std::time::Instant::now() + GRACE;
    for (address_space, tasks) in by_address_space(workload.tasks) {
        let is_background = tasks.iter().all(|(_, task)| task.behaviour.is_background());
        let (reader, writer) = std::io::pipe().map_err(|e| system("cannot make a pipe", e, ""))?;
        let its = Arc::clone(&run);
        let child =
            sys::fork(move || child(&its, address_space, tasks, plan, writer)).map_err(|e| {
                system(
                    "cannot start a process",
                    e,
                    "; fewer tasks, or a higher limit on processes",
                )
            })?;
        processes.0.push(Supervised {
            child,
            reader: Some(reader),
            is_background,
        });
        started_by(deadline, &run, nr_tasks)?;
    }
    start(&run, nr_tasks, &processes, deadline)?;
    let summaries = processes.summaries(&run, plan.end_after() + GRACE, waiting)?;
    let mut counters = Counters::default();
    for summary in &summaries {
        counters.merge(&summary.values);
        for (name, dividend, divisor) in &summary.ratios {
            counters.ratio(name.clone(), dividend.clone(), divisor.clone());
        }
    }
    let left: Vec<String> = summaries
        .iter()
        .flat_map(|summary| summary.left.clone())
        .collect();
    let ended_ns = summaries.iter().map(|summary| summary.ended_ns).max();
    let makespan_ns = match left.is_empty() {
        true => ended_ns.unwrap_or(0),
        false => run.end_ns,
    };
    let mut notes = workload.notes;
    if workload.start == Start::Together {
        notes.push("`start` has no effect on real threads: they are created one after another, and woken when all exist".to_owned());
    }
    let limited = plan.duration.is_none_or(|duration| duration > plan.limit);
    Ok(Report {
        workload: workload.name,
        params: workload.params,
        score: workload.score,
        parts: workload.parts,
        work: summaries.iter().map(|summary| summary.work).sum(),
        makespan_ns,
        measured_ns: makespan_ns.saturating_sub(run.board().begun_ns.load(Relaxed)),
        tasks: summaries.iter().map(|summary| summary.tasks).sum(),
        counters,
        end: if left.is_empty() {
            End::Done
        } else if limited {
            End::TimedOut(left)
        } else if are_stuck(&summaries) {
            let at_mutex = summaries.iter().any(|summary| summary.is_at_mutex);
            End::Stuck { left, at_mutex }
        } else {
            End::Done
        },
        notes,
    })
}

/// Returns whether the remaining tasks cannot be woken any more: all of them waited at one time.
fn are_stuck(summaries: &[Summary]) -> bool {
    let left = summaries.iter().filter(|summary| !summary.left.is_empty());
    let waiting: Option<Vec<(u64, u64)>> = left.map(|summary| summary.waiting_ns).collect();
    let waiting = waiting.unwrap_or_default();
    let since = waiting.iter().map(|(since, _)| since).max();
    let until = waiting.iter().map(|(_, until)| until).min();
    since.zip(until).is_some_and(|(since, until)| since < until)
}

fn is_real_time(class: SchedClass) -> bool {
    matches!(
        class,
        SchedClass::Fifo(_) | SchedClass::RoundRobin(_) | SchedClass::Deadline(_)
    )
}

/// When a process stops its tasks.
#[derive(Clone, Copy)]
struct Plan {
    duration: Option<Duration>,
    limit: Duration,
    real_time: bool,
}

impl Plan {
    fn of(workload: &Workload, options: &Options) -> Plan {
        Plan {
            duration: workload
                .duration
                .map(|duration| Duration::from_nanos(duration.ns())),
            limit: options.limit,
            real_time: workload.tasks.iter().any(|task| is_real_time(task.class)),
        }
    }

    fn end_after(&self) -> Duration {
        self.duration
            .map_or(self.limit, |duration| duration.min(self.limit))
    }

    /// Supervisors must get a CPU while real-time tasks hog them all. Not allowed to: the kernel's own
    /// throttling of real-time tasks lets us in now and then.
    fn rise(&self) {
        if self.real_time {
            let _ = sys::set_class(SchedClass::Fifo(99));
        }
    }
}

fn prepare(workload: &Workload, seed: u64, plan: Plan) -> Result<Run, ProgramError> {
    let (specs, cgroups) = (&workload.objects, &workload.cgroups);
    let needed = Objects::files(specs) + cgroups.len() as u64 + 64;
    let allowed = sys::raise_open_files();
    if needed > allowed {
        return Err(system(
            format!("the workload needs {needed} open files, {allowed} are allowed"),
            std::io::Error::from_raw_os_error(libc::EMFILE),
            "; raise the hard limit (ulimit -Hn), or take a smaller workload",
        ));
    }
    // First of all, so that the process that removes them keeps nothing else open.
    let cgroups = Tree::of(cgroups)?;
    let objects = Objects::new(specs)
        .map_err(|e| system("cannot make the pipes, sockets and locks", e, ""))?;
    let allowed = sys::allowed_cpus();
    let end_ns = u64::try_from(plan.end_after().as_nanos()).unwrap_or(u64::MAX);
    Run::new(objects, seed, end_ns, allowed, cgroups)
        .map_err(|e| system("cannot share memory", e, ""))
}

type Numbered = (u32, TaskSpec);

/// Returns the tasks with their numbers, grouped in the order in which address spaces first occur.
fn by_address_space(tasks: Vec<TaskSpec>) -> Vec<(Option<u32>, Vec<Numbered>)> {
    let mut groups: Vec<(Option<u32>, Vec<Numbered>)> = Vec::new();
    let mut places = std::collections::BTreeMap::new();
    for (number, task) in tasks.into_iter().enumerate() {
        let place = *places.entry(task.address_space).or_insert_with(|| {
            groups.push((task.address_space, Vec::new()));
            groups.len() - 1
        });
        groups[place].1.push((number as u32, task));
    }
    groups
}

/// Waits until every first task stands at the gate, then opens it.
fn start(
    run: &Run,
    nr_tasks: u32,
    processes: &Processes,
    deadline: std::time::Instant,
) -> Result<(), ProgramError> {
    while run.board().ready.load(Relaxed) < nr_tasks {
        if processes.any_reported() {
            // It failed; the summaries say why.
            return Ok(());
        }
        started_by(deadline, run, nr_tasks)?;
        std::thread::sleep(Duration::from_micros(200));
    }
    sys::tell(Tell::Begun);
    run.board().start_ns.store(sys::monotonic_ns(), Relaxed);
    run.board().open_gate();
    Ok(())
}

/// Starting takes no longer than that: a hundred thousand processes would hold the machine for as long as they are made.
fn started_by(deadline: std::time::Instant, run: &Run, nr_tasks: u32) -> Result<(), ProgramError> {
    let ready = run.board().ready.load(Relaxed);
    if ready == nr_tasks || std::time::Instant::now() <= deadline {
        return Ok(());
    }
    Err(ProgramError::Task(format!(
        "only {ready} of {nr_tasks} tasks started within {} s: the machine is too busy, or the workload too large for it",
        GRACE.as_secs()
    )))
}

/// A child and where its summary comes from.
struct Supervised {
    child: Child,
    /// Until it has reported everything.
    reader: Option<PipeReader>,
    /// The run waits for none of its tasks.
    is_background: bool,
}

/// The children. Dropping this kills those that are left.
struct Processes(Vec<Supervised>);

impl Processes {
    /// Returns whether a process has reported earlier than it should.
    fn any_reported(&self) -> bool {
        !self.reporting(Duration::ZERO).is_empty()
    }

    /// Waits for processes that report; returns them.
    fn reporting(&self, at_most: Duration) -> Vec<usize> {
        let open = self.0.iter().enumerate();
        let open = open.filter_map(|(i, child)| Some((i, child.reader.as_ref()?)));
        let (places, mut polls): (Vec<usize>, Vec<PollFd<'_>>) = open
            .map(|(i, reader)| (i, PollFd::new(reader, PollFlags::IN)))
            .unzip();
        let at_most = Timespec::try_from(at_most).ok();
        if poll(&mut polls, at_most.as_ref()).is_err() {
            return Vec::new(); // A signal, which is for others.
        }
        let ready = places.into_iter().zip(polls);
        let ready = ready.filter(|(_, poll)| !poll.revents().is_empty());
        ready.map(|(i, _)| i).collect()
    }

    /// Returns whether the run waits for none of those that are left.
    fn only_background(&self) -> bool {
        let mut left = self.0.iter().filter(|child| child.reader.is_some());
        left.all(|child| child.is_background)
    }

    /// Returns the report of each process; all are over afterwards. The first failure ends the wait for the others.
    fn summaries(
        mut self,
        run: &Run,
        within: Duration,
        mut waiting: Option<&mut dyn FnMut()>,
    ) -> Result<Vec<Summary>, ProgramError> {
        let deadline = std::time::Instant::now() + within;
        let mut texts: Vec<Vec<u8>> = self.0.iter().map(|_| Vec::new()).collect();
        let mut summaries = Vec::with_capacity(self.0.len());
        let mut buffer = vec![0; 65_536];
        while summaries.len() < self.0.len() {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return Err(ProgramError::Task(format!(
                    "a process of the workload did not end within {} s after its time was over; it was killed",
                    GRACE.as_secs()
                )));
            }
            let at_most = match &mut waiting {
                Some(waiting) => {
                    waiting();
                    left.min(HEARTBEAT)
                }
                None => left,
            };
            for i in self.reporting(at_most) {
                let reader = self.0[i]
                    .reader
                    .as_mut()
                    .expect("polled because it is there");
                match reader.read(&mut buffer) {
                    Ok(0) => {
                        self.0[i].reader = None;
                        summaries.push(understand(&texts[i])?);
                        if self.only_background() {
                            let ended = summaries.iter().map(|summary| summary.ended_ns);
                            let over_ns = ended.max().unwrap_or(0).max(1);
                            run.board().over_ns.store(over_ns, Relaxed);
                        }
                    }
                    Ok(n) => texts[i].extend_from_slice(&buffer[..n]),
                    Err(error) => {
                        return Err(system(
                            "cannot read from a process of the workload",
                            error,
                            "",
                        ));
                    }
                }
            }
        }
        Ok(summaries)
    }
}

fn understand(text: &[u8]) -> Result<Summary, ProgramError> {
    let summary: Summary = serde_json::from_slice(text).map_err(|_| {
        ProgramError::Task(
            "a process of the workload ended without a word: out of memory, or killed".to_owned(),
        )
    })?;
    match summary.failure {
        Some(message) => Err(ProgramError::Task(message)),
        None => Ok(summary),
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for supervised in &self.0 {
            supervised.child.kill();
            supervised.child.wait();
        }
    }
}

/// The life of a process: its threads, and at the end its summary.
fn child(
    run: &Arc<Run>,
    address_space: Option<u32>,
    tasks: Vec<Numbered>,
    plan: Plan,
    mut writer: impl Write,
) {
    sys::tell(Tell::Starter);
    let process = Arc::new(Process {
        run: Arc::clone(run),
        address_space,
        tasks: Mutex::new(Vec::new()),
        live: Mutex::new(0),
        changed: Condvar::new(),
        begun: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        failure: Mutex::new(None),
    });
    for (number, task) in tasks {
        if let Err(message) = process.start(task, number, true) {
            process.fail(message);
            break;
        }
    }
    let is_background = held(&process.tasks).iter().all(|task| task.is_background);
    plan.rise();
    wait_for_end(&process, plan, is_background);
    process.stop.store(true, Relaxed);
    let text = serde_json::to_vec(&summary(&process)).expect("plain data");
    // If the supervisor is gone, the message is not needed.
    let _ = writer.write_all(&text);
}

fn wait_for_end(process: &Process, plan: Plan, is_background: bool) {
    let mut live = held(&process.live);
    loop {
        if *live == 0 || process.stop.load(Relaxed) {
            return;
        }
        // Before the start the clock does not run; the supervisor limits that part. Looking now and then instead of
        // waiting would take the CPUs from a thousand processes that are being started.
        let guard = if process.begun.load(Relaxed) {
            let passed = Duration::from_nanos(process.run.now().ns());
            let left = plan.end_after().saturating_sub(passed);
            let is_over = process.run.board().over_ns.load(Relaxed) > 0;
            if left.is_zero() || is_background && is_over {
                sys::tell(Tell::Over);
                return;
            }
            // No message arrives when the others have ended.
            let left = if is_background { left.min(LOOK) } else { left };
            let waited = process.changed.wait_timeout(live, left);
            waited
                .map(|(guard, _)| guard)
                .map_err(|poisoned| poisoned.into_inner().0)
        } else {
            process.changed.wait(live).map_err(PoisonError::into_inner)
        };
        live = guard.unwrap_or_else(|guard| guard);
    }
}

fn summary(process: &Process) -> Summary {
    let tasks = held(&process.tasks);
    let left = || {
        let tasks = tasks.iter();
        tasks.filter(|task| task.ended_ns.load(Relaxed) == u64::MAX && !task.is_background)
    };
    // A task that was woken after it was checked is checked again, or its waker is.
    let until_ns = process.run.now().ns();
    let all_wait = left().all(|task| task.waits());
    let since_ns = left().map(|task| task.asked_ns.load(Relaxed)).max();
    let mut summary = Summary {
        waiting_ns: since_ns.filter(|_| all_wait).map(|since| (since, until_ns)),
        is_at_mutex: left().any(|task| task.is_at_mutex()),
        tasks: tasks.len() as u64,
        failure: held(&process.failure).clone(),
        ..Summary::default()
    };
    let mut counters = Counters::default();
    for task in tasks.iter() {
        let mind = held(&task.mind);
        mind.behaviour.report(&mut counters);
        summary.work += mind.work;
        match task.ended_ns.load(Relaxed) {
            u64::MAX if task.is_background => {}
            u64::MAX => summary.left.push(task.doing()),
            ended_ns => summary.ended_ns = summary.ended_ns.max(ended_ns),
        }
    }
    let values = counters.values();
    summary.values = values.map(|(name, n)| (name.to_owned(), n)).collect();
    let ratios = counters.ratios();
    summary.ratios = ratios
        .map(|(name, dividend, divisor)| (name.to_owned(), dividend.to_owned(), divisor.to_owned()))
        .collect();
    summary
}
