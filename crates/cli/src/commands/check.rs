//! `check`: the invariants over a file of events, and its measures computed again.

use schedlab_events::EventFile;
use schedlab_report::{Exit, Heard, MetricsRecorder};
use schedlab_trace::check::Checkers;
use schedlab_trace::counted;

use crate::args::CheckArgs;
use crate::output::{one_file_each, tell};
use crate::results::{self, Files, deliver};
use crate::status::Status;

pub fn run(args: &CheckArgs) -> anyhow::Result<Status> {
    let view = results::view(&args.show, None)?;
    let [json, csv] = results::outputs(&args.show);
    one_file_each(&[json, csv], [args.file.to_string_lossy().into_owned()])?;
    let file = EventFile::open(&args.file)?;
    let outputs = Files::begin(&args.show)?;
    let about = file.about();
    let nr_cpus = about.nr_cpus as usize;
    let recorder = MetricsRecorder::new(nr_cpus, about.shows);
    let checkers = Checkers::new(nr_cpus, about.start(), about.stall_bound());
    let mut heard = Heard::new(recorder, Some(checkers));
    let count = file.tell(&mut heard)?;
    if count > 0 {
        let bytes = std::fs::metadata(&args.file).map_or(0, |file| file.len());
        let size = size(count, bytes);
        tell(format_args!("{}: {size}", args.file.display()));
    }
    let (recorder, violations) = heard.finish();

    let mut result = about.result.clone();
    result.asked.clone_from(&result.workload);
    if about.lost > 0 {
        tell(format_args!(
            "{}: {} lost: the invariants cannot be judged, and measures of events are absent",
            args.file.display(),
            counted(about.lost, "event")
        ));
    } else {
        result.measures = recorder.measures(about.clock_mhz);
        result.series = recorder.series();
    }
    for (name, value) in about.beside.iter() {
        result.measures.set(name, value.clone());
    }
    if let Some(found) = violations.filter(|found| about.lost == 0 && found.count() > 0) {
        for violation in found.first() {
            tell(format_args!("{}: {violation}", args.file.display()));
        }
        if matches!(result.exit, Exit::Done) {
            result.exit = Exit::Violation;
            result.message = Some(format!("{} in all", found.count()));
        }
    }
    deliver(&[result], &view, outputs)
}

/// Returns the number of events and their mean size.
fn size(events: u64, bytes: u64) -> String {
    let mean = bytes as f64 / events as f64;
    format!("{}, {mean:.1} bytes each", counted(events, "event"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_event_is_no_plural() {
        assert_eq!(size(1, 100), "1 event, 100.0 bytes each");
        assert_eq!(size(8, 100), "8 events, 12.5 bytes each");
    }
}
