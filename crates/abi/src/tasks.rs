//! The shadows of tasks that policies point at.

use std::collections::BTreeMap;
use std::rc::Rc;

use schedlab_engine::policy::{TaskFacts, TaskView};
use schedlab_fiber::prefetch;
use schedlab_trace::{CpuId, CpuSet, TaskId};
use schedlab_workload::{CgroupId, SchedClass};

use crate::bpf::fields::{Birth, CgroupPlace, Live, ObjectTask, WITHOUT_MASK};
use crate::layout::{CpuMask, Task};
use crate::masks::put_mask;
use crate::memory::Memory;

/// Beginning of the `mm` pointers of user tasks. Nothing is mapped there: they only distinguish address spaces.
const ADDRESS_SPACES: usize = 0x1000;
const ADDRESS_SPACE_BYTES: usize = 64;

/// The shadows; none ever moves.
pub struct Tasks {
    all: Vec<*mut Task>,
    /// Own masks of tasks that may not run everywhere.
    masks: BTreeMap<u32, *mut CpuMask>,
    /// Those of tasks that are gone.
    free_masks: Vec<*mut CpuMask>,
    everywhere: *const CpuMask,
    nr_cpus: usize,
    /// The idle task of each CPU, and its stopper.
    idle: Box<[*mut Task]>,
    stoppers: Box<[*mut Task]>,
    /// The parent of tasks that have none.
    ancestor: *mut Task,
    /// The cgroup of each.
    cgroups: Vec<CgroupId>,
    by_tid: BTreeMap<u64, TaskId>,
    next_tid: u64,
    /// Of an object: what its tasks have beside [`Task`].
    extension: Option<Extension>,
    memory: Rc<Memory>,
}

/// The part of tasks that objects alone reach.
#[derive(Clone, Copy)]
pub struct Extension {
    pub birth: Birth,
    /// Whether tasks have a `cpus_mask`.
    pub has_mask: bool,
}

impl Extension {
    fn bytes(&self) -> usize {
        match self.has_mask {
            true => size_of::<ObjectTask>(),
            false => WITHOUT_MASK,
        }
    }

    /// A task with the part of an object.
    fn put(&self, memory: &Memory, task: Task) -> *mut Task {
        let place = memory.take(self.bytes()).cast::<ObjectTask>();
        assert!(!place.is_null(), "no memory is left for the policy");
        // SAFETY: the place has room for both, and nobody else has it yet.
        unsafe {
            (&raw mut (*place).task).write(task);
            (&raw mut (*place).live).write(Live::new(&self.birth));
        }
        place.cast()
    }

    /// Takes over the mask of a task.
    ///
    /// # Safety
    /// The task was put by this extension, and its mask lives.
    unsafe fn set_mask(&self, task: *mut Task) {
        if self.has_mask {
            // SAFETY: as promised.
            unsafe { (*task.cast::<ObjectTask>()).cpus_mask = *(*task).cpus_ptr };
        }
    }
}

fn put_task(memory: &Memory, extension: Option<Extension>) -> *mut Task {
    match extension {
        None => memory.put(Task::new()),
        Some(extension) => extension.put(memory, Task::new()),
    }
}

impl Tasks {
    pub fn new(nr_cpus: usize, memory: &Rc<Memory>, extension: Option<Extension>) -> Tasks {
        let everywhere = put_mask(memory, CpuSet::all(nr_cpus).words()).cast_const();
        let new = || put_task(memory, extension);
        let ancestor = new();
        // Its own leader, and a child of the parent of all.
        let put = |pointer: *mut Task, mut task: Task| {
            task.cpus_ptr = everywhere;
            task.real_parent = ancestor;
            task.parent = ancestor;
            task.group_leader = pointer;
            // SAFETY: no other code has the task yet.
            unsafe {
                pointer.write(task);
                if let Some(extension) = extension {
                    extension.set_mask(pointer);
                }
            }
            pointer
        };
        let of_cpu = |cpu: usize, comm: &str, flags: u32| {
            let mut task = Task::new();
            task.flags = flags;
            task.lab_cpu = cpu as i32;
            task.nr_cpus_allowed = 1;
            task.set_comm(&format!("{comm}/{cpu}"));
            task
        };
        let idle = (0..nr_cpus).map(|cpu| {
            // PF_KTHREAD | PF_IDLE
            let task = of_cpu(cpu, "swapper", 0x0020_0002);
            put(new(), task)
        });
        let stoppers = (0..nr_cpus).map(|cpu| {
            // PF_KTHREAD | PF_NO_SETAFFINITY
            let mut task = of_cpu(cpu, "migration", 0x0420_0000);
            // SCHED_FIFO, above all others.
            (task.policy, task.rt_priority, task.prio, task.normal_prio) = (1, 99, 0, 0);
            put(new(), task)
        });
        let (idle, stoppers) = (idle.collect(), stoppers.collect());
        let mut init = Task::new();
        init.pid = 1;
        init.tgid = 1;
        init.nr_cpus_allowed = nr_cpus as i32;
        init.set_comm("init");
        Tasks {
            all: Vec::new(),
            masks: BTreeMap::new(),
            free_masks: Vec::new(),
            everywhere,
            nr_cpus,
            idle,
            stoppers,
            ancestor: put(ancestor, init),
            cgroups: Vec::new(),
            by_tid: BTreeMap::new(),
            next_tid: 1,
            extension,
            memory: Rc::clone(memory),
        }
    }

    /// The shadow of `task`; it exists from then on.
    #[inline]
    pub fn pointer_mut(&mut self, task: TaskId) -> *mut Task {
        if self.all.len() <= task.index() {
            self.add(task);
        }
        self.pointer(task)
    }

    /// No task has this number or one above it.
    pub fn bound(&self) -> usize {
        self.all.len()
    }

    #[cold]
    fn add(&mut self, task: TaskId) {
        let (memory, extension) = (&self.memory, self.extension);
        self.all
            .resize_with(task.index() + 1, || put_task(memory, extension));
    }

    /// The shadow of `task`.
    ///
    /// # Panics
    /// If the virtual kernel never reported it.
    #[inline]
    pub fn pointer(&self, task: TaskId) -> *mut Task {
        self.all[task.index()]
    }

    /// The task that a pointer of the policy means, by the number that the shadow claims: policy code may have
    /// overwritten it.
    #[inline]
    pub fn find(&self, shadow: *const Task, number: u32) -> Option<TaskId> {
        let known = self.all.get(number as usize)?;
        std::ptr::eq(*known, shadow).then_some(TaskId(number))
    }

    /// The task in whose shadow a place lies, and how far behind its beginning.
    pub fn at(&self, place: usize) -> Option<(TaskId, u64)> {
        let bytes = self.extension.map_or(size_of::<Task>(), |it| it.bytes());
        let (first, last) = (*self.all.first()? as usize, *self.all.last()? as usize);
        if !(first..last + bytes).contains(&place) {
            return None;
        }
        // Memory that `memory` hands out lies behind all earlier memory.
        let index = self.all.partition_point(|shadow| *shadow as usize <= place) - 1;
        let offset = place - self.all[index] as usize;
        (offset < bytes).then_some((TaskId(index as u32), offset as u64))
    }

    /// Prefetches the shadow of `task`, if there is one.
    #[inline]
    pub fn prefetch(&self, task: TaskId) {
        if let Some(&shadow) = self.all.get(task.index()) {
            // SAFETY: shadows live as long as we do, and this only looks for the address.
            prefetch(unsafe { &*shadow });
        }
    }

    /// The idle task of a CPU.
    pub fn idle(&self, cpu: usize) -> *mut Task {
        self.idle[cpu]
    }

    /// The stopper of a CPU.
    pub fn stopper(&self, cpu: usize) -> *mut Task {
        self.stoppers[cpu]
    }

    pub fn by_tid(&self, tid: u64) -> Option<TaskId> {
        self.by_tid.get(&tid).copied()
    }

    /// The cgroup of a task.
    pub fn cgroup(&self, task: TaskId) -> CgroupId {
        self.cgroups.get(task.index()).copied().unwrap_or_default()
    }

    /// See [`schedlab_engine::policy::Policy::sync_task`].
    pub fn sync(&mut self, id: TaskId, view: &TaskView<'_>, cgroup: &CgroupPlace) {
        let parent = match view.parent {
            Some(parent) => self.pointer_mut(parent),
            None => self.ancestor,
        };
        let leader = match TaskId::from_pid(view.tgid) {
            Some(leader) => self.pointer_mut(leader),
            None => self.pointer_mut(id),
        };
        let cpus_ptr = if view.allowed.len() == self.nr_cpus {
            self.everywhere
        } else {
            let mask = *self.masks.entry(id.0).or_insert_with(|| {
                let unused = self.free_masks.pop();
                unused.unwrap_or_else(|| put_mask(&self.memory, &[]))
            });
            // SAFETY: the mask is ours, and no policy code runs while the virtual kernel calls us.
            unsafe { (*mask).set_words(view.allowed.words()) };
            mask.cast_const()
        };
        let pointer = self.pointer_mut(id);
        // SAFETY: the shadow is ours, and no policy code runs while the virtual kernel calls us.
        let task = unsafe { &mut *pointer };
        if task.scx.tid == 0 {
            // Nothing is left of who had the number before.
            *task = Task::new();
            task.lab_index = id.0;
            task.scx.tid = self.next_tid;
            self.by_tid.insert(self.next_tid, id);
            self.next_tid += 1;
        }
        if self.cgroups.len() <= id.index() {
            self.cgroups.resize(id.index() + 1, CgroupId::ROOT);
        }
        self.cgroups[id.index()] = view.cgroup;
        if self.extension.is_some() {
            // SAFETY: the shadow of an object's task has this part, too.
            unsafe { (*pointer.cast::<ObjectTask>()).live.enter(cgroup) };
        }
        let nice = i32::from(view.nice);
        task.pid = id.pid() as i32;
        task.tgid = view.tgid as i32;
        task.flags = view.flags;
        task.static_prio = 120 + nice;
        (task.policy, task.rt_priority) = match view.class {
            SchedClass::Normal => (0, 0),
            SchedClass::Fifo(priority) => (1, u32::from(priority)),
            SchedClass::RoundRobin(priority) => (2, u32::from(priority)),
            SchedClass::Batch => (3, 0),
            SchedClass::Idle => (5, 0),
            SchedClass::Deadline(_) => (6, 0),
        };
        task.normal_prio = match view.class {
            SchedClass::Deadline(_) => -1,
            SchedClass::Fifo(priority) | SchedClass::RoundRobin(priority) => {
                99 - i32::from(priority)
            }
            SchedClass::Normal | SchedClass::Batch | SchedClass::Idle => task.static_prio,
        };
        task.prio = view.prio;
        task.nr_cpus_allowed = view.allowed.len() as i32;
        task.cpus_ptr = cpus_ptr;
        task.mm = match view.address_space {
            Some(space) => (ADDRESS_SPACES + space as usize * ADDRESS_SPACE_BYTES) as *mut _,
            None => std::ptr::null_mut(),
        };
        task.real_parent = parent;
        task.parent = parent;
        task.group_leader = leader;
        task.migration_disabled = u16::from(view.migration_disabled);
        task.scx.weight = view.weight;
        task.set_comm(view.comm);
        if let Some(extension) = self.extension {
            // SAFETY: `add` has put it so, and the mask is one of ours.
            unsafe { extension.set_mask(pointer) };
        }
    }

    /// Brings the fields of an object's task up to date that change by themselves.
    pub fn set_facts(&mut self, id: TaskId, facts: &TaskFacts) {
        if self.extension.is_none() {
            return;
        }
        let pointer = self.pointer_mut(id).cast::<ObjectTask>();
        // SAFETY: as in `sync`.
        let task = unsafe { &mut *pointer };
        task.live.set(facts, task.task.lab_cpu as u32);
    }

    #[inline]
    pub fn set_cpu(&mut self, id: TaskId, cpu: CpuId) {
        let pointer = self.pointer_mut(id);
        // SAFETY: as in `sync`.
        unsafe { (*pointer).lab_cpu = cpu.0 as i32 };
    }

    /// Forgets a task. What it was stays, for who still points at it, but for its mask, which others get.
    pub fn drop_task(&mut self, id: TaskId) {
        let pointer = self.pointer_mut(id);
        // SAFETY: as in `sync`.
        let task = unsafe { &mut *pointer };
        if self.by_tid.get(&task.scx.tid) == Some(&id) {
            self.by_tid.remove(&task.scx.tid);
        }
        task.scx.tid = 0;
        task.mm = std::ptr::null_mut();
        if let Some(mask) = self.masks.remove(&id.0) {
            task.cpus_ptr = std::ptr::null();
            self.free_masks.push(mask);
        }
    }
}
