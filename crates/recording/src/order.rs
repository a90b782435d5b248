//! Time that never goes back, and what is refused otherwise.

use crate::{About, Event, RecordingError};

/// Between CPUs, a tracer may be so much out of order: events are written in rounds.
const LATE_MAX_NS: u64 = 1_000_000;
/// A virtual CPU that was stolen between an event's time and its writing is later now and then. Clocks that disagree are
/// so always: more of the later events than one in so many, and than a few, are refused, and any by more than a second.
const SKEWED_SHARE: u64 = 100;
const SKEWED_FEW: u64 = 16;
const SKEW_MAX_NS: u64 = 1_000_000_000;

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
    /// If it is much later, or as many are as where clocks disagree.
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
                let (s, rest) = (event.at_ns / 1_000_000_000, event.at_ns % 1_000_000_000);
                return Err(RecordingError::Skewed {
                    path: self.path.to_owned(),
                    cpu: event.cpu,
                    ms: behind_ns.div_ceil(1_000_000),
                    at_s: format!("{s}.{rest:09}"),
                });
            }
            about.late += 1;
            event.at_ns = about.last_ns;
        }
        about.last_ns = event.at_ns;
        about.events += 1;
        (self.sink)(&event);
        Ok(())
    }
}
