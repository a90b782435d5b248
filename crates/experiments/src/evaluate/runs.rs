//! Groups the runs of an experiment: by workload and machine, for each measure.

use schedlab_report::RunResult;
use schedlab_report::published::Metric;

use crate::Planned;
use crate::experiment::Measured;
use crate::over::{Over, Setting};

/// One run with what it was planned for.
pub(super) struct Run<'a> {
    pub planned: &'a Planned,
    pub result: &'a RunResult,
    /// The same in a real kernel, where that was run.
    pub real: Option<&'a RunResult>,
}

impl Run<'_> {
    /// Its name in its row.
    pub(super) fn label(&self) -> String {
        match self.planned.spec.task_layout {
            Some(layout) => format!("{}, {layout}", self.result.scheduler),
            None => self.result.scheduler.clone(),
        }
    }
}

impl Measured {
    /// Returns its base, if it is relative.
    pub(super) fn base(&self) -> Option<Setting> {
        let speedup = self.metric().is_some_and(Metric::is_speedup);
        let two = || Setting {
            over: Over::Cpus,
            value: "2".to_owned(),
        };
        self.relative_to.clone().or_else(|| speedup.then(two))
    }

    /// The options that change along with something, itself included.
    pub(super) fn along<'a>(&'a self, over: &'a Over) -> Vec<&'a str> {
        let others = self.ignore.iter().map(String::as_str);
        others.chain(over.option()).collect()
    }

    /// The measure's name in results, and what it is divided by.
    pub(super) fn origin(&self) -> (&str, f64) {
        let (name, scale) = match self.metric() {
            Some(metric) => metric.measure(),
            None => (self.measure.as_str(), 1.0),
        };
        (name, self.unit.unwrap_or(scale))
    }
}

/// Workload, machine and, where these are not the columns, number of CPUs of a panel.
pub(super) type Place = (String, String, Option<u32>);

/// Runs that are reported together, which differ in scheduler, seed and `over`, and in what changes along with that.
pub(super) fn groups<'a, 'b>(
    runs: &'b [Run<'a>],
    measured: &Measured,
) -> Vec<(Place, Vec<&'b Run<'a>>)> {
    let over = &measured.over;
    let mut groups: Vec<(Place, Vec<&Run<'_>>)> = Vec::new();
    for run in runs {
        let place = (
            without(&run.result.asked, &measured.along(over)),
            run.result.machine.clone(),
            (*over != Over::Cpus).then_some(run.result.cpus),
        );
        match groups.iter_mut().find(|(known, _)| *known == place) {
            Some((_, group)) => group.push(run),
            None => groups.push((place, vec![run])),
        }
    }
    groups
}

/// A workload as it was asked for, without some of its options.
pub(super) fn without(asked: &str, but: &[&str]) -> String {
    let Some((name, options)) = asked.split_once(':') else {
        return asked.to_owned();
    };
    let others: Vec<&str> = options
        .split(',')
        .filter(|part| {
            part.split('=')
                .next()
                .is_none_or(|name| !but.contains(&name))
        })
        .collect();
    if others.is_empty() {
        name.to_owned()
    } else {
        format!("{name}:{}", others.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn options_are_compared_by_value() {
        assert_eq!(without("a:x=1,y=2", &["x"]), "a:y=2");
        assert_eq!(without("a:x=1", &["x"]), "a");
        assert_eq!(without("a", &["x"]), "a");
        assert_eq!(without("a:x=1,y=2,z", &["x", "z"]), "a:y=2");
    }
}
