//! Which CPUs of this machine share a core, a last-level cache, a node: from sysfs.

use std::fs;
use std::path::Path;

use schedlab_trace::CpuSet;

/// Where a CPU is. Equal numbers mean the same core, cache or node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place {
    pub core: u32,
    pub llc: u32,
    pub node: u32,
}

/// Number of possible CPUs, the length of per-CPU values.
pub fn possible_cpus() -> usize {
    libbpf_rs::num_possible_cpus().unwrap_or(1)
}

/// CPUs that are online.
pub fn online() -> Vec<u32> {
    let online = cpus(Path::new("/sys/devices/system/cpu/online")).unwrap_or_default();
    online.iter().map(|cpu| cpu.0).collect()
}

/// Returns the kernel's name for the first CPU; empty if it has none.
pub fn model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let model = lines.find(|(key, _)| key.trim() == "model name");
    model.map_or(String::new(), |(_, model)| model.trim().to_owned())
}

/// Returns the place of each possible CPU. A level that sysfs does not show counts as shared: one cache, one node.
pub fn places() -> Vec<Place> {
    (0..possible_cpus())
        .map(|cpu| {
            let dir = Path::new("/sys/devices/system/cpu").join(format!("cpu{cpu}"));
            Place {
                core: first_cpu(&dir.join("topology/thread_siblings_list")).unwrap_or(cpu as u32),
                llc: last_level(&dir).unwrap_or(0),
                node: node(&dir).unwrap_or(0),
            }
        })
        .collect()
}

/// Returns the first CPU that shares the highest cache level.
fn last_level(cpu: &Path) -> Option<u32> {
    let mut best: Option<(u32, u32)> = None;
    for index in fs::read_dir(cpu.join("cache")).ok()? {
        let index = index.ok()?.path();
        let Some(level) = fs::read_to_string(index.join("level"))
            .ok()
            .and_then(|l| l.trim().parse::<u32>().ok())
        else {
            continue;
        };
        let first = first_cpu(&index.join("shared_cpu_list"))?;
        if best.is_none_or(|(known, _)| level > known) {
            best = Some((level, first));
        }
    }
    best.map(|(_, first)| first)
}

fn node(cpu: &Path) -> Option<u32> {
    fs::read_dir(cpu).ok()?.find_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.strip_prefix("node")?.parse().ok()
    })
}

/// Returns a list of CPUs in a file of sysfs.
fn cpus(file: &Path) -> Option<CpuSet> {
    fs::read_to_string(file).ok()?.parse().ok()
}

fn first_cpu(file: &Path) -> Option<u32> {
    Some(cpus(file)?.first()?.0)
}
