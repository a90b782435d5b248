//! Reads the running kernel's description of its machine: topology, caches, timer, processor.
//!
//! Virtual machines hide files or fill them with nonsense. What is missing becomes a note, never a guess
//! that looks like a fact.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use schedlab_machine::Topology;
use schedlab_trace::{CpuId, CpuSet};

/// One cache level of CPU 0, as the kernel describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheLevel {
    /// 1, 2, 3 …
    pub level: u32,
    /// Size in bytes; 0 if unknown.
    pub bytes: u64,
    /// Associativity; 0 if unknown.
    pub ways: u32,
    /// Line in bytes; 0 if unknown.
    pub line_bytes: u32,
    /// How many CPUs share it.
    pub shared_by: Option<usize>,
}

/// The machine as far as the kernel describes it.
#[derive(Clone, Debug)]
pub struct Described {
    /// The kernel's numbers of the online CPUs; the profile numbers them from 0.
    pub cpus: Vec<usize>,
    /// Whether the kernel reported its CPUs and their places.
    pub cpus_known: bool,
    /// Whether it reported which of them are hardware threads of one core.
    pub threads_known: bool,
    /// Where they are.
    pub topology: Topology,
    /// Data and unified caches of the first CPU, from the core outwards.
    pub caches: Vec<CacheLevel>,
    /// Clock rate in MHz.
    pub clock_mhz: Option<u32>,
    /// Name of the processor.
    pub processor: Option<String>,
    /// `uname -r`, and its build string.
    pub kernel: Option<String>,
    /// Whether the kernel says it can be preempted in kernel mode; `None` if it leaves that to boot time.
    pub preemptible: Option<bool>,
    /// Missing or strange values.
    pub notes: Vec<String>,
}

impl Described {
    /// Hardware threads of the first CPU's core.
    pub fn threads(&self) -> usize {
        let triples = self.topology.triples();
        triples.iter().filter(|one| one[0] == triples[0][0]).count()
    }
}

/// Reads the description below `root` (`/` but in tests).
pub fn describe(root: &Path) -> Described {
    let mut notes = Vec::new();
    let read = |path: &str| {
        let text = fs::read_to_string(root.join(path)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let base = "sys/devices/system/cpu";
    let cpus = read(&format!("{base}/online")).and_then(|list| cpu_list(&list));
    let mut cpus_known = cpus.is_some();
    let cpus = cpus.unwrap_or_else(|| {
        notes.push(format!("/{base}/online is missing: one CPU is assumed"));
        vec![0]
    });
    let places = Places::read(root, &cpus, &mut notes);
    let topology = Topology::irregular(&places.triples(&cpus)).unwrap_or_else(|fault| {
        cpus_known = false;
        notes.push(format!(
            "the kernel's topology contradicts itself ({fault}): all CPUs are taken as cores of one cache"
        ));
        Topology::new(1, 1, cpus.len() as u32, 1)
    });
    let caches = caches(root, cpus[0]);
    if caches.is_empty() {
        notes.push(format!(
            "/{base}/cpu{}/cache describes no cache (virtual machines hide it): sizes stay a guess",
            cpus[0]
        ));
    }
    let load = read("proc/loadavg").and_then(|text| text.split('.').next()?.parse::<usize>().ok());
    if load.is_some_and(|load| load * 2 >= cpus.len() && load > 0) {
        notes.push(
            "other programs keep this machine busy (/proc/loadavg): repeat the calibration on an idle one"
                .to_owned(),
        );
    }
    let cpuinfo = read("proc/cpuinfo").unwrap_or_default();
    let info = |key: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let clock_mhz = info("cpu MHz").and_then(|mhz| mhz.split('.').next()?.parse().ok());
    if clock_mhz.is_none() {
        notes.push("/proc/cpuinfo reports no clock rate: it stays a guess".to_owned());
    }
    let version = read("proc/version").unwrap_or_default();
    let preemptible = if version.contains("PREEMPT_DYNAMIC") {
        notes.push(
            "the kernel's preemption mode is chosen at boot and not readable: it stays a guess"
                .to_owned(),
        );
        None
    } else {
        (!version.is_empty()).then(|| version.contains("PREEMPT"))
    };
    Described {
        topology,
        caches,
        clock_mhz: clock_mhz.filter(|&mhz| mhz > 0),
        processor: info("model name"),
        kernel: version.split(' ').nth(2).map(str::to_owned),
        preemptible,
        cpus,
        cpus_known,
        threads_known: places.threads_known && cpus_known,
        notes,
    }
}

/// Which CPUs share what, as lists in the kernel's notation.
struct Places {
    siblings: BTreeMap<usize, String>,
    llcs: BTreeMap<usize, String>,
    nodes: BTreeMap<usize, String>,
    threads_known: bool,
}

impl Places {
    fn read(root: &Path, cpus: &[usize], notes: &mut Vec<String>) -> Places {
        let mut places = Places {
            siblings: BTreeMap::new(),
            llcs: BTreeMap::new(),
            nodes: BTreeMap::new(),
            threads_known: true,
        };
        let mut no_llc = false;
        for &cpu in cpus {
            let folder = root.join(format!("sys/devices/system/cpu/cpu{cpu}"));
            let read = |path: PathBuf| {
                let text = fs::read_to_string(path).ok()?;
                Some(text.trim().to_owned()).filter(|text| !text.is_empty())
            };
            let siblings = read(folder.join("topology/thread_siblings_list"));
            places.threads_known &= siblings.is_some();
            let package = read(folder.join("topology/physical_package_id"));
            let package = format!("package {}", package.unwrap_or_default());
            let llc = indices(&folder.join("cache"))
                .into_iter()
                .filter_map(|index| {
                    let level: u32 = read(index.join("level"))?.parse().ok()?;
                    Some((level, read(index.join("shared_cpu_list"))?))
                })
                .max();
            no_llc |= llc.is_none();
            places
                .siblings
                .insert(cpu, siblings.unwrap_or_else(|| cpu.to_string()));
            places
                .llcs
                .insert(cpu, llc.map_or_else(|| package.clone(), |(_, list)| list));
            places.nodes.insert(cpu, package);
        }
        if !places.threads_known {
            notes.push(
                "the kernel reports no hardware threads: every CPU is taken as a core".to_owned(),
            );
        }
        if no_llc {
            notes.push(
                "the kernel reports no shared caches: the CPUs of a package are taken to share one"
                    .to_owned(),
            );
        }
        for (node, list) in nodes(root) {
            for cpu in list {
                places
                    .nodes
                    .entry(cpu)
                    .and_modify(|known| *known = node.clone());
            }
        }
        places
    }

    /// `[core, llc, node]` of each CPU, numbered in the order of first appearance. Where nodes cut a
    /// cache into parts (sub-NUMA clusters) each part counts as a cache.
    fn triples(&self, cpus: &[usize]) -> Vec<[u32; 3]> {
        let (mut cores, mut llcs, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
        cpus.iter()
            .map(|cpu| {
                let node = &self.nodes[cpu];
                let llc = (&self.llcs[cpu], node);
                let core = (&self.siblings[cpu], llc);
                [
                    number(&mut cores, core),
                    number(&mut llcs, llc),
                    number(&mut nodes, node),
                ]
            })
            .collect()
    }
}

/// Returns the place of `what` in the order of first appearance.
fn number<T: PartialEq>(seen: &mut Vec<T>, what: T) -> u32 {
    let place = seen.iter().position(|known| *known == what);
    place.unwrap_or_else(|| {
        seen.push(what);
        seen.len() - 1
    }) as u32
}

fn nodes(root: &Path) -> Vec<(String, Vec<usize>)> {
    let folder = root.join("sys/devices/system/node");
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut nodes: Vec<_> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            name.strip_prefix("node")?.parse::<u32>().ok()?;
            let list = fs::read_to_string(entry.path().join("cpulist")).ok()?;
            Some((name, cpu_list(list.trim())?))
        })
        .collect();
    nodes.sort();
    nodes
}

fn indices(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.join("level").exists())
        .collect();
    found.sort();
    found
}

fn caches(root: &Path, cpu: usize) -> Vec<CacheLevel> {
    let folder = root.join(format!("sys/devices/system/cpu/cpu{cpu}/cache"));
    let mut found: Vec<CacheLevel> = indices(&folder)
        .into_iter()
        .filter_map(|index| {
            let read = |name: &str| {
                let text = fs::read_to_string(index.join(name)).ok()?;
                Some(text.trim().to_owned())
            };
            let number = |name: &str| read(name)?.parse::<u32>().ok();
            if read("type")? == "Instruction" {
                return None;
            }
            Some(CacheLevel {
                level: number("level")?,
                bytes: read("size").and_then(|size| bytes(&size)).unwrap_or(0),
                ways: number("ways_of_associativity").unwrap_or(0),
                line_bytes: number("coherency_line_size").unwrap_or(0),
                shared_by: read("shared_cpu_list").and_then(|list| Some(cpu_list(&list)?.len())),
            })
        })
        .collect();
    found.sort_by_key(|cache| cache.level);
    found
}

/// Returns a size as sysfs writes it: `1024K`.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => return None,
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(unit).filter(|&bytes| bytes > 0)
}

/// Returns a list of CPUs as sysfs writes it: `0-3,8`.
fn cpu_list(text: &str) -> Option<Vec<usize>> {
    let cpus: CpuSet = text.parse().ok()?;
    Some(cpus.iter().map(CpuId::index).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a file tree like sysfs below a folder of its own.
    fn tree(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("schedlab-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn two_nodes_with_hardware_threads() {
        let cpu = |n: usize, file: &str| format!("sys/devices/system/cpu/cpu{n}/{file}");
        let mut files = vec![
            (
                "sys/devices/system/cpu/online".to_owned(),
                "0-3,6-7\n".to_owned(),
            ),
            (
                "sys/devices/system/node/node0/cpulist".to_owned(),
                "0-1,6".to_owned(),
            ),
            (
                "sys/devices/system/node/node1/cpulist".to_owned(),
                "2-3,7".to_owned(),
            ),
            (
                "proc/cpuinfo".to_owned(),
                "model name\t: Good CPU\ncpu MHz\t\t: 2596.1\n".to_owned(),
            ),
        ];
        for (n, siblings, llc) in [
            (0, "0,6", "0-1,6"),
            (1, "1", "0-1,6"),
            (2, "2,7", "2-3,7"),
            (3, "3", "2-3,7"),
            (6, "0,6", "0-1,6"),
            (7, "2,7", "2-3,7"),
        ] {
            for (file, text) in [
                ("topology/thread_siblings_list", siblings),
                ("cache/index0/level", "1"),
                ("cache/index0/type", "Instruction"),
                ("cache/index0/size", "32K"),
                ("cache/index0/shared_cpu_list", siblings),
                ("cache/index3/level", "3"),
                ("cache/index3/type", "Unified"),
                ("cache/index3/size", "32768K"),
                ("cache/index3/ways_of_associativity", "16"),
                ("cache/index3/coherency_line_size", "64"),
                ("cache/index3/shared_cpu_list", llc),
            ] {
                files.push((cpu(n, file), text.to_owned()));
            }
        }
        let files: Vec<_> = files
            .iter()
            .map(|(a, b)| (a.as_str(), b.as_str()))
            .collect();
        let root = tree("regular", &files);
        let found = describe(&root);
        fs::remove_dir_all(root).unwrap();
        assert_eq!(found.cpus, [0, 1, 2, 3, 6, 7]);
        let triples = [
            [0, 0, 0],
            [1, 0, 0],
            [2, 1, 1],
            [3, 1, 1],
            [0, 0, 0],
            [2, 1, 1],
        ];
        assert_eq!(found.topology.triples(), triples);
        assert_eq!(found.caches.len(), 1);
        assert_eq!(
            (found.caches[0].bytes, found.caches[0].ways),
            (32 << 20, 16)
        );
        assert_eq!(found.clock_mhz, Some(2_596));
        assert_eq!(found.processor.as_deref(), Some("Good CPU"));
        assert!(found.notes.is_empty(), "{:?}", found.notes);
    }

    #[test]
    fn what_is_missing_is_told() {
        let files = [
            ("sys/devices/system/cpu/online", "0-1"),
            ("proc/loadavg", "1.25 0.50 0.10 2/95 4711"),
        ];
        let root = tree("empty", &files);
        let found = describe(&root);
        fs::remove_dir_all(root).unwrap();
        assert_eq!(found.topology.nr_cpus(), 2);
        assert_eq!(found.topology.nr_llcs(), 1);
        for what in [
            "keep this machine busy",
            "no cache",
            "no clock rate",
            "no hardware threads",
            "no shared caches",
        ] {
            let told = found.notes.iter().any(|note| note.contains(what));
            assert!(told, "{what}: {:?}", found.notes);
        }
        let nothing = describe(Path::new("/no/such/folder"));
        assert_eq!(nothing.topology.nr_cpus(), 1);
    }

    #[test]
    fn lists_and_sizes() {
        assert_eq!(cpu_list("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(cpu_list(""), None);
        assert_eq!(bytes("1024K"), Some(1 << 20));
        assert_eq!(bytes("8M"), Some(8 << 20));
        assert_eq!(bytes("8Q"), None);
        assert_eq!(bytes("18014398509481984K"), None);
        assert_eq!(bytes("0K"), None);
    }
}
