//! The files of the virtual kernel: a folder with what a loader looks at in `/sys`, `/proc`, `/boot` and `/run/scx`, made from the
//! simulated machine. A loader's own files below `/run/scx` land there, too, and go with it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use schedlab_bpf::btf::{Btf, Kind};
use schedlab_machine::Machine;
use schedlab_trace::{CpuId, CpuSet};

/// Facts that a loader finds out about the kernel and its machine.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    pub machine: &'a Machine,
    /// `uname -r`.
    pub release: &'a str,
    /// Variables of the kernel's configuration with their values, as its file has them.
    pub config: &'a [(String, String)],
    /// Its types.
    pub types: &'a Btf,
}

/// Folders whose contents are the virtual kernel's alone.
const OURS: [&str; 4] = ["/sys", "/boot", "/run/scx", "/lib/modules"];

/// Folders in which a loader may make and remove files.
const OPEN: [&str; 3] = ["/run/scx", "/sys/fs/bpf", "/sys/fs/cgroup"];

/// Whether a loader may make or remove a file of the virtual kernel.
pub fn may_change(path: &Path) -> bool {
    let path = without_var(path);
    OPEN.iter().any(|folder| path.starts_with(folder))
}

/// `/var/run` is `/run`.
fn without_var(path: &Path) -> PathBuf {
    match path.strip_prefix("/var/run") {
        Ok(rest) => Path::new("/run").join(rest),
        Err(_) => path.to_owned(),
    }
}

/// Files of `/proc` that are; most others are about the process itself.
const OF_PROC: [&str; 11] = [
    "/proc/cpuinfo",
    "/proc/stat",
    "/proc/schedstat",
    "/proc/kallsyms",
    "/proc/modules",
    "/proc/mounts",
    "/proc/self/mounts",
    "/proc/version",
    "/proc/version_signature",
    "/proc/config.gz",
    "/proc/loadavg",
];

/// The folder.
pub struct Tree {
    folder: PathBuf,
}

impl Tree {
    /// Writes all files.
    ///
    /// # Errors
    /// If the folder takes none.
    pub fn new(facts: &Facts<'_>, folder: &Path) -> io::Result<Tree> {
        let tree = Tree {
            folder: folder.canonicalize()?,
        };
        let mut writer = Writer {
            root: &tree.folder,
            result: Ok(()),
        };
        writer.kernel(facts);
        writer.cpus(facts.machine);
        writer.nodes(facts.machine);
        writer.proc(facts);
        writer.result?;
        Ok(tree)
    }

    /// Where a path of the virtual kernel lies; `None`: it is one of the host.
    pub fn place(&self, path: &Path) -> Option<PathBuf> {
        let path = without_var(path);
        let is_ours = OURS.iter().any(|folder| path.starts_with(folder))
            || OF_PROC.iter().any(|file| path == Path::new(file));
        let below = path.strip_prefix("/").ok()?;
        is_ours.then(|| self.folder.join(below))
    }

    /// The path of the virtual kernel that leads to a path of the host in the folder.
    pub fn virtual_path(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(&self.folder).ok()?;
        Some(Path::new("/").join(below))
    }

    /// Whether a path of the host is in the folder.
    pub fn has(&self, path: &Path) -> bool {
        path.starts_with(&self.folder)
    }
}

/// A path without `.` and `..`, by its text alone.
pub fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => {
                normal.pop();
            }
            _ => {}
        }
    }
    normal
}

/// Writes files and keeps the first error.
struct Writer<'t> {
    root: &'t Path,
    result: io::Result<()>,
}

/// Numbers as a list: `0-3,8`.
fn list(cpus: &CpuSet) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus.iter() {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu.0 => *last = cpu.0,
            _ => ranges.push((cpu.0, cpu.0)),
        }
    }
    let range = |&(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

/// Numbers as words of 32 bits, the highest first.
fn mask(cpus: &CpuSet, nr_cpus: usize) -> String {
    let mut words = vec![0u32; nr_cpus.div_ceil(32).max(1)];
    for cpu in cpus.iter() {
        words[cpu.index() / 32] |= 1 << (cpu.0 % 32);
    }
    let words: Vec<String> = words
        .iter()
        .rev()
        .map(|word| format!("{word:08x}"))
        .collect();
    words.join(",")
}

impl Writer<'_> {
    fn put(&mut self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.root.join(path);
        let folder = path.parent().expect("a file is in a folder");
        let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, text));
        if self.result.is_ok() {
            self.result = written;
        }
    }

    fn line(&mut self, path: &str, text: impl std::fmt::Display) {
        self.put(path, format!("{text}\n"));
    }

    fn folder(&mut self, path: &str) {
        let made = fs::create_dir_all(self.root.join(path));
        if self.result.is_ok() {
            self.result = made;
        }
    }

    fn link(&mut self, path: &str, to: &str) {
        let made = std::os::unix::fs::symlink(to, self.root.join(path));
        if self.result.is_ok() {
            self.result = made;
        }
    }

    fn kernel(&mut self, facts: &Facts<'_>) {
        self.put("sys/kernel/btf/vmlinux", facts.types.to_bytes());
        for (file, value) in [
            ("state", "disabled"),
            ("switch_all", "0"),
            ("nr_rejected", "0"),
            ("hotplug_seq", "0"),
            ("enable_seq", "0"),
        ] {
            self.line(&format!("sys/kernel/sched_ext/{file}"), value);
        }
        for file in [
            "available_events",
            "available_tracers",
            "available_filter_functions",
        ] {
            self.put(&format!("sys/kernel/tracing/{file}"), "");
        }
        for folder in [
            "sys/fs/bpf",
            "sys/fs/cgroup",
            "sys/kernel/debug",
            "run/scx",
            "boot",
            "lib/modules",
        ] {
            self.folder(folder);
        }
        let mut config = String::new();
        for (name, value) in facts.config {
            let _ = writeln!(config, "{name}={value}");
        }
        self.put(&format!("boot/config-{}", facts.release), config);
    }

    fn cpus(&mut self, machine: &Machine) {
        let topology = &machine.topology;
        let nr_cpus = topology.nr_cpus();
        let all = CpuSet::all(nr_cpus);
        let cpus = list(&all);
        let folder = "sys/devices/system/cpu";
        for file in ["online", "possible", "present"] {
            self.line(&format!("{folder}/{file}"), &cpus);
        }
        for file in ["offline", "isolated"] {
            self.line(&format!("{folder}/{file}"), "");
        }
        self.line(&format!("{folder}/kernel_max"), nr_cpus - 1);
        let has_threads = all.iter().any(|cpu| topology.smt(cpu).len() > 1);
        self.line(&format!("{folder}/smt/active"), u8::from(has_threads));
        let control = if has_threads { "on" } else { "notsupported" };
        self.line(&format!("{folder}/smt/control"), control);
        let traits = machine.core_traits();
        let differ = traits.iter().any(|one| one.capacity != traits[0].capacity);
        for cpu in all.iter() {
            let at = topology.cpu(cpu);
            let folder = format!("{folder}/cpu{}", cpu.0);
            let (smt, llc, node) = (topology.smt(cpu), topology.llc(cpu), topology.node(cpu));
            for (file, number) in [
                ("core_id", at.core),
                ("physical_package_id", at.node),
                ("die_id", 0),
                ("cluster_id", at.core),
            ] {
                self.line(&format!("{folder}/topology/{file}"), number);
            }
            for (file, cpus) in [
                ("thread_siblings", &smt),
                ("core_cpus", &smt),
                ("cluster_cpus", &smt),
                ("core_siblings", &node),
                ("package_cpus", &node),
                ("die_cpus", &node),
            ] {
                self.line(&format!("{folder}/topology/{file}"), mask(cpus, nr_cpus));
                self.line(&format!("{folder}/topology/{file}_list"), list(cpus));
            }
            if cpu.0 > 0 {
                self.line(&format!("{folder}/online"), 1);
            }
            if differ {
                self.line(
                    &format!("{folder}/cpu_capacity"),
                    traits[cpu.index()].capacity,
                );
            }
            let llc_kib = topology.llc_bytes(at.llc).unwrap_or(32 << 20) >> 10;
            let own_kib = machine.memory.cache_bytes >> 10;
            for (index, level, id, kib, kind, cpus) in [
                (0, 1, at.core, 32, "Data", &smt),
                (1, 1, at.core, 32, "Instruction", &smt),
                (2, 2, at.core, own_kib, "Unified", &smt),
                (3, 3, at.llc, llc_kib, "Unified", &llc),
            ] {
                let folder = format!("{folder}/cache/index{index}");
                self.line(&format!("{folder}/level"), level);
                self.line(&format!("{folder}/id"), id);
                self.line(&format!("{folder}/size"), format!("{kib}K"));
                self.line(&format!("{folder}/type"), kind);
                self.line(
                    &format!("{folder}/coherency_line_size"),
                    machine.memory.line_bytes,
                );
                self.line(&format!("{folder}/shared_cpu_list"), list(cpus));
                self.line(&format!("{folder}/shared_cpu_map"), mask(cpus, nr_cpus));
            }
        }
    }

    fn nodes(&mut self, machine: &Machine) {
        let topology = &machine.topology;
        let nr_cpus = topology.nr_cpus();
        let nr_nodes = topology.nr_nodes();
        let folder = "sys/devices/system/node";
        let range = match nr_nodes {
            1 => "0".to_owned(),
            nr => format!("0-{}", nr - 1),
        };
        for file in [
            "online",
            "possible",
            "has_cpu",
            "has_memory",
            "has_normal_memory",
        ] {
            self.line(&format!("{folder}/{file}"), &range);
        }
        for node in 0..nr_nodes {
            let folder = format!("{folder}/node{node}");
            let mut cpus = CpuSet::empty(nr_cpus);
            for cpu in 0..nr_cpus as u32 {
                if topology.cpu(CpuId(cpu)).node == node {
                    cpus.insert(CpuId(cpu));
                }
            }
            self.line(&format!("{folder}/cpulist"), list(&cpus));
            self.line(&format!("{folder}/cpumap"), mask(&cpus, nr_cpus));
            let distances = (0..nr_nodes).map(|other| topology.distance(node, other).to_string());
            self.line(
                &format!("{folder}/distance"),
                distances.collect::<Vec<_>>().join(" "),
            );
            for cpu in cpus.iter() {
                self.link(
                    &format!("{folder}/cpu{}", cpu.0),
                    &format!("../../cpu/cpu{}", cpu.0),
                );
            }
        }
    }

    fn proc(&mut self, facts: &Facts<'_>) {
        let machine = facts.machine;
        let mut cpuinfo = String::new();
        let mut stat = "cpu  0 0 0 0 0 0 0 0 0 0\n".to_owned();
        for cpu in 0..machine.topology.nr_cpus() {
            let at = machine.topology.cpu(CpuId(cpu as u32));
            let _ = writeln!(
                cpuinfo,
                "processor\t: {cpu}\nmodel name\t: {}\ncpu MHz\t\t: {}.000\nphysical id\t: {}\ncore id\t\t: {}\n",
                machine.name, machine.clock_mhz, at.node, at.core
            );
            let _ = writeln!(stat, "cpu{cpu} 0 0 0 0 0 0 0 0 0 0");
        }
        self.put("proc/cpuinfo", cpuinfo);
        self.put("proc/stat", stat);
        self.put("proc/loadavg", "0.00 0.00 0.00 1/1 1\n");
        self.put("proc/modules", "");
        self.line(
            "proc/version",
            format!("Linux version {} (schedlab)", facts.release),
        );
        let mounts = "sysfs /sys sysfs rw 0 0\nproc /proc proc rw 0 0\nbpf /sys/fs/bpf bpf rw 0 0\n\
             tracefs /sys/kernel/tracing tracefs rw 0 0\ndebugfs /sys/kernel/debug debugfs rw 0 0\n\
             cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        self.put("proc/mounts", mounts);
        self.put("proc/self/mounts", mounts);
        let mut symbols = BTreeMap::new();
        for id in 0..facts.types.len() as u32 {
            let it = facts.types.get(id);
            if let Kind::Func(_) = it.kind {
                symbols.insert(it.name.as_str(), 0xffff_ffff_8100_0000 + u64::from(id) * 16);
            }
        }
        let mut kallsyms = String::new();
        for (name, address) in symbols {
            let _ = writeln!(kallsyms, "{address:016x} T {name}");
        }
        self.put("proc/kallsyms", kallsyms);
    }
}
