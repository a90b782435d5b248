//! A loaded policy as the virtual kernel sees it.

use std::sync::Arc;

use schedlab_engine::consts::SLICE_INF;
use schedlab_engine::policy::{Env, OpCall, OpsInfo, Policy, PolicyLock, TaskView, ThisCpu};
use schedlab_engine::{KernelVersion, Place};
use schedlab_fiber::Trap;
use schedlab_machine::Machine;
use schedlab_trace::{CpuId, TaskId};
use schedlab_workload::CgroupId;

use crate::host::runner::{Runner, Watch};
use crate::image::{Image, LoadError};
use crate::kconfig::Values;
use crate::layout::NR_CPUS_MAX;
use crate::object::NativeObject;
use crate::ops_table;
use crate::options::Settings;
use crate::rehearsal;

/// A private copy of a policy with its own globals and maps. It stays on the thread that
/// loaded it.
///
/// Whether it is audited is known at compile time: a switch makes ten calls.
pub struct NativePolicy<const AUDITED: bool = false> {
    runner: Runner,
}

impl NativePolicy {
    /// Loads a copy for one run on `machine`.
    ///
    /// # Errors
    /// If the operating system refuses memory or files, the machine has too many CPUs, the policy's name is too long, or
    /// an op is sleepable that must not be.
    pub fn load(
        object: &Arc<NativeObject>,
        settings: &Settings,
        machine: &Machine,
        version: KernelVersion,
    ) -> Result<NativePolicy, LoadError> {
        NativePolicy::load_as(object, settings, machine, version, None)
    }
}

impl NativePolicy<true> {
    /// Loads a copy for one run in which it is watched. The object is one that was compiled for that; one for BPF runs unwatched.
    ///
    /// # Errors
    /// As [`NativePolicy::load`].
    pub fn load_watched(
        object: &Arc<NativeObject>,
        settings: &Settings,
        machine: &Machine,
        version: KernelVersion,
        watch: Watch,
    ) -> Result<NativePolicy<true>, LoadError> {
        let watch = object.program.is_none().then_some(watch);
        NativePolicy::load_as(object, settings, machine, version, watch)
    }
}

impl<const AUDITED: bool> NativePolicy<AUDITED> {
    fn load_as(
        object: &Arc<NativeObject>,
        settings: &Settings,
        machine: &Machine,
        version: KernelVersion,
        watch: Option<Watch>,
    ) -> Result<NativePolicy<AUDITED>, LoadError> {
        let cpus = machine.topology.nr_cpus();
        if cpus > NR_CPUS_MAX {
            return Err(LoadError::Cpus {
                policy: object.name().to_owned(),
                cpus,
            });
        }
        let values = Values::new(machine, version);
        let image = Image::load(object, settings, &values, (machine, version))?;
        let runner = Runner::new(image, machine, version, watch);
        let runner = runner.map_err(|error| LoadError::System {
            policy: object.name().to_owned(),
            reason: error.to_string(),
        })?;
        let recording = object
            .program
            .as_ref()
            .and_then(|program| program.recording.as_ref());
        if let Some(recording) = recording {
            let replayed = rehearsal::replay(recording, &runner, machine);
            replayed.map_err(|reason| LoadError::Object {
                policy: object.name().to_owned(),
                reason,
            })?;
        }
        let host = runner.host();
        if ops_table::name(&host.ops).is_none() {
            return Err(LoadError::Name {
                policy: object.name().to_owned(),
            });
        }
        match ops_table::must_not_sleep(&host.ops, host.sleepable) {
            None => Ok(NativePolicy { runner }),
            Some(op) => Err(LoadError::Sleepable {
                policy: object.name().to_owned(),
                op: op.name(),
            }),
        }
    }

    /// The object it is a copy of.
    pub fn object(&self) -> &Arc<NativeObject> {
        self.runner.host().image.object()
    }

    /// The ops that it has and that the virtual kernel never calls.
    pub fn never_called(&self) -> Vec<&'static str> {
        ops_table::never_called(&self.runner.host().ops)
    }

    /// The output of `scx_bpf_dump()` when the policy was ejected.
    pub fn dump(&self) -> &str {
        &self.runner.host().dump
    }

    /// The output of `bpf_printk()`; of more than 1,000 lines the last.
    pub fn log(&self) -> impl Iterator<Item = &str> {
        self.runner.host().log.iter().map(String::as_str)
    }

    /// The data races that were found, each a line; empty unless they were looked for.
    pub fn races(&self) -> &[String] {
        let races = self.runner.host().races.as_ref();
        races.map_or(&[], |races| races.told())
    }

    /// The bytes of a global variable as they are now, for tests and reports.
    pub fn global(&self, name: &str) -> Option<Vec<u8>> {
        let host = self.runner.host();
        let (address, bytes) = host.image.object().global(name)?;
        // SAFETY: the debug information says that the variable lies there.
        let place = unsafe { std::slice::from_raw_parts(host.image.pointer(address), bytes) };
        Some(place.to_vec())
    }
}

impl<const AUDITED: bool> Policy for NativePolicy<AUDITED> {
    fn info(&self) -> &OpsInfo {
        &self.runner.host().info
    }

    fn reads_facts(&self) -> bool {
        let program = self.runner.host().image.object().program.as_ref();
        program.is_some_and(|program| program.reads_facts())
    }

    #[inline(always)]
    fn call(&self, env: &Env<'_>, op: &OpCall) -> i64 {
        self.runner.call::<AUDITED>(env, op)
    }

    fn call_nested(&self, env: &Env<'_>, op: &OpCall) -> i64 {
        self.runner.call_nested::<AUDITED>(env, op)
    }

    fn set_exit_message(&self, message: &str) {
        self.runner
            .with(|host| host.exit_message = message.to_owned());
    }

    fn dump(&self, text: &str, at_once: bool) {
        self.runner.with(|host| host.add_dump(text, at_once));
    }

    fn describe(&self, cpu: &ThisCpu, trap: &Trap) -> String {
        self.runner.describe(cpu, trap)
    }

    fn place_of_call(&self, cpu: &ThisCpu) -> Option<Place> {
        self.runner.host().place_of_call(cpu)
    }

    fn place_of_insertion(&self, task: TaskId) -> Option<Place> {
        self.runner.host().place_of_insertion(task)
    }

    fn describe_held_locks(&self, cpu: &ThisCpu, _: u32) -> String {
        self.runner.describe_held_locks(cpu)
    }

    fn describe_custody(&self, task: TaskId) -> Option<String> {
        self.runner.host().describe_custody(task)
    }

    fn describe_lock_wait(&self, lock: PolicyLock, waiter: CpuId, holder: CpuId) -> String {
        self.runner.describe_lock_wait(lock, waiter, holder)
    }

    fn describe_released_lock(&self, cpu: &ThisCpu) -> String {
        self.runner.describe_released_lock(cpu)
    }

    fn add_cgroup(&self, cgroup: CgroupId, parent: CgroupId, name: &str) {
        self.runner
            .with(|host| host.cgroups.add(cgroup, parent, name));
    }

    fn sync_task(&self, task: TaskId, view: &TaskView<'_>) {
        self.runner.with(|host| {
            let cgroup = host.cgroups.place(view.cgroup);
            host.tasks.sync(task, view, &cgroup);
        });
    }

    #[inline]
    fn set_task_cpu(&self, task: TaskId, cpu: CpuId) {
        self.runner.with(|host| host.tasks.set_cpu(task, cpu));
    }

    fn drop_task(&self, task: TaskId) {
        self.runner.with(|host| {
            host.maps.drop_task(task.index());
            host.tasks.drop_task(task);
        });
    }

    #[inline]
    fn slice(&self, task: TaskId) -> u64 {
        let task = self.runner.host().tasks.pointer(task);
        // SAFETY: shadows live as long as we do, and no policy code runs now.
        unsafe { (*task).scx.slice }
    }

    #[inline]
    fn set_slice(&self, task: TaskId, slice: u64) {
        let task = self.runner.host().tasks.pointer(task);
        // SAFETY: as in `slice`.
        unsafe { (*task).scx.slice = slice };
    }

    #[inline]
    fn charge_slice(&self, task: TaskId, ran_ns: u64) {
        let task = self.runner.host().tasks.pointer(task);
        // SAFETY: as in `slice`.
        let slice = unsafe { &mut (*task).scx.slice };
        if *slice != SLICE_INF {
            *slice = slice.saturating_sub(ran_ns);
        }
    }

    #[inline]
    fn set_slice_and_vtime(&self, task: TaskId, slice: u64, vtime: u64) {
        let task = self.runner.host().tasks.pointer(task);
        // SAFETY: as in `slice`.
        let scx = unsafe { &mut (*task).scx };
        (scx.slice, scx.dsq_vtime) = (slice, vtime);
    }

    #[inline]
    fn vtime(&self, task: TaskId) -> u64 {
        let task = self.runner.host().tasks.pointer(task);
        // SAFETY: as in `slice`.
        unsafe { (*task).scx.dsq_vtime }
    }

    #[inline]
    fn set_vtime(&self, task: TaskId, vtime: u64) {
        let task = self.runner.host().tasks.pointer(task);
        // SAFETY: as in `slice`.
        unsafe { (*task).scx.dsq_vtime = vtime };
    }

    #[inline]
    fn set_queued(&self, task: TaskId, queued: bool) {
        const SCX_TASK_QUEUED: u32 = 1;
        let task = self.runner.host().tasks.pointer(task);
        // SAFETY: as in `slice`.
        let flags = unsafe { &mut (*task).scx.flags };
        *flags = *flags & !SCX_TASK_QUEUED | u32::from(queued);
    }

    #[inline]
    fn prefetch(&self, task: TaskId) {
        let host = self.runner.host();
        host.tasks.prefetch(task);
        host.maps.prefetch(task.index());
    }

    fn disallowed(&self, task: TaskId) -> bool {
        let task = self.runner.host().tasks.pointer(task);
        // SAFETY: as in `slice`.
        unsafe { (*task).scx.disallow != 0 }
    }
}
