//! Profiles of other machines, from the files that those write.

use std::fs;
use std::path::Path;

use schedlab_calibrate::Report;
use schedlab_calibrate::from::from;
use schedlab_machine::{Machine, SourceKind};

/// The profile of a file with this content.
fn of(name: &str, content: &str) -> Result<Report, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    from(&path).map_err(|error| error.to_string())
}

/// Written and read again it is the same.
#[track_caller]
fn machine(report: &Report) -> Machine {
    let again = Machine::from_toml("again", &report.to_toml());
    let again = again.unwrap_or_else(|error| panic!("{error}\n{}", report.to_toml()));
    assert_eq!(again.topology, report.machine.topology);
    assert_eq!(again.core_kinds, report.machine.core_kinds);
    again
}

/// Every number comes from the machine or the kernel's source, or is copied and marked.
#[track_caller]
fn says_where_all_is_from(machine: &Machine, base: &str) {
    for known in machine.provenance() {
        let is_told = known.source.starts_with("measured: told by ");
        let is_copied = known.kind == SourceKind::Copied
            && known.source.starts_with(&format!("copied: from {base} ("));
        assert!(
            is_told || is_copied || known.kind == SourceKind::Kernel,
            "{}: {}",
            known.field,
            known.source
        );
    }
    let copied = |field: &str| {
        let known = machine.provenance().iter().find(|one| one.field == field);
        known.unwrap().kind == SourceKind::Copied
    };
    assert!(copied("paths.switch_ns") && copied("interference.refill_llc_ns_per_kb"));
}

const LSCPU: &str = "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n\
     0,0,0,0,,0,0,0,0\n1,1,0,0,,1,1,1,0\n2,2,0,0,,2,2,2,0\n3,3,0,0,,3,3,3,0\n\
     4,0,0,0,,0,0,0,0\n5,1,0,0,,1,1,1,0\n6,2,0,0,,2,2,2,0\n7,3,0,0,,3,3,3,0\n";

#[test]
fn lscpu_tells_the_topology_and_the_rest_is_copied() {
    let report = of("My Box.csv", LSCPU).unwrap();
    let machine = machine(&report);
    assert_eq!(machine.name, "my-box");
    assert_eq!(machine.topology.regular().unwrap().0, [1, 1, 4, 2]);
    says_where_all_is_from(&machine, "laptop");
    let laptop = Machine::builtin("laptop").unwrap();
    assert_eq!(machine.paths, laptop.paths);
    assert_eq!(machine.memory.cache_bytes, laptop.memory.cache_bytes);
    let notes = report.notes.join("\n");
    assert!(
        notes.contains("copied from the profile laptop: of the profiles"),
        "{notes}"
    );
}

/// The nearest profile has a background.
#[test]
fn the_daemons_of_another_machine_are_not_copied() {
    let mut list = "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n".to_owned();
    for cpu in 0..24 {
        let core = cpu % 12;
        let socket = core / 6;
        list += &format!("{cpu},{core},{socket},{socket},,{core},{core},{core},{socket}\n");
    }
    let report = of("x.csv", &list).unwrap();
    let machine = machine(&report);
    says_where_all_is_from(&machine, "xeon-e5645-2x6x2");
    let nearest = Machine::builtin("xeon-e5645-2x6x2").unwrap();
    assert_eq!(machine.paths, nearest.paths);
    assert!(!nearest.background.is_empty() && machine.background.is_empty());
}

/// Two kinds of core below two caches; the machine numbers its CPUs 0, 1, 4 and 5, its nodes 0 and 2.
#[test]
fn lstopo_tells_sizes_kinds_and_distances() {
    let pu = |number: usize| format!("<object type=\"PU\" os_index=\"{number}\"/>");
    let core = |pus: &[usize], kb: usize| {
        let pus: String = pus.iter().map(|&number| pu(number)).collect();
        format!(
            "<object type=\"L2Cache\" cache_size=\"{}\" cache_linesize=\"64\" cache_associativity=\"8\" cache_type=\"0\">\
             <object type=\"Core\">{pus}</object></object>\n",
            kb << 10
        )
    };
    let text = format!(
        "<topology>\n<object type=\"Machine\"><object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x33\" local_memory=\"1\"/>\n\
         <object type=\"NUMANode\" os_index=\"2\" local_memory=\"1\"/>\n\
         <object type=\"L3Cache\" cache_size=\"16777216\" cache_type=\"0\">{}</object>\n\
         <object type=\"L3Cache\" cache_size=\"4194304\" cache_type=\"0\">{}{}</object></object>\n\
         <distances2 type=\"NUMANode\" indexing=\"os\"><indexes>0 2</indexes><u64values>10 17 17 10</u64values></distances2>\n\
         <cpukind cpuset=\"0x3\"><info name=\"LinuxCapacity\" value=\"1000\"/></cpukind>\n\
         <cpukind cpuset=\"0x30\"><info name=\"LinuxCapacity\" value=\"500\"/></cpukind>\n</topology>\n",
        core(&[0, 1], 1_024),
        core(&[4], 512),
        core(&[5], 512)
    );
    let report = of("hybrid.xml", &text).unwrap();
    let machine = machine(&report);
    let triples = [[0, 0, 0], [0, 0, 0], [1, 1, 0], [2, 1, 0]];
    assert_eq!(machine.topology.triples(), triples);
    assert_eq!(machine.topology.llc_bytes(0), Some(16 << 20));
    assert_eq!(machine.topology.llc_bytes(1), Some(4 << 20));
    assert_eq!(machine.topology.nr_nodes(), 2);
    assert_eq!(machine.topology.distance(0, 1), 17);
    let traits = machine.core_traits();
    let of: Vec<_> = traits
        .iter()
        .map(|one| (one.capacity, one.cache_bytes))
        .collect();
    assert_eq!(
        of,
        [
            (1_024, 1 << 20),
            (1_024, 1 << 20),
            (512, 512 << 10),
            (512, 512 << 10)
        ]
    );
    assert_eq!(machine.memory.cache_bytes, 1 << 20);
    says_where_all_is_from(&machine, "hybrid-laptop");
    let notes = report.notes.join("\n");
    assert!(notes.contains("CPU 4 there is CPU 2 here"), "{notes}");
    assert!(notes.contains("nodes 0, 2 are 0 to 1 here"), "{notes}");
    // The copied profile has no hardware threads.
    assert!(
        notes.contains("smt_share_pct is that of a machine without"),
        "{notes}"
    );
}

/// A copy of sysfs: two nodes of a core of two threads and a cache each, the second one without memory.
fn sysfs(folder: &Path) {
    let put = |path: String, text: &str| {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("cpu/online".to_owned(), "0-3\n");
    put("node/online".to_owned(), "0-1\n");
    for node in 0..2 {
        let cpus = ["0-1\n", "2-3\n"][node];
        put(format!("node/node{node}/cpulist"), cpus);
        put(
            format!("node/node{node}/distance"),
            ["10 32\n", "32 10\n"][node],
        );
        let memory = format!("Node {node} MemTotal:       {} kB\n", [65_536, 0][node]);
        put(format!("node/node{node}/meminfo"), &memory);
        for cpu in 2 * node..2 * node + 2 {
            let cpu = format!("cpu/cpu{cpu}");
            put(format!("{cpu}/topology/thread_siblings_list"), cpus);
            put(format!("{cpu}/cpu_capacity"), ["1024\n", "512\n"][node]);
            for (index, level, size) in [(0, 1, "32K"), (2, 2, "1024K"), (3, 3, "8192K")] {
                let cache = format!("{cpu}/cache/index{index}");
                put(format!("{cache}/level"), &level.to_string());
                put(format!("{cache}/type"), "Unified");
                put(format!("{cache}/size"), size);
                put(format!("{cache}/ways_of_associativity"), "16");
                put(format!("{cache}/coherency_line_size"), "128");
                put(format!("{cache}/shared_cpu_list"), cpus);
            }
        }
    }
}

#[test]
fn a_copy_of_sysfs_will_do_wherever_it_lies_in_the_folder() {
    for place in ["", "sys/devices/system"] {
        let folder = tempfile::tempdir().unwrap();
        sysfs(&folder.path().join(place));
        let report = from(folder.path()).unwrap_or_else(|error| panic!("{error}"));
        let machine = machine(&report);
        let (shape, numbering) = machine.topology.regular().unwrap();
        assert_eq!(shape, [2, 1, 1, 2]);
        assert_eq!(numbering, schedlab_machine::Numbering::CoreByCore);
        assert_eq!(machine.topology.distance(1, 0), 32);
        assert_eq!(machine.topology.memory_of(1), 0);
        assert_eq!(machine.topology.llc_bytes(1), Some(8 << 20));
        let memory = &machine.memory;
        assert_eq!(
            (memory.cache_bytes, memory.ways, memory.line_bytes),
            (1 << 20, 16, 128)
        );
        let capacities: Vec<u32> = machine
            .core_traits()
            .iter()
            .map(|one| one.capacity)
            .collect();
        assert_eq!(capacities, [1_024, 1_024, 512, 512]);
    }
}

#[test]
fn what_is_wrong_in_a_copy_is_told_with_its_file() {
    for (file, text, what) in [
        ("cpu/online", Some(""), "cpu/online: names no CPU"),
        (
            "cpu/online",
            Some("all\n"),
            "cpu/online:1: `all` is not a CPU list",
        ),
        (
            "cpu/cpu2/topology/thread_siblings_list",
            None,
            "cpu/cpu2/topology/thread_siblings_list: is not there",
        ),
        (
            "cpu/cpu1/cache/index3/shared_cpu_list",
            None,
            "cpu/cpu1/cache/index3/shared_cpu_list: is not there",
        ),
        (
            "cpu/cpu0/cache/index2/size",
            Some("big"),
            "cpu/cpu0/cache/index2/size:1: `big` is not a number",
        ),
        (
            "cpu/cpu3/cpu_capacity",
            Some("-3"),
            "cpu/cpu3/cpu_capacity:1: `-3` is not a number",
        ),
        (
            "node/node1/distance",
            Some("10\n"),
            "node/node1/distance:1: 1 distances where 2 nodes",
        ),
        (
            "node/node0/meminfo",
            Some("x\nNode 0 MemTotal: lots\n"),
            "node/node0/meminfo:2: `lots` is not a number",
        ),
        (
            "node/node0/distance",
            Some("10 9\n"),
            "topology.distances: 9 from node 0 to node 1",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        sysfs(folder.path());
        let path = folder.path().join(file);
        match text {
            Some(text) => fs::write(path, text).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
        let error = from(folder.path()).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn what_is_nothing_of_that_is_refused_in_one_line() {
    for (content, what) in [
        ("", "x: is empty: give lstopo's XML"),
        (" \n", "x: is empty"),
        ("{\"json\": true}\n", "x:1: no line names the columns"),
        ("<html>\n<p>\n</html>", "x:3: no XML, or cut short"),
        ("<html/>", "x:1: the outermost element is <html>"),
    ] {
        let error = of("x", content).unwrap_err();
        assert!(error.contains(what), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let error = from(folder.path()).unwrap_err().to_string();
    assert!(error.contains("has neither cpu/online nor"), "{error}");
    let path = folder.path().join("bytes");
    fs::write(&path, [0xff, 0xfe, 0]).unwrap();
    let error = from(&path).unwrap_err().to_string();
    assert!(error.contains("is no text"), "{error}");
    let error = from(&folder.path().join("gone")).unwrap_err().to_string();
    assert!(error.contains("gone: No such file"), "{error}");
}
