//! Puts a workload together: objects, tasks and the options that every workload has.

use schedlab_trace::{CpuId, CpuSet, Duration, Instant};

use crate::action::{Behaviour, ObjectId, ObjectSpec, SchedClass, Score, TaskSpec, Workload};
use crate::{Options, WorkloadError};

/// What the options that every workload has ([`crate::common`]) say about task number i.
#[derive(Clone)]
pub(crate) struct Placement {
    pub nr_cpus: usize,
    pub pin: bool,
    pub nice: Vec<i8>,
    pub class: SchedClass,
}

impl Placement {
    fn new(options: &Options, nr_cpus: usize) -> Placement {
        Placement {
            nr_cpus,
            pin: options.flag("pin"),
            nice: options.nice_list("nice"),
            class: options.policy("policy"),
        }
    }

    /// The task's only CPU, if tasks are pinned.
    pub fn cpus(&self, number: usize) -> Option<CpuSet> {
        let cpu = CpuId((number % self.nr_cpus) as u32);
        self.pin.then(|| CpuSet::single(self.nr_cpus, cpu))
    }

    /// The task's nice level.
    pub fn nice(&self, number: usize) -> i8 {
        self.nice[number % self.nice.len()]
    }
}

/// A workload in the making.
pub struct Builder {
    placement: Placement,
    objects: Vec<ObjectSpec>,
    tasks: Vec<TaskSpec>,
    duration: Option<Duration>,
    notes: Vec<String>,
}

impl Builder {
    /// Starts a workload with the options that every workload has ([`crate::common`]).
    pub(crate) fn new(options: &Options, nr_cpus: usize) -> Builder {
        Builder {
            placement: Placement::new(options, nr_cpus),
            objects: Vec::new(),
            tasks: Vec::new(),
            duration: None,
            notes: Vec::new(),
        }
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

    /// A task that is to be created later ([`crate::Action::Fork`]); `number` is its i in the common options.
    pub fn spec(
        &self,
        number: usize,
        comm: impl Into<String>,
        address_space: u32,
        working_set_bytes: u64,
        behaviour: impl Behaviour + 'static,
    ) -> TaskSpec {
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

    /// What the common options say.
    pub(crate) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Tells the user something.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Ends the run after this long, whatever tasks are left.
    pub fn duration(&mut self, duration: Duration) {
        self.duration = Some(duration);
    }

    /// Finishes the workload.
    pub(crate) fn finish(self, options: &Options, score: Score) -> Result<Workload, WorkloadError> {
        Ok(Workload {
            name: options.workload.clone(),
            params: options.shown(),
            objects: self.objects,
            tasks: self.tasks,
            duration: self.duration,
            score,
            notes: self.notes,
        })
    }
}
