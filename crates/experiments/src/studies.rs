//! Translates the studies' measurements into the words of the simulator.

use schedlab_report::published::Figure;

use crate::over::{Over, Setting};
use crate::{Runs, builtin, builtin_names};

/// The runs of all experiments, which say whom a study means by its names.
pub(crate) struct Studies(Vec<Runs>);

/// The simulation of a published figure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Meant {
    /// The scheduler with its options.
    pub scheduler: String,
    /// The workload with its options.
    pub workload: String,
    /// The study's name is of runs with this alone.
    pub only: Option<Setting>,
}

impl Studies {
    /// Those that come with schedlab.
    pub fn builtin() -> Studies {
        let names = builtin_names().into_iter();
        let experiments = names.filter_map(|name| builtin(name)?.ok());
        Studies(experiments.flat_map(|one| one.runs).collect())
    }

    /// Returns the run behind a figure: by the experiment of its machine that names the study's scheduler, or the
    /// scheduler of the same name in small letters.
    pub fn meant(&self, figure: &Figure) -> Meant {
        let here = self.0.iter().filter(|runs| runs.machine == figure.machine);
        let on_cpus =
            |only: &Setting| only.over != Over::Cpus || only.value.parse().ok() == figure.cpus;
        let known = here
            .flat_map(|runs| &runs.published_as)
            .find(|one| one.name == figure.scheduler && one.only.as_ref().is_none_or(on_cpus));
        let Some(known) = known else {
            return Meant {
                scheduler: figure.scheduler.to_ascii_lowercase(),
                workload: figure.workload.clone(),
                only: None,
            };
        };
        let option = known.only.as_ref().filter(|only| only.over != Over::Cpus);
        let separator = if figure.workload.contains(':') {
            ','
        } else {
            ':'
        };
        Meant {
            scheduler: known.scheduler.clone(),
            workload: match option {
                Some(option) => format!("{}{separator}{option}", figure.workload),
                None => figure.workload.clone(),
            },
            only: known.only.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_studies_are_schedulers_and_options() {
        let studies = Studies::builtin();
        for (machine, workload, scheduler, cpus, meant) in [
            (
                "netfinity-8500r",
                "chat:rooms=20",
                "DSS",
                8,
                ("dss", "chat:rooms=20"),
            ),
            (
                "netfinity-5500",
                "kbuild:jobs=4",
                "DSS",
                2,
                ("dss:base=2_3_99", "kbuild:jobs=4"),
            ),
            (
                "netfinity-5500",
                "kbuild:jobs=4",
                "DSS-UP",
                1,
                ("dss:base=2_3_99", "kbuild:jobs=4"),
            ),
            ("xeon-e5645-2x6x2", "canneal", "CFS", 24, ("cfs", "canneal")),
            (
                "xeon-e5645-2x6x2",
                "canneal",
                "CFS+pin",
                24,
                ("cfs", "canneal:pin=true"),
            ),
            (
                "xeon-e5645-2x6x2",
                "canneal:x=1",
                "CFS+pin",
                24,
                ("cfs", "canneal:x=1,pin=true"),
            ),
        ] {
            let figure = Figure {
                study: String::new(),
                machine: machine.to_owned(),
                workload: workload.to_owned(),
                scheduler: scheduler.to_owned(),
                cpus: Some(cpus),
                metric: String::new(),
                value: 0.0,
            };
            let found = studies.meant(&figure);
            assert_eq!((found.scheduler.as_str(), found.workload.as_str()), meant);
        }
    }
}
