//! Puts a workload together: objects, tasks and the options that every workload has.

use schedlab_trace::{CpuId, CpuSet, Duration, Instant};

use crate::action::{Behaviour, ObjectId, ObjectSpec, SchedClass, Score, TaskSpec, Workload};
use crate::{Options, WorkloadError};

/// A workload in the making.
pub struct Builder {
    nr_cpus: usize,
    pin: bool,
    nice: Vec<i8>,
    class: SchedClass,
    objects: Vec<ObjectSpec>,
    tasks: Vec<TaskSpec>,
    duration: Option<Duration>,
}

impl Builder {
    /// Starts a workload with the options that every workload has ([`crate::common`]).
    pub(crate) fn new(options: &Options, nr_cpus: usize) -> Builder {
        Builder {
            nr_cpus,
            pin: options.flag("pin"),
            nice: options.nice_list("nice"),
            class: options.policy("policy"),
            objects: Vec::new(),
            tasks: Vec::new(),
            duration: None,
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
        let cpu = CpuId((number % self.nr_cpus) as u32);
        TaskSpec {
            comm: comm.into(),
            nice: self.nice[number % self.nice.len()],
            class: self.class,
            affinity: self.pin.then(|| CpuSet::single(self.nr_cpus, cpu)),
            address_space: Some(address_space),
            start: Instant::ZERO,
            working_set_bytes,
            behaviour: Box::new(behaviour),
        }
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
            notes: Vec::new(),
        })
    }
}
