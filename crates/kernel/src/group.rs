//! A child process with everything it starts, which does not outlive us.
//!
//! A small shell waits for the end of a pipe that only we hold open, and then ends the child's
//! process group, whatever ended us, SIGKILL included.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::error::{At as _, Result};

/// A running process group.
pub struct Group {
    child: Child,
    /// Readable once the child has ended; `None` where this kernel has none.
    pidfd: Option<OwnedFd>,
    watchdog: Child,
    ended: Option<ExitStatus>,
    stopped: bool,
}

impl Group {
    /// Starts `command` as the head of a process group of its own. If we die, `cleanup` is removed.
    pub fn spawn(command: &mut Command, cleanup: Option<&Path>) -> Result<Group> {
        let program = Path::new(command.get_program()).to_owned();
        let mut child = command.process_group(0).spawn().at(program)?;
        let watchdog = Command::new("/bin/sh")
            .args([
                "-c",
                "read -r _; kill -s KILL -- \"-$1\"; [ -z \"$2\" ] || rm -rf -- \"$2\"",
                "sh",
            ])
            .arg(child.id().to_string())
            .arg(cleanup.unwrap_or(Path::new("")))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        let pidfd = i32::try_from(child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        match watchdog {
            Ok(watchdog) => Ok(Group {
                child,
                pidfd,
                watchdog,
                ended: None,
                stopped: false,
            }),
            Err(error) => {
                let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
                let _ = child.wait();
                Err(error).at("/bin/sh")
            }
        }
    }

    /// The head of the group.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The exit status of the group's head, once it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Waits until the group's head ends, at most `timeout`.
    pub fn wait(&self, timeout: Duration) {
        let Some(pidfd) = &self.pidfd else {
            return thread::sleep(timeout);
        };
        // An interrupted wait is a short one: who calls looks and waits again.
        if let Ok(timeout) = timeout.try_into() {
            let _ = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&timeout));
        }
    }

    /// Ends whatever of the group still runs, at once.
    pub fn stop(&mut self) {
        if self.stopped {
            return;
        }
        self.stopped = true;
        // The watchdog first, so that it never signals a group whose number is used again.
        let _ = self.watchdog.kill();
        let _ = self.watchdog.wait();
        let group = Pid::from_raw(self.child.id().cast_signed());
        // Fails where nobody of the group is left.
        let _ = killpg(group, Signal::SIGKILL);
        if self.ended.is_none() {
            self.ended = self.child.wait().ok();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn the_end_of_a_program_is_noticed_at_once() {
        let mut group = Group::spawn(&mut Command::new("true"), None).unwrap();
        let started = Instant::now();
        while group.ended().is_none() {
            group.wait(Duration::from_secs(60));
        }
        assert!(started.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn a_group_ends_when_its_owner_does() {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join("left");
        std::fs::create_dir(&left).unwrap();
        let mut command = Command::new("/bin/sh");
        // The head and one more process of its group.
        command.args(["-c", "sleep 60 & sleep 60"]);
        let mut group = Group::spawn(&mut command, Some(&left)).unwrap();
        assert!(group.ended().is_none());
        // What the kernel does to our end of the pipe when we are killed.
        drop(group.watchdog.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(20);
        while (group.ended().is_none() || left.exists()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        use std::os::unix::process::ExitStatusExt as _;
        assert_eq!(group.ended().and_then(|s| s.signal()), Some(9));
        assert!(!left.exists());
    }
}
