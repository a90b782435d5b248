//! How a guest's instructions are executed, and what is known of it on this host.

use std::fs;
use std::path::PathBuf;

use crate::cache;

/// How the guest's instructions are executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acceleration {
    /// By the processor.
    Kvm,
    /// By QEMU's translator, about ten times slower.
    Emulation,
}

/// From now on no probe runs.
pub fn remember(acceleration: Acceleration) {
    let text = match acceleration {
        Acceleration::Kvm => "kvm",
        Acceleration::Emulation => "emulation",
    };
    if let Some(file) = file() {
        // If it cannot be kept it is tried again next time.
        let _ = fs::write(file, text);
    }
}

/// Returns the result of an earlier probe on this host.
pub fn remembered() -> Option<Acceleration> {
    match fs::read_to_string(file()?).ok()?.trim() {
        "kvm" => Some(Acceleration::Kvm),
        "emulation" => Some(Acceleration::Emulation),
        _ => None,
    }
}

/// Where it is remembered; without the file it is tried again.
pub fn file() -> Option<PathBuf> {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    Some(cache::dir().ok()?.join(format!("kvm-on-{release}")))
}
