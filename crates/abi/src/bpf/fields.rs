//! Structures of the kernel that objects alone reach: fields of tasks and run queues that are brought up to date right before an
//! object reads them, and cgroups.
//!
//! A native policy would read a copy that is out of date, so include/native does not have them. Offsets are ours: an object asks
//! for each field by CO-RE.

use std::ffi::{c_char, c_void};
use std::mem::offset_of;
use std::ops::Range;
use std::ptr;

use schedlab_bpf::btf::{Btf, Kind, Member, TypeId};
use schedlab_engine::policy::TaskFacts;

use crate::layout::{CpuMask, RunQueue, Task};
use crate::memory::Memory;

/// `struct task_struct` as objects see it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ObjectTask {
    pub task: Task,
    pub live: Live,
    /// `cpus_mask`; there only if the object asks for it.
    pub cpus_mask: CpuMask,
}

/// Bytes of a task whose object does not ask for `cpus_mask`.
pub const WITHOUT_MASK: usize = offset_of!(ObjectTask, cpus_mask);

/// The fields of a task that change by themselves, and its pointers to what never changes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Live {
    state: u32,
    on_cpu: i32,
    on_rq: i32,
    selected_cpu: i32,
    /// `thread_info.cpu`.
    cpu: u32,
    utime: u64,
    stime: u64,
    nvcsw: u64,
    nivcsw: u64,
    start_time: u64,
    /// `sched_info`.
    pcount: u64,
    run_delay: u64,
    last_arrival: u64,
    last_queued: u64,
    sum_exec_runtime: u64,
    dsq: *const Queue,
    queue: Queue,
    ddsp_dsq_id: u64,
    ddsp_enq_flags: u64,
    runnable_at: u64,
    /// The word of `in_iowait`: no task waits for a device.
    iowait: u64,
    /// NULL: no workload sets one.
    mempolicy: *const c_void,
    cgroups: *const CssSet,
    task_group: *const TaskGroup,
    real_cred: *const Credentials,
}

/// `struct scx_dispatch_q`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Queue {
    id: u64,
    nr: u32,
}

/// `struct kernfs_node`.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernfsNode {
    id: u64,
    name: *const c_char,
    parent: *const KernfsNode,
}

/// `struct cgroup_subsys_state`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Css {
    cgroup: *const Cgroup,
    parent: *const Css,
    id: i32,
}

/// `struct cgroup`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Cgroup {
    css: Css,
    level: i32,
    kn: *const KernfsNode,
    ancestors: [*const Cgroup; LEVELS],
}

/// Levels of cgroups, the root's included: as many as a workload may have.
const LEVELS: usize = 17;

#[repr(C)]
#[derive(Clone, Copy)]
struct CssSet {
    dfl_cgrp: *const Cgroup,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct TaskGroup {
    css: Css,
}

/// `struct cred`: every task is root's.
#[repr(C)]
#[derive(Clone, Copy)]
struct Credentials {
    uid: u32,
    gid: u32,
    euid: u32,
    egid: u32,
}

/// `struct rq` as objects see it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ObjectRunQueue {
    pub rq: RunQueue,
    clock: u64,
    clock_task: u64,
    clock_pelt: u64,
    lost_idle_time: u64,
    nr_running: u32,
    /// `scx.nr_running`.
    scx_nr_running: u32,
}

/// The pointers by which a task, and whoever walks the tree, reaches a cgroup. They live as long as the memory.
#[derive(Clone, Copy)]
pub struct CgroupPlace {
    pub cgroup: *const Cgroup,
    set: *const CssSet,
    group: *const TaskGroup,
}

impl Cgroup {
    /// Puts a cgroup below `parent` with its `name`; the root has neither. `id` is its inode's number.
    pub fn put(memory: &Memory, parent: Option<&CgroupPlace>, id: u64, name: &str) -> CgroupPlace {
        let text: Vec<u8> = name.bytes().chain([0]).collect();
        let name = memory.put_bytes(&text).cast::<c_char>().cast_const();
        // SAFETY: cgroups live as long as the memory, and nobody changes one.
        let above = parent.map(|place| unsafe { (&*place.cgroup, &*place.group) });
        let kn = memory.put(KernfsNode {
            id,
            name,
            parent: above.map_or(ptr::null(), |(cgroup, _)| cgroup.kn),
        });
        let level = above.map_or(0, |(cgroup, _)| cgroup.level + 1);
        let css = |cgroup, parent| Css {
            cgroup,
            parent,
            id: id as i32,
        };
        let cgroup = memory.put(Cgroup {
            css: css(
                ptr::null(),
                above.map_or(ptr::null(), |(cgroup, _)| &raw const cgroup.css),
            ),
            level,
            kn,
            ancestors: above.map_or([ptr::null(); LEVELS], |(cgroup, _)| cgroup.ancestors),
        });
        // SAFETY: the place is ours, and nobody else has it yet.
        unsafe {
            (*cgroup).css.cgroup = cgroup;
            (*cgroup).ancestors[level as usize] = cgroup;
        }
        let group = css(
            cgroup,
            above.map_or(ptr::null(), |(_, group)| &raw const group.css),
        );
        CgroupPlace {
            cgroup,
            set: memory.put(CssSet { dfl_cgrp: cgroup }),
            group: memory.put(TaskGroup { css: group }),
        }
    }
}

impl CgroupPlace {
    /// Returns whether a `struct cgroup_subsys_state` is its own or its task group's.
    pub fn has(&self, css: *const Css) -> bool {
        // SAFETY: as in `Cgroup::put`.
        let own = unsafe { [&raw const (*self.cgroup).css, &raw const (*self.group).css] };
        own.contains(&css)
    }

    /// Returns the structure of this cgroup that corresponds to `css` of another one or this: its own, or its task group's.
    pub fn like(&self, css: *const Css, of: &CgroupPlace) -> *const Css {
        // SAFETY: as in `Cgroup::put`.
        unsafe {
            match css == &raw const (*of.cgroup).css {
                true => &raw const (*self.cgroup).css,
                false => &raw const (*self.group).css,
            }
        }
    }
}

/// Puts the credentials that all tasks share.
fn put_credentials(memory: &Memory) -> *const Credentials {
    memory.put(Credentials {
        uid: 0,
        gid: 0,
        euid: 0,
        egid: 0,
    })
}

/// What every task of an object begins with.
#[derive(Clone, Copy)]
pub struct Birth {
    root: CgroupPlace,
    credentials: *const Credentials,
}

impl Birth {
    pub fn new(memory: &Memory, root: CgroupPlace) -> Birth {
        Birth {
            root,
            credentials: put_credentials(memory),
        }
    }
}

impl Live {
    pub fn new(birth: &Birth) -> Live {
        Live {
            state: 0,
            on_cpu: 0,
            on_rq: 0,
            selected_cpu: 0,
            cpu: 0,
            utime: 0,
            stime: 0,
            nvcsw: 0,
            nivcsw: 0,
            start_time: 0,
            pcount: 0,
            run_delay: 0,
            last_arrival: 0,
            last_queued: 0,
            sum_exec_runtime: 0,
            dsq: ptr::null(),
            queue: Queue { id: 0, nr: 0 },
            iowait: 0,
            ddsp_dsq_id: 0,
            ddsp_enq_flags: 0,
            runnable_at: 0,
            mempolicy: ptr::null(),
            cgroups: birth.root.set,
            task_group: birth.root.group,
            real_cred: birth.credentials,
        }
    }

    /// The task is in another cgroup.
    pub fn enter(&mut self, place: &CgroupPlace) {
        self.cgroups = place.set;
        self.task_group = place.group;
    }

    /// Takes what the virtual kernel has. It lies where it is.
    pub fn set(&mut self, facts: &TaskFacts, cpu: u32) {
        self.state = facts.state;
        self.on_cpu = facts.on_cpu.into();
        self.on_rq = facts.on_rq as i32;
        self.selected_cpu = facts.selected_cpu;
        self.cpu = cpu;
        self.utime = facts.utime_ns;
        self.stime = facts.stime_ns;
        self.nvcsw = facts.voluntary_switches;
        self.nivcsw = facts.involuntary_switches;
        self.start_time = facts.start_ns;
        self.pcount = facts.arrivals;
        self.run_delay = facts.run_delay_ns;
        self.last_arrival = facts.last_arrival_ns;
        self.last_queued = facts.last_queued_ns;
        self.sum_exec_runtime = facts.sum_exec_ns;
        let (id, nr) = facts.dsq.unwrap_or_default();
        self.queue = Queue { id, nr };
        self.dsq = match facts.dsq {
            Some(_) => &raw const self.queue,
            None => ptr::null(),
        };
        self.ddsp_dsq_id = facts.ddsp_dsq_id;
        self.ddsp_enq_flags = facts.ddsp_enq_flags;
        self.runnable_at = facts.runnable_at;
    }
}

impl ObjectRunQueue {
    pub fn new(rq: RunQueue) -> ObjectRunQueue {
        ObjectRunQueue {
            rq,
            clock: 0,
            clock_task: 0,
            clock_pelt: 0,
            lost_idle_time: 0,
            nr_running: 0,
            scx_nr_running: 0,
        }
    }

    /// How many tasks are runnable, of all classes and of sched_ext.
    pub fn set_lengths(&mut self, all: i64, of_scx: i64) {
        (self.nr_running, self.scx_nr_running) = (all as u32, of_scx as u32);
    }

    /// The clocks of a run queue.
    // Model: no time is stolen or spent in interrupts apart from tasks, and a CPU's capacity does not scale `clock_pelt`.
    pub fn set_clock(&mut self, now: u64) {
        (self.clock, self.clock_task, self.clock_pelt) = (now, now, now);
    }
}

/// The structure of a field that is brought up to date before it is read (`Hooks::read`): bits, as fields of several structures
/// may lie at one offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    Task = 1,
    Entity = 2,
    RunQueue = 4,
}

/// Where such fields lie in each structure.
pub fn live_places() -> [(Range<i64>, Of); 3] {
    let (first, end) = (offset_of!(ObjectTask, live) as i64, WITHOUT_MASK as i64);
    let within = offset_of!(Task, scx) as i64;
    let clocks = offset_of!(ObjectRunQueue, clock) as i64;
    [
        (first..end, Of::Task),
        (first - within..end - within, Of::Entity),
        (clocks..size_of::<ObjectRunQueue>() as i64, Of::RunQueue),
    ]
}

/// Where the field lies that a task has only if its object asks for it.
pub const MASK: Range<i64> = WITHOUT_MASK as i64..size_of::<ObjectTask>() as i64;

/// Whether a field is one of those.
pub fn live(structure: &str, path: &str) -> Option<Of> {
    let first = path.split(['.', '[']).next().unwrap_or_default();
    match structure {
        "task_struct" => {
            let entity = path.strip_prefix("scx.");
            let known = LIVE.contains(&first);
            let in_entity = entity.is_some_and(|field| ENTITY.contains(&field));
            (known || in_entity).then_some(Of::Task)
        }
        "sched_ext_entity" => ENTITY.contains(&first).then_some(Of::Entity),
        "sched_entity" => None,
        "rq" => RUN_QUEUE.contains(&first).then_some(Of::RunQueue),
        _ => None,
    }
}

const LIVE: [&str; 11] = [
    "sched_info",
    "__state",
    "on_cpu",
    "on_rq",
    "thread_info",
    "utime",
    "stime",
    "nvcsw",
    "nivcsw",
    "start_time",
    "se",
];

const RUN_QUEUE: [&str; 6] = [
    "clock",
    "clock_task",
    "clock_pelt",
    "lost_idle_time",
    "nr_running",
    "scx",
];

const ENTITY: [&str; 5] = [
    "dsq",
    "ddsp_dsq_id",
    "ddsp_enq_flags",
    "runnable_at",
    "selected_cpu",
];

/// Adds structures to the types that include/native has.
struct Adder<'b> {
    btf: &'b mut Btf,
}

impl Adder<'_> {
    fn word(&mut self, bytes: u32, signed: bool) -> TypeId {
        let name = format!("{}{}", if signed { "s" } else { "u" }, bytes * 8);
        let kind = Kind::Int {
            signed,
            is_bool: false,
        };
        self.btf.add(&name, kind, bytes)
    }

    fn pointer(&mut self, to: TypeId) -> TypeId {
        self.btf.add("", Kind::Ptr(to), 0)
    }

    fn structure(&mut self, name: &str, bytes: usize, members: &[(&str, TypeId, usize)]) -> TypeId {
        let members = members.iter().map(|it| member(*it)).collect();
        self.btf.add(name, Kind::Struct(members), bytes as u32)
    }

    /// Puts more members into a structure that is there; `from` is where it lies in what the offsets count from.
    fn extend(&mut self, name: &str, from: usize, members: &[(&str, TypeId, usize)]) {
        let ids = self.btf.named(name).to_vec();
        for id in ids {
            let Kind::Struct(mut known) = self.btf.get(id).kind.clone() else {
                continue;
            };
            for (name, type_id, offset) in members {
                known.push(member((name, *type_id, offset - from)));
            }
            self.btf.set_kind(id, Kind::Struct(known));
        }
    }
}

fn member((name, type_id, offset): (&str, TypeId, usize)) -> Member {
    Member {
        name: name.to_owned(),
        type_id,
        bit_offset: offset as u32 * 8,
        bits: 0,
    }
}

/// Adds them to the types of the virtual kernel.
pub fn add_types(btf: &mut Btf) {
    let mut adder = Adder { btf };
    let it = &mut adder;
    let (u64_, u32_, s32_) = (it.word(8, false), it.word(4, false), it.word(4, true));
    let char_ = it.word(1, true);
    let (text, void) = (it.pointer(char_), it.pointer(0));
    let node = it.structure(
        "kernfs_node",
        size_of::<KernfsNode>(),
        &[
            ("id", u64_, offset_of!(KernfsNode, id)),
            ("name", text, offset_of!(KernfsNode, name)),
        ],
    );
    let node_pointer = it.pointer(node);
    it.extend(
        "kernfs_node",
        0,
        &[
            ("parent", node_pointer, offset_of!(KernfsNode, parent)),
            ("__parent", node_pointer, offset_of!(KernfsNode, parent)),
        ],
    );
    // A declaration of include/native is no structure.
    let css = it.structure("cgroup_subsys_state", size_of::<Css>(), &[]);
    let css_pointer = it.pointer(css);
    let cgroup = it.structure("cgroup", size_of::<Cgroup>(), &[]);
    let cgroup_pointer = it.pointer(cgroup);
    it.extend(
        "cgroup_subsys_state",
        0,
        &[
            ("cgroup", cgroup_pointer, offset_of!(Css, cgroup)),
            ("parent", css_pointer, offset_of!(Css, parent)),
            ("id", s32_, offset_of!(Css, id)),
        ],
    );
    let ancestors = it.btf.add(
        "",
        Kind::Array {
            element: cgroup_pointer,
            count: LEVELS as u32,
        },
        0,
    );
    it.extend(
        "cgroup",
        0,
        &[
            ("self", css, offset_of!(Cgroup, css)),
            ("level", s32_, offset_of!(Cgroup, level)),
            ("kn", node_pointer, offset_of!(Cgroup, kn)),
            ("ancestors", ancestors, offset_of!(Cgroup, ancestors)),
        ],
    );
    let set = it.structure(
        "css_set",
        size_of::<CssSet>(),
        &[("dfl_cgrp", cgroup_pointer, offset_of!(CssSet, dfl_cgrp))],
    );
    let group = it.structure(
        "task_group",
        size_of::<TaskGroup>(),
        &[("css", css, offset_of!(TaskGroup, css))],
    );
    let id_of = |it: &mut Adder<'_>, name: &str| it.structure(name, 4, &[("val", u32_, 0)]);
    let (kuid, kgid) = (id_of(it, "kuid_t"), id_of(it, "kgid_t"));
    let credentials = it.structure(
        "cred",
        size_of::<Credentials>(),
        &[
            ("uid", kuid, offset_of!(Credentials, uid)),
            ("gid", kgid, offset_of!(Credentials, gid)),
            ("euid", kuid, offset_of!(Credentials, euid)),
            ("egid", kgid, offset_of!(Credentials, egid)),
        ],
    );
    let guard = it.structure("", 8, &[("lock", void, 0)]);
    it.btf.add("class_rcu_t", Kind::Typedef(guard), 0);
    // Nothing has one: who reads it first asks whether the pointer is NULL.
    let nodes = it.btf.add(
        "",
        Kind::Array {
            element: u64_,
            count: 16,
        },
        0,
    );
    let nodes = it.structure("", 128, &[("bits", nodes, 0)]);
    let nodes = it.btf.add("nodemask_t", Kind::Typedef(nodes), 0);
    let mempolicy = it.structure(
        "mempolicy",
        160,
        &[
            ("mode", u32_, 0),
            ("home_node", s32_, 8),
            ("nodes", nodes, 16),
        ],
    );
    let queue = it.structure(
        "scx_dispatch_q",
        size_of::<Queue>(),
        &[
            ("nr", u32_, offset_of!(Queue, nr)),
            ("id", u64_, offset_of!(Queue, id)),
        ],
    );
    let entity = it.structure("sched_entity", 8, &[("sum_exec_runtime", u64_, 0)]);
    let within = |offset: usize| offset - offset_of!(Live, pcount);
    let waits = it.structure(
        "sched_info",
        within(offset_of!(Live, sum_exec_runtime)),
        &[
            ("pcount", u64_, 0),
            ("run_delay", u64_, within(offset_of!(Live, run_delay))),
            ("last_arrival", u64_, within(offset_of!(Live, last_arrival))),
            ("last_queued", u64_, within(offset_of!(Live, last_queued))),
        ],
    );
    let info = it.structure("thread_info", 4, &[("cpu", u32_, 0)]);
    let pointers = [set, group, credentials, mempolicy, queue].map(|to| it.pointer(to));
    let [set, group, credentials, mempolicy, queue] = pointers;
    let mask = it.btf.named("cpumask_t").first().copied().unwrap_or(0);
    macro_rules! at {
        ($field:ident) => {
            offset_of!(ObjectTask, live) + offset_of!(Live, $field)
        };
    }
    it.extend(
        "task_struct",
        0,
        &[
            ("__state", u32_, at!(state)),
            ("on_cpu", s32_, at!(on_cpu)),
            ("on_rq", s32_, at!(on_rq)),
            ("thread_info", info, at!(cpu)),
            ("utime", u64_, at!(utime)),
            ("stime", u64_, at!(stime)),
            ("nvcsw", u64_, at!(nvcsw)),
            ("nivcsw", u64_, at!(nivcsw)),
            ("start_time", u64_, at!(start_time)),
            ("sched_info", waits, at!(pcount)),
            ("se", entity, at!(sum_exec_runtime)),
            ("in_iowait", u32_, at!(iowait)),
            ("mempolicy", mempolicy, at!(mempolicy)),
            ("cgroups", set, at!(cgroups)),
            ("sched_task_group", group, at!(task_group)),
            ("real_cred", credentials, at!(real_cred)),
            ("cpus_mask", mask, offset_of!(ObjectTask, cpus_mask)),
        ],
    );
    it.extend(
        "sched_ext_entity",
        offset_of!(Task, scx),
        &[
            ("dsq", queue, at!(dsq)),
            ("ddsp_dsq_id", u64_, at!(ddsp_dsq_id)),
            ("ddsp_enq_flags", u64_, at!(ddsp_enq_flags)),
            ("runnable_at", u64_, at!(runnable_at)),
            ("selected_cpu", s32_, at!(selected_cpu)),
        ],
    );
    let scx_rq = it.structure("scx_rq", 4, &[("nr_running", u32_, 0)]);
    it.extend(
        "rq",
        0,
        &[
            ("nr_running", u32_, offset_of!(ObjectRunQueue, nr_running)),
            ("scx", scx_rq, offset_of!(ObjectRunQueue, scx_nr_running)),
            ("clock", u64_, offset_of!(ObjectRunQueue, clock)),
            ("clock_task", u64_, offset_of!(ObjectRunQueue, clock_task)),
            ("clock_pelt", u64_, offset_of!(ObjectRunQueue, clock_pelt)),
            (
                "lost_idle_time",
                u64_,
                offset_of!(ObjectRunQueue, lost_idle_time),
            ),
        ],
    );
}
