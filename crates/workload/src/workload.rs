//! A workload: tasks, what they share, and when the run is over.

use schedlab_trace::Duration;

use crate::action::{ObjectSpec, Score, TaskSpec};
use crate::cgroup::Cgroups;
use crate::part::Part;

/// How the tasks of [`Workload::tasks`] come into being in the simulator. Real ones are always created one after another,
/// wait at a gate until all exist, and are woken one after another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Start {
    /// The program's main thread creates them in order by fork or clone, then waits for them. No measure counts it.
    #[default]
    Fork,
    /// All appear at one instant, task i on CPU i modulo the number of CPUs.
    Together,
}

/// Tasks, what they share, and when the run is over.
pub struct Workload {
    /// Name with which it was asked for.
    pub name: String,
    /// Parameters in effect, defaults included, in a fixed order.
    pub params: Vec<(String, String)>,
    /// Objects.
    pub objects: Vec<ObjectSpec>,
    /// Cgroups that its tasks are in at times.
    pub cgroups: Cgroups,
    /// Tasks that the run starts with.
    pub tasks: Vec<TaskSpec>,
    /// How these come into being.
    pub start: Start,
    /// The run ends here at the latest (normally all tasks exit earlier); `None`: when all tasks have exited.
    pub duration: Option<Duration>,
    /// The workload's own metric.
    pub score: Score,
    /// Notes for the user: the parts of a file that have no effect here, and why.
    pub notes: Vec<String>,
    /// The parts of a composed workload; empty for a single one.
    pub parts: Vec<Part>,
}
