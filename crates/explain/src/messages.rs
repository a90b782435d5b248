//! The meanings of the kernel's messages: one row for each message of `scx_error()` and `scx_exit()` in
//! kernel/sched/ext of Linux 6.12 to 7.2, and for the simulator's own.

use std::sync::LazyLock;

use regex::Regex;

use crate::culprit::Culprit;
use crate::pattern::pattern;

/// A message and what is to be said of it. In `says`, `$name` is what the pattern found under that name.
pub struct Row {
    /// Found anywhere in the message: the simulator adds an op and a line to the kernel's words.
    pub pattern: &'static str,
    pub culprit: Culprit,
    pub says: &'static str,
    /// Where the kernel decides so, and what it demands.
    pub function: &'static str,
    pub rule: &'static str,
    pub cure: &'static str,
}

const TASK: &str = r"(?P<task>[^\s:](?:[^:]|:\S)*?\[\d+\])";

/// `{task}` of a pattern stands for a task's name and pid.
pub const ROWS: &[Row] = &[
    Row {
        pattern: r"non-existent DSQ (?P<dsq>0x[0-9a-f]+)(?: for {task})?",
        culprit: Culprit::NoSuchDsq,
        says: "The scheduler inserted a task into DSQ $dsq, which does not exist.",
        function: "find_dsq_for_dispatch()",
        rule: "A task can be inserted only into a built-in DSQ or one that scx_bpf_create_dsq() has made and nobody has destroyed.",
        cure: "Create the DSQ in ops.init() and check what scx_bpf_create_dsq() returns; look for a wrong id, for example a CPU or node number of a machine with more of them.",
    },
    Row {
        pattern: r"cannot use vtime ordering for built-in DSQs",
        culprit: Culprit::VtimeInBuiltinDsq,
        says: "The scheduler inserted a task by vtime into a built-in DSQ, and those are FIFO only.",
        function: "dispatch_enqueue()",
        rule: "SCX_DSQ_LOCAL, SCX_DSQ_LOCAL_ON and SCX_DSQ_GLOBAL take scx_bpf_dsq_insert() only.",
        cure: "Use scx_bpf_dsq_insert() for built-in DSQs, or create a DSQ of your own for scx_bpf_dsq_insert_vtime().",
    },
    Row {
        pattern: r"DSQ ID (?P<dsq>0x[0-9a-f]+) already had (?:FIFO|PRIQ)-enqueued tasks",
        culprit: Culprit::MixedDsq,
        says: "The scheduler inserted tasks into DSQ $dsq both in turn and by vtime.",
        function: "dispatch_enqueue()",
        rule: "A DSQ that has tasks is either FIFO (scx_bpf_dsq_insert()) or ordered by vtime (scx_bpf_dsq_insert_vtime()).",
        cure: "Use one of the two functions for each DSQ; make a second DSQ for the other kind.",
    },
    Row {
        pattern: r"attempting to dispatch to a destroyed dsq",
        culprit: Culprit::DestroyedDsq,
        says: "The scheduler inserted a task into a DSQ that it had destroyed.",
        function: "dispatch_enqueue()",
        rule: "After scx_bpf_destroy_dsq() nothing may be inserted into that DSQ.",
        cure: "Destroy a DSQ only when no op on any CPU uses its id any more.",
    },
    Row {
        pattern: r"attempting to destroy in-use dsq (?P<dsq>0x[0-9a-f]+) \(nr=(?P<nr>\d+)\)",
        culprit: Culprit::DsqInUse,
        says: "The scheduler destroyed DSQ $dsq while tasks (nr=$nr) were in it.",
        function: "destroy_dsq()",
        rule: "A DSQ must be empty when it is destroyed.",
        cure: "Move its tasks elsewhere first (scx_bpf_dsq_move()), or keep the DSQ until the scheduler is unloaded.",
    },
    Row {
        pattern: r"invalid DSQ ID (?P<dsq>0x[0-9a-f]+)",
        culprit: Culprit::NoSuchDsq,
        says: "The scheduler asked a CPU to take a task from DSQ $dsq, which does not exist or is built-in.",
        function: "scx_bpf_dsq_move_to_local()",
        rule: "Only DSQs that scx_bpf_create_dsq() has made can be moved from.",
        cure: "Create the DSQ in ops.init() and check the id. Local and global DSQs need no move: the kernel takes from them itself.",
    },
    Row {
        pattern: r"peek disallowed on builtin DSQ (?P<dsq>0x[0-9a-f]+)",
        culprit: Culprit::BuiltinDsq,
        says: "The scheduler looked into the built-in DSQ $dsq, which scx_bpf_dsq_peek() does not show.",
        function: "scx_bpf_dsq_peek()",
        rule: "Only DSQs of the scheduler's own can be peeked into.",
        cure: "Peek into your own DSQs only; scx_bpf_dsq_nr_queued() returns the number of tasks of a built-in one.",
    },
    Row {
        pattern: r"peek on non-existent DSQ (?P<dsq>0x[0-9a-f]+)",
        culprit: Culprit::NoSuchDsq,
        says: "The scheduler looked into DSQ $dsq, which does not exist.",
        function: "scx_bpf_dsq_peek()",
        rule: "Only DSQs that scx_bpf_create_dsq() has made can be peeked into.",
        cure: "Create the DSQ in ops.init() and check the id.",
    },
    Row {
        pattern: r"DSQ (?P<dsq>0x[0-9a-f]+) not allowed for reenq|invalid SCX_REENQ flags (?P<flags>0x[0-9a-f]+)",
        culprit: Culprit::BadReenqueue,
        says: "The scheduler asked for a re-enqueue that the kernel does not offer.",
        function: "scx_bpf_dsq_reenq()",
        rule: "Only local DSQs and the scheduler's own can be enqueued again, with the flags that SCX_REENQ_* name.",
        cure: "Pass the id of a local DSQ or of your own, and 0 or SCX_REENQ_ANY as flags.",
    },
    Row {
        pattern: r"SCX_ENQ_REENQ on SCX_DSQ_LOCAL repeated (?P<nr>\d+) times",
        culprit: Culprit::EndlessReenqueue,
        says: "ops.enqueue() put tasks that the kernel had given back ($nr times in a row) into the same local DSQ again.",
        function: "process_deferred_reenq_locals()",
        rule: "A task that comes with SCX_ENQ_REENQ has just been refused by that CPU.",
        cure: "In ops.enqueue(), send tasks with SCX_ENQ_REENQ to another DSQ than the one they came from.",
    },
    Row {
        pattern: r"SCX_ENQ_IMMED on a non-local DSQ (?P<dsq>0x[0-9a-f]+)",
        culprit: Culprit::EnqueueFlags,
        says: "The scheduler inserted a task with SCX_ENQ_IMMED into DSQ $dsq, which is not local.",
        function: "scx_vet_enq_flags()",
        rule: "SCX_ENQ_IMMED promises that the task runs at once, which only a CPU's local DSQ can.",
        cure: "Use the flag with SCX_DSQ_LOCAL or SCX_DSQ_LOCAL_ON only.",
    },
    Row {
        pattern: r"invalid enq_flags (?P<flags>0x[0-9a-f]+)",
        culprit: Culprit::EnqueueFlags,
        says: "The scheduler inserted a task with the flags $flags, which contain the kernel's own.",
        function: "scx_dsq_insert_preamble()",
        rule: "Flags that only the kernel gives (SCX_ENQ_WAKEUP is not one of them) may not be passed to scx_bpf_dsq_insert().",
        cure: "Pass the enq_flags that ops.enqueue() got, with SCX_ENQ_HEAD, SCX_ENQ_PREEMPT or SCX_ENQ_IMMED added where wanted, or 0.",
    },
    Row {
        pattern: r"SCX_DSQ_LOCAL\[_ON\] (?:verdict )?target (?:cpu|CPU) (?P<cpu>\d+) not allowed for {task}",
        culprit: Culprit::CpuNotAllowed,
        says: "The scheduler sent $task to CPU $cpu, where the task's CPU mask does not let it run.",
        function: "task_can_run_on_remote_rq()",
        rule: "A task in the local DSQ of a CPU must be allowed there (p->cpus_ptr), and the CPU must be online; nothing moves it elsewhere.",
        cure: "Test bpf_cpumask_test_cpu(cpu, p->cpus_ptr) before SCX_DSQ_LOCAL_ON, at the very insertion: the mask may have changed since the task was queued. Or use a DSQ of your own, from which each CPU takes only what may run on it.",
    },
    Row {
        pattern: r"SCX_DSQ_LOCAL\[_ON\] cannot move migration disabled {task} from CPU (?P<from>\d+) to (?P<cpu>\d+)",
        culprit: Culprit::MigrationDisabled,
        says: "The scheduler sent $task from CPU $from to CPU $cpu while the task's migration was disabled.",
        function: "task_can_run_on_remote_rq()",
        rule: "A task with migration disabled (migrate_disable(), which BPF programs use themselves) stays on its CPU, whatever its mask says.",
        cure: "Test is_migration_disabled(p) and p->nr_cpus_allowed before SCX_DSQ_LOCAL_ON, and insert such a task into the local DSQ of scx_bpf_task_cpu(p).",
    },
    Row {
        pattern: r"invalid CPU (?P<cpu>-?\d+)(?: (?P<place>[\w .()-]*\w\)?))?",
        culprit: Culprit::InvalidCpu,
        says: "The scheduler named CPU $cpu, which this machine does not have.",
        function: "scx_cpu_valid()",
        rule: "CPU numbers go from 0 to scx_bpf_nr_cpu_ids() - 1, and the CPU must be possible.",
        cure: "Check the sign of what pick functions return (-EBUSY means none was idle) before you use it as a CPU.",
    },
    Row {
        pattern: r"invalid cid (?P<cid>-?\d+)",
        culprit: Culprit::InvalidCpu,
        says: "The scheduler named cid $cid, which this machine does not have.",
        function: "cid_valid()",
        rule: "Cids go from 0 to scx_bpf_nr_cids() - 1.",
        cure: "Compare what a search in a cmask returns with scx_bpf_nr_cids() before you use it as a cid: where nothing is found it is not smaller.",
    },
    Row {
        pattern: r"{task} already direct-dispatched",
        culprit: Culprit::InsertedTwice,
        says: "The scheduler inserted $task twice in one op.",
        function: "mark_direct_dispatch()",
        rule: "One ops.select_cpu() or ops.enqueue() may insert its task once.",
        cure: "Return after scx_bpf_dsq_insert(); look for a helper that inserts, too, for example scx_bpf_select_cpu_dfl() followed by an insertion on both branches.",
    },
    Row {
        pattern: r"scheduling for (?P<mine>[^\s:](?:[^:]|:\S)*?\[\d+\]) but trying to direct-dispatch {task}",
        culprit: Culprit::OtherTask,
        says: "The scheduler was asked about $mine and inserted $task.",
        function: "mark_direct_dispatch()",
        rule: "ops.select_cpu() and ops.enqueue() may insert only the task that they were called for.",
        cure: "Insert other tasks from ops.dispatch(), or put them into a DSQ and move them from there.",
    },
    Row {
        pattern: r"dispatch buffer overflow",
        culprit: Culprit::DispatchOverflow,
        says: "One ops.dispatch() inserted more tasks than the dispatch buffer holds.",
        function: "scx_dsq_insert_commit()",
        rule: "Between two moves, ops.dispatch() may insert ops.dispatch_max_batch tasks (32 unless set).",
        cure: "Stop at scx_bpf_dispatch_nr_slots() == 0, or set .dispatch_max_batch in the ops table.",
    },
    Row {
        pattern: r"dispatch buffer underflow",
        culprit: Culprit::DispatchUnderflow,
        says: "scx_bpf_dispatch_cancel() was called with nothing to cancel.",
        function: "scx_bpf_dispatch_cancel()",
        rule: "Only an insertion of the same ops.dispatch() that was not carried out yet can be cancelled.",
        cure: "Cancel at most as often as you have inserted since the last move.",
    },
    Row {
        pattern: r"dispatch recursion detected",
        culprit: Culprit::WrongContext,
        says: "A sub-scheduler's dispatch led back to itself.",
        function: "scx_bpf_sub_dispatch()",
        rule: "ops.dispatch() of one scheduler may not be entered again on the same CPU.",
        cure: "Dispatch only direct children.",
    },
    Row {
        pattern: r"SCX_OPS_BUILTIN_IDLE_PER_NODE requires CPU idle selection enabled",
        culprit: Culprit::OpsFlags,
        says: "The scheduler sets SCX_OPS_BUILTIN_IDLE_PER_NODE and has switched the built-in idle tracking off.",
        function: "validate_ops()",
        rule: "Idle masks per node are the built-in tracking's.",
        cure: "Remove ops.update_idle() or set SCX_OPS_KEEP_BUILTIN_IDLE, or drop the flag.",
    },
    Row {
        pattern: r"SCX_OPS_ENQ_LAST requires ops\.enqueue\(\) to be implemented",
        culprit: Culprit::OpsFlags,
        says: "The scheduler sets SCX_OPS_ENQ_LAST and has no ops.enqueue().",
        function: "validate_ops()",
        rule: "With SCX_OPS_ENQ_LAST the kernel gives the last runnable task of a CPU to ops.enqueue().",
        cure: "Add an ops.enqueue(), or drop the flag.",
    },
    Row {
        pattern: r"SCX_OPS_TID_TO_TASK requires root scheduler to enable it|scx_bpf_tid_to_task\(\) called without SCX_OPS_TID_TO_TASK",
        culprit: Culprit::OpsFlags,
        says: "The scheduler uses tids of tasks without SCX_OPS_TID_TO_TASK in the root scheduler's flags.",
        function: "scx_bpf_tid_to_task()",
        rule: "The kernel keeps the table of tids only where the root scheduler asks for it.",
        cure: "Set SCX_OPS_TID_TO_TASK in .flags of the root scheduler's ops table.",
    },
    Row {
        pattern: r"built-in idle tracking is disabled",
        culprit: Culprit::IdleTrackingOff,
        says: "The scheduler asked for idle CPUs although its own ops.update_idle() has switched the built-in idle tracking off.",
        function: "check_builtin_idle_enabled()",
        rule: "A scheduler with ops.update_idle() tracks idle CPUs itself, unless it sets SCX_OPS_KEEP_BUILTIN_IDLE.",
        cure: "Set SCX_OPS_KEEP_BUILTIN_IDLE in .flags, or do without scx_bpf_select_cpu_dfl() and scx_bpf_pick_idle_cpu().",
    },
    Row {
        pattern: r"per-node idle tracking is (?P<how>disabled|enabled)|SCX_OPS_BUILTIN_IDLE_PER_NODE enabled",
        culprit: Culprit::IdlePerNode,
        says: "The scheduler confused the idle masks per node with the idle masks of the whole machine.",
        function: "validate_node()",
        rule: "With SCX_OPS_BUILTIN_IDLE_PER_NODE only the functions whose names end in _node work; without it only the others.",
        cure: "Set SCX_OPS_BUILTIN_IDLE_PER_NODE and use the _node functions throughout, or neither.",
    },
    Row {
        pattern: r"(?:invalid|unavailable) node (?P<node>-?\d+)",
        culprit: Culprit::InvalidNode,
        says: "The scheduler named NUMA node $node, which this machine does not have.",
        function: "validate_node()",
        rule: "Node numbers go from 0 to scx_bpf_nr_node_ids() - 1.",
        cure: "Take the node from scx_bpf_cpu_node(), and check what the caller passes.",
    },
    Row {
        pattern: r"PREEMPT/WAIT cannot be used with SCX_KICK_IDLE",
        culprit: Culprit::KickFlags,
        says: "The scheduler kicked a CPU with SCX_KICK_IDLE together with SCX_KICK_PREEMPT or SCX_KICK_WAIT.",
        function: "scx_kick_cpu()",
        rule: "SCX_KICK_IDLE is for a CPU that is idle, where nothing can be preempted or waited for.",
        cure: "Kick with SCX_KICK_IDLE alone, or with SCX_KICK_PREEMPT without it.",
    },
    Row {
        pattern: r"ops\.init_task\(\) failed \((?P<err>-?\d+)\) for {task}",
        culprit: Culprit::InitTaskFailed,
        says: "ops.init_task() failed for $task with $err.",
        function: "scx_root_enable_workfn()",
        rule: "A negative result of ops.init_task() for a task that exists already ends the loading.",
        cure: "The usual reasons are task storage that cannot be allocated (-ENOMEM) and a map that is too small (-E2BIG): use BPF_MAP_TYPE_TASK_STORAGE with BPF_LOCAL_STORAGE_GET_F_CREATE.",
    },
    Row {
        pattern: r"ops\.init_task\(\) set task->scx\.disallow for {task}|ops\.init_task\(\) set task->scx\.disallow",
        culprit: Culprit::Disallow,
        says: "ops.init_task() set p->scx.disallow where only the loading may.",
        function: "__scx_init_task()",
        rule: "p->scx.disallow may be set only for tasks that exist when the root scheduler is loaded, not for one that is forked.",
        cure: "Set it only where args->fork is false.",
    },
    Row {
        pattern: r"ops\.init\(\) failed \((?P<err>-?\d+)\)",
        culprit: Culprit::InitFailed,
        says: "ops.init() failed with $err, so the scheduler was not loaded.",
        function: "scx_root_enable_workfn()",
        rule: "A negative result of ops.init() ends the loading.",
        cure: "Look which call in ops.init() returns it: an id that scx_bpf_create_dsq() finds taken (-EEXIST) or built-in (-EINVAL), memory (-ENOMEM), or the scheduler's own check of an option.",
    },
    Row {
        pattern: r"ops\.cgroup_(?P<op>init|prep_move)\(\) failed \((?P<err>-?\d+)\)",
        culprit: Culprit::CgroupFailed,
        says: "ops.cgroup_$op() failed with $err.",
        function: "scx_cgroup_init()",
        rule: "A negative result of ops.cgroup_init() for a cgroup that exists already ends the loading.",
        cure: "Check the size of maps that have one entry for each cgroup.",
    },
    Row {
        pattern: r"ops\.(?P<op>\w+)\(\) returned an invalid errno (?P<err>-?\d+)",
        culprit: Culprit::InvalidErrno,
        says: "ops.$op() returned $err, which is no error code.",
        function: "ops_sanitize_err()",
        rule: "An op that fails returns -1 to -4095.",
        cure: "Return a negative errno such as -EINVAL, not a count, an id or an uninitialised value.",
    },
    Row {
        pattern: r"scx_(?:\w+_)?enable\(\) failed \((?P<err>-?\d+)\)",
        culprit: Culprit::EnableFailed,
        says: "The kernel could not finish loading the scheduler ($err).",
        function: "scx_root_enable_workfn()",
        rule: "Loading needs memory for each task, and ends where the scheduler exits meanwhile.",
        cure: "Load it again; -ENOMEM (-12) means that the kernel was short of memory.",
    },
    Row {
        pattern: r"cpu (?P<cpu>\d+) going (?P<how>online|offline), exiting scheduler",
        culprit: Culprit::Hotplug,
        says: "CPU $cpu went $how, and the scheduler has no ops.cpu_$how(): the kernel took it out and asks for a restart.",
        function: "handle_hotplug()",
        rule: "A scheduler without ops.cpu_online() and ops.cpu_offline() is unregistered with SCX_ECODE_ACT_RESTART when a CPU comes or goes, suspend included.",
        cure: "Let the loader load it again where the exit code has SCX_ECODE_ACT_RESTART (UEI_ECODE_RESTART()), or implement the two ops.",
    },
    Row {
        pattern: r"expected hotplug seq (?P<a>\d+) did not match actual (?P<b>\d+)",
        culprit: Culprit::Hotplug,
        says: "A CPU came or went between opening and loading the scheduler: the kernel took it out and asks for a restart.",
        function: "check_hotplug_seq()",
        rule: "The number of CPUs that the loader has seen (ops.hotplug_seq) must still hold when the scheduler is enabled.",
        cure: "Open and load it again.",
    },
    Row {
        pattern: r"cgroup (?P<cgroup>\d+) going offline|cgroup is not online",
        culprit: Culprit::CgroupOffline,
        says: "The cgroup of this sub-scheduler went away.",
        function: "scx_cgroup_lifetime_notify()",
        rule: "A sub-scheduler lives as long as its cgroup.",
        cure: "Nothing to cure, unless the cgroup was removed by mistake.",
    },
    Row {
        pattern: r"sub-sched requires cid-form struct_ops|sub_attach/sub_detach requires cid-form struct_ops|max nesting depth \d+ violated|parent rejected \(-?\d+\)|parent disabled \(-?\d+\)|failed to insert into scx_sched_hash|trying to dispatch a distant sub-sched|task belongs to a different scheduler|non-root ops\.init_task\(\)|scx_bpf_cid_override|cid \d+ assigned to multiple cpus",
        culprit: Culprit::SubScheduler,
        says: "A rule of sub-schedulers was broken: the message says which.",
        function: "scx_sub_enable_workfn()",
        rule: "A sub-scheduler schedules the tasks of its own cgroup only, below at most SCX_SUB_MAX_DEPTH others, and uses cids instead of CPU numbers.",
        cure: "Load it as a root scheduler first; nothing else of it need be changed to see whether it works there.",
    },
    Row {
        pattern: r"soft lockup - CPU ?#?(?P<cpu>\d+) stuck for (?P<s>\d+)s",
        culprit: Culprit::Lockup,
        says: "CPU $cpu was stuck in the kernel or in the scheduler's own code for $s s.",
        function: "scx_softlockup()",
        rule: "The kernel's soft-lockup watchdog ejects the scheduler when a CPU schedules nothing for about half of its own bound.",
        cure: "Look for a lock of the scheduler's that is not released on every path, and for a DSQ with thousands of tasks that a CPU has to walk past because they may not run there.",
    },
    Row {
        pattern: r"hard lockup - CPU (?P<cpu>\d+)",
        culprit: Culprit::Lockup,
        says: "CPU $cpu was stuck with interrupts off, in the kernel or in the scheduler's own code.",
        function: "scx_hardlockup()",
        rule: "The kernel's hard-lockup watchdog ejects the scheduler before it gives the machine up.",
        cure: "Look for a lock of the scheduler's that is not released on every path, and for a DSQ with thousands of tasks that a CPU has to walk past because they may not run there.",
    },
    Row {
        pattern: r"RCU CPU stall detected!",
        culprit: Culprit::RcuStall,
        says: "RCU could not end a grace period: a CPU did not get out of one section of code, or RCU's own thread did not get to run.",
        function: "scx_rcu_cpu_stall()",
        rule: "The kernel ejects the scheduler before it reports a stall of RCU.",
        cure: "Look for a lock of the scheduler's that is not released on every path, and whether rcu_preempt and other kernel threads (PF_KTHREAD) are scheduled in time.",
    },
    Row {
        pattern: r"kfunc with mask (?P<mask>0x[0-9a-f]+) called from an operation only allowing (?P<allowed>0x[0-9a-f]+)",
        culprit: Culprit::WrongContext,
        says: "The scheduler called a kfunc in an op that may not call it.",
        function: "scx_kf_allowed()",
        rule: "Some kfuncs are for some ops only: scx_bpf_dsq_move_to_local() for ops.dispatch(), scx_bpf_create_dsq() for sleepable ops, and so on.",
        cure: "Call it in the op that it is documented for (kernel/sched/ext.c, BTF_KFUNCS_START).",
    },
    Row {
        pattern: r"(?:dispatch|cpu_release) kfunc called from a nested operation",
        culprit: Culprit::WrongContext,
        says: "The scheduler called a kfunc of ops.dispatch() or ops.cpu_release() in an op that runs within another one.",
        function: "scx_kf_allowed()",
        rule: "What an op causes may call further ops on the same CPU; these may not dispatch.",
        cure: "Leave the dispatch to ops.dispatch() itself.",
    },
    Row {
        pattern: r"called on a task not being operated on|select_cpu kfunc called cross-task on {task}",
        culprit: Culprit::OtherTask,
        says: "The scheduler called a kfunc with another task than the one that the op is about.",
        function: "scx_kf_allowed_on_arg_tasks()",
        rule: "Functions such as scx_bpf_select_cpu_dfl() and scx_bpf_task_cgroup() work only on the op's own task, whose run queue is locked.",
        cure: "Pass the task that the op got.",
    },
    Row {
        pattern: r"called with NULL task",
        culprit: Culprit::NullTask,
        says: "The scheduler inserted NULL instead of a task.",
        function: "scx_dsq_insert_preamble()",
        rule: "scx_bpf_dsq_insert() needs a task.",
        cure: "Check what bpf_task_from_pid() or your queue returned before you insert it.",
    },
    Row {
        pattern: r"__scx_bpf_(?:dsq_insert_vtime|select_cpu_and)\(\) must be used",
        culprit: Culprit::WrongContext,
        says: "The scheduler was built with headers that are older than the kernel's sub-schedulers.",
        function: "scx_bpf_dsq_insert_vtime()",
        rule: "Beside sub-schedulers, the forms that name the caller must be used.",
        cure: "Compile it against newer scx headers.",
    },
    Row {
        pattern: r"Invalid cpuperf target (?P<perf>\d+) for CPU (?P<cpu>\d+)",
        culprit: Culprit::CpuPerf,
        says: "The scheduler asked for the performance level $perf of CPU $cpu, which does not exist.",
        function: "scx_bpf_cpuperf_set()",
        rule: "Levels go from 0 to SCX_CPUPERF_ONE (1024).",
        cure: "Bound the level by SCX_CPUPERF_ONE.",
    },
    Row {
        pattern: r"Invalid target CPU (?P<cpu>-?\d+)",
        culprit: Culprit::CpuPerf,
        says: "The scheduler asked for a performance level of CPU $cpu from an op that holds the run queue of another CPU.",
        function: "scx_bpf_cpuperf_set()",
        rule: "An op that runs under the lock of a run queue may set the level of that CPU only.",
        cure: "Set the level from ops.running() or ops.tick() of that CPU.",
    },
    Row {
        pattern: r"accessing rq without holding rq lock",
        culprit: Culprit::WrongContext,
        says: "The scheduler looked into a run queue that it does not hold (scx_bpf_locked_rq()).",
        function: "scx_bpf_locked_rq()",
        rule: "A run queue may be read only in ops that run under its lock.",
        cure: "Use scx_bpf_cpu_curr() under RCU, or do without.",
    },
    Row {
        pattern: r"invalid data=.* and data__sz=|failed to read data fields|format preparation failed|failed to format",
        culprit: Culprit::BadFormat,
        says: "A text of the scheduler's (scx_bpf_error(), scx_bpf_exit() or scx_bpf_dump()) could not be formatted.",
        function: "__bstr_format()",
        rule: "Format and arguments must fit, as for bpf_printk(), with at most 12 arguments.",
        cure: "Correct the format. The reason that the scheduler wanted to give is in its source, at the call of that function.",
    },
    Row {
        pattern: r"scx_bpf_dump\(\) must only be called from ops\.dump\(\) and friends",
        culprit: Culprit::WrongContext,
        says: "The scheduler called scx_bpf_dump() outside ops.dump(), ops.dump_cpu() and ops.dump_task().",
        function: "scx_bpf_dump_bstr()",
        rule: "There is a dump to print into only in these three ops.",
        cure: "Use bpf_printk() elsewhere.",
    },
];

/// The simulator's messages about policy code that the kernel's verifier refuses (`Kind::Fault`).
pub const FAULTS: &[Row] = &[
    Row {
        pattern: r"NULL pointer",
        culprit: Culprit::NullPointer,
        says: "The scheduler followed a NULL pointer.",
        function: "check_mem_access()",
        rule: "The verifier refuses a program that does not test a pointer which may be NULL.",
        cure: "Test the pointer before its use: ops.dispatch() gets NULL as prev on a CPU that was idle, and look-ups return NULL where there is nothing.",
    },
    Row {
        pattern: r"memory that is not its own|written beyond an array",
        culprit: Culprit::WildPointer,
        says: "The scheduler accessed memory that is not its own.",
        function: "check_mem_access()",
        rule: "The verifier refuses accesses whose bounds it cannot see.",
        cure: "Check the index against the size of the array right before the access.",
    },
    Row {
        pattern: r"KB of stack",
        culprit: Culprit::StackOverflow,
        says: "The scheduler used up its stack.",
        function: "check_max_stack_depth()",
        rule: "BPF programs have 512 bytes of stack together and may not recurse.",
        cure: "Make the recursion a bounded loop, and keep large structures in a map.",
    },
    Row {
        pattern: r"loops? without end|has not returned|more than any loop|loop steps|went round|loops? .{0,40}(?:long|often|times)",
        culprit: Culprit::EndlessLoop,
        says: "An op of the scheduler loops without end.",
        function: "check_cfg()",
        rule: "The verifier refuses a loop whose end it does not see, and the watchdogs of a kernel end the others.",
        cure: "Bound the loop with bpf_for(), bpf_repeat() or can_loop.",
    },
    Row {
        pattern: r"deadlock of locks: CPU (?P<a>\d+) waits(?: at .*?:\d+(?: \([^)]*\))?)? for (?P<lock>\S[^,;]*?)(?:, (?:taken at .+?|held))? by CPU (?P<b>\d+)",
        culprit: Culprit::LockHeld,
        says: "CPU $a waits for $lock, which CPU $b holds while it waits, itself or through others, for a lock that CPU $a holds.",
        function: "process_spin_lock()",
        rule: LOCK_RULE,
        cure: LOCK_ORDER_CURE,
    },
    Row {
        pattern: r"it returns and still holds (?P<locks>\S.*)$",
        culprit: Culprit::LockHeld,
        says: "An op returned and still held $locks.",
        function: "process_spin_lock()",
        rule: LOCK_RULE,
        cure: LOCK_CURE,
    },
    Row {
        pattern: r"it takes (?P<lock>\S.*?), which it holds already(?P<taken>, taken at .+)?$",
        culprit: Culprit::LockHeld,
        says: "An op took $lock, which it held already$taken.",
        function: "process_spin_lock()",
        rule: LOCK_RULE,
        cure: LOCK_CURE,
    },
    Row {
        pattern: r"still holds|lock.* (?:held|not released|twice|released by)|(?:takes|took|releases|released) .*lock",
        culprit: Culprit::LockHeld,
        says: "An op of the scheduler broke the rules of a lock: it returned with it, took it twice, or released another's.",
        function: "process_spin_lock()",
        rule: "The verifier refuses a bpf_spin_lock that is not released on every path; a lock of the scheduler's own making would hang the machine.",
        cure: "Release the lock on every path out of the function, early returns included.",
    },
    Row {
        pattern: r"function that is not there|kfunc|is not in the virtual kernel",
        culprit: Culprit::MissingKfunc,
        says: "The scheduler uses a kfunc or a field that this kernel does not have.",
        function: "add_subprog_and_kfunc()",
        rule: "A program that calls an unknown kfunc is not loaded, unless the call is guarded by bpf_ksym_exists().",
        cure: "Guard the call with bpf_ksym_exists(), or choose another kernel (--kernel).",
    },
];

const LOCK_RULE: &str = "The kernel does not see a lock of the scheduler's own making, and a CPU that waits for one in vain hangs the machine; so a lock of include/lab ends the scheduler. A bpf_spin_lock that is not released on every path is refused by the verifier.";
const LOCK_CURE: &str =
    "Release the lock on every path out of the function that takes it, early returns included.";
const LOCK_ORDER_CURE: &str =
    "Take the two locks in one order everywhere, or the second by lab_trylock().";

/// The texts that the locks of include/lab give to scx_bpf_error() in a real kernel (`lab_lock_failed()`).
pub const LOCKS: &[Row] = &[
    Row {
        pattern: r"(?P<at>\S.*?): lock &?(?P<lock>.+?): CPU (?P<cpu>\d+) waits for itself: it took the lock at (?P<taken>.+?) (?P<ms>\d+) ms ago",
        culprit: Culprit::LockHeld,
        says: "CPU $cpu waits at $at for the lock `$lock`, which it holds itself: it took it at $taken and did not release it.",
        function: "scx_bpf_error_bstr()",
        rule: LOCK_RULE,
        cure: LOCK_CURE,
    },
    Row {
        pattern: r"(?P<at>\S.*?): lock &?(?P<lock>.+?): CPU (?P<cpu>\d+) waits in vain for CPU (?P<holder>\d+), which took it at (?P<taken>.+?) (?P<ms>\d+) ms ago and waits for lock &?(?P<other>.+?) at (?P<there>.+?\.[ch]:\d+)",
        culprit: Culprit::LockHeld,
        says: "CPU $cpu waits at $at for the lock `$lock`, which CPU $holder took at $taken and holds while it waits for the lock `$other` at $there.",
        function: "scx_bpf_error_bstr()",
        rule: LOCK_RULE,
        cure: LOCK_ORDER_CURE,
    },
    Row {
        pattern: r"(?P<at>\S.*?): lock &?(?P<lock>.+?): CPU (?P<cpu>\d+) waits in vain for CPU (?P<holder>\d+), which took it at (?P<taken>.+?) (?P<ms>\d+) ms ago",
        culprit: Culprit::LockHeld,
        says: "CPU $cpu waits at $at for the lock `$lock`, which CPU $holder took at $taken and did not release.",
        function: "scx_bpf_error_bstr()",
        rule: LOCK_RULE,
        cure: LOCK_CURE,
    },
    Row {
        pattern: r"(?P<at>\S.*?): lock &?(?P<lock>.+?): not given to CPU (?P<cpu>\d+) in time, though nobody has taken it",
        culprit: Culprit::LockNotGiven,
        says: "CPU $cpu waited at $at for the lock `$lock` and did not get it in time, though nobody had taken it.",
        function: "scx_bpf_error_bstr()",
        rule: LOCK_RULE,
        cure: "More CPUs wait than can run: give a virtual machine no more CPUs than its host has, or keep the lock for less time.",
    },
];

/// The rows with their patterns compiled.
pub struct Table(Vec<(Regex, &'static Row)>);

pub static MESSAGES: LazyLock<Table> = LazyLock::new(|| Table::new(ROWS));
pub static OF_FAULTS: LazyLock<Table> = LazyLock::new(|| Table::new(FAULTS));
pub static OF_LOCKS: LazyLock<Table> = LazyLock::new(|| Table::new(LOCKS));

impl Table {
    fn new(rows: &'static [Row]) -> Table {
        let compiled = |row: &Row| pattern(&row.pattern.replace("{task}", TASK));
        Table(rows.iter().map(|row| (compiled(row), row)).collect())
    }

    /// Returns the first row whose pattern is in the message, and its sentence.
    pub fn find(&self, message: &str) -> Option<(&'static Row, String)> {
        self.0.iter().find_map(|(pattern, row)| {
            let found = pattern.captures(message)?;
            let mut says = String::new();
            found.expand(row.says, &mut says);
            Some((*row, says))
        })
    }
}
