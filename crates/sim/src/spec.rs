//! Holds the inputs that determine a simulated run, by names, and forms the one command that repeats it.

use std::fmt::Write as _;

use schedlab_machine::Layout;
use schedlab_trace::{CpuSet, Duration, Scheduler, shell_word};

/// One simulated run. The same specification always gives the same result, byte for byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimSpec {
    /// `name:option=value,…`, or the path of an rt-app file.
    pub workload: String,
    /// The scheduler.
    pub scheduler: Scheduler,
    /// Name of a built-in machine profile, or the path of one.
    pub machine: String,
    /// Number of CPUs; all of the machine's if `None`.
    pub cpus: Option<usize>,
    /// The CPUs that tasks may run on unless they choose others themselves, as under `taskset`; all if `None`.
    pub taskset: Option<CpuSet>,
    /// Layout of the task structures, in the place of the profile's. The result then has the bus
    /// transactions and misses by offset in the page, too.
    pub task_layout: Option<Layout>,
    /// Seed of everything random.
    pub seed: u64,
    /// Whether real-time tasks are handed to the policy too, instead of running above it as in a kernel.
    pub rt_policy: bool,
    /// Which kernel's sched_ext, as in `uname -r`.
    pub kernel: String,
    /// Simulated time after which the run is given up.
    pub time_limit: Duration,
    /// Whether invariants are checked.
    pub check: bool,
    /// Whether the policy may access no task that no probe of its op has looked at.
    pub audit: bool,
}

impl SimSpec {
    /// The newest kernel that is simulated, and the default.
    pub const KERNEL: &'static str = schedlab_engine::KernelVersion::ALL[0].name();
    /// Default of `time_limit`: longer than any built-in workload takes with its default options.
    pub const TIME_LIMIT: Duration = Duration::from_secs(3_600);
    /// The longest.
    pub const TIME_LIMIT_MAX: Duration = Duration::from_secs(1_000_000);

    /// Returns the run with seed 1 and everything else by default; `machine` with all its CPUs.
    pub fn new(
        workload: impl Into<String>,
        scheduler: Scheduler,
        machine: impl Into<String>,
    ) -> SimSpec {
        SimSpec {
            workload: workload.into(),
            scheduler,
            machine: machine.into(),
            cpus: None,
            taskset: None,
            task_layout: None,
            seed: 1,
            rt_policy: false,
            kernel: Self::KERNEL.to_owned(),
            time_limit: Self::TIME_LIMIT,
            check: false,
            audit: false,
        }
    }

    /// Returns the command that repeats this run alone.
    pub fn replay_command(&self) -> String {
        let mut command = format!(
            "schedlab sim {} -s {}",
            shell_word(&self.workload),
            shell_word(&self.scheduler.to_string())
        );
        if let Some(cpus) = self.cpus {
            let _ = write!(command, " -c {cpus}");
        }
        if let Some(taskset) = &self.taskset {
            let _ = write!(command, " --taskset {taskset}");
        }
        let _ = write!(
            command,
            " -m {} --seed {}",
            shell_word(&self.machine),
            self.seed
        );
        if let Some(layout) = self.task_layout {
            let _ = write!(command, " --task-layout {layout}");
        }
        command + &self.switches()
    }

    /// Returns what a command names of it besides workload, scheduler, machine and seed, if it is not the default.
    pub fn switches(&self) -> String {
        let mut words = String::new();
        if self.rt_policy {
            words.push_str(" --rt policy");
        }
        if self.kernel != Self::KERNEL {
            let _ = write!(words, " --kernel {}", shell_word(&self.kernel));
        }
        if self.time_limit != Self::TIME_LIMIT {
            let _ = write!(words, " --time-limit {}", self.time_limit);
        }
        if self.check {
            words.push_str(" --check");
        }
        if self.audit {
            words.push_str(" --audit");
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_names_all_that_is_not_the_default() {
        let mut spec = SimSpec {
            cpus: Some(4),
            seed: 7,
            ..SimSpec::new("chat:rooms=2", Scheduler::parse("a:x=1,y=2"), "laptop")
        };
        assert_eq!(
            spec.replay_command(),
            "schedlab sim chat:rooms=2 -s a:x=1,y=2 -c 4 -m laptop --seed 7"
        );
        spec.workload = "my file's.json".into();
        spec.cpus = None;
        spec.taskset = Some("0-1,3".parse().unwrap());
        spec.task_layout = Some("coloured:4+prefetch".parse().unwrap());
        spec.rt_policy = true;
        spec.kernel = "6.18".into();
        spec.time_limit = Duration::from_ms(500);
        spec.check = true;
        spec.audit = true;
        assert_eq!(
            spec.replay_command(),
            r"schedlab sim 'my file'\''s.json' -s a:x=1,y=2 --taskset 0-1,3 -m laptop --seed 7 --task-layout coloured:4+prefetch --rt policy --kernel 6.18 --time-limit 500ms --check --audit"
        );
    }
}
