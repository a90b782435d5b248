//! Reads `tests/misbehave/rules.toml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::script::{self, Kind, Step};
use schedlab_trace::{Duration, Instant};
use schedlab_workload::Workload;

/// The folder of the fixtures.
pub fn folder() -> PathBuf {
    repository().join("tests/misbehave")
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/sim lies two folders deep")
        .to_owned()
}

/// How a rule's run is expected to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expect {
    Holds,
    Done,
    Error,
    ErrorBpf,
    Stall,
    UnregBpf,
    UnregKernel,
    Fault,
}

/// One rule.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub name: String,
    pub description: String,
    pub selftest: Option<String>,
    pub workload: String,
    pub cpus: usize,
    #[serde(default = "laptop")]
    pub machine: String,
    #[serde(default)]
    pub hotplug: Vec<String>,
    pub expect: Expect,
    pub code: Option<i64>,
    pub message: Option<String>,
    /// Other texts that the message contains in a simulation.
    #[serde(default)]
    pub says: Vec<String>,
    /// How the run ends in a real kernel, where that differs.
    pub kernel: Option<Expect>,
    /// Texts that the message contains there.
    #[serde(default)]
    pub kernel_says: Vec<String>,
    #[serde(default)]
    pub global: BTreeMap<String, i64>,
    /// Those that are looked at in a real kernel alone.
    #[serde(default)]
    pub kernel_global: BTreeMap<String, i64>,
    pub mutation: Option<String>,
    #[serde(default = "once")]
    pub loads: u32,
    pub simulation_only: Option<String>,
}

fn laptop() -> String {
    "laptop".to_owned()
}

fn once() -> u32 {
    1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskText {
    comm: String,
    #[serde(default = "once")]
    count: u32,
    #[serde(default = "once")]
    repeat: u32,
    steps: Vec<String>,
    #[serde(default)]
    cpus: Vec<String>,
    #[serde(default)]
    nice: Vec<i8>,
    start: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadText {
    tasks: Vec<TaskText>,
    #[serde(default)]
    children: Vec<TaskText>,
}

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    rule: Vec<Rule>,
    workload: BTreeMap<String, WorkloadText>,
}

impl Rules {
    /// Reads and checks the file.
    pub fn read() -> Rules {
        let path = folder().join("rules.toml");
        let text = std::fs::read_to_string(&path).expect("tests/misbehave/rules.toml is readable");
        let rules: Rules = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}"));
        for rule in &rules.rule {
            assert!(
                !rule.description.trim().is_empty(),
                "{}: a rule needs a description",
                rule.name
            );
            assert!(
                rules.workload.contains_key(&rule.workload),
                "{}: there is no workload `{}`",
                rule.name,
                rule.workload
            );
        }
        rules
    }

    /// The rules in the order of the file.
    pub fn all(&self) -> &[Rule] {
        &self.rule
    }

    /// The kinds of tasks of a rule's workload: the initial ones, and those that they fork.
    pub fn kinds(&self, rule: &Rule) -> (Vec<Kind>, Vec<Kind>) {
        self.kinds_named(&rule.workload, rule.cpus)
    }

    fn kinds_named(&self, name: &str, cpus: usize) -> (Vec<Kind>, Vec<Kind>) {
        let text = &self.workload[name];
        let read = |tasks: &[TaskText]| -> Vec<Kind> {
            tasks
                .iter()
                .map(|task| kind(task, cpus).unwrap_or_else(|e| panic!("{name}: {e}")))
                .collect()
        };
        (read(&text.tasks), read(&text.children))
    }

    /// A fresh copy of a rule's workload.
    pub fn workload(&self, rule: &Rule) -> Workload {
        self.workload_named(&rule.workload, rule.cpus)
    }

    /// A fresh copy of the workload of that name.
    pub fn workload_named(&self, name: &str, cpus: usize) -> Workload {
        let (tasks, children) = self.kinds_named(name, cpus);
        script::workload(name, &tasks, &children)
    }
}

/// A CPU that comes or goes.
#[derive(Clone, Copy, Debug)]
pub struct HotplugEvent {
    pub at: Duration,
    pub cpu: u32,
    pub online: bool,
}

/// Reads `20ms offline 1`.
pub fn hotplug(text: &str) -> Result<HotplugEvent, String> {
    let wrong = || format!("hotplug `{text}`: write for example `20ms offline 1`");
    let words: Vec<&str> = text.split(' ').collect();
    let [at, how, cpu] = words[..] else {
        return Err(wrong());
    };
    Ok(HotplugEvent {
        at: script::duration(at).ok_or_else(wrong)?,
        cpu: cpu.parse().map_err(|_| wrong())?,
        online: match how {
            "online" => true,
            "offline" => false,
            _ => return Err(wrong()),
        },
    })
}

fn kind(task: &TaskText, nr_cpus: usize) -> Result<Kind, String> {
    let start = match &task.start {
        None => Instant::ZERO,
        Some(text) => {
            Instant::ZERO + script::duration(text).ok_or_else(|| format!("start `{text}`"))?
        }
    };
    Ok(Kind {
        comm: task.comm.clone(),
        count: task.count,
        repeat: task.repeat,
        steps: task
            .steps
            .iter()
            .map(|step| Step::parse(step, nr_cpus))
            .collect::<Result<_, _>>()?,
        cpus: task
            .cpus
            .iter()
            .map(|list| script::cpus(list, nr_cpus))
            .collect::<Result<_, _>>()?,
        nice: task.nice.clone(),
        start,
    })
}
