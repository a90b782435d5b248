//! Whether the processor's virtualisation really boots a kernel here. The device file says little:
//! where it is passed through another hypervisor, QEMU may open it and then hang.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use super::{Kernel, Notes, Tools, Vm};
use crate::cache;

/// With KVM a small guest boots within 3 s; one that has not after this time never will.
const PROBE_TIMEOUT: Duration = Duration::from_secs(15);

/// How the guest's instructions are executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acceleration {
    /// By the processor.
    Kvm,
    /// By QEMU's translator, about ten times slower.
    Emulation,
}

/// Boots a guest with KVM once per host kernel and remembers the result.
pub fn acceleration(tools: &Tools, kernel: &Kernel, notes: Notes<'_>) -> Acceleration {
    let device = File::options().read(true).write(true).open("/dev/kvm");
    if device.is_err() {
        return Acceleration::Emulation;
    }
    drop(device);
    if let Some(known) = remembered() {
        return known;
    }
    notes("trying whether KVM boots a kernel here (once, at most 15 s)");
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
        &mut |_, _| {},
        PROBE_TIMEOUT,
    );
    let result = match booted {
        Ok((0, _)) => Acceleration::Kvm,
        _ => Acceleration::Emulation,
    };
    if let Some(file) = file() {
        let text = match result {
            Acceleration::Kvm => "kvm",
            Acceleration::Emulation => "emulation",
        };
        // If it cannot be kept it is tried again next time.
        let _ = fs::write(file, text);
    }
    result
}

/// What an earlier probe on this host found.
pub fn remembered() -> Option<Acceleration> {
    match fs::read_to_string(file()?).ok()?.trim() {
        "kvm" => Some(Acceleration::Kvm),
        "emulation" => Some(Acceleration::Emulation),
        _ => None,
    }
}

fn file() -> Option<PathBuf> {
    let release = nix::sys::utsname::uname().ok()?;
    let release = release.release().to_string_lossy().into_owned();
    Some(cache::dir().ok()?.join(format!("kvm-on-{release}")))
}
