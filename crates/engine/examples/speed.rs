//! Context switches per second of the engine alone, under a vtime policy written in Rust.
//!
//! ```text
//! cargo run --release -p schedlab-engine --example speed -- [small|idle|middle|large] [MACHINE] [MS] [fair]
//! ```
//!
//! Locks, caches, ticks, interleaving and a counting recorder are on. The policy is the smallest one
//! that uses what a real one uses: the default CPU selection, one vtime-ordered queue, direct
//! dispatch to idle CPUs.
#![allow(
    clippy::disallowed_methods,
    reason = "the program's own memory and CPU time; the engine itself reads nothing"
)]

use std::cell::{Cell, RefCell};

use schedlab_engine::policy::{Env, OpCall, OpKind, OpSet, OpsInfo, Policy, TaskView};
use schedlab_engine::{NormalClass, Scenario, consts, run};
use schedlab_machine::Machine;
use schedlab_trace::{CpuId, Duration, Event, Instant, Listener, TaskId};
use schedlab_workload::{Action, Behaviour, Context, SchedClass, TaskSpec, Workload, below};

const SHARED_DSQ: u64 = 0;
const SLICE_NS: u64 = 20_000_000;

#[derive(Clone, Copy, Default)]
struct TaskState {
    slice: u64,
    vtime: u64,
    weight: u32,
}

struct Vtime {
    info: OpsInfo,
    tasks: RefCell<Vec<TaskState>>,
    vtime_now: Cell<u64>,
}

impl Vtime {
    fn new() -> Self {
        let present = [
            OpKind::Init,
            OpKind::SelectCpu,
            OpKind::Enqueue,
            OpKind::Dispatch,
            OpKind::Running,
            OpKind::Stopping,
            OpKind::Enable,
        ]
        .into_iter()
        .fold(OpSet::default(), OpSet::with);
        Vtime {
            info: OpsInfo {
                name: "vtime".to_owned(),
                flags: 0,
                timeout_ms: 0,
                dispatch_max_batch: 0,
                hotplug_seq: 0,
                sub_schedulers: false,
                present,
            },
            tasks: RefCell::default(),
            vtime_now: Cell::new(0),
        }
    }
}

impl Policy for Vtime {
    fn info(&self) -> &OpsInfo {
        &self.info
    }

    fn call(&self, env: &Env<'_>, op: &OpCall) -> i64 {
        let kernel = env.kernel;
        match *op {
            OpCall::Init => {
                kernel.create_dsq(SHARED_DSQ, -1);
            }
            OpCall::SelectCpu {
                task,
                prev_cpu,
                wake_flags,
            } => {
                let prev_cpu = prev_cpu.0 as i32;
                let (cpu, idle) = kernel.select_cpu_dfl(task, prev_cpu, wake_flags);
                if idle {
                    kernel.dsq_insert(task, consts::dsq_id::LOCAL, SLICE_NS, 0);
                }
                return i64::from(cpu);
            }
            OpCall::Enqueue { task, enq_flags } => {
                let floor = self.vtime_now.get().saturating_sub(SLICE_NS);
                let vtime = self.tasks.borrow()[task.index()].vtime.max(floor);
                kernel.dsq_insert_vtime(task, SHARED_DSQ, SLICE_NS, vtime, enq_flags);
            }
            OpCall::Dispatch { .. } => {
                kernel.dsq_move_to_local(SHARED_DSQ, 0);
            }
            OpCall::Running { task } => {
                let vtime = self.tasks.borrow()[task.index()].vtime;
                self.vtime_now.set(self.vtime_now.get().max(vtime));
            }
            OpCall::Stopping { task, .. } => {
                let task = &mut self.tasks.borrow_mut()[task.index()];
                task.vtime += (SLICE_NS - task.slice) * 100 / u64::from(task.weight);
            }
            OpCall::Enable { task } => {
                self.tasks.borrow_mut()[task.index()].vtime = self.vtime_now.get();
            }
            _ => {}
        }
        0
    }

    fn sync_task(&self, task: TaskId, view: &TaskView<'_>) {
        let mut tasks = self.tasks.borrow_mut();
        if tasks.len() <= task.index() {
            tasks.resize(task.index() + 1, TaskState::default());
        }
        tasks[task.index()].weight = view.weight;
    }

    fn set_task_cpu(&self, _: TaskId, _: CpuId) {}
    fn drop_task(&self, _: TaskId) {}

    fn slice(&self, task: TaskId) -> u64 {
        self.tasks.borrow()[task.index()].slice
    }

    fn set_slice(&self, task: TaskId, slice: u64) {
        self.tasks.borrow_mut()[task.index()].slice = slice;
    }

    fn vtime(&self, task: TaskId) -> u64 {
        self.tasks.borrow()[task.index()].vtime
    }

    fn set_vtime(&self, task: TaskId, vtime: u64) {
        self.tasks.borrow_mut()[task.index()].vtime = vtime;
    }

    fn disallowed(&self, _: TaskId) -> bool {
        false
    }
}

/// Runs and sleeps for ever; times are fixed, or drawn up to twice the mean.
struct Periodic {
    run_ns: u64,
    sleep_ns: u64,
    random: bool,
    running: bool,
}

impl Behaviour for Periodic {
    fn next(&mut self, context: &mut Context<'_>) -> Action {
        self.running = !self.running;
        let mean = if self.running {
            self.run_ns
        } else {
            self.sleep_ns
        };
        let ns = if self.random {
            1 + below(context.rng, 2 * mean)
        } else {
            mean
        };
        let time = Duration::from_ns(ns);
        if self.running {
            Action::Compute(time)
        } else {
            Action::Sleep(time)
        }
    }
}

/// Counts events, as a streaming recorder does.
#[derive(Default)]
struct Counts {
    events: u64,
    last: Instant,
    ipis: u64,
    contended: u64,
    locks: u64,
}

impl Listener for Counts {
    fn record(&mut self, at: Instant, _: CpuId, event: Event) {
        self.events += 1;
        self.last = at;
        match event {
            Event::Ipi { .. } => self.ipis += 1,
            Event::LockContended { .. } => self.contended += 1,
            Event::LockAcquired { .. } => self.locks += 1,
            _ => {}
        }
    }
}

/// CPUs, tasks, mean run time, mean sleep, random times, simulated milliseconds.
fn case(name: &str) -> Option<(usize, usize, u64, u64, bool, u64)> {
    Some(match name {
        "small" => (8, 400, 50_000, 200_000, false, 20_000),
        // 25 tasks of which each asks for 0.192 of a CPU: 60 % of 8.
        "idle" => (8, 25, 50_000, 210_000, true, 20_000),
        "middle" => (64, 5_000, 50_000, 200_000, false, 2_000),
        "large" => (1_024, 1_000_000, 50_000, 200_000, false, 100),
        _ => return None,
    })
}

/// CPU time this process has used, if the system reports it.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    let ns: f64 = stat.split_whitespace().next()?.parse().ok()?;
    Some(ns / 1e9)
}

/// Peak memory of this process in KB, if the system reports it.
fn peak_kb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn main() {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "small".to_owned());
    let Some((nr_cpus, nr_tasks, run_ns, sleep_ns, random, ms)) = case(&name) else {
        eprintln!("no case is called {name}: choose one of small, idle, middle, large");
        std::process::exit(2);
    };
    let profile = args.next().unwrap_or_else(|| "numa-8x64x2".to_owned());
    let ms = match args.next() {
        Some(shorter) => shorter.parse().unwrap_or(ms),
        None => ms,
    };
    let fair = args.next().is_some_and(|arg| arg == "fair");
    let machine = Machine::builtin(&profile)
        .and_then(|machine| machine.with_cpus(nr_cpus))
        .unwrap_or_else(|error| {
            eprintln!("{error}");
            std::process::exit(2);
        });
    let mut workload = Workload::parse("cpu", nr_cpus).expect("a built-in workload");
    workload.duration = Some(Duration::from_ms(ms));
    workload.tasks = (0..nr_tasks)
        .map(|n| TaskSpec {
            comm: format!("p{n}"),
            nice: 0,
            class: SchedClass::Normal,
            affinity: None,
            address_space: Some(0),
            start: Instant::ZERO,
            working_set_bytes: 0,
            behaviour: Box::new(Periodic {
                run_ns,
                sleep_ns,
                random,
                running: false,
            }),
        })
        .collect();
    let mut scenario = Scenario::new(machine, workload, 1);
    if fair {
        scenario.normal_class = NormalClass::Fair;
    }
    // CPU time, not wall time: the machine may have other work to do.
    let Some(began) = cpu_seconds() else {
        eprintln!("this system does not report CPU time in /proc/self/schedstat");
        std::process::exit(2);
    };
    let end = run(scenario, Vtime::new(), Counts::default());
    let took = cpu_seconds().unwrap_or(began) - began;
    println!(
        "{name}: {:.2} M switches/s ({} switches, {} engine events, {} recorded, {} IPIs, {} of {} lock acquisitions contended, {:.2} s of CPU time, {} MB) {:?} {:?}",
        end.switches as f64 / took / 1e6,
        end.switches,
        end.events,
        end.recorder.events,
        end.recorder.ipis,
        end.recorder.contended,
        end.recorder.locks,
        took,
        peak_kb().unwrap_or(0) / 1_024,
        end.exit.kind,
        end.failure,
    );
}
