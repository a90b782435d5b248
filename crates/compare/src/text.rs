//! The comparison as text.

use std::fmt::Write as _;

use schedlab_report::RunResult;
use schedlab_report::export::lines::fill;
use schedlab_report::export::view::View;
use schedlab_trace::counted;

use crate::page::{looked_into, said, scores};
use crate::watched::Watched;
use crate::words::{Shown, cut, parts_beside, sentences, time};

/// Tasks of a table.
const TASKS_MAX: usize = 5;

/// Returns the text on runs, in lines of the view's width. `watched` has the results that were watched, by their places.
pub fn text(results: &[RunResult], watched: &[(usize, Watched)], view: &View) -> String {
    let width = view.width;
    let mut text = String::new();
    let mut lead = scores(results, view);
    if results.len() > 1 {
        lead.push(looked_into(results, watched));
    }
    if !lead.is_empty() {
        fill(&mut text, "", &lead.join(" "), 0, width);
    }
    let first = watched.first();
    for (place, one) in watched {
        let result = &results[*place];
        let told = match first {
            Some((first, of_first)) => said((result, one), (&results[*first], of_first), view),
            None => sentences(&Shown {
                result,
                watched: Some(one),
            }),
        };
        let _ = writeln!(
            text,
            "{}{} on {}, seed {}",
            if text.is_empty() { "" } else { "\n" },
            result.scheduler,
            counted(result.cpus, "CPU"),
            result.seed
        );
        fill(&mut text, "  ", &told.join(" "), 2, width);
        tables(&mut text, one);
    }
    text
}

fn tables(text: &mut String, watched: &Watched) {
    if let Some(path) = &watched.time.path {
        let _ = writeln!(text, "\n  {:<34} {:>12}", "CRITICAL PATH", "TIME");
        for (what, times) in parts_beside(&[path]) {
            let _ = writeln!(text, "  {what:<34} {:>12}", time(times[0]));
        }
    }
    if watched.slowest.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\n  {:<24} {:>10} {:>10} {:>10} {:>10}",
        "TASKS THAT WAIT MOST", "RUNS", "WAITS", "SLEEPS", "LONGEST"
    );
    for one in watched.slowest.iter().take(TASKS_MAX) {
        let times = &one.times;
        let _ = writeln!(
            text,
            "  {:<24} {:>10} {:>10} {:>10} {:>10}",
            cut(&one.name, 24),
            time(times.running_ns),
            time(times.waits_ns()),
            time(times.tasks_ns + times.timer_ns + times.other_ns),
            one.longest
                .as_ref()
                .map_or("-".to_owned(), |longest| time(longest.ns))
        );
    }
}
