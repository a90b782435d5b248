//! How a run ends: why, and what had been counted until then.

use std::cell::RefCell;

use schedlab_machine::CacheModel;
use schedlab_trace::{Instant, TaskId};

use crate::contract::outcome::{ExitInfo, ExitKind};
use crate::contract::policy::Probes;
use crate::contract::scenario::{HostFailure, WorkloadFailure};

/// The counts until the run's end, without the time when the last ops return and the policy is unloaded.
pub(crate) struct Summary {
    pub end: Instant,
    pub makespan: Option<Instant>,
    pub begun: Instant,
    pub work: u64,
    pub switches: u64,
    pub events: u64,
    pub tasks: u32,
    pub unfinished: Vec<TaskId>,
    pub to_come: u32,
    pub probes: Vec<Probes>,
    pub cache: CacheModel,
}

/// What is known of the end of a run. The first reason of each kind counts.
#[derive(Default)]
pub(crate) struct Ending {
    /// Why the policy ended.
    exit: RefCell<Option<ExitInfo>>,
    failure: RefCell<Option<WorkloadFailure>>,
    host_failure: RefCell<Option<HostFailure>>,
    /// A failure that the workload's duration made none.
    stuck: RefCell<Option<WorkloadFailure>>,
    summary: RefCell<Option<Summary>>,
}

impl Ending {
    /// Whether an end of the policy of this kind would count.
    pub fn takes(&self, kind: ExitKind) -> bool {
        match &*self.exit.borrow() {
            None => true,
            // Breaking a rule while it is unloaded changes nothing. A policy that no kernel would have loaded is
            // reported.
            Some(first) => first.kind == ExitKind::Unreg && kind == ExitKind::Fault,
        }
    }

    /// The policy ends.
    pub fn exit(&self, exit: ExitInfo) {
        *self.exit.borrow_mut() = Some(exit);
    }

    /// Why the policy ended, or what `exit` makes, if it has not.
    pub fn exit_or_else(&self, exit: impl FnOnce() -> ExitInfo) -> ExitInfo {
        self.exit.borrow_mut().get_or_insert_with(exit).clone()
    }

    pub fn has_exit(&self) -> bool {
        self.exit.borrow().is_some()
    }

    /// The workload fails.
    pub fn fail(&self, failure: WorkloadFailure) {
        self.failure.borrow_mut().get_or_insert(failure);
    }

    pub fn has_failed(&self) -> bool {
        self.failure.borrow().is_some()
    }

    /// A resource of the host is missing: no part of the run counts.
    pub fn fail_by_host(&self, failure: HostFailure) {
        *self.host_failure.borrow_mut() = Some(failure);
    }

    pub fn has_host_failed(&self) -> bool {
        self.host_failure.borrow().is_some()
    }

    /// The workload would fail, but its duration ends that.
    pub fn get_stuck(&self, failure: WorkloadFailure) {
        *self.stuck.borrow_mut() = Some(failure);
    }

    pub fn is_stuck(&self) -> bool {
        self.stuck.borrow().is_some()
    }

    /// The run is over for whoever measures.
    pub fn close(&self, summary: Summary) {
        *self.summary.borrow_mut() = Some(summary);
    }

    /// When that was.
    pub fn end(&self) -> Option<Instant> {
        self.summary.borrow().as_ref().map(|summary| summary.end)
    }

    /// Returns the summary, with the end of the policy, the workload's failure, the host's, and that which was none.
    pub fn into_parts(
        self,
    ) -> (
        Summary,
        Option<ExitInfo>,
        Option<WorkloadFailure>,
        Option<HostFailure>,
        Option<WorkloadFailure>,
    ) {
        let summary = self.summary.into_inner();
        (
            summary.expect("made by close()"),
            self.exit.into_inner(),
            self.failure.into_inner(),
            self.host_failure.into_inner(),
            self.stuck.into_inner(),
        )
    }
}
