//! Every policy's events on three machines are those that are kept in `golden/`: a changed order of events that no
//! measure shows is seen here.
//!
//! A change that is meant: `SCHEDLAB_BLESS=1 cargo test -p schedlab-sim --test golden` writes the new files. The commit
//! says why they differ.

#[path = "support/run.rs"]
mod virtual_kernel;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use schedlab_sim::{Scheduler, SimSpec, schedulers};
use schedlab_testing::skipped;
use serde::{Deserialize, Serialize};
use virtual_kernel::Bytes;

/// A server of 2001 with one run queue's worth of messages, siblings that compute beside sleepers, and two nodes.
const RUNS: [(&str, &str, usize); 3] = [
    ("chat:rooms=1,users=4,messages=5", "netfinity-8500r", 4),
    (
        "cpu:tasks=5,duration=40ms,nice=0/5/-5 + hackbench:groups=1,fds=2,loops=5",
        "laptop",
        4,
    ),
    ("reflex:rounds=5", "numa-8x64x2", 8),
];

/// Lines of a stream that share a checksum.
const BLOCK: usize = 256;

/// One run's stream, in short.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
struct Digest {
    workload: String,
    cpus: usize,
    /// When the run ended, in ns.
    ended_ns: u64,
    /// How often each kind of event occurs.
    counts: BTreeMap<String, usize>,
    /// A checksum (CRC-32) for every [`BLOCK`] lines of the stream.
    blocks: Vec<String>,
}

impl Digest {
    fn of(workload: &str, cpus: usize, stream: &str) -> Digest {
        let lines: Vec<&str> = stream.lines().collect();
        let mut counts = BTreeMap::new();
        for kind in lines.iter().filter_map(|line| kind(line)) {
            *counts.entry(kind.to_owned()).or_default() += 1;
        }
        let checksum = |lines: &[&str]| {
            let mut hasher = crc32fast::Hasher::new();
            for line in lines {
                hasher.update(line.as_bytes());
                hasher.update(b"\n");
            }
            format!("{:08x}", hasher.finalize())
        };
        Digest {
            workload: workload.to_owned(),
            cpus,
            ended_ns: lines.iter().rev().find_map(|line| time(line)).unwrap_or(0),
            counts,
            blocks: lines.chunks(BLOCK).map(checksum).collect(),
        }
    }

    /// Tells how `now`, the digest of `stream`, differs; `None`: not at all.
    fn difference(&self, now: &Digest, stream: &str) -> Option<String> {
        if self == now {
            return None;
        }
        let mut text = String::new();
        if (&self.workload, self.cpus) != (&now.workload, now.cpus) {
            return Some("the test's run is another one".to_owned());
        }
        let kinds: std::collections::BTreeSet<_> =
            self.counts.keys().chain(now.counts.keys()).collect();
        for kind in kinds {
            let count = |digest: &Digest| digest.counts.get(kind).copied().unwrap_or(0);
            if count(self) != count(now) {
                text += &format!("  {kind}: {}, was {}\n", count(now), count(self));
            }
        }
        if self.ended_ns != now.ended_ns {
            text += &format!("  end: {} ns, was {}\n", now.ended_ns, self.ended_ns);
        }
        let same = self.blocks.iter().zip(&now.blocks);
        let first = same.take_while(|(old, new)| old == new).count();
        let lines: Vec<&str> = stream.lines().skip(first * BLOCK).take(BLOCK).collect();
        let ns = |line: Option<&str>| line.map_or("the end".to_owned(), |ns| format!("{ns} ns"));
        let times: Vec<String> = lines
            .iter()
            .filter_map(|line| time(line))
            .map(|ns| ns.to_string())
            .collect();
        text += &format!(
            "  first difference: line {} to {} of the stream, {} to {}\n",
            first * BLOCK + 1,
            (first + 1) * BLOCK,
            ns(times.first().map(String::as_str)),
            ns(times.last().map(String::as_str)),
        );
        Some(text)
    }
}

/// Reads the time in ns of an event's line, `5146 0 Switch { … }`: time, CPU, event. Other lines define tasks and locks.
fn time(line: &str) -> Option<u64> {
    let mut words = line.split(' ');
    let ns = words.next()?.parse().ok()?;
    words.next()?.parse::<u32>().ok()?;
    Some(ns)
}

/// Reads the kind of an event from its line.
fn kind(line: &str) -> Option<&str> {
    time(line)?;
    line.split(' ').nth(2)?.split('(').next()
}

fn stream(scheduler: &str, workload: &str, machine: &str, cpus: usize) -> String {
    let spec = SimSpec {
        cpus: Some(cpus),
        seed: 3,
        check: true,
        ..SimSpec::new(workload, Scheduler::parse(scheduler), machine)
    };
    let mut events = Bytes::default();
    let result =
        schedlab_sim::run(&spec, Some(&mut events)).unwrap_or_else(|error| panic!("{error}"));
    assert!(
        result.is_done(),
        "{}: {:?}",
        spec.replay_command(),
        result.message
    );
    String::from_utf8(events.0).expect("events are text")
}

fn file(scheduler: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{scheduler}.toml"))
}

#[test]
fn every_policys_events_are_those_that_are_kept() {
    let is_blessing = std::env::var_os("SCHEDLAB_BLESS").is_some();
    let mut wrong = Vec::new();
    for scheduler in schedulers() {
        let name = &scheduler.name;
        let streams = RUNS.map(|(workload, machine, cpus)| stream(name, workload, machine, cpus));
        let now: BTreeMap<String, Digest> = RUNS
            .iter()
            .zip(&streams)
            .map(|((workload, machine, cpus), stream)| {
                ((*machine).to_owned(), Digest::of(workload, *cpus, stream))
            })
            .collect();
        let path = file(name);
        if is_blessing {
            let text = toml::to_string(&now).expect("a digest is a table");
            fs::write(&path, text).expect("a file of the repository");
            continue;
        }
        // A new scheduler is one new file, so this is no failure.
        let Ok(kept) = fs::read_to_string(&path) else {
            skipped(&format!(
                "events of {name}: none are kept to compare with (SCHEDLAB_BLESS=1 keeps them)"
            ));
            continue;
        };
        let kept: BTreeMap<String, Digest> =
            toml::from_str(&kept).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for ((_, machine, _), stream) in RUNS.iter().zip(&streams) {
            let difference = match kept.get(*machine) {
                Some(kept) => kept.difference(&now[*machine], stream),
                None => Some("  nothing is kept\n".to_owned()),
            };
            if let Some(difference) = difference {
                let whole = Path::new(env!("CARGO_TARGET_TMPDIR"))
                    .join(format!("golden-{name}-{machine}.txt"));
                fs::write(&whole, stream).expect("a file of the target folder");
                wrong.push(format!(
                    "{name} on {machine}:\n{difference}  whole stream: {}",
                    whole.display()
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\nWhere this is meant: SCHEDLAB_BLESS=1 cargo test -p schedlab-sim --test golden",
        wrong.join("\n")
    );
}

#[test]
fn a_changed_order_of_events_is_seen_and_placed() {
    let line = |ns: usize, what: &str| format!("{ns} 0 {what}\n");
    let old: String = (0..600).map(|ns| line(ns, "Tick")).collect();
    let new: String = (0..600)
        .map(|ns| line(ns, if ns == 300 { "Mode(Idle)" } else { "Tick" }))
        .collect();
    let swapped = old.replace("256 0 Tick\n257 0 Tick\n", "257 0 Tick\n256 0 Tick\n");
    let digest = |stream: &str| Digest::of("cpu", 1, stream);
    let kept = digest(&old);
    assert_eq!(kept.counts, BTreeMap::from([("Tick".to_owned(), 600)]));
    assert_eq!(kept.difference(&digest(&old), &old), None);
    assert_eq!(
        kept.difference(&digest(&new), &new).as_deref(),
        Some(
            "  Mode: 1, was 0\n  Tick: 599, was 600\n  \
             first difference: line 257 to 512 of the stream, 256 ns to 511 ns\n"
        )
    );
    assert_eq!(
        kept.difference(&digest(&swapped), &swapped).as_deref(),
        Some("  first difference: line 257 to 512 of the stream, 257 ns to 511 ns\n")
    );
}
