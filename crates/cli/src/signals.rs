//! Signals that are heard at once, and leave no temporary files behind.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

/// The receiver of signals.
pub struct Ears {
    stops: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

/// Listens from now on: the first signal ends the program at once, whatever it reads or computes, or as soon as a
/// compiler at work has ended, which gets Ctrl-C, too; what a signal does by default would leave that one's folder behind.
/// The second signal does not wait for it.
///
/// # Errors
/// If signals cannot be listened to.
pub fn listen() -> io::Result<Ears> {
    let ears = Ears {
        stops: Arc::default(),
        stop: Arc::default(),
    };
    let (stops, stop) = (Arc::clone(&ears.stops), Arc::clone(&ears.stop));
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let listening = move || {
        for (nth, signal) in signals.forever().enumerate() {
            if stops.load(Ordering::SeqCst) {
                if stop.swap(true, Ordering::SeqCst) {
                    low_level::exit(128 + signal);
                }
            } else if nth == 0 {
                thread::spawn(move || {
                    schedlab_sim::finish_compiling();
                    end_by(signal);
                });
            } else {
                end_by(signal);
            }
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(listening)?;
    Ok(ears)
}

impl Ears {
    /// From now on the first signal only asks to stop, which the answer says, and the second one ends the program.
    pub fn stop_softly(self) -> Arc<AtomicBool> {
        self.stops.store(true, Ordering::SeqCst);
        self.stop
    }
}

fn end_by(signal: i32) {
    if low_level::emulate_default_handler(signal).is_err() {
        low_level::exit(128 + signal);
    }
}
