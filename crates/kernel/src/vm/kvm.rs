//! Whether the processor's virtualisation really boots a kernel here. The device file says little:
//! where it is passed through another hypervisor, QEMU may open it and then hang.

use std::ffi::OsString;
use std::fs::{self, File};
use std::time::Duration;

use super::acceleration::{Acceleration, remember, remembered};
use super::boot::Vm;
use super::image::KernelImage;
use super::tools::{Notes, Tools};
use crate::error::{Error, Result};

/// With KVM a small guest boots within 3 s; one that has not after this time never will.
const PROBE_TIMEOUT: Duration = Duration::from_secs(15);

/// How to execute a guest here, and what is known of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    pub acceleration: Acceleration,
    /// With KVM the guest ended at once. If it boots without, KVM was the reason.
    pub is_suspect: bool,
}

/// Boots a guest with KVM once per host kernel and remembers the result.
pub fn choose(tools: &Tools, kernel: &KernelImage, notes: Notes<'_>) -> Choice {
    let chosen = |acceleration| Choice {
        acceleration,
        is_suspect: false,
    };
    let device = File::options().read(true).write(true).open("/dev/kvm");
    if device.is_err() {
        return chosen(Acceleration::Emulation);
    }
    drop(device);
    if let Some(known) = remembered() {
        return chosen(known);
    }
    notes("trying whether KVM boots a kernel here (at most 15 s)");
    let vm = Vm {
        cpus: 1,
        memory_mib: 512,
        timeout: PROBE_TIMEOUT,
        ..Vm::default()
    };
    let command = [OsString::from("true")];
    let booted = vm.boot_within(
        tools,
        kernel,
        Acceleration::Kvm,
        &command,
        &|_| {},
        &mut |_, _| {},
        PROBE_TIMEOUT,
    );
    let busy = load_average().is_some_and(|load| load > crate::topology::online().len() as f64);
    let (acceleration, known) = judge(&booted, busy);
    if known {
        remember(acceleration);
    }
    let is_suspect = matches!(booted, Err(Error::Vm(_)));
    if let Err(error) = &booted {
        let told = error.to_string();
        // The first line says what happened; that QEMU ended says less than its last words.
        let why = match is_suspect {
            true => told.lines().last(),
            false => told.lines().next(),
        };
        notes("KVM boots no kernel here; going on without it, about ten times slower:");
        notes(why.unwrap_or_default().trim());
    }
    Choice {
        acceleration,
        is_suspect,
    }
}

/// Returns the result of a probe, and whether it holds for the next ones, too. A probe that was not carried out (a
/// full disk, a QEMU that does not start) says nothing about KVM, and on a busy machine the time is no measure of it.
fn judge(booted: &Result<(i32, String)>, busy: bool) -> (Acceleration, bool) {
    match booted {
        Ok(_) => (Acceleration::Kvm, true),
        Err(Error::VmTimeout(_) | Error::VmLost(_)) => (Acceleration::Emulation, !busy),
        _ => (Acceleration::Emulation, false),
    }
}

/// Processes that run or want to, over the last minute.
fn load_average() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_probe_that_ran_is_remembered() {
        let failed = |error| judge(&Err(error), false);
        let slow = || Error::VmTimeout("not booted after 15 s".to_owned());
        let full = Error::Io {
            path: "/tmp".into(),
            cause: std::io::ErrorKind::StorageFull.into(),
        };
        assert_eq!(
            judge(&Ok((0, String::new())), true),
            (Acceleration::Kvm, true)
        );
        assert_eq!(failed(slow()), (Acceleration::Emulation, true));
        assert_eq!(judge(&Err(slow()), true), (Acceleration::Emulation, false));
        assert_eq!(failed(full), (Acceleration::Emulation, false));
        let ended = Error::Vm("it ended before it had booted".to_owned());
        assert_eq!(failed(ended), (Acceleration::Emulation, false));
    }
}
