//! The profile while it grows.

use schedlab_machine::{Change, Machine};

use crate::Report;
use crate::sample::{Figure, Sample};

/// A built-in profile, what replaces its numbers, and what there is to say about them.
pub(crate) struct Draft {
    pub base: Machine,
    copied_from: &'static str,
    changes: Vec<Change>,
    notes: Vec<String>,
}

impl Draft {
    /// Begins with a profile for what will not be measured.
    pub fn new(name: &'static str, notes: Vec<String>) -> Self {
        let base = Machine::builtin(name).expect("the built-in profiles are tested to load");
        Draft {
            base: base.as_guess(),
            copied_from: name,
            changes: Vec::new(),
            notes,
        }
    }

    pub fn put(&mut self, field: &str, value: impl ToString, source: String) {
        self.changes.push(Change {
            field: field.to_owned(),
            value: value.to_string(),
            source,
        });
    }

    /// Returns a measured number in nanoseconds, at least 1: nothing that happens takes no time.
    pub fn put_ns(&mut self, field: &str, sample: &Sample, what: &str) -> u64 {
        self.note_noise(field, sample);
        let ns = ((sample.median() + 500) / 1_000).max(1);
        self.put(field, ns, sample.source(what));
        ns
    }

    pub fn put_ps(&mut self, field: &str, sample: &Sample, what: &str) -> u64 {
        self.note_noise(field, sample);
        let ps = sample.median().max(1);
        self.put(field, ps, sample.source(what));
        ps
    }

    /// A number that was not measured: the profile's that it begins with, or what measurements leave of it.
    pub fn put_guess(&mut self, field: &str, value: u64) {
        let source = format!("guess: copied from {}", self.copied_from);
        self.put(field, value, source);
    }

    /// A measured number, or `ps` where that is more: what was measured nearer by.
    pub fn put_raised(&mut self, field: &str, ps: u64, sample: &Sample, what: &str) {
        if ps <= sample.median().max(1) {
            self.put_ps(field, sample, what);
            return;
        }
        self.note_noise(field, sample);
        let told = sample.source(what).replace("measured: ", "");
        self.put(
            field,
            ps,
            format!("derived: raised to what is nearer; {told}"),
        );
    }

    /// A measured number, or `limit` where that is less.
    pub fn put_at_most(&mut self, field: &str, limit: u64, sample: &Sample, what: &str) {
        self.note_noise(field, sample);
        let ps = sample.median().max(1);
        let told = sample.source(what);
        match ps <= limit {
            true => self.put(field, ps, told),
            false => {
                let told = told.replace("measured: ", "");
                self.put(field, limit, format!("derived: lowered to {limit}; {told}"));
            }
        }
    }

    /// A computed number; the profile's where the measurements say nothing of it.
    pub fn put_figure(
        &mut self,
        field: &str,
        guess: u64,
        per_unit: u64,
        figure: Figure,
        what: &str,
    ) {
        let Some(ps) = figure.ps() else {
            self.note(format!(
                "{field} stays a guess: {what} is {figure}, which may be nothing"
            ));
            let source = format!(
                "guess: copied from {}; {what} is {figure}",
                self.copied_from
            );
            return self.put(field, guess, source);
        };
        if figure.is_noisy() {
            self.note(format!("{field} is uncertain: {figure}"));
        }
        let value = ((ps + per_unit / 2) / per_unit).max(1);
        self.put(field, value, format!("measured: {figure}: {what}"));
    }

    fn note_noise(&mut self, field: &str, sample: &Sample) {
        if sample.is_noisy() {
            self.note(format!(
                "{field} is uncertain: a tenth of the measurements is more than twice the median"
            ));
        }
    }

    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Returns the profile must load whatever was measured: a contradiction is our bug.
    pub fn finish(self) -> Report {
        let machine = self
            .base
            .with_changes(&self.changes)
            .unwrap_or_else(|error| panic!("calibration made an impossible profile: {error}"));
        Report {
            machine,
            notes: self.notes,
        }
    }
}

/// The cost of each step outwards: the measurement, or `base` without one. No step costs less than the measurement
/// further inwards. A guess gives way to measurements on both sides of it.
pub(crate) fn rising<const N: usize>(measured: [Option<u64>; N], base: [u64; N]) -> [u64; N] {
    let mut floor = 0;
    std::array::from_fn(|step| match measured[step] {
        Some(ps) => {
            floor = ps.max(floor).max(1);
            floor
        }
        None => {
            let outwards = measured[step..].iter().flatten().next();
            let ceiling = outwards.map_or(u64::MAX, |&ps| ps.max(floor));
            base[step].clamp(floor, ceiling)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_that_may_be_nothing_stays_a_guess() {
        let mut draft = Draft::new("laptop", Vec::new());
        let figure = |times: u64| {
            Figure::from(&Sample::of((90..=110).map(|n| n * times).collect()).unwrap())
        };
        let (hop, calls) = (figure(30_000), figure(29_000));
        draft.put_figure(
            "paths.switch_ns",
            400,
            1_000,
            hop.less(calls),
            "a hop less calls",
        );
        draft.put_figure("paths.wakeup_ns", 250, 1_000, hop, "a hop");
        let report = draft.finish();
        assert_eq!(report.machine.paths.switch_ns, 400);
        assert_eq!(report.machine.paths.wakeup_ns, 3_000);
        let source = |field: &str| {
            let mut known = report.machine.provenance().iter();
            known.find(|one| one.field == field).unwrap().source.clone()
        };
        assert!(
            source("paths.switch_ns")
                .starts_with("guess: copied from laptop; a hop less calls is 100")
        );
        assert_eq!(
            source("paths.wakeup_ns"),
            "measured: 3000 ns, p10–p90 2760 to 3240 ns: a hop"
        );
        assert_eq!(report.notes.len(), 1, "{:?}", report.notes);
    }

    #[test]
    fn what_was_measured_is_never_replaced_by_a_guess() {
        let base = [18_000, 23_000, 80_000];
        let cases = [
            ([None, None, None], base),
            ([None, Some(15_700), None], [15_700, 15_700, 80_000]),
            ([None, Some(90_000), None], [18_000, 90_000, 90_000]),
            ([Some(30_000), None, None], [30_000, 30_000, 80_000]),
            ([Some(9_000), None, Some(12_000)], [9_000, 12_000, 12_000]),
            ([None, None, Some(5_000)], [5_000; 3]),
            // Farther is not faster: two measurements that say so are of one distance.
            ([Some(30_000), Some(20_000), None], [30_000, 30_000, 80_000]),
            ([Some(30_000), None, Some(20_000)], [30_000; 3]),
        ];
        for (measured, values) in cases {
            assert_eq!(rising(measured, base), values, "{measured:?}");
        }
    }
}
