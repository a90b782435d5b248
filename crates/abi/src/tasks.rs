//! The shadows of tasks that policies point at.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;

use schedlab_engine::policy::TaskView;
use schedlab_fiber::prefetch;
use schedlab_trace::{CpuId, CpuSet, TaskId};
use schedlab_workload::SchedClass;

use crate::layout::{CpuMask, Task};

/// Shadows are added by so many.
const CHUNK: usize = 256;

/// Where `mm` pointers of user tasks begin. Nothing is mapped there: they only tell address spaces apart.
const ADDRESS_SPACES: usize = 0x1000;
const ADDRESS_SPACE_BYTES: usize = 64;

/// The shadows; none ever moves.
pub struct Tasks {
    #[allow(clippy::vec_box, reason = "policies have pointers to them")]
    all: Vec<Box<UnsafeCell<Task>>>,
    /// Own masks of tasks that may not run everywhere.
    masks: BTreeMap<u32, Box<UnsafeCell<CpuMask>>>,
    everywhere: Box<UnsafeCell<CpuMask>>,
    nr_cpus: usize,
    /// The idle task of each CPU, and its stopper.
    idle: Box<[UnsafeCell<Task>]>,
    stoppers: Box<[UnsafeCell<Task>]>,
    /// The parent of tasks that have none.
    ancestor: Box<UnsafeCell<Task>>,
    by_tid: BTreeMap<u64, TaskId>,
    next_tid: u64,
}

impl Tasks {
    pub fn new(nr_cpus: usize) -> Tasks {
        let mut everywhere = CpuMask::EMPTY;
        everywhere.set_words(CpuSet::all(nr_cpus).words());
        let everywhere = Box::new(UnsafeCell::new(everywhere));
        let of_cpu = |cpu: usize, comm: &str, flags: u32| {
            let mut task = Task::new();
            task.flags = flags;
            task.lab_cpu = cpu as i32;
            task.nr_cpus_allowed = 1;
            task.cpus_ptr = everywhere.get();
            task.set_comm(&format!("{comm}/{cpu}"));
            UnsafeCell::new(task)
        };
        let cpus = || 0..nr_cpus;
        // PF_KTHREAD | PF_IDLE
        let idle: Box<[_]> = cpus()
            .map(|cpu| of_cpu(cpu, "swapper", 0x0020_0002))
            .collect();
        // PF_KTHREAD | PF_NO_SETAFFINITY
        let stoppers: Box<[_]> = cpus()
            .map(|cpu| of_cpu(cpu, "migration", 0x0420_0000))
            .collect();
        let mut ancestor = Task::new();
        ancestor.pid = 1;
        ancestor.tgid = 1;
        ancestor.nr_cpus_allowed = nr_cpus as i32;
        ancestor.cpus_ptr = everywhere.get();
        ancestor.set_comm("init");
        let ancestor = Box::new(UnsafeCell::new(ancestor));
        let tasks = Tasks {
            all: Vec::new(),
            masks: BTreeMap::new(),
            everywhere,
            nr_cpus,
            idle,
            stoppers,
            ancestor,
            by_tid: BTreeMap::new(),
            next_tid: 1,
        };
        let of_cpus = tasks.idle.iter().chain(&tasks.stoppers);
        for cell in &tasks.stoppers {
            // SAFETY: nobody else has the task yet.
            let task = unsafe { &mut *cell.get() };
            // SCHED_FIFO, above all others.
            (task.policy, task.rt_priority, task.prio, task.normal_prio) = (1, 99, 0, 0);
        }
        for cell in of_cpus.chain([&*tasks.ancestor]) {
            let pointer = cell.get();
            // SAFETY: nobody else has the task yet.
            let task = unsafe { &mut *pointer };
            task.real_parent = tasks.ancestor.get();
            task.parent = tasks.ancestor.get();
            task.group_leader = pointer;
        }
        tasks
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
        let nr = (task.index() + 1).next_multiple_of(CHUNK);
        self.all
            .resize_with(nr, || Box::new(UnsafeCell::new(Task::new())));
    }

    /// The shadow of `task`.
    ///
    /// # Panics
    /// If the virtual kernel never told of it.
    #[inline]
    pub fn pointer(&self, task: TaskId) -> *mut Task {
        self.all[task.index()].get()
    }

    /// Prefetches the shadow of `task`, if there is one.
    #[inline]
    pub fn prefetch(&self, task: TaskId) {
        if let Some(shadow) = self.all.get(task.index()) {
            prefetch(&**shadow);
        }
    }

    /// The idle task of a CPU.
    pub fn idle(&self, cpu: usize) -> *mut Task {
        self.idle[cpu].get()
    }

    /// The stopper of a CPU.
    pub fn stopper(&self, cpu: usize) -> *mut Task {
        self.stoppers[cpu].get()
    }

    pub fn by_tid(&self, tid: u64) -> Option<TaskId> {
        self.by_tid.get(&tid).copied()
    }

    /// See [`schedlab_engine::policy::Policy::sync_task`].
    pub fn sync(&mut self, id: TaskId, view: &TaskView<'_>) {
        let parent = match view.parent {
            Some(parent) => self.pointer_mut(parent),
            None => self.ancestor.get(),
        };
        let leader = match TaskId::from_pid(view.tgid) {
            Some(leader) => self.pointer_mut(leader),
            None => self.pointer_mut(id),
        };
        let cpus_ptr = if view.allowed.len() == self.nr_cpus {
            self.everywhere.get()
        } else {
            let mask = self.masks.entry(id.0);
            let mask = mask.or_insert_with(|| Box::new(UnsafeCell::new(CpuMask::EMPTY)));
            mask.get_mut().set_words(view.allowed.words());
            mask.get()
        };
        let pointer = self.pointer_mut(id);
        // SAFETY: the shadow is ours, and no policy code runs while the virtual kernel calls us.
        let task = unsafe { &mut *pointer };
        if task.lab_index == Task::NOBODY {
            task.lab_index = id.0;
            task.scx.tid = self.next_tid;
            self.by_tid.insert(self.next_tid, id);
            self.next_tid += 1;
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
        };
        task.normal_prio = match task.rt_priority {
            0 => task.static_prio,
            priority => 99 - priority as i32,
        };
        task.prio = task.normal_prio;
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
    }

    #[inline]
    pub fn set_cpu(&mut self, id: TaskId, cpu: CpuId) {
        let pointer = self.pointer_mut(id);
        // SAFETY: as in `sync`.
        unsafe { (*pointer).lab_cpu = cpu.0 as i32 };
    }

    /// Forgets a task.
    pub fn drop_task(&mut self, id: TaskId) {
        let pointer = self.pointer_mut(id);
        // SAFETY: as in `sync`.
        let task = unsafe { &mut *pointer };
        self.by_tid.remove(&task.scx.tid);
        *task = Task::new();
        self.masks.remove(&id.0);
    }
}
