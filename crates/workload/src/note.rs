//! Notes on the end of a workload whose measures do not say it: why a column is empty, and that a figure
//! depends on the length of the run.

use crate::Counters;

/// Requests without an answer that may be the last ones of any service.
const BACKLOG_MIN: f64 = 20.0;
/// The part of all requests above which those without an answer are a backlog that grows.
const BACKLOG_SHARE: f64 = 0.05;

/// What is to be told of a workload, or of a part of one, that ran to its end. Its counts begin with `name`; `score` is
/// its score, where it has one.
pub fn note(name: &str, model: &str, counters: &Counters, score: Option<f64>) -> Option<String> {
    match model {
        "service" => of_service(name, counters),
        _ if score.is_none() => Some(format!(
            "{name} has no score: nothing that it counts was done before the run ended"
        )),
        _ => None,
    }
}

fn of_service(name: &str, counters: &Counters) -> Option<String> {
    let number = |count: &str| counters.number(&format!("{name}.{count}"));
    let Some(answered) = number("responses").filter(|&answered| answered > 0.0) else {
        return Some(format!(
            "{name} has no score: none of its requests was answered before the run ended"
        ));
    };
    // In a closed loop no more requests are under way than there are clients.
    let is_open = number("think_ns_sum").is_none();
    let unanswered = number("unanswered")?;
    let came = answered + unanswered;
    let is_overloaded = is_open && unanswered > BACKLOG_MIN && unanswered > BACKLOG_SHARE * came;
    is_overloaded.then(|| {
        format!(
            "{name} was asked for more than it could answer: {unanswered} of {came} requests had no answer yet when the last one was given, and its response times grow with the length of the run"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;
    use crate::testing::{Order, run_in};

    fn told(options: &str) -> Option<String> {
        let text = format!("service:{options}");
        let end = run_in(Workload::parse(&text, 1).unwrap(), Order::UntilBlocked);
        note("service", "service", &end.counters, Some(1.0))
    }

    #[test]
    fn a_service_that_answers_nothing_says_so() {
        let nothing = told("rate=100/s,service=1s,distribution=constant,workers=1,duration=100ms");
        assert_eq!(
            nothing.as_deref(),
            Some("service has no score: none of its requests was answered before the run ended")
        );
    }

    /// Of 20,000 requests half are answered.
    #[test]
    fn an_overloaded_service_says_so() {
        let told = told("rate=2000/s,service=1ms,distribution=constant,workers=2,duration=10s");
        let told = told.expect("a note");
        assert!(
            told.starts_with("service was asked for more than it could answer: "),
            "{told}"
        );
        let numbers = told.split(' ').filter_map(|word| word.parse::<f64>().ok());
        let numbers: Vec<f64> = numbers.collect();
        assert!((9_500.0..10_500.0).contains(&numbers[0]), "{told}");
        assert!((19_500.0..20_500.0).contains(&numbers[1]), "{told}");
    }

    #[test]
    fn others_say_nothing() {
        for options in [
            "rate=500/s,service=1ms,workers=2,duration=10s",
            // The machine is busy, and no request is lost: 50 clients wait for each other.
            "clients=50,think=1ms,service=1ms,workers=4,duration=1s",
        ] {
            assert_eq!(told(options), None, "{options}");
        }
    }

    #[test]
    fn another_part_without_a_score_says_so() {
        let counters = Counters::default();
        assert_eq!(note("cpu", "cpu", &counters, Some(0.0)), None);
        assert_eq!(
            note("schbench2", "schbench", &counters, None).as_deref(),
            Some("schbench2 has no score: nothing that it counts was done before the run ended")
        );
    }
}
