//! Signals that wait until temporary files are gone.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// Does `work`, which may compile a policy in a folder for temporary files: what a signal does by default would leave
/// that behind. A signal ends the program when the work is done, which is soon, since the compiler gets Ctrl-C, too;
/// a second one ends it at once.
///
/// # Errors
/// If signals cannot be listened to.
pub fn held_during<T>(work: impl FnOnce() -> T) -> io::Result<T> {
    let at_once = Arc::new(AtomicBool::new(false));
    let caught = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_default(signal, Arc::clone(&at_once))?;
        flag::register(signal, Arc::clone(&at_once))?;
        flag::register_usize(signal, Arc::clone(&caught), signal as usize)?;
    }
    let done = work();
    // From here on they do what they do by default.
    at_once.store(true, Ordering::SeqCst);
    match caught.load(Ordering::SeqCst) {
        0 => Ok(done),
        signal => low_level::emulate_default_handler(signal as i32).map(|()| done),
    }
}
