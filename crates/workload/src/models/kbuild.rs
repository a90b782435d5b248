//! `make -jN` of a kernel: short compiler processes with a dependency graph that ends in a serial link.
//!
//! make reads its files, then keeps up to `jobs` recipes running. A recipe is the compiler's driver, which forks the
//! compiler proper and then the assembler, waits for each, and ends; some compilers wait for a read from the
//! disk. When all units of a directory are there its objects are joined by a recipe of their own, which counts
//! among the `jobs` as any other and comes before further units; when all directories are, the kernel is linked,
//! with nothing else left to do.
//!
//! The real side is `make` itself, with a real source package: `schedlab run -s … -- sh -c 'make clean; make -j4'`. Real
//! threads cannot stand for it, since every compiler is a process of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use schedlab_trace::Duration;

use super::plan::{Plan, Planned, Steps, drawn};
use crate::measure::measure;
use crate::{
    Action, Builder, Context, Counters, Kind, Model, ObjectId, ObjectSpec, Options, Param, Rng, Score,
    ScoreRule, TaskSpec, TimeUnit, WorkloadError, below, stream,
};

const TIME: Kind = Kind::Time {
    bare: TimeUnit::Ms,
    max: Duration::from_secs(10_000),
};

const fn time(name: &'static str, default: &'static str, doc: &'static str) -> Param {
    Param {
        name,
        kind: TIME,
        default,
        doc,
    }
}

const fn count(name: &'static str, max: u64, default: &'static str, doc: &'static str) -> Param {
    Param {
        name,
        kind: Kind::Count { min: 1, max },
        default,
        doc,
    }
}

pub(super) const MODEL: Model = Model {
    name: "kbuild",
    summary: "make -jN of a kernel: short compiler processes, a dependency graph, a serial link at the end",
    params: &[
        count("jobs", 100_000, "4", "recipes at a time (published: 4)"),
        count("units", 1_000_000, "600", "source files (guess: a kernel of 1999 with few drivers)"),
        count("directory", 1_000_000, "20", "source files of a directory, whose objects are joined when all are there (guess)"),
        time("compile", "557ms", "CPU time of a compiler on one file, the mean (fitted, see docs/calibration.md)"),
        time("driver", "10ms", "CPU time of the compiler's driver and of make's shell (guess)"),
        time("assemble", "40ms", "CPU time of an assembler (guess)"),
        time("join", "60ms", "CPU time of joining a directory's objects (guess)"),
        time("parse", "3s", "CPU time of make before the first recipe (guess: dependencies of every file)"),
        time("link", "35100ms", "CPU time of everything after the last object, one process after another (fitted, see docs/calibration.md)"),
        Param {
            name: "read",
            kind: Kind::Probability,
            default: "0.3",
            doc: "probability that a compiler waits for the disk (guess: headers are cached, sources are not)",
        },
        time("read_wait", "10ms", "how long such a read takes (guess: one access of a disk of 1999)"),
        Param {
            name: "exec",
            kind: Kind::Flag,
            default: "false",
            doc: "whether drivers, compilers and assemblers begin by execve(), in addition to their CPU times, which were fitted without",
        },
        Param {
            name: "faults",
            kind: Kind::Count { min: 0, max: 10_000_000 },
            default: "0",
            doc: "page faults of a compiler, and a tenth of them of a driver and an assembler, in addition to their CPU times",
        },
        Param {
            name: "working_set",
            kind: Kind::Bytes {
                min: 0,
                max: 1 << 30,
            },
            default: "256K",
            doc: "bytes of cache a compiler needs to run at full speed (guess)",
        },
    ],
    measures: &[
        measure("completion_ns", "ns", "time until the last task has ended"),
        measure("work", "", "recipes done: compilations, joins of directories and the link"),
        measure("kbuild.reads", "", "compilers that waited for the disk"),
    ],
    build,
};

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    let units = options.count("units");
    let per_directory = options.count("directory");
    let (exec, faults) = (options.flag("exec"), options.count("faults") as u32);
    builder.room_for(options, 1 + 3 * units + units.div_ceil(per_directory))?;
    let ended = builder.object(ObjectSpec::Semaphore { initial: 0 });
    let tree = Arc::new(Tree::new(units, per_directory));
    let mut recipes: Vec<TaskSpec> = Vec::new();
    let mut number = 1;
    for unit in 0..units {
        let child = builder.object(ObjectSpec::Semaphore { initial: 0 });
        let part = |time, wait, faults, name: &str, number: usize| {
            let working_set = options.bytes("working_set");
            let process = Process {
                program: Program { exec, faults },
                time,
                wait_ppm: wait,
                wait: options.time("read_wait"),
                done: child,
                step: 0,
                waited: 0,
            };
            builder.spec(number, name, number as u32, working_set, Planned::new(process))
        };
        let read = options.probability_ppm("read");
        let time = skewed(options.time("compile"), &mut stream(SOURCE, unit as u32));
        let compiler = part(time, read, faults, "cc1", number + 1);
        let assembler = part(options.time("assemble"), 0, faults / 10, "as", number + 2);
        let driver = Driver {
            program: Program { exec, faults: faults / 10 },
            time: options.time("driver"),
            // Taken from the end.
            parts: vec![assembler, compiler],
            child,
            tree: Arc::clone(&tree),
            directory: (unit / per_directory) as usize,
            ended,
            step: 0,
        };
        recipes.push(builder.spec(number, "gcc", number as u32, 0, Planned::new(driver)));
        number += 3;
    }
    let mut joins: Vec<TaskSpec> = Vec::new();
    for _ in &tree.left {
        let join = Join {
            time: options.time("join"),
            ended,
            step: 0,
        };
        joins.push(builder.spec(number, "ld", number as u32, 0, Planned::new(join)));
        number += 1;
    }
    recipes.reverse();
    joins.reverse();
    let make = Make {
        parse: options.time("parse"),
        link: options.time("link"),
        jobs: options.count("jobs"),
        running: 0,
        recipes,
        joins,
        tree,
        ended,
        step: MakeStep::Parse,
    };
    builder.task("make", 0, 0, Planned::new(make));
    Ok(Score {
        name: "completion_ns",
        unit: "ns",
        higher_is_better: false,
        rule: ScoreRule::Makespan,
    })
}

/// The part of the source that is compiled.
struct Tree {
    /// Units of each directory that are not.
    left: Vec<AtomicU64>,
    /// Complete directories whose join has not been started.
    complete: AtomicU64,
}

impl Tree {
    fn new(units: u64, per_directory: u64) -> Tree {
        let first = (0..units).step_by(per_directory as usize);
        Tree {
            left: first.map(|first| AtomicU64::new((units - first).min(per_directory))).collect(),
            complete: AtomicU64::new(0),
        }
    }

    fn compiled(&self, directory: usize) {
        if self.left[directory].fetch_sub(1, Relaxed) == 1 {
            self.complete.fetch_add(1, Relaxed);
        }
    }

    /// Returns whether a join can be started; it counts as started then.
    fn take_complete(&self) -> bool {
        let less = |complete: u64| complete.checked_sub(1);
        self.complete.fetch_update(Relaxed, Relaxed, less).is_ok()
    }
}

/// make itself.
struct Make {
    parse: Duration,
    link: Duration,
    jobs: u64,
    /// Recipes that run.
    running: u64,
    /// Still to be started, the next one last.
    recipes: Vec<TaskSpec>,
    joins: Vec<TaskSpec>,
    tree: Arc<Tree>,
    /// Told by every recipe that ends.
    ended: ObjectId,
    step: MakeStep,
}

enum MakeStep {
    Parse,
    Recipes,
    End,
}

impl Plan for Make {
    fn forks_processes(&self) -> bool {
        true
    }

    fn plan(&mut self, _: &mut Context<'_>, steps: &mut Steps) {
        match self.step {
            MakeStep::Parse => {
                self.step = MakeStep::Recipes;
                steps.compute(self.parse);
                if steps.is_empty() {
                    self.plan_recipe(steps);
                }
            }
            MakeStep::Recipes => self.plan_recipe(steps),
            MakeStep::End => {}
        }
    }
}

impl Make {
    fn plan_recipe(&mut self, steps: &mut Steps) {
        let next = if self.running < self.jobs { self.next_recipe() } else { None };
        if let Some(recipe) = next {
            self.running += 1;
            steps.push(Action::Fork(Box::new(recipe)));
        } else if self.running > 0 {
            self.running -= 1;
            steps.push(Action::Acquire(self.ended));
        } else {
            self.step = MakeStep::End;
            steps.compute(self.link);
            steps.push(Action::Work(1));
        }
    }

    /// Returns the next job that can start: a directory that is complete comes before further units.
    fn next_recipe(&mut self) -> Option<TaskSpec> {
        if self.tree.take_complete() {
            self.joins.pop()
        } else {
            self.recipes.pop()
        }
    }
}

/// How a process begins.
struct Program {
    exec: bool,
    faults: u32,
}

impl Program {
    fn begin(&self, steps: &mut Steps) {
        if self.exec {
            steps.push(Action::Exec);
        }
        if self.faults > 0 {
            steps.push(Action::Fault(self.faults));
        }
    }
}

/// The compiler's driver.
struct Driver {
    program: Program,
    time: Duration,
    /// Processes that it runs one after another, the next one last.
    parts: Vec<TaskSpec>,
    child: ObjectId,
    tree: Arc<Tree>,
    directory: usize,
    ended: ObjectId,
    step: u8,
}

impl Plan for Driver {
    fn plan(&mut self, _: &mut Context<'_>, steps: &mut Steps) {
        match self.step {
            0 => {
                self.step = 1;
                self.program.begin(steps);
                steps.compute(self.time);
                while let Some(part) = self.parts.pop() {
                    steps.push(Action::Fork(Box::new(part)));
                    steps.push(Action::Acquire(self.child));
                }
            }
            1 => {
                self.step = 2;
                self.tree.compiled(self.directory);
                steps.push(Action::Work(1));
                steps.push(Action::Post(self.ended));
            }
            _ => {}
        }
    }
}

/// A compiler or an assembler.
struct Process {
    program: Program,
    time: Duration,
    wait_ppm: u32,
    wait: Duration,
    done: ObjectId,
    step: u8,
    waited: u64,
}

/// Seed of the files' compile times. It is the same source whatever the run's seed: only a little noise is the
/// run's own.
const SOURCE: u64 = 2_399;
const NOISE_PCT: u64 = 5;

/// Few files take long: the mean times four times the product of two uniform numbers, which has mean 1 and
/// median 0.73.
fn skewed(mean: Duration, rng: &mut Rng) -> Duration {
    let (a, b) = (below(rng, 1_001), below(rng, 1_001));
    Duration::from_ns(mean.ns() * 4 * a / 1_000 * b / 1_000)
}

impl Plan for Process {
    fn plan(&mut self, context: &mut Context<'_>, steps: &mut Steps) {
        match self.step {
            0 => {
                self.step = 1;
                self.program.begin(steps);
                let rng = &mut *context.rng;
                if below(rng, 1_000_000) < u64::from(self.wait_ppm) {
                    self.waited += 1;
                    steps.push(Action::Io(drawn(self.wait, 50, rng)));
                }
                steps.compute(drawn(self.time, NOISE_PCT, rng));
                steps.push(Action::Post(self.done));
            }
            _ => self.step = 2,
        }
    }

    fn report(&self, counters: &mut Counters) {
        counters.add("kbuild.reads", self.waited);
    }
}

/// Joins a directory's objects.
struct Join {
    time: Duration,
    ended: ObjectId,
    step: u8,
}

impl Plan for Join {
    fn plan(&mut self, _: &mut Context<'_>, steps: &mut Steps) {
        if self.step > 0 {
            return;
        }
        self.step = 1;
        steps.compute(self.time);
        steps.push(Action::Work(1));
        steps.push(Action::Post(self.ended));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;
    use crate::testing::{Order, run_in};

    #[test]
    fn every_unit_directory_and_the_link_are_made() {
        for (units, directory) in [(1, 1), (10, 4), (40, 20), (7, 100)] {
            for jobs in [1, 3, 50] {
                for order in [Order::RoundRobin, Order::UntilBlocked, Order::Random(jobs)] {
                    let text = format!("kbuild:units={units},directory={directory},jobs={jobs}");
                    let end = run_in(Workload::parse(&text, 2).unwrap(), order);
                    let directories = (units as u64).div_ceil(directory);
                    assert_eq!(end.work, units as u64 + directories + 1, "{text}");
                    assert_eq!(end.tasks as u64, 1 + 3 * units as u64 + directories);
                }
            }
        }
    }

    #[test]
    fn compile_times_keep_their_mean() {
        let mut rng = crate::stream(1, 1);
        let mean = Duration::from_ms(100);
        let sum: u64 = (0..20_000).map(|_| skewed(mean, &mut rng).ns()).sum();
        assert!((sum / 20_000).abs_diff(mean.ns()) < 2_000_000, "{}", sum / 20_000);
    }

    /// The link is alone at the end: nothing shortens it.
    #[test]
    fn the_link_is_serial() {
        let time = |link| {
            let text = format!("kbuild:units=8,read=0,link={link}");
            let end = run_in(Workload::parse(&text, 2).unwrap(), Order::RoundRobin);
            end.now.ns()
        };
        assert_eq!(time("7s") - time("2s"), 5_000_000_000);
    }
}
