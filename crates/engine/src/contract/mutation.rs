//! Deliberate faults of the virtual kernel, to show that the tests of its rules can fail.
//!
//! Each mutation breaks one rule of sched_ext (`docs/selftests.md`). Without the cargo feature
//! `mutations` there is no way to ask for one and [`active`] is a constant: a build for users carries
//! none of this.

macro_rules! mutations {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// A rule of sched_ext that the virtual kernel breaks on purpose.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mutation {
            $($(#[doc = $doc])* $name,)*
        }

        impl Mutation {
            /// Every mutation, in the order of their names.
            pub const ALL: &'static [Mutation] = &[$(Mutation::$name),*];

            /// Its name, as tests/misbehave/rules.toml has it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Mutation::$name => stringify!($name),)*
                }
            }
        }
    };
}

mutations! {
    /// ops.cpu_online is not called.
    CpuOnlineNotTold,
    /// The CPU that the default choice found idle is claimed, and the task enqueued all the same.
    DefaultSelectDoesNotInsert,
    /// ops.dequeue is also called for tasks that go straight to a local or the global DSQ.
    DequeueWithoutCustody,
    /// A destroyed DSQ's id stays taken.
    DestroyedDsqKeepsId,
    /// ops.dispatch never gets the previous task.
    DispatchWithoutPrev,
    /// SCX_OPS_ENQ_LAST is accepted without ops.enqueue.
    EnqLastUnchecked,
    /// The code of scx_bpf_exit() is dropped.
    ExitCodeLost,
    /// A task that exits is not disabled before ops.exit_task.
    ExitWithoutDisable,
    /// A task goes to a CPU that it may not run on.
    ForbiddenCpuTaken,
    /// A policy without hotplug ops stays when a CPU goes.
    HotplugIgnored,
    /// A CPU waits after SCX_KICK_WAIT in the interrupt that kicks, before it has rescheduled itself.
    KickWaitInInterrupt,
    /// A local DSQ named in ops.select_cpu means the previous CPU's, not the chosen one's.
    LocalIsThatOfPrevCpu,
    /// SCX_DSQ_LOCAL_ON in ops.dispatch means the dispatching CPU.
    LocalOnIsHere,
    /// A DSQ that does not exist stands silently for the global one.
    MissingDsqIsGlobal,
    /// Without ops.enqueue a task goes nowhere.
    NoFallbackToGlobal,
    /// Idle CPUs are picked on any node.
    NodeOfPickIgnored,
    /// scx_bpf_dsq_peek() shows the last task.
    PeekShowsTail,
    /// The default choice of a CPU does not claim what it finds.
    PickedCpuStaysIdle,
    /// A second direct dispatch is ignored.
    SecondInsertIgnored,
    /// scx_bpf_select_cpu_and() looks at every CPU of the task.
    SelectAndIgnoresMask,
    /// scx_bpf_select_cpu_dfl() inserts the task where it finds an idle CPU.
    SelectKfuncInserts,
    /// ops.set_weight is not called.
    SetWeightNotTold,
    /// The tick does not come back once it was stopped.
    TickStaysStopped,
    /// Unloading does not call ops.exit_task.
    UnloadForgetsTasks,
    /// Built-in DSQs take tasks by vtime.
    VtimeInBuiltinDsq,
    /// A DSQ is FIFO, whatever the vtimes.
    VtimeOrderIgnored,
}

/// Whether the run asked for `mutation`. A constant without the feature.
#[inline(always)]
pub(crate) fn active(asked: Option<Mutation>, mutation: Mutation) -> bool {
    cfg!(feature = "mutations") && asked == Some(mutation)
}
