//! Expectations of an experiment, as comparisons that the runs decide: no text says what its own figures deny.

use schedlab_report::export::number::amount;
use schedlab_report::export::view::unit_of;
use schedlab_report::{RunResult, stats};
use serde::Deserialize;

use crate::over::Setting;

/// An expectation: one value is less than another one.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// The expectation in words, without a full stop.
    pub text: String,
    /// The measure that is compared, by its name in results.
    pub measure: String,
    /// Settings that both runs have, `rooms=20`; none where it is of every workload.
    #[serde(default)]
    pub only: Vec<Setting>,
    /// The run with the lesser value: a scheduler and the settings that distinguish it, `dss, cpus=8`.
    pub less: Point,
    /// The run with the greater value.
    pub than: Point,
    /// The lesser value is compared with so many times the greater one: 0.5 for "less than half".
    #[serde(default = "once")]
    pub times: f64,
}

fn once() -> f64 {
    1.0
}

/// A run of an experiment: parts that are separated by commas.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Point {
    text: String,
    /// The name of its row: the scheduler, and the layout of task structures where the experiment names one.
    row: String,
    settings: Vec<Setting>,
}

impl TryFrom<String> for Point {
    type Error = String;

    fn try_from(text: String) -> Result<Point, String> {
        let parts = || text.split(',').map(str::trim);
        // A scheduler may have options of its own, behind a colon.
        let is_setting = |part: &&str| part.contains('=') && !part.contains(':');
        let row: Vec<&str> = parts().filter(|part| !is_setting(part)).collect();
        let settings: Result<Vec<Setting>, String> = parts()
            .filter(is_setting)
            .map(|part| Setting::try_from(part.to_owned()))
            .collect();
        if row.concat().is_empty() {
            return Err(format!(
                "`{text}` names no scheduler; write for example dss, cpus=8"
            ));
        }
        Ok(Point {
            row: row.join(", "),
            settings: settings?,
            text,
        })
    }
}

impl Point {
    fn is(&self, row: &str, result: &RunResult) -> bool {
        self.row == row && self.settings.iter().all(|setting| setting.is_of(result))
    }
}

/// The runs' verdict on an expectation.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// The expectation in words.
    pub text: String,
    /// Whether it is met; `None` where a run that it compares is not among these.
    pub holds: Option<bool>,
    /// Both values, or what is missing.
    pub detail: String,
}

impl Finding {
    /// The expectation with its answer, in two sentences.
    pub fn told(&self) -> String {
        let Finding { text, detail, .. } = self;
        match self.holds {
            Some(true) => format!("Expected: {text}. So it is here: {detail}."),
            Some(false) => format!("Expected: {text}. It is not so here: {detail}."),
            None => format!("Expected: {text}. Not checked here: {detail}."),
        }
    }
}

impl Expected {
    /// Compares the medians of the runs that ended as they should. `runs`: each with the name of its row.
    pub(crate) fn check<'a>(
        &self,
        runs: impl Iterator<Item = (String, &'a RunResult)> + Clone,
    ) -> Finding {
        let of = |point: &Point| -> (Vec<f64>, Option<&'a RunResult>) {
            let mut first = None;
            let meant = runs.clone().filter(|(row, result)| {
                point.is(row, result)
                    && self.only.iter().all(|setting| setting.is_of(result))
                    && result.is_done()
            });
            let values = meant.filter_map(|(_, result)| {
                let value = result.measures.number(&self.measure)?;
                first.get_or_insert(result);
                Some(value)
            });
            (values.collect(), first)
        };
        let (less, run) = of(&self.less);
        let (than, _) = of(&self.than);
        let (holds, detail) = match (stats::median(&less), stats::median(&than), run) {
            (Some(low), Some(high), Some(run)) => {
                let unit = unit_of(&self.measure, &[run]);
                let detail = format!(
                    "{} for {} and {} for {}",
                    amount(low, &unit),
                    self.less.text,
                    amount(high, &unit),
                    self.than.text
                );
                (Some(low < self.times * high), detail)
            }
            (low, ..) => {
                let missing = if low.is_none() {
                    &self.less
                } else {
                    &self.than
                };
                let only: Vec<String> = self.only.iter().map(ToString::to_string).collect();
                let with = match only.is_empty() {
                    true => String::new(),
                    false => format!(" with {}", only.join(" and ")),
                };
                (
                    None,
                    format!("no run of {}{with} is among these", missing.text),
                )
            }
        };
        Finding {
            text: self.text.clone(),
            holds,
            detail,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_report::{Exit, Measures};

    fn run(cpus: u32, rooms: &str, score: f64) -> RunResult {
        let mut measures = Measures::default();
        measures.score(score, "messages/s", true);
        RunResult {
            cpus,
            params: vec![("rooms".into(), rooms.into())],
            exit: Exit::Done,
            measures,
            ..RunResult::default()
        }
    }

    fn expected() -> Expected {
        let text = r#"
text = "8 CPUs are slower than 2"
measure = "score"
only = ["rooms=20"]
less = "dss, cpus=8"
than = "dss, cpus=2"
"#;
        toml::from_str(text).unwrap()
    }

    fn told(expected: &Expected, runs: &[(&str, RunResult)]) -> String {
        let runs = runs.iter().map(|(row, run)| ((*row).to_owned(), run));
        expected.check(runs).told()
    }

    #[test]
    fn an_expectation_is_answered_by_the_medians_of_its_runs() {
        let runs = [
            ("dss", run(8, "20", 50.0)),
            ("dss", run(8, "20", 70.0)),
            ("dss", run(8, "20", 900.0)),
            ("dss", run(2, "20", 100.0)),
            // Of another scheduler, number of rooms or end they say nothing.
            ("mq", run(2, "20", 1.0)),
            ("dss", run(2, "10", 1.0)),
        ];
        let of = "Expected: 8 CPUs are slower than 2.";
        let values = "70 messages/s for dss, cpus=8 and 100 messages/s for dss, cpus=2.";
        let mut expected = expected();
        assert_eq!(
            told(&expected, &runs),
            format!("{of} So it is here: {values}")
        );
        expected.times = 0.5;
        assert_eq!(
            told(&expected, &runs),
            format!("{of} It is not so here: {values}")
        );
        let missing = "Not checked here: no run of dss, cpus=2 with rooms=20 is among these.";
        assert_eq!(told(&expected, &runs[..3]), format!("{of} {missing}"));
        let missing_both = "Not checked here: no run of dss, cpus=8 with rooms=20 is among these.";
        assert_eq!(told(&expected, &[]), format!("{of} {missing_both}"));
        expected
            .only
            .push(Setting::try_from("seats=3".to_owned()).unwrap());
        assert_eq!(
            told(&expected, &runs),
            format!(
                "{of} {}",
                missing_both.replace("rooms=20", "rooms=20 and seats=3")
            )
        );
        expected.only.clear();
        assert_eq!(
            told(&expected, &[]),
            format!("{of} {}", missing_both.replace(" with rooms=20", ""))
        );
        // Equal is not less.
        expected.times = 1.0;
        let equal = [("dss", run(8, "20", 5.0)), ("dss", run(2, "20", 5.0))];
        assert_eq!(
            told(&expected, &equal),
            format!(
                "{of} It is not so here: 5 messages/s for dss, cpus=8 and 5 messages/s for dss, cpus=2."
            )
        );
        expected = self::expected();
        let mut failed = runs.to_vec();
        failed[3].1.exit = Exit::ErrorStall;
        assert_eq!(told(&expected, &failed), format!("{of} {missing}"));
    }

    #[test]
    fn points_name_a_row_and_settings() {
        let point = Point::try_from("dss:base=2_3_99, coloured, workers=256".to_owned()).unwrap();
        assert_eq!(point.row, "dss:base=2_3_99, coloured");
        assert_eq!(point.settings.len(), 1);
        assert!(Point::try_from("cpus=8".to_owned()).is_err());
    }
}
