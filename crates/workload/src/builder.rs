//! Puts a workload together: objects, tasks and the options that every workload has.

use std::cell::Cell;

use schedlab_trace::{CpuSet, Duration, Instant};

use crate::action::{
    Action, Behaviour, Context, ObjectId, ObjectSpec, SchedClass, Score, TaskSpec,
};
use crate::cgroup::{Bandwidth, CgroupId, CgroupSettings, Cgroups, OPTION};
use crate::{Counters, Options, Start, Workload, WorkloadError};

/// The values for task number i of the options that every workload has ([`crate::common`]).
#[derive(Clone)]
pub(crate) struct Placement {
    /// The CPUs that there are to run on, of all that the machine has.
    pub allowed: CpuSet,
    pub pin: bool,
    pub nice: Vec<i8>,
    pub class: SchedClass,
}

impl Placement {
    fn new(options: &Options, allowed: &CpuSet) -> Placement {
        Placement {
            allowed: allowed.clone(),
            pin: options.flag("pin"),
            nice: options.nice_list("nice"),
            class: options.policy("policy"),
        }
    }

    /// CPUs of the machine: what CPU numbers go up to.
    pub fn nr_cpus(&self) -> usize {
        self.allowed.capacity()
    }

    /// Returns the task's only CPU, if tasks are pinned.
    pub fn cpus(&self, number: usize) -> Option<CpuSet> {
        self.pin.then(|| {
            let cpu = self.allowed.iter().nth(number % self.allowed.len());
            CpuSet::single(self.nr_cpus(), cpu.expect("there are so many"))
        })
    }

    /// Returns the task's nice level.
    pub fn nice(&self, number: usize) -> i8 {
        self.nice[number % self.nice.len()]
    }
}

/// Most tasks that a workload may have: with 9,600 bytes each, a task's fields still have a place of their own in the
/// simulator's address space (5.3 million).
pub const TASKS_MAX: u64 = 5_000_000;
/// Tasks that a workload may have without asking for room.
const TASKS_FREE: u64 = 100_000;

/// A workload in the making.
pub struct Builder {
    placement: Placement,
    /// Tasks that there is room for, and those that were made so far.
    room: u64,
    made: Cell<u64>,
    objects: Vec<ObjectSpec>,
    tasks: Vec<TaskSpec>,
    cgroups: Cgroups,
    duration: Option<Duration>,
    notes: Vec<String>,
    /// Options whose defaults depend on others, with what they came to.
    in_effect: Vec<(&'static str, String)>,
}

impl Builder {
    /// Starts a workload with the options that every workload has ([`crate::common`]).
    pub(crate) fn new(options: &Options, allowed: &CpuSet) -> Builder {
        Builder {
            placement: Placement::new(options, allowed),
            room: TASKS_FREE,
            made: Cell::new(0),
            objects: Vec::new(),
            tasks: Vec::new(),
            cgroups: Cgroups::default(),
            duration: None,
            notes: Vec::new(),
            in_effect: Vec::new(),
        }
    }

    /// Asks for room for so many tasks, those that come later included, before any of them is made: a workload whose
    /// options allow for many has to.
    ///
    /// # Errors
    /// If they are more than [`TASKS_MAX`].
    pub fn room_for(&mut self, options: &Options, tasks: u64) -> Result<(), WorkloadError> {
        if tasks > TASKS_MAX {
            return Err(options.contradiction(format!(
                "it would have {tasks} tasks, and a run has at most {TASKS_MAX}: ask for fewer"
            )));
        }
        self.room = self.room.max(tasks);
        Ok(())
    }

    /// Adds an object.
    pub fn object(&mut self, spec: ObjectSpec) -> ObjectId {
        let id = ObjectId(u32::try_from(self.objects.len()).expect("fewer than 2^32 objects"));
        self.objects.push(spec);
        id
    }

    /// Adds a task that exists from the start. Nice level, class and CPUs come from the common options.
    pub fn task(
        &mut self,
        comm: impl Into<String>,
        address_space: u32,
        working_set_bytes: u64,
        behaviour: impl Behaviour + 'static,
    ) {
        let number = self.tasks.len();
        let task = self.spec(number, comm, address_space, working_set_bytes, behaviour);
        self.tasks.push(task);
    }

    /// Returns a task that is to be created later ([`crate::Action::Fork`]); `number` is its i in the common options.
    pub fn spec(
        &self,
        number: usize,
        comm: impl Into<String>,
        address_space: u32,
        working_set_bytes: u64,
        behaviour: impl Behaviour + 'static,
    ) -> TaskSpec {
        self.made.set(self.made.get() + 1);
        debug_assert!(self.made.get() <= self.room, "room_for() was not asked");
        TaskSpec {
            comm: comm.into(),
            nice: self.placement.nice(number),
            class: self.placement.class,
            affinity: self.placement.cpus(number),
            address_space: Some(address_space),
            start: Instant::ZERO,
            working_set_bytes,
            behaviour: Box::new(behaviour),
        }
    }

    /// Adds a task that was made elsewhere.
    pub(crate) fn push(&mut self, task: TaskSpec) {
        self.tasks.push(task);
    }

    /// Returns the cgroups, to which more may be added.
    pub(crate) fn cgroups(&mut self) -> &mut Cgroups {
        &mut self.cgroups
    }

    /// Returns the values of the common options.
    pub(crate) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Tells the user something.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Notes what an option came to whose default depends on others.
    pub fn in_effect(&mut self, option: &'static str, value: impl Into<String>) {
        self.in_effect.push((option, value.into()));
    }

    /// Ends the run after this long, whatever tasks are left.
    pub fn duration(&mut self, duration: Duration) {
        self.duration = Some(duration);
    }

    /// Makes the cgroup of the common options. Returns it.
    fn own_cgroup(&mut self, options: &Options) -> Result<CgroupId, WorkloadError> {
        let wrong = |message: String| options.contradiction(message);
        let path = options.cgroup(OPTION);
        let cgroup = self
            .cgroups
            .at(&path)
            .map_err(|why| wrong(why.to_owned()))?;
        let of_cgroup = ["cpu.weight", "cpu.max", "cpu.max.burst", "cpu.idle"];
        let Some(given) = of_cgroup
            .into_iter()
            .find(|option| options.is_given(option))
        else {
            return Ok(cgroup);
        };
        if cgroup == CgroupId::ROOT {
            return Err(wrong(format!(
                "`{given}` needs a cgroup below the root: add `{OPTION}=/NAME`"
            )));
        }
        let bandwidth = Bandwidth {
            burst: options.time("cpu.max.burst"),
            ..options.bandwidth("cpu.max")
        };
        bandwidth.check().map_err(|why| {
            wrong(format!(
                "`cpu.max` and `cpu.max.burst` do not go together: {why}"
            ))
        })?;
        let settings = CgroupSettings {
            weight: options.count("cpu.weight") as u32,
            bandwidth,
            idle: options.flag("cpu.idle"),
        };
        self.cgroups.set(cgroup, settings).map_err(|conflict| {
            wrong(format!(
                "`{}` has other settings in the file; give them in one place",
                conflict.path
            ))
        })?;
        Ok(cgroup)
    }

    /// Finishes the workload.
    pub(crate) fn finish(
        mut self,
        options: &Options,
        score: Score,
    ) -> Result<Workload, WorkloadError> {
        let cgroup = self.own_cgroup(options)?;
        let tasks = self.tasks.into_iter();
        let mut params = options.shown();
        for (option, value) in self.in_effect {
            let shown = params.iter_mut().find(|(name, _)| name == option);
            shown.expect("a declared option").1 = value;
        }
        Ok(Workload {
            name: options.workload.clone(),
            params,
            objects: self.objects,
            tasks: tasks.map(|task| in_cgroup(task, cgroup)).collect(),
            cgroups: self.cgroups,
            start: match options.choice("start") {
                "together" => Start::Together,
                _ => Start::Fork,
            },
            duration: self.duration,
            score,
            notes: self.notes,
            parts: Vec::new(),
        })
    }
}

/// Lets a task join a cgroup before all else it does.
fn in_cgroup(task: TaskSpec, cgroup: CgroupId) -> TaskSpec {
    if cgroup == CgroupId::ROOT {
        return task;
    }
    TaskSpec {
        behaviour: Box::new(Joining {
            cgroup: Some(cgroup),
            inner: task.behaviour,
        }),
        ..task
    }
}

/// A task that joins a cgroup first.
struct Joining {
    cgroup: Option<CgroupId>,
    inner: Box<dyn Behaviour>,
}

impl Behaviour for Joining {
    fn next(&mut self, context: &mut Context<'_>) -> Action {
        match self.cgroup.take() {
            Some(cgroup) => Action::JoinCgroup(cgroup),
            None => self.inner.next(context),
        }
    }

    fn forks_processes(&self) -> bool {
        self.inner.forks_processes()
    }

    fn is_background(&self) -> bool {
        self.inner.is_background()
    }

    fn report(&self, counters: &mut Counters) {
        self.inner.report(counters);
    }
}
