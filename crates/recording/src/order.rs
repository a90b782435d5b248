//! Time that never goes back, and what is refused otherwise.

use crate::{About, Event, RecordingError};

/// Between CPUs, a tracer may be so much out of order: events are written in rounds.
const LATE_MAX_NS: u64 = 1_000_000;
/// A virtual CPU that was stolen between an event's time and its writing is later now and then. Clocks that disagree are
/// so always: more of the later events than one in so many, and than a few, are refused, and any by more than a second.
const SKEWED_SHARE: u64 = 100;
const SKEWED_FEW: u64 = 16;
const SKEW_MAX_NS: u64 = 1_000_000_000;
/// No recording is longer, about 104 days. A damaged time is later, and sums of such times overflow.
const SPAN_MAX_NS: u64 = 9_000_000_000_000_000;

/// Hands events on with times that never decrease, and counts them.
pub(crate) struct Order<'a> {
    path: &'a str,
    pub about: About,
    /// Events that were more than [`LATE_MAX_NS`] late.
    skewed: u64,
    sink: &'a mut dyn FnMut(&Event),
}

impl<'a> Order<'a> {
    pub fn new(path: &'a str, format: &str, sink: &'a mut dyn FnMut(&Event)) -> Self {
        let about = About {
            format: format.to_owned(),
            ..About::default()
        };
        Order {
            path,
            about,
            skewed: 0,
            sink,
        }
    }

    /// An event. One that is a little late counts as if it came at the latest time so far. Losses are counted, not handed on.
    ///
    /// # Errors
    /// If it is much later, or as many are as where clocks disagree, or if it is further from the first than recordings last.
    pub fn event(&mut self, mut event: Event) -> Result<(), RecordingError> {
        let about = &mut self.about;
        if let crate::What::Lost(lost) = event.what {
            // Tracers tell it when they notice, which may be before the first event.
            about.lost = about.lost.saturating_add(lost);
            return Ok(());
        }
        if about.events == 0 {
            about.first_ns = event.at_ns;
        } else if event.at_ns < about.last_ns {
            let behind_ns = about.last_ns - event.at_ns;
            self.skewed += u64::from(behind_ns > LATE_MAX_NS);
            let is_often = self.skewed > SKEWED_FEW.max(about.events / SKEWED_SHARE);
            if behind_ns > SKEW_MAX_NS || (behind_ns > LATE_MAX_NS && is_often) {
                return Err(RecordingError::Skewed {
                    path: self.path.to_owned(),
                    cpu: event.cpu,
                    ms: behind_ns.div_ceil(1_000_000),
                    at_s: seconds(event.at_ns),
                });
            }
            about.late += 1;
            event.at_ns = about.last_ns;
        }
        if event.at_ns - about.first_ns > SPAN_MAX_NS {
            return Err(RecordingError::Corrupted {
                path: self.path.to_owned(),
                place: format!("CPU {}, {} s", event.cpu, seconds(event.at_ns)),
                message: format!(
                    "the time is more than 104 days after the first event's, {} s",
                    seconds(about.first_ns)
                ),
            });
        }
        about.last_ns = event.at_ns;
        about.events += 1;
        (self.sink)(&event);
        Ok(())
    }
}

/// A time in seconds, to the ns.
fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, What};

    #[test]
    fn a_time_that_no_recording_reaches_is_damage() {
        let mut ignore = |_: &Event| ();
        let mut order = Order::new("x", "test", &mut ignore);
        let event = |at_ns| Event {
            at_ns,
            cpu: 3,
            current: None,
            context: Context::Task,
            what: What::New { task: 1 },
        };
        order.event(event(5_000_000_000)).unwrap();
        order.event(event(5_000_000_000 + SPAN_MAX_NS)).unwrap();
        let error = order.event(event(5_000_000_000 | 1 << 63)).unwrap_err();
        let error = error.to_string();
        assert!(
            error.starts_with("`x`: CPU 3, 9223372041.854775808 s: the time is more than 104 days"),
            "{error}"
        );
    }
}
