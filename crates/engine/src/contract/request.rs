//! The requests of policy code to the virtual kernel.
//!
//! Each request is a method of [`Service`]. [`Request`] and [`Reply`] are the same as values, for who notes
//! requests or answers them all alike, as tests do: [`Answer`].

use schedlab_trace::{CpuId, CpuSet, LockClass, TaskId};

use crate::contract::facts::TaskFacts;
use crate::contract::ids::{DsqId, IterId, PolicyLock, TimerId};

macro_rules! requests {
    ($(
        $(#[doc = $doc:literal])*
        $variant:ident $({ $($argument:ident: $type:ty),* $(,)? })? = $method:ident -> $answer:ty;
    )*) => {
        /// The services of the virtual kernel for policy code on one CPU while an op runs there.
        ///
        /// Ops may be called on this CPU before a request returns (`ops.dequeue` for a task that leaves the policy's
        /// custody inside `ops.dispatch`), and on others.
        pub trait Service {
            $(
                $(#[doc = $doc])*
                fn $method(&self $($(, $argument: $type)*)?) -> $answer;
            )*

            /// The policy's code broke a rule that no kernel would let it break alive (a wild access, an
            /// endless loop, a lock held on return, a kfunc that is not there). The run ends; the op is given
            /// up where it is.
            fn fault(&self, message: String) -> !;
        }

        /// A request as a value.
        #[derive(Clone, PartialEq, Debug)]
        #[allow(missing_docs, reason = "fields are named as the kfuncs' parameters")]
        pub enum Request {
            $(
                $(#[doc = $doc])*
                $variant $({ $($argument: $type),* })?,
            )*
        }

        impl Request {
            /// Asks `kernel` for it.
            pub fn ask(self, kernel: &dyn Service) -> Reply {
                match self {
                    $(Request::$variant $({ $($argument),* })? => {
                        kernel.$method($($($argument),*)?).into()
                    })*
                }
            }
        }

        impl<T: Answer> Service for T {
            $(fn $method(&self $($(, $argument: $type)*)?) -> $answer {
                self.answer(Request::$variant $({ $($argument),* })?).into()
            })*

            fn fault(&self, message: String) -> ! {
                Answer::fault(self, message)
            }
        }
    };
}

requests! {
    /// Only order: no CPU may read a word that was written in its future.
    Sync = sync -> ();
    /// Takes a policy lock, interrupts off. `address` is the modelled address of the lock word.
    Lock { lock: PolicyLock, address: u64, class: LockClass } = lock -> ();
    /// Takes a policy lock unless that would close a circle of CPUs that wait for each other.
    LockUnlessDeadlock { lock: PolicyLock, address: u64, class: LockClass } = lock_unless_deadlock -> bool;
    /// Releases a policy lock.
    Unlock { lock: PolicyLock } = unlock -> ();
    /// Tries to take a policy lock.
    TryLock { lock: PolicyLock, address: u64, class: LockClass } = trylock -> bool;

    /// `scx_bpf_create_dsq()`.
    CreateDsq { dsq: DsqId, node: i32 } = create_dsq -> i64;
    /// `scx_bpf_destroy_dsq()`.
    DestroyDsq { dsq: DsqId } = destroy_dsq -> ();
    /// `scx_bpf_cpuperf_set()`.
    CpuperfSet { cpu: i32, perf: u32 } = cpuperf_set -> ();
    /// `scx_bpf_dsq_insert()`.
    DsqInsert { task: TaskId, dsq: DsqId, slice: u64, enq_flags: u64 } = dsq_insert -> bool;
    /// `scx_bpf_dsq_insert_vtime()`.
    DsqInsertVtime {
        task: TaskId,
        dsq: DsqId,
        slice: u64,
        vtime: u64,
        enq_flags: u64,
    } = dsq_insert_vtime -> bool;
    /// `scx_bpf_dsq_move_to_local()`.
    DsqMoveToLocal { dsq: DsqId, enq_flags: u64 } = dsq_move_to_local -> bool;
    /// `scx_bpf_dsq_nr_queued()`.
    DsqNrQueued { dsq: DsqId } = dsq_nr_queued -> i64;
    /// `scx_bpf_dsq_peek()`.
    DsqPeek { dsq: DsqId } = dsq_peek -> Option<TaskId>;
    /// `bpf_iter_scx_dsq_new()`: an iterator or a negative errno.
    IterNew { dsq: DsqId, flags: u64 } = iter_new -> Result<IterId, i64>;
    /// `bpf_iter_scx_dsq_next()`.
    IterNext { iter: IterId } = iter_next -> Option<TaskId>;
    /// `bpf_iter_scx_dsq_destroy()`.
    IterDestroy { iter: IterId } = iter_destroy -> ();
    /// `scx_bpf_dsq_move_set_slice()`.
    MoveSetSlice { iter: IterId, slice: u64 } = move_set_slice -> ();
    /// `scx_bpf_dsq_move_set_vtime()`.
    MoveSetVtime { iter: IterId, vtime: u64 } = move_set_vtime -> ();
    /// `scx_bpf_dsq_move()` and, with `priq`, `scx_bpf_dsq_move_vtime()`.
    DsqMove {
        iter: IterId,
        task: TaskId,
        dsq: DsqId,
        enq_flags: u64,
        priq: bool,
    } = dsq_move -> bool;
    /// `scx_bpf_dispatch_nr_slots()`.
    DispatchNrSlots = dispatch_nr_slots -> i64;
    /// `scx_bpf_dispatch_cancel()`.
    DispatchCancel = dispatch_cancel -> ();
    /// `scx_bpf_reenqueue_local()` / `scx_bpf_dsq_reenq()`.
    Reenqueue { dsq: DsqId, flags: u64 } = reenqueue -> i64;

    /// `scx_bpf_kick_cpu()`.
    Kick { cpu: i32, flags: u64 } = kick -> ();
    /// `scx_bpf_select_cpu_dfl()`: the CPU, and whether it was idle.
    SelectCpuDfl { task: TaskId, prev_cpu: i32, wake_flags: u64 } = select_cpu_dfl -> (i32, bool);
    /// `scx_bpf_select_cpu_and()`: a CPU or a negative errno.
    SelectCpuAnd {
        task: TaskId,
        prev_cpu: i32,
        wake_flags: u64,
        allowed: CpuSet,
        flags: u64,
    } = select_cpu_and -> i64;
    /// `scx_bpf_test_and_clear_cpu_idle()`.
    TestAndClearIdle { cpu: i32 } = test_and_clear_idle -> bool;
    /// `scx_bpf_pick_idle_cpu[_node]()` / `scx_bpf_pick_any_cpu[_node]()`: a CPU or a negative errno.
    PickCpu { allowed: CpuSet, node: Option<i32>, flags: u64, any: bool } = pick_cpu -> i64;
    /// `scx_bpf_get_idle_cpumask[_node]()`, with `smt` the `_smtmask` ones.
    IdleMask { node: Option<i32>, smt: bool } = idle_mask -> CpuSet;
    /// `scx_bpf_get_online_cpumask()`.
    OnlineMask = online_mask -> CpuSet;

    /// The fields of a task that change while it lives, as they are now: a read of memory, so no turn is waited for.
    TaskFacts { task: TaskId } = task_facts -> TaskFacts;
    /// How many tasks are runnable on a CPU, of sched_ext or of all classes: `rq->scx.nr_running` or `rq->nr_running`. Likewise.
    NrRunning { cpu: CpuId, of_scx: bool } = nr_running -> i64;
    /// `scx_bpf_task_running()`.
    TaskRunning { task: TaskId } = task_running -> bool;
    /// `scx_bpf_task_cpu()`.
    TaskCpu { task: TaskId } = task_cpu -> i64;
    /// `scx_bpf_cpu_curr()` / `scx_bpf_cpu_rq()->curr`; `None` = idle.
    CpuCurr { cpu: i32 } = cpu_curr -> Option<TaskId>;
    /// The task of the CPU that asks, `None` = idle. No other CPU changes that, so no turn is waited for.
    OwnTask = own_task -> Option<TaskId>;
    /// The CPU under the lock of whose run queue Linux calls the op that asks; negative: none.
    LockedRq = locked_rq -> i64;
    /// `bpf_task_from_pid()`.
    TaskFromPid { pid: i32 } = task_from_pid -> Option<TaskId>;
    /// `scx_bpf_task_set_slice()`.
    TaskSetSlice { task: TaskId, slice: u64 } = task_set_slice -> bool;
    /// `scx_bpf_task_set_dsq_vtime()`.
    TaskSetVtime { task: TaskId, vtime: u64 } = task_set_vtime -> bool;

    /// `bpf_timer_start()`: `ns` from now on, with `BPF_F_TIMER_ABS` of the clock.
    TimerStart { timer: TimerId, ns: u64, flags: u64 } = timer_start -> i64;
    /// `bpf_timer_cancel()`.
    TimerCancel { timer: TimerId } = timer_cancel -> i64;

    /// `scx_bpf_error()`.
    Error { message: String } = error -> ();
    /// A kfunc finds that a rule of the interface is broken, and calls `scx_error()`.
    Violation { message: String } = violation -> ();
    /// `scx_bpf_exit()`.
    ExitPolicy { code: i64, message: String } = exit_policy -> ();
}

/// A virtual kernel that answers all requests in one place.
pub trait Answer {
    /// Answers a request. [`Reply::Done`] is taken for true, 0 and NULL, a number for a truth value and the
    /// other way round.
    fn answer(&self, request: Request) -> Reply;

    /// [`Service::fault`].
    fn fault(&self, message: String) -> !;
}

/// The answer to a request as a value.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    /// Carried out, without a value.
    Done,
    /// A truth value.
    Bool(bool),
    /// An integer, or a negative errno.
    Int(i64),
    /// A CPU and whether it was idle.
    Cpu(i32, bool),
    /// A task or NULL.
    Task(Option<TaskId>),
    /// An iterator.
    Iter(IterId),
    /// A CPU mask.
    Mask(CpuSet),
    /// Fields of a task.
    Facts(TaskFacts),
}

macro_rules! replies {
    ($($answer:ty: $value:pat => $reply:expr; $($taken:pat => $for:expr),*;)*) => {
        $(
            impl From<$answer> for Reply {
                fn from($value: $answer) -> Reply {
                    $reply
                }
            }

            /// # Panics
            /// If it does not fit the request.
            impl From<Reply> for $answer {
                fn from(reply: Reply) -> $answer {
                    match reply {
                        $($taken => $for,)*
                        #[allow(unreachable_patterns, reason = "any answer does for no value")]
                        reply => panic!("{reply:?} does not fit the request"),
                    }
                }
            }
        )*
    };
}

replies! {
    (): () => Reply::Done;
        _ => ();
    bool: is => Reply::Bool(is);
        Reply::Bool(is) => is, Reply::Done => true, Reply::Int(number) => number != 0;
    i64: number => Reply::Int(number);
        Reply::Int(number) => number, Reply::Bool(is) => is.into(), Reply::Done => 0,
        Reply::Cpu(cpu, _) => cpu.into();
    (i32, bool): (cpu, idle) => Reply::Cpu(cpu, idle);
        Reply::Cpu(cpu, idle) => (cpu, idle), Reply::Int(error) => (error as i32, false);
    Option<TaskId>: task => Reply::Task(task);
        Reply::Task(task) => task, Reply::Int(_) | Reply::Done => None;
    Result<IterId, i64>: iter => iter.map_or_else(Reply::Int, Reply::Iter);
        Reply::Iter(iter) => Ok(iter), Reply::Int(error) => Err(error);
    CpuSet: mask => Reply::Mask(mask);
        Reply::Mask(mask) => mask;
    TaskFacts: facts => Reply::Facts(facts);
        Reply::Facts(facts) => facts, Reply::Done => TaskFacts::default();
}
