//! PARSEC's ferret: looks images up by their content.
//!
//! *Synchronisation:* a pipeline of six stages (load, segment, extract, index, rank, output) with a bounded queue (20
//! entries) between each two. Load and output are one thread each; the four in the middle have `threads` threads
//! each, as the original's `-n`. Ranking takes most of the time, so the queues before it are full and its threads
//! decide. *Memory:* ranking reads a large table.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use schedlab_trace::Duration;

use super::parsec::{self, Idle, Program};
use super::plan::{Plan, Steps, drawn};
use crate::measure::measure;
use crate::{
    Action, Builder, Context, Counters, Model, ObjectId, ObjectSpec, Options, Score, WorkloadError,
};

const NAME: &str = "ferret";

pub(super) const MODEL: Model = Model {
    name: NAME,
    summary: "PARSEC: a six-stage pipeline with bounded queues",
    params: &[
        parsec::threads("12", "threads of each of the four middle stages (the feature study's number)"),
        parsec::count("iterations", "3500", "images to look up (native input: 3500)"),
        parsec::count("queue", "20", "entries of a queue between two stages (native input: 20)"),
        parsec::time("load", "2ms", "CPU time of loading an image (guess: 1 percent)"),
        parsec::time("segment", "7ms", "CPU time of segmenting it (guess: 5 percent)"),
        parsec::time("extract", "1ms", "CPU time of extracting features (guess: 1 percent)"),
        parsec::time("index", "28ms", "CPU time of looking candidates up (guess: 18 percent)"),
        parsec::time(
            "rank",
            "116ms",
            "CPU time of ranking them (fitted, see docs/calibration.md; the other stages are shares of it)",
        ),
        parsec::time("output", "50us", "CPU time of writing a result (guess)"),
        parsec::imbalance("30", "percent by which the work of a stage is drawn shorter or longer (guess: images differ)"),
        parsec::time("serial", "300ms", "CPU time of loading the tables (guess)"),
        parsec::working_set("256K", "bytes of cache a thread needs to run at full speed (guess: all of the private cache)"),
    ],
    measures: &[
        measure("completion_ns", "ns", "time until the last task has ended"),
        measure("work", "", "images whose result was written"),
        measure("ferret.load_items", "", "images that the stage `load` has begun with"),
        measure("ferret.segment_items", "", "images that the stage `segment` has begun with"),
        measure("ferret.extract_items", "", "images that the stage `extract` has begun with"),
        measure("ferret.index_items", "", "images that the stage `index` has begun with"),
        measure("ferret.rank_items", "", "images that the stage `rank` has begun with"),
        measure("ferret.output_items", "", "images that the stage `output` has begun with"),
    ],
    build,
};

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    let threads = options.count("threads");
    let images = options.count("iterations");
    let imbalance_pct = options.count("imbalance");
    let mut program = Program::new(NAME, options, builder);
    let queue = |program: &mut Program<'_>, producers| {
        Arc::new(Queue {
            mutex: program.object(ObjectSpec::Mutex),
            filled: program.object(ObjectSpec::Condition),
            drained: program.object(ObjectSpec::Condition),
            capacity: options.count("queue"),
            len: AtomicU64::new(0),
            takers: AtomicU64::new(0),
            putters: AtomicU64::new(0),
            producers: AtomicU64::new(producers),
        })
    };
    let mut from = queue(&mut program, 1);
    program.worker(Stage {
        name: "load",
        from: None,
        to: Some(Arc::clone(&from)),
        source: images,
        time: options.time("load"),
        imbalance_pct,
        items: 0,
        step: Step::Get,
    });
    for name in ["segment", "extract", "index", "rank"] {
        let to = queue(&mut program, threads);
        for _ in 0..threads {
            program.worker(Stage {
                name,
                from: Some(Arc::clone(&from)),
                to: Some(Arc::clone(&to)),
                source: 0,
                time: options.time(name),
                imbalance_pct,
                items: 0,
                step: Step::Get,
            });
        }
        from = to;
    }
    program.worker(Stage {
        name: "output",
        from: Some(from),
        to: None,
        source: 0,
        time: options.time("output"),
        imbalance_pct,
        items: 0,
        step: Step::Get,
    });
    Ok(program.finish(options.time("serial"), Idle))
}

/// A bounded queue. Everything but the objects belongs to the mutex's holder.
struct Queue {
    mutex: ObjectId,
    filled: ObjectId,
    drained: ObjectId,
    capacity: u64,
    len: AtomicU64,
    /// Threads that wait for an entry, at most (a waiter that wakes by itself and waits again counts twice) …
    takers: AtomicU64,
    /// … and for space.
    putters: AtomicU64,
    /// Threads that may still put something in.
    producers: AtomicU64,
}

/// Takes one from a count, unless it is zero. Returns whether it did.
fn take_one(count: &AtomicU64) -> bool {
    let n = count.load(Relaxed);
    count.store(n.saturating_sub(1), Relaxed);
    n > 0
}

/// A thread of a stage.
struct Stage {
    name: &'static str,
    /// `None`: the first stage.
    from: Option<Arc<Queue>>,
    /// `None`: the last one.
    to: Option<Arc<Queue>>,
    /// Items that the first stage still has to make.
    source: u64,
    time: Duration,
    imbalance_pct: u64,
    items: u64,
    step: Step,
}

enum Step {
    Get,
    /// The input's mutex is held.
    Take,
    Put,
    /// The output's mutex is held.
    Insert,
    /// There is no input any more.
    Close,
    /// The output's mutex is held.
    Leave,
    End,
}

impl Plan for Stage {
    fn plan(&mut self, context: &mut Context<'_>, steps: &mut Steps) {
        loop {
            match self.step {
                Step::Get => match &self.from {
                    None if self.source == 0 => self.step = Step::Close,
                    None => {
                        self.source -= 1;
                        self.items += 1;
                        steps.compute(drawn(self.time, self.imbalance_pct, context.rng));
                        self.step = Step::Put;
                    }
                    Some(queue) => {
                        self.step = Step::Take;
                        return steps.push(Action::Lock(queue.mutex));
                    }
                },
                Step::Take => {
                    let queue = self.from.as_ref().expect("only stages with an input take");
                    if take_one(&queue.len) {
                        if take_one(&queue.putters) {
                            steps.push(Action::Signal(queue.drained));
                        }
                        steps.push(Action::Unlock(queue.mutex));
                        steps.compute(drawn(self.time, self.imbalance_pct, context.rng));
                        self.items += 1;
                        self.step = Step::Put;
                    } else if queue.producers.load(Relaxed) == 0 {
                        steps.push(Action::Unlock(queue.mutex));
                        self.step = Step::Close;
                    } else {
                        queue.takers.fetch_add(1, Relaxed);
                        return steps.push(Action::Wait {
                            condition: queue.filled,
                            mutex: queue.mutex,
                        });
                    }
                }
                Step::Put => match &self.to {
                    None => {
                        self.step = Step::Get;
                        return steps.push(Action::Work(1));
                    }
                    Some(queue) => {
                        self.step = Step::Insert;
                        return steps.push(Action::Lock(queue.mutex));
                    }
                },
                Step::Insert => {
                    let queue = self.to.as_ref().expect("only stages with an output insert");
                    if queue.len.load(Relaxed) == queue.capacity {
                        queue.putters.fetch_add(1, Relaxed);
                        return steps.push(Action::Wait {
                            condition: queue.drained,
                            mutex: queue.mutex,
                        });
                    }
                    queue.len.fetch_add(1, Relaxed);
                    if take_one(&queue.takers) {
                        steps.push(Action::Signal(queue.filled));
                    }
                    self.step = Step::Get;
                    return steps.push(Action::Unlock(queue.mutex));
                }
                Step::Close => match &self.to {
                    None => self.step = Step::End,
                    Some(queue) => {
                        self.step = Step::Leave;
                        return steps.push(Action::Lock(queue.mutex));
                    }
                },
                Step::Leave => {
                    let queue = self.to.as_ref().expect("only stages with an output leave it");
                    self.step = Step::End;
                    if queue.producers.fetch_sub(1, Relaxed) == 1 {
                        steps.push(Action::Broadcast(queue.filled));
                    }
                    return steps.push(Action::Unlock(queue.mutex));
                }
                Step::End => return,
            }
        }
    }

    fn report(&self, counters: &mut Counters) {
        counters.add(format!("ferret.{}_items", self.name), self.items);
    }
}

#[cfg(test)]
mod tests {
    use crate::models::parsec::testing::check;

    #[test]
    fn every_image_passes_every_stage() {
        for (threads, queue) in [(1, 1), (3, 2), (5, 20)] {
            let text = format!("ferret:threads={threads},queue={queue},iterations=40");
            let end = check(&text, 40, 4 * threads + 3);
            for stage in ["load", "segment", "extract", "index", "rank", "output"] {
                assert_eq!(end.counters.get(&format!("ferret.{stage}_items")), 40);
            }
        }
    }
}
