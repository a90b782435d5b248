//! A child process with everything it starts, which does not outlive us.
//!
//! Processes that leave the process group (daemons) are found, too: orphans become children of this process, which
//! asks the kernel for them (`PR_SET_CHILD_SUBREAPER`). No other child has a process group of its own, so one that
//! has belongs to a group.
//!
//! A small shell waits for the end of a pipe that only we hold open, and then ends the child's
//! process group, whatever ended us, SIGKILL included. (It does not find who left the group.)

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpgrp, getpid, kill_process, kill_process_group,
    pidfd_open, set_child_subreaper, waitpid,
};

use crate::error::{At as _, Result};

/// How long orphans may take to be gone. SIGKILL waits for nothing but a system call that cannot be interrupted.
const ORPHANS_TIMEOUT: Duration = Duration::from_secs(5);

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
        ask_for_orphans();
        let program = Path::new(command.get_program()).to_owned();
        // A search for orphans waits meanwhile: the head of a group that is not known yet looks like one.
        let mut heads = heads();
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
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
        match watchdog {
            Ok(watchdog) => {
                heads.extend([child.id(), watchdog.id()]);
                Ok(Group {
                    child,
                    pidfd,
                    watchdog,
                    ended: None,
                    stopped: false,
                })
            }
            Err(error) => {
                let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
                let _ = child.wait();
                Err(error).at("/bin/sh")
            }
        }
    }

    /// Returns the head of the group.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Returns the exit status of the group's head, once it has ended.
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
        // An interrupted wait is a short one: the caller checks and waits again.
        if let Ok(timeout) = timeout.try_into() {
            let _ = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&timeout));
        }
    }

    /// Sends a signal to all of the group.
    pub fn signal(&self, signal: Signal) {
        // Fails if no process of the group is left.
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
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
        // Fails if no process of the group is left.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        if self.ended.is_none() {
            self.ended = self.child.wait().ok();
        }
        forget(&[self.child.id(), self.watchdog.id()]);
        stop_orphans();
    }
}

/// Heads and watchdogs of groups that are not stopped yet.
static HEADS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn heads() -> MutexGuard<'static, BTreeSet<u32>> {
    HEADS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remember(pids: &[u32]) {
    heads().extend(pids);
}

fn forget(pids: &[u32]) {
    heads().retain(|pid| !pids.contains(pid));
}

fn ask_for_orphans() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Children of the process that became this program by exec are not ours.
        let strangers: Vec<u32> = orphans()
            .iter()
            .map(|pid| pid.as_raw_nonzero().get().cast_unsigned())
            .collect();
        remember(&strangers);
        // Refused by no kernel since 3.4; without it only the process group is found.
        let _ = set_child_subreaper(Some(getpid()));
    });
}

/// Ends processes that have become ours because who started them has ended. Their children become ours in turn.
fn stop_orphans() {
    let deadline = Instant::now() + ORPHANS_TIMEOUT;
    loop {
        let orphans = orphans();
        if orphans.is_empty() || Instant::now() > deadline {
            return;
        }
        for &orphan in orphans.iter().filter(|orphan| !is_remover(**orphan)) {
            let _ = kill_process(orphan, Signal::KILL);
        }
        for &orphan in &orphans {
            while matches!(waitpid(Some(orphan), WaitOptions::NOHANG), Ok(None))
                && Instant::now() < deadline
            {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// Returns whether a process is about to remove the cgroups of a workload that has ended (`Tell::Remover` of
/// schedlab-programs). It ends by itself.
fn is_remover(pid: Pid) -> bool {
    let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()));
    name.is_ok_and(|name| name.trim_end() == "load:remover")
}

/// Our children that are in another process group and head no group of ours.
fn orphans() -> Vec<Pid> {
    let heads = heads();
    let [us, our_group] = [getpid(), getpgrp()].map(|pid| pid.as_raw_nonzero().get());
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name may hold anything, brackets included: state, parent and group follow its last bracket.
            let mut words = stat.rsplit_once(')')?.1.split_whitespace().skip(1);
            let mut number = || words.next()?.parse::<i32>().ok();
            let (parent, group) = (number()?, number()?);
            let head = heads.contains(&pid.cast_unsigned());
            let is_ours = parent == us && group != our_group && !head;
            Pid::from_raw(pid).filter(|_| is_ours)
        })
        .collect()
}

impl Drop for Group {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Lets one test at a time have groups: an orphan is of whatever group is stopped next.
#[cfg(test)]
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_running(pid: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    /// One that leaves the group and goes on, whether its starter has ended by itself or is stopped.
    #[test]
    fn who_leaves_the_group_is_ended_with_it() {
        let _alone = alone();
        let dir = tempfile::tempdir().unwrap();
        let told = dir.path().join("pids");
        for rest in ["", "sleep 60"] {
            let mut command = Command::new("/bin/sh");
            // The daemon starts a process of its own.
            let daemon = "sleep 61 & echo $! >>$0; echo $$ >>$0; sleep 62";
            let script = format!("setsid sh -c '{daemon}' $0 & {rest}");
            command.arg("-c").arg(script).arg(&told);
            let mut group = Group::spawn(&mut command, None).unwrap();
            let pids = || fs::read_to_string(&told).unwrap_or_default();
            let deadline = Instant::now() + Duration::from_secs(20);
            while (pids().lines().count() < 2 || group.ended().is_none() == rest.is_empty())
                && Instant::now() < deadline
            {
                thread::sleep(Duration::from_millis(10));
            }
            assert!(pids().lines().all(is_running), "{}", pids());
            group.stop();
            assert_eq!(pids().lines().count(), 2);
            assert!(!pids().lines().any(is_running), "{}", pids());
            fs::remove_file(&told).unwrap();
        }
    }

    #[test]
    fn the_end_of_a_program_is_noticed_at_once() {
        let _alone = alone();
        let mut group = Group::spawn(&mut Command::new("true"), None).unwrap();
        let started = Instant::now();
        while group.ended().is_none() {
            group.wait(Duration::from_secs(60));
        }
        assert!(started.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn a_group_ends_when_its_owner_does() {
        let _alone = alone();
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join("left");
        std::fs::create_dir(&left).unwrap();
        let mut command = Command::new("/bin/sh");
        // The head and one more process of its group.
        command.args(["-c", "sleep 60 & sleep 60"]);
        let mut group = Group::spawn(&mut command, Some(&left)).unwrap();
        assert!(group.ended().is_none());
        // The kernel's treatment of our end of the pipe when we are killed.
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
