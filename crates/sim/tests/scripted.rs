//! The scripted kernel in which the rules of the schedulers are tested (`crates/policies/tests/rules/script.h`) is like the
//! virtual kernel: in random scenarios on one CPU it chooses the same tasks after looking at as many candidates.
//!
//! The virtual kernel runs a scenario. The scripted kernel gets the events of its CPU as steps (a task wakes, a
//! tick, a yield, schedule()), which calls the same ops of the same source file. A tick between the decision to yield
//! and the yield leaves open which of the two schedule() is about: such a scenario is passed over, and counted.

#[path = "../../policies/tests/support/mod.rs"]
mod programs;
#[path = "support/mod.rs"]
mod support;
#[path = "support/run.rs"]
mod virtual_kernel;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use schedlab_engine::{ExitKind, Scenario};
use schedlab_trace::{CpuId, Duration, Event, Instant, Listener, PrevState, TaskId};
use support::script::{self, Kind, Step};

/// Policies whose rules are tested in the scripted kernel, each with the name of its table and its further macros.
const POLICIES: [(&str, &str, &[&str]); 6] = [
    ("dss", "dss_ops", &[]),
    ("pls", "pls_ops", &[]),
    ("elsc", "elsc_ops", &[]),
    ("mq", "mq_ops", &[]),
    ("bmqs", "bmqs_ops", &["RECALCULATES_LOCKED"]),
    ("o1", "o1_ops", &[]),
];

const SCENARIOS: u64 = 40;

/// The steps of a run and the choices that it made.
#[derive(Default)]
struct Steps {
    text: String,
    /// Of each the task, the number of candidates that it looked at, and of tasks on the run queue.
    choices: Vec<(i64, u32, u32)>,
    current: Option<TaskId>,
    started: Vec<TaskId>,
    /// The current task has said that it yields next; a tick has come since.
    yields: bool,
    is_open: bool,
    /// When schedule() was entered, and whether by a yield.
    entered: Option<(u64, bool)>,
    queue: u32,
    examined: u32,
}

impl Steps {
    fn step(&mut self, verb: &str, at: u64, number: i64) {
        let _ = writeln!(self.text, "{verb} {at} {number}");
    }

    /// Closes a schedule() whose outcome is known.
    fn chosen(&mut self, how: Option<PrevState>) {
        let Some((at, by_yield)) = self.entered.take() else {
            return;
        };
        match how {
            Some(PrevState::Blocked) => self.step("block", at, 0),
            Some(PrevState::Exited) => self.step("exit", at, 0),
            _ if by_yield => self.step("yield", at, 0),
            _ => {}
        }
        self.step("schedule", at, 0);
        let task = self.current.map_or(-1, |task| i64::from(task.0));
        self.choices.push((task, self.examined, self.queue));
    }
}

impl Listener for Steps {
    fn record(&mut self, at: Instant, _: CpuId, event: Event) {
        // A schedule() after which the task goes on has no switch: it ends with what the CPU does next.
        if matches!(
            event,
            Event::Wakeup { .. } | Event::Tick | Event::Work { .. } | Event::ScheduleEnter { .. }
        ) {
            self.chosen(None);
        }
        match event {
            Event::Wakeup { task, .. } => {
                let is_new = !self.started.contains(&task);
                if is_new {
                    self.started.push(task);
                }
                self.step(
                    if is_new { "new" } else { "wake" },
                    at.ns(),
                    i64::from(task.0),
                );
            }
            Event::Tick => {
                self.is_open |= self.yields;
                self.step("tick", at.ns(), 0);
            }
            Event::Work { .. } => self.yields = true,
            Event::ScheduleEnter { queue, .. } => {
                self.queue = queue;
                let by_yield = std::mem::take(&mut self.yields);
                self.entered = Some((at.ns(), by_yield));
            }
            Event::ScheduleExit { examined, .. } => self.examined = examined,
            Event::Switch {
                prev_state, next, ..
            } => {
                self.current = next;
                self.chosen(Some(prev_state));
            }
            _ => {}
        }
    }
}

/// Numbers of a seed, evenly spread.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn tasks(seed: u64) -> Vec<Kind> {
    let mut dice = Dice(seed);
    let nr_tasks = 2 + dice.below(6);
    let kind = |_| {
        let steps = 1 + dice.below(4);
        let mut all = Vec::new();
        for _ in 0..steps {
            all.push(Step::Compute(Duration::from_ns(
                1_000 + dice.below(30_000_000),
            )));
            match dice.below(3) {
                0 => all.push(Step::Sleep(Duration::from_ns(
                    100_000 + dice.below(40_000_000),
                ))),
                1 => all.extend([Step::Work(1), Step::Yield]),
                _ => {}
            }
        }
        Kind {
            comm: "task".to_owned(),
            count: 1,
            repeat: 3 + dice.below(8) as u32,
            steps: all,
            cpus: Vec::new(),
            nice: vec![dice.below(40) as i8 - 20],
            start: Instant::ZERO,
        }
    };
    (0..nr_tasks).map(kind).collect()
}

/// Returns what the scripted kernel chose, as it prints it; an error where the steps make no sense to it.
fn scripted(program: &Path, steps: &str) -> Result<String, String> {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it was just compiled");
    let mut stdin = child.stdin.take().expect("it is piped");
    let steps = steps.to_owned();
    let writer = std::thread::spawn(move || {
        // The program may end before it has read all: its status shows that.
        drop(stdin.write_all(steps.as_bytes()));
    });
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("the steps are written");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(said),
        false => Err(format!("{}: {said}", output.status)),
    }
}

#[test]
fn the_scripted_kernel_chooses_as_the_virtual_one() {
    for (name, ops, macros) in POLICIES {
        let mut macros: Vec<String> = macros.iter().map(|one| (*one).to_owned()).collect();
        macros.push(format!("OPS={ops}"));
        macros.push(format!("POLICY=\"../../../../policies/{name}.bpf.c\""));
        let program = programs::compile_as("rules", "replay", &format!("replay-{name}"), &macros);
        let policy = schedlab_policies::builtin()
            .iter()
            .find(|policy| policy.name == name)
            .expect("it is built in");
        let (mut passed_over, mut choices, mut between, mut blind) = (0, 0, 0, 0);
        for seed in 0..SCENARIOS {
            let kinds = tasks(seed);
            let workload = script::workload("random", &kinds, &[]);
            let machine = virtual_kernel::machine("netfinity-8500r:quiet", 1);
            let scenario = Scenario::new(machine, workload, seed);
            let run = virtual_kernel::run(&policy.object(), scenario, Steps::default());
            assert_eq!(run.exit.kind, ExitKind::Done, "{name}, seed {seed}");
            let mut steps = run.recorder;
            steps.chosen(None);
            if steps.is_open {
                passed_over += 1;
                continue;
            }
            let mut text = String::new();
            for kind in &kinds {
                let _ = writeln!(text, "fork 0 {}", kind.nice[0]);
            }
            text.push_str(&steps.text);
            let expected: Vec<String> = steps
                .choices
                .iter()
                .map(|(task, examined, _)| format!("{task} {examined}"))
                .collect();
            let said = scripted(&program, &text)
                .unwrap_or_else(|why| panic!("{name}, seed {seed}: {why}"));
            let said: Vec<&str> = said.lines().collect();
            let differs = expected.iter().zip(&said).position(|(a, b)| a != b);
            assert_eq!(
                (differs, said.len()),
                (None, expected.len()),
                "{name}, seed {seed}: choice {differs:?} is {:?} and not {:?}",
                differs.map(|at| said[at]),
                differs.map(|at| &expected[at]),
            );
            // The comparison would find a difference.
            let without_ticks: String = text
                .lines()
                .filter(|line| !line.starts_with("tick"))
                .flat_map(|line| [line, "\n"])
                .collect();
            blind += usize::from(
                scripted(&program, &without_ticks)
                    .is_ok_and(|other| other.lines().eq(said.iter().copied())),
            );
            choices += said.len();
            between += steps
                .choices
                .iter()
                .filter(|(.., queue)| *queue > 1)
                .count();
        }
        println!(
            "{name}: {choices} choices, {between} of them between several; {passed_over} scenarios passed over"
        );
        assert!(
            passed_over * 4 < SCENARIOS,
            "{name}: {passed_over} scenarios"
        );
        assert!(
            blind * 2 < SCENARIOS as usize,
            "{name}: {blind} scenarios are the same without ticks"
        );
        assert!(
            between > 2_000,
            "{name}: only {between} choices between several"
        );
    }
}
