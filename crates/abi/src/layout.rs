//! C structures that a policy shares with the virtual kernel, as `include/native/scx/types.h` and
//! `ops.h` lay them out. A test compares them with the debug information of a compiled policy.

use std::ffi::{c_char, c_int, c_ulong, c_void};
use std::ptr;

/// Bits of a `struct cpumask` (`LAB_NR_CPUS_MAX`).
pub const NR_CPUS_MAX: usize = 8192;

/// `struct cpumask`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CpuMask {
    /// CPU 0 is the lowest bit of the first word.
    pub bits: [c_ulong; NR_CPUS_MAX / 64],
}

impl CpuMask {
    /// No CPU.
    pub const EMPTY: CpuMask = CpuMask {
        bits: [0; NR_CPUS_MAX / 64],
    };

    /// Overwrites the mask with the bits of `words`.
    pub fn set_words(&mut self, words: &[usize]) {
        self.bits.fill(0);
        for (bit, &word) in self.bits.iter_mut().zip(words) {
            *bit = word as c_ulong;
        }
    }
}

/// `struct sched_ext_entity`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Entity {
    pub slice: u64,
    pub dsq_vtime: u64,
    pub tid: u64,
    pub flags: u32,
    pub weight: u32,
    /// A bool in C, in which policy code may have put anything.
    pub disallow: u8,
    /// The op that inserted it last, by a number (`Host::inserts`); 0: none.
    pub lab_inserted_in: u8,
    /// The place in the policy's object right behind that call.
    pub lab_inserted_at: u32,
}

/// `struct task_struct`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Task {
    /// Which task this is; [`Task::NOBODY`] for idle tasks, stoppers and the parent of all.
    pub lab_index: u32,
    pub pid: c_int,
    pub tgid: c_int,
    pub flags: u32,
    pub prio: c_int,
    pub static_prio: c_int,
    pub normal_prio: c_int,
    pub rt_priority: u32,
    pub policy: u32,
    pub nr_cpus_allowed: c_int,
    pub cpus_ptr: *const CpuMask,
    pub mm: *mut c_void,
    pub real_parent: *mut Task,
    pub parent: *mut Task,
    pub group_leader: *mut Task,
    pub migration_disabled: u16,
    pub lab_cpu: c_int,
    pub scx: Entity,
    pub comm: [c_char; 16],
}

impl Task {
    /// [`Task::lab_index`] of what is no task of the workload.
    pub const NOBODY: u32 = u32::MAX;

    /// A task of which nothing is known yet.
    pub const fn new() -> Task {
        Task {
            lab_index: Task::NOBODY,
            pid: 0,
            tgid: 0,
            flags: 0,
            prio: 120,
            static_prio: 120,
            normal_prio: 120,
            rt_priority: 0,
            policy: 0,
            nr_cpus_allowed: 0,
            cpus_ptr: ptr::null(),
            mm: ptr::null_mut(),
            real_parent: ptr::null_mut(),
            parent: ptr::null_mut(),
            group_leader: ptr::null_mut(),
            migration_disabled: 0,
            lab_cpu: 0,
            scx: Entity {
                slice: 0,
                dsq_vtime: 0,
                tid: 0,
                flags: 0,
                weight: 100,
                disallow: 0,
                lab_inserted_in: 0,
                lab_inserted_at: 0,
            },
            comm: [0; 16],
        }
    }

    /// Sets `comm`, cut to 15 bytes.
    pub fn set_comm(&mut self, comm: &str) {
        self.comm = [0; 16];
        for (to, &from) in self.comm[..15].iter_mut().zip(comm.as_bytes()) {
            *to = from as c_char;
        }
    }
}

/// `struct rq`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RunQueue {
    pub cpu: c_int,
    pub curr: *mut Task,
}

/// `struct scx_exit_info`.
#[repr(C)]
pub struct ExitInfo {
    pub kind: u32,
    pub exit_cpu: i32,
    pub exit_code: i64,
    pub flags: u64,
    pub reason: *const c_char,
    pub bt: *mut c_ulong,
    pub bt_len: u32,
    pub msg: *mut c_char,
    pub dump: *mut c_char,
}

/// `struct scx_init_task_args`.
#[repr(C)]
pub struct InitTaskArgs {
    pub fork: bool,
    pub cgroup: *mut c_void,
}

/// `struct scx_exit_task_args`.
#[repr(C)]
pub struct ExitTaskArgs {
    pub cancelled: bool,
}

/// `struct scx_cgroup_init_args`.
#[repr(C)]
pub struct CgroupInitArgs {
    pub weight: u32,
    pub bw_period_us: u64,
    pub bw_quota_us: u64,
    pub bw_burst_us: u64,
}

/// `struct scx_dump_ctx`.
#[repr(C)]
pub struct DumpContext {
    pub kind: u32,
    pub exit_code: i64,
    pub reason: *const c_char,
    pub at_ns: u64,
    pub at_jiffies: u64,
}

/// `struct scx_cpu_release_args`.
#[repr(C)]
pub struct CpuReleaseArgs {
    pub reason: u32,
    pub task: *mut Task,
}

/// `struct bpf_timer`.
#[repr(C)]
pub struct Timer {
    pub opaque: [u64; 2],
}

/// `struct bpf_iter_scx_dsq`.
#[repr(C)]
pub struct DsqIter {
    pub opaque: [u64; 6],
}

type Op<F> = Option<F>;

/// `struct sched_ext_ops`. Ops that the virtual kernel does not call are plain pointers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Ops {
    pub select_cpu: Op<unsafe extern "C" fn(*mut Task, i32, u64) -> i32>,
    pub enqueue: Op<unsafe extern "C" fn(*mut Task, u64)>,
    pub dequeue: Op<unsafe extern "C" fn(*mut Task, u64)>,
    pub dispatch: Op<unsafe extern "C" fn(i32, *mut Task)>,
    pub tick: Op<unsafe extern "C" fn(*mut Task)>,
    pub runnable: Op<unsafe extern "C" fn(*mut Task, u64)>,
    pub running: Op<unsafe extern "C" fn(*mut Task)>,
    pub stopping: Op<unsafe extern "C" fn(*mut Task, bool)>,
    pub quiescent: Op<unsafe extern "C" fn(*mut Task, u64)>,
    /// A bool in C, which may be the lowest byte of a number.
    pub yield_: Op<unsafe extern "C" fn(*mut Task, *mut Task) -> u8>,
    pub core_sched_before: *const c_void,
    pub set_weight: Op<unsafe extern "C" fn(*mut Task, u32)>,
    pub set_cpumask: Op<unsafe extern "C" fn(*mut Task, *const CpuMask)>,
    pub update_idle: Op<unsafe extern "C" fn(i32, bool)>,
    pub init_task: Op<unsafe extern "C" fn(*mut Task, *mut InitTaskArgs) -> i32>,
    pub exit_task: Op<unsafe extern "C" fn(*mut Task, *mut ExitTaskArgs)>,
    pub enable: Op<unsafe extern "C" fn(*mut Task)>,
    pub disable: Op<unsafe extern "C" fn(*mut Task)>,
    pub dump: Op<unsafe extern "C" fn(*mut DumpContext)>,
    pub dump_cpu: Op<unsafe extern "C" fn(*mut DumpContext, i32, bool)>,
    pub dump_task: Op<unsafe extern "C" fn(*mut DumpContext, *mut Task)>,
    pub cgroup_init: Op<unsafe extern "C" fn(*mut c_void, *mut CgroupInitArgs) -> i32>,
    pub cgroup_exit: Op<unsafe extern "C" fn(*mut c_void)>,
    pub cgroup_prep_move: Op<unsafe extern "C" fn(*mut Task, *mut c_void, *mut c_void) -> i32>,
    pub cgroup_move: Op<unsafe extern "C" fn(*mut Task, *mut c_void, *mut c_void)>,
    pub cgroup_cancel_move: *const c_void,
    pub cgroup_set_weight: Op<unsafe extern "C" fn(*mut c_void, u32)>,
    pub cgroup_set_bandwidth: Op<unsafe extern "C" fn(*mut c_void, u64, u64, u64)>,
    pub cgroup_set_idle: Op<unsafe extern "C" fn(*mut c_void, bool)>,
    pub sub_attach: *const c_void,
    pub sub_detach: *const c_void,
    pub cpu_online: Op<unsafe extern "C" fn(i32)>,
    pub cpu_offline: Op<unsafe extern "C" fn(i32)>,
    pub init: Op<unsafe extern "C" fn() -> i32>,
    pub exit: Op<unsafe extern "C" fn(*mut ExitInfo)>,
    pub dispatch_max_batch: u32,
    pub flags: u64,
    pub timeout_ms: u32,
    pub exit_dump_len: u32,
    pub hotplug_seq: u64,
    pub sub_cgroup_id: u64,
    pub name: [c_char; 128],
    pub priv_: *const c_void,
    pub cpu_acquire: Op<unsafe extern "C" fn(i32, *mut c_void)>,
    pub cpu_release: Op<unsafe extern "C" fn(i32, *mut CpuReleaseArgs)>,
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;
    use std::mem::{offset_of, size_of};
    use std::path::{Path, PathBuf};
    use std::sync::OnceLock;

    use super::*;
    use crate::compiler;
    use crate::dwarf::Types;
    type Table = crate::host_table::Table<*const c_void>;

    /// The debug information of a fixture as the compiler at hand lays it out.
    fn types() -> &'static Types {
        static TYPES: OnceLock<Types> = OnceLock::new();
        TYPES.get_or_init(|| read("layout"))
    }

    /// A fixture as the compiler at hand compiles it.
    pub(crate) fn compiled(fixture: &str) -> Vec<u8> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let made = tempfile::tempdir().unwrap();
        let output = made.path().join("fixture.so");
        let source = PathBuf::from(format!("tests/fixtures/{fixture}.bpf.c"));
        compiler::run(&compiler::Compilation {
            compiler: &compiler::default_compiler(),
            arch: std::env::consts::ARCH,
            folder,
            source: &source,
            include: &[
                folder.join("../../include/native"),
                folder.join("../../include"),
            ],
            output: &output,
            audit: false,
        })
        .unwrap_or_else(|error| panic!("{error}"));
        std::fs::read(&output).unwrap()
    }

    fn read(fixture: &str) -> Types {
        Types::read(&compiled(fixture)).unwrap()
    }

    fn offsets(types: &Types, name: &str) -> (BTreeMap<String, u64>, u64) {
        let at = types
            .structure(name)
            .unwrap_or_else(|| panic!("no struct {name}"));
        let members = types.members(at).into_iter();
        let members = members
            .map(|(name, offset, _)| (name.to_owned(), offset))
            .collect();
        (members, types.entry(at).byte_size.unwrap())
    }

    macro_rules! same {
        ($types:expr, $c:literal, $rust:ty, $($field:ident = $member:literal),* $(,)?) => {
            let (members, size) = offsets($types, $c);
            assert_eq!(size as usize, size_of::<$rust>(), "sizeof(struct {})", $c);
            let ours = [$(($member, offset_of!($rust, $field))),*];
            for (member, offset) in ours {
                assert_eq!(members.get(member), Some(&(offset as u64)), "{}.{member}", $c);
            }
            assert_eq!(members.len(), ours.len(), "members of struct {}", $c);
        };
    }

    #[test]
    fn structures_lie_as_in_c() {
        let types = types();
        same!(
            types,
            "task_struct",
            Task,
            lab_index = "__lab_index",
            pid = "pid",
            tgid = "tgid",
            flags = "flags",
            prio = "prio",
            static_prio = "static_prio",
            normal_prio = "normal_prio",
            rt_priority = "rt_priority",
            policy = "policy",
            nr_cpus_allowed = "nr_cpus_allowed",
            cpus_ptr = "cpus_ptr",
            mm = "mm",
            real_parent = "real_parent",
            parent = "parent",
            group_leader = "group_leader",
            migration_disabled = "migration_disabled",
            lab_cpu = "__lab_cpu",
            scx = "scx",
            comm = "comm"
        );
        same!(
            types,
            "sched_ext_entity",
            Entity,
            slice = "slice",
            dsq_vtime = "dsq_vtime",
            tid = "tid",
            flags = "flags",
            weight = "weight",
            disallow = "disallow",
            lab_inserted_in = "__lab_inserted_in",
            lab_inserted_at = "__lab_inserted_at"
        );
        same!(types, "cpumask", CpuMask, bits = "bits");
        same!(types, "rq", RunQueue, cpu = "cpu", curr = "curr");
        same!(
            types,
            "scx_exit_info",
            ExitInfo,
            kind = "kind",
            exit_cpu = "exit_cpu",
            exit_code = "exit_code",
            flags = "flags",
            reason = "reason",
            bt = "bt",
            bt_len = "bt_len",
            msg = "msg",
            dump = "dump"
        );
        same!(
            types,
            "scx_init_task_args",
            InitTaskArgs,
            fork = "fork",
            cgroup = "cgroup"
        );
        same!(
            types,
            "scx_exit_task_args",
            ExitTaskArgs,
            cancelled = "cancelled"
        );
        same!(
            types,
            "scx_cpu_release_args",
            CpuReleaseArgs,
            reason = "reason",
            task = "task"
        );
        same!(
            types,
            "scx_cgroup_init_args",
            CgroupInitArgs,
            weight = "weight",
            bw_period_us = "bw_period_us",
            bw_quota_us = "bw_quota_us",
            bw_burst_us = "bw_burst_us"
        );
        same!(
            types,
            "scx_dump_ctx",
            DumpContext,
            kind = "kind",
            exit_code = "exit_code",
            reason = "reason",
            at_ns = "at_ns",
            at_jiffies = "at_jiffies"
        );
        same!(types, "bpf_timer", Timer, opaque = "__opaque");
        same!(types, "bpf_iter_scx_dsq", DsqIter, opaque = "__opaque");
        same!(
            types,
            "sched_ext_ops",
            Ops,
            select_cpu = "select_cpu",
            enqueue = "enqueue",
            dequeue = "dequeue",
            dispatch = "dispatch",
            tick = "tick",
            runnable = "runnable",
            running = "running",
            stopping = "stopping",
            quiescent = "quiescent",
            yield_ = "yield",
            core_sched_before = "core_sched_before",
            set_weight = "set_weight",
            set_cpumask = "set_cpumask",
            update_idle = "update_idle",
            init_task = "init_task",
            exit_task = "exit_task",
            enable = "enable",
            disable = "disable",
            dump = "dump",
            dump_cpu = "dump_cpu",
            dump_task = "dump_task",
            cgroup_init = "cgroup_init",
            cgroup_exit = "cgroup_exit",
            cgroup_prep_move = "cgroup_prep_move",
            cgroup_move = "cgroup_move",
            cgroup_cancel_move = "cgroup_cancel_move",
            cgroup_set_weight = "cgroup_set_weight",
            cgroup_set_bandwidth = "cgroup_set_bandwidth",
            cgroup_set_idle = "cgroup_set_idle",
            sub_attach = "sub_attach",
            sub_detach = "sub_detach",
            cpu_online = "cpu_online",
            cpu_offline = "cpu_offline",
            init = "init",
            exit = "exit",
            dispatch_max_batch = "dispatch_max_batch",
            flags = "flags",
            timeout_ms = "timeout_ms",
            exit_dump_len = "exit_dump_len",
            hotplug_seq = "hotplug_seq",
            sub_cgroup_id = "sub_cgroup_id",
            name = "name",
            priv_ = "priv",
            cpu_acquire = "cpu_acquire",
            cpu_release = "cpu_release"
        );
    }

    #[test]
    fn the_table_has_the_same_slots_as_in_c() {
        let types = types();
        let host = types.structure("lab_host").unwrap();
        let members = types.members(host);
        let slots: Vec<&str> = members.iter().map(|&(name, ..)| name).collect();
        let ours: Vec<&str> = Table::NAMES
            .iter()
            .map(|name| name.trim_start_matches("r#"))
            .collect();
        assert_eq!(slots, ours);
        assert_eq!(members.len() * 8, size_of::<Table>());
    }

    #[test]
    fn policies_leave_as_much_stack_as_fibers_have_for_that() {
        let header = include_str!("../../../include/native/scx/host.h");
        let bytes = schedlab_fiber::KERNEL_STACK_BYTES;
        let line = format!("#define LAB_KERNEL_STACK_BYTES {bytes}\n");
        assert!(header.contains(&line), "{line}");
    }

    /// The numbers of Linux 7.2 (internal.h, ext.h, sched.h, uapi/linux/bpf.h), written down once.
    #[test]
    fn enumerators_have_the_kernels_values() {
        let types = types();
        let ours = types.all_enumerators();
        let expected: &[(&str, i128)] = &[
            ("SCX_OPS_NAME_LEN", 128),
            ("SCX_SLICE_DFL", 20_000_000),
            ("SCX_SLICE_BYPASS", 5_000_000),
            ("SCX_SLICE_INF", u64::MAX as i128),
            ("SCX_DSQ_INVALID", 1 << 63),
            ("SCX_DSQ_GLOBAL", (1 << 63) + 1),
            ("SCX_DSQ_LOCAL", (1 << 63) + 2),
            ("SCX_DSQ_BYPASS", (1 << 63) + 3),
            ("SCX_DSQ_LOCAL_ON", 3 << 62),
            ("SCX_DSQ_LOCAL_CPU_MASK", 0xffff_ffff),
            ("SCX_TASK_QUEUED", 1),
            ("SCX_EXIT_UNREG", 64),
            ("SCX_EXIT_ERROR", 1024),
            ("SCX_EXIT_ERROR_BPF", 1025),
            ("SCX_EXIT_ERROR_STALL", 1026),
            ("SCX_ECODE_ACT_RESTART", 1 << 48),
            ("SCX_OPS_ENQ_LAST", 2),
            ("SCX_OPS_ENQ_EXITING", 4),
            ("SCX_OPS_SWITCH_PARTIAL", 8),
            ("SCX_OPS_ENQ_MIGRATION_DISABLED", 16),
            ("SCX_OPS_ALLOW_QUEUED_WAKEUP", 32),
            ("SCX_OPS_BUILTIN_IDLE_PER_NODE", 64),
            ("SCX_OPS_ALWAYS_ENQ_IMMED", 128),
            ("SCX_OPS_TID_TO_TASK", 256),
            ("SCX_WAKE_FORK", 4),
            ("SCX_WAKE_TTWU", 8),
            ("SCX_WAKE_SYNC", 16),
            ("SCX_ENQ_WAKEUP", 1),
            ("SCX_ENQ_HEAD", 0x1_0000),
            ("SCX_ENQ_CPU_SELECTED", 0x10_0000),
            ("SCX_ENQ_PREEMPT", 1 << 32),
            ("SCX_ENQ_IMMED", 1 << 33),
            ("SCX_ENQ_REENQ", 1 << 40),
            ("SCX_ENQ_LAST", 1 << 41),
            ("SCX_DEQ_SLEEP", 1),
            ("SCX_DEQ_CORE_SCHED_EXEC", 1 << 32),
            ("SCX_DEQ_SCHED_CHANGE", 1 << 33),
            ("SCX_PICK_IDLE_CORE", 1),
            ("SCX_PICK_IDLE_IN_NODE", 2),
            ("SCX_KICK_IDLE", 1),
            ("SCX_KICK_PREEMPT", 2),
            ("SCX_KICK_WAIT", 4),
            ("SCX_DSQ_ITER_REV", 1 << 16),
            ("BPF_MAP_TYPE_ARENA", 33),
            ("BPF_MAP_TYPE_TASK_STORAGE", 29),
            ("BPF_F_TIMER_CPU_PIN", 2),
            ("BPF_MAX_LOOPS", 8 << 20),
        ];
        for (name, value) in expected {
            assert_eq!(ours.get(name), Some(value), "{name}");
        }
    }
}
