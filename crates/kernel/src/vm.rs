//! A virtual machine that boots a kernel with sched_ext around this machine's own files.
//!
//! virtme-ng starts QEMU with the host's root directory shared read-only; the guest puts a layer
//! in memory over it. So the same program runs inside, it may write anywhere, and nothing that it
//! writes reaches the host. Output and exit code come back through a private directory.

mod acceleration;
mod boot;
mod guest;
mod image;
pub mod kernel;
mod kvm;
mod silence;
mod tools;

use std::ffi::OsString;

use schedlab_report::RunResult;

use crate::error::Result;
use crate::inside;
pub use acceleration::{
    Acceleration, file as acceleration_file, remembered as remembered_acceleration,
};
pub use boot::{Stream, Vm, doing};
pub use image::KernelImage;
pub use tools::{Notes, Tools, installed_virtme_run, missing, which};

/// The output of a command in a virtual machine.
#[derive(Clone, Debug)]
pub struct Output {
    /// Exit code; 128 + n for signal n.
    pub code: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Warnings and errors that the kernel logged while the command ran.
    pub kernel_log: String,
}

impl Vm {
    /// Runs a command and collects what it writes.
    ///
    /// # Errors
    /// Something is missing, the machine does not boot, or the time is up.
    pub fn output(&self, command: &[OsString], notes: Notes<'_>) -> Result<Output> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut collect = |stream: Stream, bytes: &[u8]| match stream {
            Stream::Stdout => stdout.extend_from_slice(bytes),
            Stream::Stderr => stderr.extend_from_slice(bytes),
        };
        let (code, kernel_log) = self.run(command, notes, &mut collect)?;
        Ok(Output {
            code,
            stdout,
            stderr,
            kernel_log,
        })
    }

    /// Runs a command and hands on what it writes as it comes. Answers its exit code and what the
    /// kernel complained about meanwhile.
    ///
    /// # Errors
    /// As [`Vm::output`].
    pub fn run(
        &self,
        command: &[OsString],
        notes: Notes<'_>,
        on_output: &mut dyn FnMut(Stream, &[u8]),
    ) -> Result<(i32, String)> {
        let tools = Tools::find(notes)?;
        let kernel = kernel::provide(self.kernel.as_deref(), &tools, notes)?;
        let choice = kvm::choose(&tools, &kernel, notes);
        let outcome = self.boot(
            &tools,
            &kernel,
            choice.acceleration,
            command,
            notes,
            on_output,
        );
        if choice.is_suspect && outcome.is_ok() {
            acceleration::remember(choice.acceleration);
        }
        outcome
    }
}

/// Returns whether this program runs inside one of our virtual machines.
pub fn inside() -> bool {
    inside::share().is_some()
}

/// Where this program runs, as results name it.
pub fn place() -> &'static str {
    match (inside(), std::env::var_os(guest::EMULATED).is_some()) {
        (false, _) => "host",
        (true, true) => RunResult::EMULATED,
        (true, false) => "vm",
    }
}
