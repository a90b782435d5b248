//! Runs a program to its end, and what it starts with it.

use std::fs;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, pidfd_open,
    waitid,
};
use tempfile::TempDir;

use crate::ProgramError;

/// The requirements of some of the programs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extra<'a> {
    /// `kbuild`: the source tree. `tpch`: the folder of the data, which is generated where it is not there.
    pub source: Option<&'a Path>,
    /// `tpch`: the scale of the data, of 1 GB; [`SCALE_DEFAULT`] where it is absent.
    pub scale: Option<f64>,
}

/// Scale of TPC-H's data.
pub const SCALE_DEFAULT: f64 = 1.0;

/// The request of a run.
pub(super) struct Given<'a> {
    pub params: &'a [(String, String)],
    pub extra: Extra<'a>,
    pub deadline: Instant,
}

impl Given<'_> {
    pub(super) fn text(&self, name: &str) -> &str {
        let found = self.params.iter().find(|(known, _)| known == name);
        &found.expect("the model declares it").1
    }

    pub(super) fn is(&self, name: &str) -> bool {
        self.text(name) == "true"
    }
}

pub(super) fn error(message: impl Into<String>) -> ProgramError {
    ProgramError::Task(message.into())
}

pub(super) fn refused(message: impl Into<String>) -> ProgramError {
    ProgramError::Refused(message.into())
}

/// Returns the program's file, as a shell finds it, and where Debian puts servers.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let mut folders = std::env::var_os("PATH").unwrap_or_default();
    folders.push(":/usr/sbin");
    which::which_in_global(program, Some(folders)).ok()?.next()
}

pub(super) fn command(program: &str) -> Command {
    Command::new(find(program).unwrap_or_else(|| PathBuf::from(program)))
}

/// A process with everything it starts; gone when this is dropped.
pub(super) struct Group(pub Child);

impl Group {
    pub(super) fn start(command: &mut Command, deadline: Instant) -> Result<Group, ProgramError> {
        if Instant::now() >= deadline {
            return Err(error("no time is left"));
        }
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|cause| error(format!("cannot start {name}: {cause}")))?;
        Ok(Group(child))
    }
}

/// Time that a program gets to end after the request to do so.
const FAREWELL: Duration = Duration::from_secs(2);

impl Group {
    /// Returns whether the process has ended; it stays unreaped, so that its number means it and its group.
    pub(super) fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = waitid(WaitId::Pid(Pid::from_child(&self.0)), options);
        !matches!(ended, Ok(None))
    }

    /// Waits for the process. Returns whether it has ended in time.
    pub(super) fn wait_until(&self, deadline: Instant) -> bool {
        let pidfd = pidfd_open(Pid::from_child(&self.0), PidfdFlags::empty());
        while !self.has_ended() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            match (&pidfd, left.try_into()) {
                (Ok(pidfd), Ok(left)) => {
                    let _ = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&left));
                }
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        true
    }

    /// Ends what is left of the group, at once.
    pub(super) fn stop(&mut self) -> std::io::Result<ExitStatus> {
        // The child has not been waited for, so that the number is still its own and its group's.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        self.0.wait()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.has_ended() && !matches!(self.0.try_wait(), Ok(None)) {
            return;
        }
        // The child has not been waited for, so that the number is still its own and its group's.
        let pid = Pid::from_child(&self.0);
        // A server ends and waits for its workers if it is asked to.
        let _ = kill_process(pid, Signal::TERM);
        let asked = Instant::now();
        while !self.has_ended() && asked.elapsed() < FAREWELL {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.stop();
    }
}

/// Runs a command to its end. Returns what it wrote to standard output, and how long it took.
pub(super) fn output(
    command: &mut Command,
    deadline: Instant,
) -> Result<(String, Duration), ProgramError> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdout(Stdio::piped());
    let started = Instant::now();
    let mut group = Group::start(command, deadline)?;
    let mut pipe = group.0.stdout.take().expect("it was asked for");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        // Output that is no text has no figure in it either.
        let _ = pipe.read_to_string(&mut text);
        text
    });
    if !group.wait_until(deadline) {
        return Err(error(format!(
            "{name} has not ended in time: give it more with --time-limit"
        )));
    }
    let took = started.elapsed();
    // A process that it left behind may keep the pipe open.
    let status = group.stop();
    let status = status.map_err(|cause| error(format!("cannot wait for {name}: {cause}")))?;
    let text = reader.join().unwrap_or_default();
    match status.success() {
        true => Ok((text, took)),
        false => Err(error(format!("{name}: {status}"))),
    }
}

/// Returns a folder that everybody can read, whatever the umask, and that is gone afterwards.
pub(super) fn folder(what: &str) -> Result<TempDir, ProgramError> {
    use std::os::unix::fs::PermissionsExt as _;
    let prefix = format!("schedlab-{what}-");
    let made = tempfile::Builder::new().prefix(&prefix).tempdir();
    let open = |folder: TempDir| {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).map(|()| folder)
    };
    made.and_then(open)
        .map_err(|cause| error(format!("cannot make a temporary folder: {cause}")))
}
