//! The ops table of a run without a policy: an empty one.

use schedlab_engine::policy::{Env, OpCall, OpSet, OpsInfo, Policy, TaskView};
use schedlab_trace::{CpuId, TaskId};

/// A policy without ops. The engine's own baseline never hands it a task, so nothing is kept of any.
pub(crate) struct NoPolicy(OpsInfo);

impl NoPolicy {
    pub(crate) fn new() -> Self {
        NoPolicy(OpsInfo {
            name: "none".to_owned(),
            flags: 0,
            timeout_ms: 0,
            dispatch_max_batch: 0,
            hotplug_seq: 0,
            sub_schedulers: false,
            present: OpSet::default(),
        })
    }
}

impl Policy for NoPolicy {
    fn info(&self) -> &OpsInfo {
        &self.0
    }

    fn call(&self, env: &Env<'_>, op: &OpCall) -> i64 {
        env.kernel
            .fault(format!("{op:?} was called where there is no policy"))
    }

    fn sync_task(&self, _: TaskId, _: &TaskView<'_>) {}

    fn set_task_cpu(&self, _: TaskId, _: CpuId) {}

    fn drop_task(&self, _: TaskId) {}

    fn slice(&self, _: TaskId) -> u64 {
        0
    }

    fn set_slice(&self, _: TaskId, _: u64) {}

    fn vtime(&self, _: TaskId) -> u64 {
        0
    }

    fn set_vtime(&self, _: TaskId, _: u64) {}

    fn disallowed(&self, _: TaskId) -> bool {
        false
    }
}
