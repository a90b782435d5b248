//! The boot of a machine with everything given, and the wait for its command to end.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::acceleration::Acceleration;
use super::guest;
use super::image::KernelImage;
use super::silence::{Silence, Verdict};
use super::tools::{self, Notes, Tools};
use crate::compiled;
use crate::error::{At as _, Error, Result};
use crate::group::Group;
use crate::inside;

/// Chooses another kernel than the default one, for tests.
const KERNEL: &str = "SCHEDLAB_VM_KERNEL";

/// How long a guest may take to boot: two busy cores without KVM need 10 to 15 s.
const BOOT_TIMEOUT: Duration = Duration::from_secs(180);

/// How often the guest's output is looked at.
const POLL: Duration = Duration::from_millis(40);

/// Which of the two output streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A virtual machine to be.
#[derive(Clone, Debug)]
pub struct Vm {
    /// Virtual CPUs, 1 to 255.
    pub cpus: u32,
    /// How many of them share a core, at least 1; divides their number.
    pub threads_per_core: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// A kernel's version, as `uname -r` says it; `None`: the default one. By default what `SCHEDLAB_VM_KERNEL` says.
    pub kernel: Option<String>,
    /// Bound on the command's running time.
    pub timeout: Duration,
    /// Time in the machine depends on executed instructions alone, and idle time passes at once:
    /// ratios between schedulers become repeatable. Whatever waits for the host (files) then seems
    /// to take long, and a CPU that spins with interrupts off may keep the others waiting for
    /// seconds. Always emulated.
    pub repeatable: bool,
    /// Directories of the host that the command may write to; everywhere else what it writes is
    /// gone with the machine.
    pub writable: Vec<PathBuf>,
}

impl Default for Vm {
    fn default() -> Vm {
        Vm {
            cpus: 2,
            threads_per_core: 1,
            memory_mib: 2048,
            kernel: std::env::var(KERNEL).ok(),
            timeout: Duration::from_secs(600),
            repeatable: false,
            writable: Vec::new(),
        }
    }
}

impl Vm {
    /// Boots with everything given; [`Vm::run`] finds it out first.
    pub(crate) fn boot(
        &self,
        tools: &Tools,
        kernel: &KernelImage,
        acceleration: Acceleration,
        command: &[OsString],
        notes: Notes<'_>,
        on_output: &mut dyn FnMut(Stream, &[u8]),
    ) -> Result<(i32, String)> {
        self.boot_within(
            tools,
            kernel,
            acceleration,
            command,
            notes,
            on_output,
            BOOT_TIMEOUT,
        )
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn boot_within(
        &self,
        tools: &Tools,
        kernel: &KernelImage,
        acceleration: Acceleration,
        command: &[OsString],
        notes: Notes<'_>,
        on_output: &mut dyn FnMut(Stream, &[u8]),
        boot_timeout: Duration,
    ) -> Result<(i32, String)> {
        if self.cpus == 0 || self.cpus > 255 {
            return Err(Error::Vm(format!(
                "{} CPUs: 1 to 255 are possible",
                self.cpus
            )));
        }
        let temp = std::env::temp_dir();
        let dir = tempfile::Builder::new()
            .prefix("schedlab-vm-")
            .tempdir_in(&temp)
            .at(&temp)?;
        let share = dir.path().join("share");
        fs::create_dir(&share).at(&share)?;
        let logs = crate::verdict::directory();
        fs::create_dir_all(&logs).at(&logs)?;
        let writable = self
            .writable
            .iter()
            .chain([&logs])
            .map(|path| fs::canonicalize(path).at(path))
            .collect::<Result<Vec<PathBuf>>>()?;
        let emulated = acceleration == Acceleration::Emulation || self.repeatable;
        // Where time depends on instructions, idle time passes at once: a beat would come all the time.
        let beats = !self.repeatable;
        guest::write_scripts(&share, kernel, tools, &writable, command, beats, emulated)?;
        compiled::hand_over(&share)?;
        let console = dir.path().join("console");
        let console_file = File::create(&console).at(&console)?;

        let mut qemu = Command::new(&tools.virtme_run);
        qemu.arg("--kimg")
            .arg(&kernel.image)
            .args(["--mods", "auto", "--force-9p", "--show-boot-console"])
            .args(["--cpus", &self.topology()])
            .args(["--memory", &format!("{}M", self.memory_mib)])
            .arg("--rwdir")
            .arg(&share)
            .arg("--script-sh")
            .arg(format!("/bin/sh {}", guest::quote(share.join("init"))));
        if emulated {
            // The kernel counts timer interrupts while it boots; on a busy host an emulated timer has not given enough
            // of them in time, and it panics ("IO-APIC + timer doesn't work").
            qemu.args(["--disable-kvm", "--kopt", "no_timer_check"]);
        }
        for path in &writable {
            qemu.arg("--rwdir").arg(path);
        }
        if self.repeatable {
            qemu.args(["-q=-icount", "-q=shift=1,sleep=off"]);
        } else if acceleration == Acceleration::Emulation {
            // One thread for all virtual CPUs: with a thread each, QEMU 7.2 now and then keeps an
            // int3 that the kernel had put into its code for a moment (every tracepoint and static
            // key that is switched does so), and the guest dies of "Oops: int3"; twice in about
            // 100 attachments here. A CPU that spins gives way after 100 ms. (Counting instructions
            // makes them take turns too, but a CPU that spins with interrupts off then keeps the
            // others waiting for 2 s, longer than a policy's lock is waited for.)
            qemu.args(["-q=-accel", "-q=tcg,thread=single"]);
        }
        qemu.env("PATH", tools::path_with_sbin())
            .env("TMPDIR", dir.path())
            .stdin(Stdio::null())
            .stdout(console_file.try_clone().at(&console)?)
            .stderr(console_file);
        let mut machine = Group::spawn(&mut qemu, Some(dir.path()))?;

        let outcome = self.wait(
            &mut machine,
            &share,
            &console,
            notes,
            on_output,
            boot_timeout,
        );
        machine.stop();
        let told = |what: String| {
            let kept = crate::verdict::directory().join("vm-console.log");
            let place = match fs::copy(&console, &kept) {
                Ok(_) => format!(" (whole console: {})", kept.display()),
                Err(_) => String::new(),
            };
            format!("{what}{}{place}", tail(&console))
        };
        outcome.map_err(|error| match error {
            Error::Vm(what) => Error::Vm(told(what)),
            Error::VmTimeout(what) => Error::VmTimeout(told(what)),
            Error::VmLost(what) => Error::VmLost(told(what)),
            other => other,
        })
    }

    /// QEMU's way to say how many CPUs there are.
    fn topology(&self) -> String {
        match self.threads_per_core {
            0 | 1 => self.cpus.to_string(),
            threads => format!(
                "{},sockets=1,cores={},threads={threads}",
                self.cpus,
                self.cpus / threads
            ),
        }
    }

    fn wait(
        &self,
        machine: &mut Group,
        share: &Path,
        console: &Path,
        notes: Notes<'_>,
        on_output: &mut dyn FnMut(Stream, &[u8]),
        boot_timeout: Duration,
    ) -> Result<(i32, String)> {
        let mut stdout = Tail::new(share.join("stdout"), Stream::Stdout);
        let mut stderr = Tail::new(share.join("stderr"), Stream::Stderr);
        let code_file = share.join("code");
        let started = Instant::now();
        let mut booted = None;
        let mut silence = Silence::new(started);
        let mut heard = Changes::default();
        let mut beats = Changes::default();
        loop {
            let ended = machine.ended().is_some();
            stdout.forward(on_output)?;
            stderr.forward(on_output)?;
            if let Some(code) = read_code(&code_file) {
                // The code is written after all output.
                stdout.forward(on_output)?;
                stderr.forward(on_output)?;
                let log = fs::read_to_string(share.join("kernel-log")).unwrap_or_default();
                return Ok((code, log));
            }
            if ended {
                return Err(match booted {
                    None => Error::Vm("it ended before it had booted".to_owned()),
                    Some(_) => Error::VmLost(format!(
                        "it ended before the command had{}",
                        last_did(share, booted.is_some())
                    )),
                });
            }
            let now = Instant::now();
            if booted.is_none() && share.join("booted").exists() {
                booted = Some(now);
                silence = Silence::new(now);
            }
            let said = [
                stdout.at,
                stderr.at,
                size(console),
                size(&share.join(DOING)),
            ];
            if heard.differ(said) {
                silence.hears(now);
            }
            if beats.differ([size(&share.join(guest::BEATS)), 0, 0, 0]) {
                silence.feels(now);
            }
            match silence.judge(now) {
                Verdict::Fine => {}
                Verdict::Quiet(time) => notes(&format!(
                    "virtual machine: no output for {} s{}",
                    time.as_secs(),
                    last_did(share, booted.is_some())
                )),
                Verdict::Lifeless(time) => notes(&format!(
                    "virtual machine: no sign of life for {} s{}",
                    time.as_secs(),
                    last_did(share, booted.is_some())
                )),
                Verdict::Lost(time) => {
                    return Err(Error::VmLost(format!(
                        "no sign of life for {} s{}; it was stopped: look for a CPU that cannot go on, for example one that waits for a lock that is never released",
                        time.as_secs(),
                        last_did(share, booted.is_some())
                    )));
                }
            }
            match booted {
                None if started.elapsed() > boot_timeout => {
                    return Err(Error::VmTimeout(format!(
                        "not booted after {} s",
                        boot_timeout.as_secs()
                    )));
                }
                Some(at) if at.elapsed() > self.timeout => {
                    return Err(Error::VmLost(format!(
                        "the command was still running after {} s and was stopped with its machine{}",
                        self.timeout.as_secs(),
                        last_did(share, booted.is_some())
                    )));
                }
                _ => thread::sleep(POLL),
            }
        }
    }
}

/// The file in which a program inside notes what it does.
const DOING: &str = "doing";

/// Notes the current action of this program, for the process that runs the virtual machine around it, if one does:
/// the note is reported if the machine goes silent.
pub fn doing(what: &str) {
    let Some(share) = inside::share() else {
        return;
    };
    let file = File::options()
        .create(true)
        .append(true)
        .open(share.join(DOING));
    if let Ok(mut file) = file {
        // A program that cannot note it goes on.
        let _ = writeln!(file, "{what}");
    }
}

/// Returns what the machine did last: the last note of a program inside, or how far it is without one.
fn last_did(share: &Path, has_booted: bool) -> String {
    let text = fs::read_to_string(share.join(DOING)).unwrap_or_default();
    match text.lines().rfind(|line| !line.trim().is_empty()) {
        Some(last) => format!("; last it was {last}"),
        None if has_booted => "; the machine has booted and starts its program".to_owned(),
        None => "; the machine boots".to_owned(),
    }
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |file| file.len())
}

/// Tells whether numbers differ from those before.
#[derive(Default)]
struct Changes([u64; 4]);

impl Changes {
    fn differ(&mut self, now: [u64; 4]) -> bool {
        std::mem::replace(&mut self.0, now) != now
    }
}

/// Follows a file that the guest writes.
struct Tail {
    path: PathBuf,
    stream: Stream,
    at: u64,
}

impl Tail {
    fn new(path: PathBuf, stream: Stream) -> Tail {
        Tail {
            path,
            stream,
            at: 0,
        }
    }

    fn forward(&mut self, on_output: &mut dyn FnMut(Stream, &[u8])) -> Result<()> {
        let Ok(mut file) = File::open(&self.path) else {
            return Ok(()); // The guest has not come that far.
        };
        file.seek(SeekFrom::Start(self.at)).at(&self.path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).at(&self.path)?;
        if !bytes.is_empty() {
            self.at += bytes.len() as u64;
            on_output(self.stream, &bytes);
        }
        Ok(())
    }
}

/// The file appears by a rename, so it is whole or absent.
fn read_code(path: &Path) -> Option<i32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the end of the console, for messages.
fn tail(console: &Path) -> String {
    let bytes = fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    if lines.is_empty() {
        return String::new();
    }
    let last = lines[lines.len().saturating_sub(12)..].join("\n  ");
    format!("; the end of its console:\n  {last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_machine_is_told_with_what_it_did_last() {
        let share = tempfile::tempdir().unwrap();
        assert_eq!(last_did(share.path(), false), "; the machine boots");
        let starts = "; the machine has booted and starts its program";
        assert_eq!(last_did(share.path(), true), starts);
        fs::write(share.path().join(DOING), "loading a\nrunning b\n\n").unwrap();
        assert_eq!(last_did(share.path(), true), "; last it was running b");
    }
}
