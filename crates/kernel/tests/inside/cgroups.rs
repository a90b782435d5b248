//! The cgroups of a workload's real program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use schedlab_kernel::run;
use schedlab_report::Exit;
use schedlab_trace::Scheduler;

use super::{Inside, ensure, job, text};

const TOP: &str = "/sys/fs/cgroup";

/// The program that has one CPU for a workload.
const LOAD: &str = "load_on_cpu_0";

/// Hogs in cgroups: three times the weight for a third of their number, and a tenth of a CPU two levels below.
fn workload(duration: &str) -> String {
    let part = |tasks, cgroup| {
        format!("cpu:tasks={tasks},run=1ms,sleep=0,duration={duration},cgroup={cgroup}")
    };
    let [a, b, c] = [part(2, "/a"), part(6, "/b"), part(1, "/c/x")];
    format!("{a},cpu.weight=300 + {b} + {c},cpu.max=10000/100000")
}

/// The kernel's cgroups, and the controllers that their root enables.
fn all() -> Result<(Vec<PathBuf>, String), String> {
    let told = |error: std::io::Error| format!("{TOP}: {error}");
    let mut folders = Vec::new();
    for entry in fs::read_dir(TOP).map_err(told)? {
        let path = entry.map_err(told)?.path();
        folders.extend(path.is_dir().then_some(path));
    }
    let file = Path::new(TOP).join("cgroup.subtree_control");
    Ok((folders, fs::read_to_string(file).map_err(told)?))
}

fn threads(cgroup: &Path) -> Vec<String> {
    let text = fs::read_to_string(cgroup.join("cgroup.threads")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn usage_us(cgroup: &Path) -> Result<f64, String> {
    let text = fs::read_to_string(cgroup.join("cpu.stat")).map_err(|error| error.to_string())?;
    let mut lines = text.lines();
    let usage = lines.find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok());
    usage.ok_or_else(|| format!("no usage in {text}"))
}

fn within(patience: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    while !is_so() {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Threads are in the cgroups that the workload names, whose weights and limits have effect; none of them is left, whether the program
/// ends, is stopped or is killed.
pub fn cgroups_are_made_and_removed(_: &Inside<'_>) -> Result<String, String> {
    let before = all()?;
    let nothing_is_left = |after: &str| {
        let now = all()?;
        ensure(now == before, || {
            format!("after {after}: {now:?}, not {before:?}")
        })
    };
    let arguments = |duration| job(&[LOAD, &workload(duration)]);

    let program = arguments("100s").command;
    let mut child = Command::new(&program[0])
        .args(&program[1..])
        .spawn()
        .map_err(|error| error.to_string())?;
    let tree = Path::new(TOP).join(format!("schedlab-{}", child.id()));
    let found = look(&tree);
    let _ = child.kill();
    let _ = child.wait();
    let found = found?;
    // The process that removes them has lost its parent.
    let is_gone = within(Duration::from_secs(20), || {
        all().is_ok_and(|now| now == before)
    });
    ensure(is_gone, || "cgroups stay after SIGKILL".to_owned())?;

    let own = Scheduler::plain(Scheduler::KERNELS_OWN);
    for (duration, exit) in [("300ms", Exit::Done), ("100s", Exit::Timeout)] {
        let mut job = arguments(duration);
        job.timeout = Duration::from_secs(match exit {
            Exit::Done => 60,
            _ => 3,
        });
        let outcome = text(run::run(&own, &job))?;
        ensure(outcome.exit == exit, || {
            format!("{duration}: {} {:?}", outcome.exit, outcome.message)
        })?;
        nothing_is_left(&format!("a run of {duration}"))?;
    }
    Ok(found)
}

/// Looks at the cgroups of a workload that runs.
fn look(tree: &Path) -> Result<String, String> {
    let cgroups = ["a", "b", "c/x"].map(|cgroup| tree.join(cgroup));
    let have = || cgroups.each_ref().map(|cgroup| threads(cgroup).len());
    let are_there = within(Duration::from_secs(30), || have() == [2, 6, 1]);
    ensure(are_there, || format!("threads in cgroups: {:?}", have()))?;
    for thread in threads(&cgroups[2]) {
        let own = fs::read_to_string(format!("/proc/{thread}/cgroup")).unwrap_or_default();
        ensure(own.trim_end().ends_with("/c/x"), || {
            format!("{thread} is in {own}")
        })?;
    }
    let usages = || -> Result<Vec<f64>, String> { cgroups.iter().map(|c| usage_us(c)).collect() };
    let (start, before) = (Instant::now(), usages()?);
    thread::sleep(Duration::from_secs(3));
    let (time_us, after) = (start.elapsed().as_secs_f64() * 1e6, usages()?);
    let used: Vec<f64> = after
        .iter()
        .zip(&before)
        .map(|(after, before)| after - before)
        .collect();
    let share = used[0] / (used[0] + used[1]);
    // An emulated machine's ticks come late. Without weights, the share is a quarter, or a half by cgroups.
    ensure((0.68..0.82).contains(&share), || {
        format!("share of a: {share:.3}")
    })?;
    let limited = used[2] / time_us;
    ensure((0.03..0.15).contains(&limited), || {
        format!("CPUs of c/x: {limited:.3}")
    })?;
    Ok(format!("share {share:.3}, limited {limited:.3}"))
}
