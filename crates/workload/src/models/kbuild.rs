//! `make -jN` of a kernel: short compiler processes with a dependency graph that ends in a serial link.
//!
//! make reads its files, then keeps up to `jobs` recipes running. A recipe is the compiler's driver, which forks the
//! compiler proper and then the assembler, waits for each, and ends; some compilers wait for a read from the
//! disk. When all units of a directory are there its objects are joined by a recipe of their own; when all
//! directories are, the kernel is linked, with nothing else left to do.
//!
//! The real side is `make` itself, with a real source package: `schedlab run -s … -- make -j4`. Real threads cannot
//! stand for it, since every compiler is a process of its own.

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
        measure("kbuild.reads", "", "compilers and assemblers that waited for the disk"),
    ],
    build,
};

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    let units = options.count("units");
    let per_directory = options.count("directory");
    let slots = builder.object(ObjectSpec::Semaphore {
        initial: options.count("jobs") as u32,
    });
    let mut recipes: Vec<TaskSpec> = Vec::new();
    let mut directories: Vec<ObjectId> = Vec::new();
    let joined = builder.object(ObjectSpec::Semaphore { initial: 0 });
    let mut number = 1;
    for unit in 0..units {
        let directory = (unit / per_directory) as usize;
        if directories.len() == directory {
            directories.push(builder.object(ObjectSpec::Semaphore { initial: 0 }));
        }
        let child = builder.object(ObjectSpec::Semaphore { initial: 0 });
        let part = |time, wait, name: &str, number: usize| {
            let working_set = options.bytes("working_set");
            let process = Process {
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
        let compiler = part(time, read, "cc1", number + 1);
        let assembler = part(options.time("assemble"), 0, "as", number + 2);
        let driver = Driver {
            time: options.time("driver"),
            // Taken from the end.
            parts: vec![assembler, compiler],
            child,
            posts: [slots, directories[directory]],
            step: 0,
        };
        recipes.push(builder.spec(number, "gcc", number as u32, 0, Planned::new(driver)));
        number += 3;
    }
    let mut joins: Vec<TaskSpec> = Vec::new();
    for (directory, &objects) in directories.iter().enumerate() {
        let first = directory as u64 * per_directory;
        let join = Join {
            objects,
            nr_objects: (units - first).min(per_directory),
            time: options.time("join"),
            done: joined,
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
        nr_joins: joins.len() as u64,
        recipes,
        joins,
        slots,
        joined,
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

/// make itself.
struct Make {
    parse: Duration,
    link: Duration,
    nr_joins: u64,
    /// Still to be started, the next one last.
    recipes: Vec<TaskSpec>,
    joins: Vec<TaskSpec>,
    slots: ObjectId,
    joined: ObjectId,
    step: MakeStep,
}

enum MakeStep {
    Parse,
    Recipe,
    Await,
    Link,
    End,
}

impl Plan for Make {
    fn forks_processes(&self) -> bool {
        true
    }

    fn plan(&mut self, _: &mut Context<'_>, steps: &mut Steps) {
        match self.step {
            MakeStep::Parse => {
                self.step = MakeStep::Recipe;
                steps.compute(self.parse);
                // They wait for their objects from the start.
                while let Some(join) = self.joins.pop() {
                    steps.push(Action::Fork(Box::new(join)));
                }
            }
            MakeStep::Recipe => match self.recipes.pop() {
                Some(recipe) => {
                    steps.push(Action::Acquire(self.slots));
                    steps.push(Action::Fork(Box::new(recipe)));
                }
                None => {
                    self.step = MakeStep::Await;
                    self.plan_await(steps);
                }
            },
            MakeStep::Await => self.plan_await(steps),
            MakeStep::Link => {
                self.step = MakeStep::End;
                steps.compute(self.link);
                steps.push(Action::Work(1));
            }
            MakeStep::End => {}
        }
    }
}

impl Make {
    fn plan_await(&mut self, steps: &mut Steps) {
        for _ in 0..self.nr_joins {
            steps.push(Action::Acquire(self.joined));
        }
        self.step = MakeStep::Link;
    }
}

/// The compiler's driver.
struct Driver {
    time: Duration,
    /// Processes that it runs one after another, the next one last.
    parts: Vec<TaskSpec>,
    child: ObjectId,
    /// Who hears of its end: make, and the directory.
    posts: [ObjectId; 2],
    step: u8,
}

impl Plan for Driver {
    fn plan(&mut self, _: &mut Context<'_>, steps: &mut Steps) {
        match self.step {
            0 => {
                self.step = 1;
                steps.compute(self.time);
                while let Some(part) = self.parts.pop() {
                    steps.push(Action::Fork(Box::new(part)));
                    steps.push(Action::Acquire(self.child));
                }
            }
            1 => {
                self.step = 2;
                steps.push(Action::Work(1));
                for post in self.posts {
                    steps.push(Action::Post(post));
                }
            }
            _ => {}
        }
    }
}

/// A compiler or an assembler.
struct Process {
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
                let rng = &mut *context.rng;
                if below(rng, 1_000_000) < u64::from(self.wait_ppm) {
                    self.waited += 1;
                    steps.push(Action::Sleep(drawn(self.wait, 50, rng)));
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
    objects: ObjectId,
    nr_objects: u64,
    time: Duration,
    done: ObjectId,
    step: u8,
}

impl Plan for Join {
    fn plan(&mut self, _: &mut Context<'_>, steps: &mut Steps) {
        if self.step > 0 {
            return;
        }
        self.step = 1;
        for _ in 0..self.nr_objects {
            steps.push(Action::Acquire(self.objects));
        }
        steps.compute(self.time);
        steps.push(Action::Work(1));
        steps.push(Action::Post(self.done));
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
                    let end = run_in(Workload::parse(&text, 1, 2).unwrap(), order);
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
            let end = run_in(Workload::parse(&text, 1, 2).unwrap(), Order::RoundRobin);
            end.now.ns()
        };
        assert_eq!(time("7s") - time("2s"), 5_000_000_000);
    }
}
