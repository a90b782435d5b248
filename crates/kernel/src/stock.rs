//! Says whether the running kernel schedules as an ordinary one does: boot parameters, sysctls, scheduler features and
//! control groups that change what a comparison with a simulation means.
//!
//! Sources: Documentation/admin-guide/kernel-parameters.txt, Documentation/admin-guide/sysctl/kernel.rst,
//! kernel/sched/features.h, `get_update_sysctl_factor()` and `sysctl_sched_base_slice` in kernel/sched/fair.c.

use std::fs;
use std::path::Path;

/// Which comparisons a finding spoils.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Spoils {
    /// None: the reader should know of it.
    Nothing,
    /// Those where tasks may choose among CPUs.
    Placement,
    /// All.
    Everything,
}

/// One thing that is not as in an ordinary kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The finding and its place.
    pub text: String,
    /// The comparisons that it spoils.
    pub spoils: Spoils,
}

/// Boot parameters of stock kernels that change where tasks may run.
const OF_PLACEMENT: [&str; 4] = [
    "isolcpus",
    "nohz_full",
    "relax_domain_level",
    "cpuset_v1_noprefix",
];
/// Those that change how long the paths of the scheduler take.
const OF_COSTS: [&str; 7] = [
    "idle",
    "preempt",
    "threadirqs",
    "nohlt",
    "mitigations",
    "skew_tick",
    "cpuidle.off",
];
/// Those whose names begin like the scheduler's and that stock kernels know, and that change no decision.
const HARMLESS: [&str; 2] = ["sched_verbose", "sched_thermal_decay_shift"];
/// Features that are on in all kernels with EEVDF (6.6 and later).
const FEATURES: [&str; 5] = [
    "PLACE_LAG",
    "RUN_TO_PARITY",
    "WAKEUP_PREEMPTION",
    "TTWU_QUEUE",
    "SIS_UTIL",
];
/// The base slice of kernels with EEVDF, ns, before it is scaled: since Linux 6.15, and before.
const BASE_SLICES_NS: [u64; 2] = [700_000, 750_000];

/// Examines the running kernel, whose files lie under `root` (`/`). Files that cannot be read say nothing.
pub fn examine(root: &Path) -> Vec<Finding> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let mut found = Vec::new();
    for word in read("proc/cmdline").split_whitespace() {
        // The rest is for the first process.
        if word == "--" {
            break;
        }
        found.extend(parameter(word));
    }
    features(&read("sys/kernel/debug/sched/features"), &mut found);
    let online = read("sys/devices/system/cpu/online");
    slice(
        &read("sys/kernel/debug/sched/base_slice_ns"),
        cpus(&online),
        &mut found,
    );
    if let Ok(us) = read("proc/sys/kernel/sched_rt_runtime_us")
        .trim()
        .parse::<i64>()
        && us != 950_000
    {
        found.push(Finding {
            text: format!(
                "kernel.sched_rt_runtime_us is {us}, not 950000: real-time tasks have another share"
            ),
            spoils: Spoils::Nothing,
        });
    }
    found.extend(quota(root, &read("proc/self/cgroup")));
    found
}

fn parameter(word: &str) -> Option<Finding> {
    let name = word.split('=').next().unwrap_or(word);
    let finding = |text: String, spoils| Some(Finding { text, spoils });
    if OF_PLACEMENT.contains(&name) {
        return finding(
            format!("the kernel was started with `{word}`, which changes where tasks may run"),
            Spoils::Placement,
        );
    }
    if OF_COSTS.contains(&name) {
        return finding(
            format!(
                "the kernel was started with `{word}`, which changes what its paths cost: the profile must be of this start"
            ),
            Spoils::Nothing,
        );
    }
    if name.starts_with("sched_") && !HARMLESS.contains(&name) {
        return finding(
            format!(
                "the kernel was started with `{word}`, which stock kernels do not know: its placement of tasks is its own"
            ),
            Spoils::Placement,
        );
    }
    None
}

fn features(text: &str, found: &mut Vec<Finding>) {
    for word in text.split_whitespace() {
        if let Some(name) = word
            .strip_prefix("NO_")
            .filter(|name| FEATURES.contains(name))
        {
            found.push(Finding {
                text: format!(
                    "the scheduler feature {name} is off (/sys/kernel/debug/sched/features)"
                ),
                spoils: Spoils::Everything,
            });
        }
    }
}

/// `1 + ilog2(min(cpus, 8))` times the base slice, with the default scaling.
fn slice(text: &str, cpus: u32, found: &mut Vec<Finding>) {
    let Ok(ns) = text.trim().parse::<u64>() else {
        return;
    };
    let factor = u64::from(1 + cpus.clamp(1, 8).ilog2());
    if BASE_SLICES_NS.iter().all(|base| base * factor != ns) {
        found.push(Finding {
            text: format!(
                "base_slice_ns is {ns}, not {} (or {} before Linux 6.15)",
                BASE_SLICES_NS[0] * factor,
                BASE_SLICES_NS[1] * factor
            ),
            spoils: Spoils::Everything,
        });
    }
}

/// The number of CPUs in a list like `0-3,8`; 1 where it is none.
fn cpus(list: &str) -> u32 {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        Some(last.checked_sub(first)? + 1)
    };
    list.trim().split(',').filter_map(range).sum::<u32>().max(1)
}

/// A bandwidth limit of this process's control group or one above it (`cpu.max`, cgroup v2).
fn quota(root: &Path, cgroup: &str) -> Option<Finding> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let base = root.join("sys/fs/cgroup");
    let own = base.join(path);
    let limited = own
        .ancestors()
        .take_while(|folder| folder.starts_with(&base))
        .find_map(|folder| {
            let text = fs::read_to_string(folder.join("cpu.max")).ok()?;
            (!text.starts_with("max")).then(|| (folder.to_owned(), text.trim().to_owned()))
        })?;
    let (folder, limit) = limited;
    let folder = folder
        .strip_prefix(root)
        .unwrap_or(&folder)
        .display()
        .to_string();
    Some(Finding {
        text: format!(
            "cpu.max of /{} is `{limit}`: tasks are throttled",
            folder.trim_start_matches('/')
        ),
        spoils: Spoils::Everything,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn spoiled(files: &[(&str, &str)]) -> Vec<Spoils> {
        let host = host(files);
        examine(host.path())
            .into_iter()
            .map(|finding| finding.spoils)
            .collect()
    }

    #[test]
    fn an_ordinary_kernel_spoils_nothing() {
        let files = [
            (
                "proc/cmdline",
                "BOOT_IMAGE=/vmlinuz ro quiet -- sched_x=1 isolcpus=1",
            ),
            ("proc/sys/kernel/sched_rt_runtime_us", "950000\n"),
            ("sys/devices/system/cpu/online", "0-1\n"),
            ("sys/kernel/debug/sched/base_slice_ns", "1400000\n"),
            (
                "sys/kernel/debug/sched/features",
                "PLACE_LAG RUN_TO_PARITY NO_HRTICK NO_NEXT_BUDDY\n",
            ),
            ("proc/self/cgroup", "0::/user.slice\n"),
            ("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n"),
        ];
        assert_eq!(spoiled(&files), []);
        assert_eq!(spoiled(&[]), []);
    }

    #[test]
    fn each_source_is_read() {
        use Spoils::{Everything, Nothing, Placement};
        for (path, text, spoils) in [
            ("proc/cmdline", "quiet isolcpus=2-3", Placement),
            ("proc/cmdline", "sched_pack=15", Placement),
            ("proc/cmdline", "preempt=full", Nothing),
            ("proc/sys/kernel/sched_rt_runtime_us", "-1", Nothing),
            (
                "sys/kernel/debug/sched/base_slice_ns",
                "3000000",
                Everything,
            ),
            (
                "sys/kernel/debug/sched/features",
                "NO_WAKEUP_PREEMPTION",
                Everything,
            ),
        ] {
            assert_eq!(spoiled(&[(path, text)]), [spoils], "{path}: {text}");
        }
        let group = [
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/cpu.max", "50000 100000\n"),
        ];
        let host = host(&group);
        let found = examine(host.path());
        assert_eq!(found.len(), 1);
        assert!(
            found[0].text.contains("/sys/fs/cgroup/a is `50000 100000`"),
            "{}",
            found[0].text
        );
    }

    #[test]
    fn the_slice_grows_with_the_cpus() {
        // By hand: 8 CPUs have the factor 1 + 3, 64 the same.
        for (online, ns) in [
            ("0", 700_000),
            ("0-1", 1_400_000),
            ("0-3", 2_100_000),
            ("0-63", 2_800_000),
            ("0-2,5", 2_250_000),
        ] {
            let ns = ns.to_string();
            let files = [
                ("sys/devices/system/cpu/online", online),
                ("sys/kernel/debug/sched/base_slice_ns", &ns),
            ];
            assert_eq!(spoiled(&files), [], "{online} {ns}");
        }
    }
}
