//! A model: a workload that is built from options.

use crate::action::Score;
use schedlab_trace::Duration;

use crate::{Builder, Kind, Measure, Options, Param, TimeUnit, WorkloadError, cgroup};

/// A workload that is built from options.
#[derive(Clone, Copy)]
pub struct Model {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// Its own options, without the [`common`] ones.
    pub params: &'static [Param],
    /// The model's own results: the score under its own name, `work`, and the counts of its tasks.
    pub measures: &'static [Measure],
    /// Fills in tasks and objects.
    pub build: fn(&Options, &mut Builder) -> Result<Score, WorkloadError>,
}

/// Options that every workload has.
pub fn common() -> &'static [Param] {
    const COMMON: &[Param] = &[
        Param {
            name: "pin",
            kind: Kind::Flag,
            default: "false",
            doc: "binds task i to CPU i mod n, n being the number of CPUs; to those that taskset or a container allows, in order",
        },
        Param {
            name: "nice",
            kind: Kind::NiceList,
            default: "0",
            doc: "nice levels; task i has number i mod length of this list",
        },
        Param {
            name: "policy",
            kind: Kind::Policy,
            default: "normal",
            doc: "scheduling policy of every task",
        },
        Param {
            name: "start",
            kind: Kind::Choice(&["fork", "together"]),
            default: "fork",
            doc: "how the first tasks come into being in the simulator: the main thread creates them one after another; or together at one instant, task i on CPU i mod n",
        },
        Param {
            name: "cgroup",
            kind: Kind::Cgroup,
            default: "/",
            doc: "cgroup that each first task joins before all else; tasks that it creates begin there; it is made with all above it",
        },
        Param {
            name: "cpu.weight",
            kind: Kind::Count {
                min: 1,
                max: cgroup::WEIGHT_MAX as u64,
            },
            default: "100",
            doc: "weight of the option cgroup",
        },
        Param {
            name: "cpu.max",
            kind: Kind::Bandwidth,
            default: "max",
            doc: "limit of the option cgroup: CPU time in each period",
        },
        Param {
            name: "cpu.max.burst",
            kind: Kind::Time {
                bare: TimeUnit::Us,
                max: Duration::from_secs(86_400),
            },
            default: "0",
            doc: "unused CPU time of cpu.max that is kept for later periods, at most",
        },
        Param {
            name: "cpu.idle",
            kind: Kind::Flag,
            default: "false",
            doc: "whether the option cgroup runs only where nothing else would (cpu.idle)",
        },
    ];
    COMMON
}

/// Returns the option by how much run times vary; `what` is drawn.
pub(crate) const fn jitter(doc: &'static str) -> Param {
    Param {
        name: "jitter",
        kind: Kind::Percent { max: 100 },
        default: "5%",
        doc,
    }
}

/// Returns the option by how much tasks begin later, of their periods.
pub(crate) const fn offset(doc: &'static str) -> Param {
    Param {
        name: "offset",
        kind: Kind::Percent { max: 100 },
        default: "100%",
        doc,
    }
}

impl Param {
    /// Returns whether it concerns the cgroup of a workload.
    pub(crate) fn is_of_cgroup(&self) -> bool {
        self.name == cgroup::OPTION || self.name.starts_with("cpu.")
    }
}

impl Model {
    /// Returns all options, its own first.
    pub fn all_params(&self) -> impl Iterator<Item = Param> + use<> {
        self.params.iter().chain(common()).copied()
    }
}
