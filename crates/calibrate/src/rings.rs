//! Wakeup, schedule() and context switch, from rings of tasks on one CPU that pass on a token.
//!
//! A task makes so many calls of its own first, each a write to a pipe and the read of it, which neither wait nor wake. Then it
//! writes to the pipe at which the next task waits. So a hop takes `(own + 1) · c + s`: `c` is a write and a read, and `s`
//! a wakeup, schedule() and the switch. Hops with different numbers of own calls separate the two: `c` is the slope of the
//! regression line over the hops with own calls, and `s` what a hop without them takes beyond `c`. The hop without is
//! no point of the line, as the first own call after a switch finds its pipe cold: 100 ns more than the others, on the
//! machine where this was tried. Rings of several lengths tell how far `s` depends on the number of tasks.
//!
//! A part that is subtracted was measured by the same tasks within milliseconds. A sample visits each ring with each
//! number of own calls and separates `c` and `s` by itself. So a change of the clock rate, or a neighbour in the caches, is in
//! all parts of a sample; a figure is the median of the samples. A series of laps counts only if no other thread had the CPU: the
//! tasks' CPU time is the time that went by, and none of them was preempted. They are in `SCHED_BATCH`, so a task that is woken
//! does not preempt its waker, and every switch is a blocking one. The wakeup is the difference of two writes, each timed by itself, to
//! the next task and to the own pipe. All tasks of the ring time theirs: a task that runs longer than the others is
//! preempted as it wakes the next, by the rules of EEVDF. Where this process may, it takes nice level −20 meanwhile: on a
//! CPU that others want, too, few series would be undisturbed otherwise.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsRawFd, RawFd};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, getppid, setpriority_process, waitpid};
use rustix::thread::sched_yield;
use rustix::time::{ClockId, clock_gettime};

use crate::paths::{become_batch, fork};
use crate::pin::on_cpu;
use crate::sample::{Figure, preemptions, ps_each, undisturbed};

/// Tasks of a ring. The first length gives the figures: nothing displaces a pair from the caches.
const LENGTHS: [usize; 3] = [2, 4, 8];
/// Calls of its own that a task makes before it passes on the token. The first hop is the one without.
const OWN: [u8; 4] = [0, 1, 3, 7];
/// A token that makes the tasks time their writes.
const TIMED: u8 = u8::MAX;
/// Linux gives it to the calling thread alone.
const NICE: i32 = -20;
/// Hops of a series: so few that a slice often holds the whole series.
const HOPS: usize = 40;
/// Calls of a series that enter the kernel by themselves.
const CALLS: u64 = 100;
/// CPU time of the ring in the time that went by: less, and another thread ran. Interrupts may take a little.
const SHARE_MIN: f64 = 0.97;
/// Samples in which the pairs were undisturbed, and then it is enough.
const SAMPLES_ENOUGH: usize = 101;
/// Of fewer samples the spread says nothing.
const SAMPLES_MIN: usize = 20;
/// Every so many samples the longer rings are measured, too.
const LONGER_EVERY: usize = 2;
const BUDGET: Duration = Duration::from_secs(5);

/// Figures from the rings of one CPU.
pub struct Switches {
    /// `schedule()` that chooses the running task again.
    pub schedule: Option<Figure>,
    /// A wakeup on the own CPU.
    pub wakeup: Option<Figure>,
    /// A hop between two threads without own calls.
    pub hop: Option<Figure>,
    /// Of a hop between two threads: schedule() and the switch.
    pub threads: Option<Figure>,
    /// The same between two processes.
    pub processes: Option<Figure>,
    /// A hop between two processes, less one between threads.
    pub change: Option<Figure>,
    /// How the figures came about, for their source texts.
    pub method: String,
    /// By how much hops take longer in longer rings, of threads and of processes, where that is known.
    pub growth: [String; 2],
}

/// Measures on `cpu` (the kernel's number). `None` where that is not allowed.
pub fn switches(cpu: usize) -> Option<Switches> {
    on_cpu(cpu, || {
        // Threads and processes that are made from here on inherit both CPU and class.
        if !become_batch() {
            return None;
        }
        let priority = match setpriority_process(None, NICE) {
            Ok(()) => ", nice −20",
            Err(_) => "",
        };
        thread::scope(|scope| {
            let threads = LENGTHS.map(|length| Ring::of_threads(length, scope));
            let processes = LENGTHS.map(Ring::of_processes);
            let mut rings = [all(threads)?, all(processes)?];
            let start = Instant::now();
            let mut samples = Vec::new();
            let mut undisturbed = 0;
            while undisturbed < SAMPLES_ENOUGH && start.elapsed() < BUDGET {
                let lengths = match samples.len() % LONGER_EVERY {
                    0 => LENGTHS.len(),
                    _ => 1,
                };
                let sample = Measured::by(&mut rings, lengths)?;
                undisturbed += usize::from(sample.is_complete());
                samples.push(sample);
            }
            Some(told(&samples, priority))
        })
    })
}

fn all<T, const N: usize>(of: [Option<T>; N]) -> Option<Vec<T>> {
    of.into_iter().collect()
}

/// One sample, in nanoseconds. What was disturbed is absent.
#[derive(Default)]
struct Measured {
    schedule: Option<f64>,
    wakeup: Option<f64>,
    /// A hop between two threads.
    hop: Option<f64>,
    /// `s` in rings of threads and of processes, by length.
    rest: [[Option<f64>; LENGTHS.len()]; 2],
}

impl Measured {
    /// Measures rings of the first so many lengths; `None` if a ring has ended.
    fn by(rings: &mut [Vec<Ring>; 2], lengths: usize) -> Option<Measured> {
        let mut measured = Measured {
            schedule: schedule(),
            wakeup: rings[0][0].wakeup()?,
            ..Measured::default()
        };
        for length in 0..lengths {
            let mut hops = [[None; OWN.len()]; 2];
            for (own, &calls) in OWN.iter().enumerate() {
                for (hops, rings) in hops.iter_mut().zip(&mut *rings) {
                    hops[own] = rings[length].hop(calls)?;
                }
            }
            if length == 0 {
                measured.hop = hops[0][0];
            }
            for (rest, hops) in measured.rest.iter_mut().zip(hops) {
                rest[length] = all(hops).and_then(|hops| beyond_calls(&hops));
            }
        }
        Some(measured)
    }

    /// Whether all is there that figures are made of.
    fn is_complete(&self) -> bool {
        let pairs = self.rest.map(|by_length| by_length[0]);
        let values = [self.schedule, self.wakeup, pairs[0], pairs[1]];
        values.iter().all(Option::is_some)
    }
}

/// `sched_yield()` with nobody else to run, less a system call.
fn schedule() -> Option<f64> {
    let series = |call: &dyn Fn()| {
        let ps = undisturbed(|| {
            let start = Instant::now();
            (0..CALLS).for_each(|_| call());
            Some(ps_each(start, CALLS))
        });
        ps.map(|ps| ps as f64 / 1e3)
    };
    let syscall = series(&|| {
        std::hint::black_box(getppid());
    });
    Some(series(&sched_yield)? - syscall?)
}

/// Returns what a hop takes beyond its write and read, of hops with each number of [`OWN`] calls.
fn beyond_calls(hops: &[f64]) -> Option<f64> {
    let own = OWN.iter().map(|&calls| f64::from(calls));
    let points: Vec<(f64, f64)> = own.zip(hops.iter().copied()).collect();
    let (without, with) = points.split_first()?;
    Some(without.1 - slope(with)?)
}

/// Returns the slope of the line with the least squares.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| {
        points.iter().map(of).sum::<f64>() / points.len().max(1) as f64
    };
    let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
    let variance = mean(&|point| (point.0 - x).powi(2));
    let covariance = mean(&|point| (point.0 - x) * (point.1 - y));
    (variance > 0.0).then(|| covariance / variance)
}

/// Makes figures of the samples.
fn told(samples: &[Measured], priority: &str) -> Switches {
    let values = |of: &dyn Fn(&Measured) -> Option<f64>| -> Vec<f64> {
        let ns = samples.iter().filter_map(of);
        ns.map(|ns| ns * 1e3).collect()
    };
    let figure = |of: &dyn Fn(&Measured) -> Option<f64>| {
        let values = values(of);
        (values.len() >= SAMPLES_MIN).then(|| Figure::of(values))?
    };
    let less = |whole: Option<f64>, part: Option<f64>| Some(whole? - part?);
    let growth = [0, 1].map(|kind| {
        let longer = (1..LENGTHS.len()).filter_map(|length| {
            let more = figure(&|one| less(one.rest[kind][length], one.rest[kind][0]))?;
            Some(format!("{} ns with {}", more.signed_ns(), LENGTHS[length]))
        });
        let longer: Vec<_> = longer.collect();
        match longer.is_empty() {
            true => String::new(),
            false => format!("; longer rings add {}", longer.join(", ")),
        }
    });
    let used = samples.iter().filter(|one| one.is_complete()).count();
    Switches {
        schedule: figure(&|one| one.schedule),
        wakeup: figure(&|one| one.wakeup),
        hop: figure(&|one| one.hop),
        threads: figure(&|one| less(one.rest[0][0], one.wakeup)),
        processes: figure(&|one| less(one.rest[1][0], one.wakeup)),
        change: figure(&|one| less(one.rest[1][0], one.rest[0][0])),
        method: format!(
            "regression over 0, 1, 3 and 7 own calls, {used} of {} samples undisturbed{priority}",
            samples.len()
        ),
        growth,
    }
}

/// A pipe whose ends a task has both.
struct Own {
    reader: PipeReader,
    writer: PipeWriter,
}

impl Own {
    fn new() -> Option<Own> {
        let (reader, writer) = pipe().ok()?;
        Some(Own { reader, writer })
    }

    /// A write and the read of it; returns how long the write took.
    fn call(&mut self) -> Option<Duration> {
        let mut byte = [0];
        let start = Instant::now();
        self.writer.write_all(&byte).ok()?;
        let took = start.elapsed();
        (self.reader.read(&mut byte).ok()? == 1).then_some(took)
    }

    fn calls(&mut self, times: u8) -> Option<()> {
        let mut byte = [0];
        for _ in 0..times {
            self.writer.write_all(&byte).ok()?;
            (self.reader.read(&mut byte).ok()? == 1).then_some(())?;
        }
        Some(())
    }
}

/// A task's ends of pipes. Its code makes plain system calls and does not allocate, as it runs in forked processes too.
struct Member {
    input: PipeReader,
    output: PipeWriter,
    own: Own,
    /// By how much writes to the next task took longer than those to the own pipe, while they are timed.
    waking_ns: i64,
}

impl Member {
    fn descriptors(&self) -> [RawFd; 4] {
        [
            self.input.as_raw_fd(),
            self.output.as_raw_fd(),
            self.own.reader.as_raw_fd(),
            self.own.writer.as_raw_fd(),
        ]
    }

    /// Passes on the token until the task before ends.
    fn serve(mut self) {
        while self.receive().is_some_and(|token| self.pass(token)) {}
    }

    fn receive(&mut self) -> Option<Token> {
        let mut bytes = [0; Tally::BYTES];
        match self.input.read(&mut bytes).ok()? {
            1 => Some(Token::Hop(bytes[0])),
            Tally::BYTES => Some(Token::Tally(Tally::of(bytes))),
            // The task before has ended.
            _ => None,
        }
    }

    fn pass(&mut self, token: Token) -> bool {
        let passed = match token {
            Token::Hop(TIMED) => self.timed_hop(),
            Token::Hop(own) => self
                .own
                .calls(own)
                .and_then(|()| self.output.write_all(&[own]).ok()),
            Token::Tally(tally) => {
                let bytes = tally.and(self.waking_ns).bytes();
                self.output.write_all(&bytes).ok()
            }
        };
        passed.is_some()
    }

    fn timed_hop(&mut self) -> Option<()> {
        // The pipe is cold before.
        self.own.calls(1)?;
        let alone = self.own.call()?;
        let start = Instant::now();
        self.output.write_all(&[TIMED]).ok()?;
        let waking = start.elapsed();
        self.waking_ns += waking.as_nanos() as i64 - alone.as_nanos() as i64;
        Some(())
    }
}

/// A message that goes round.
#[derive(Clone, Copy)]
enum Token {
    /// One byte: the number of own calls, or [`TIMED`].
    Hop(u8),
    /// More bytes: each task adds its counters.
    Tally(Tally),
}

/// Counters of all tasks of a ring.
#[derive(Clone, Copy, Default, Debug)]
struct Tally {
    preemptions: i64,
    cpu_ns: i64,
    waking_ns: i64,
}

impl Tally {
    const BYTES: usize = 24;

    fn of(bytes: [u8; Self::BYTES]) -> Tally {
        let (words, _) = bytes.as_chunks();
        Tally {
            preemptions: i64::from_ne_bytes(words[0]),
            cpu_ns: i64::from_ne_bytes(words[1]),
            waking_ns: i64::from_ne_bytes(words[2]),
        }
    }

    fn bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (words, _) = bytes.as_chunks_mut();
        words[0] = self.preemptions.to_ne_bytes();
        words[1] = self.cpu_ns.to_ne_bytes();
        words[2] = self.waking_ns.to_ne_bytes();
        bytes
    }

    /// With the counters of the calling task.
    fn and(self, waking_ns: i64) -> Tally {
        let ran = clock_gettime(ClockId::ThreadCPUTime);
        Tally {
            preemptions: self.preemptions + preemptions(),
            cpu_ns: self.cpu_ns + ran.tv_sec * 1_000_000_000 + ran.tv_nsec,
            waking_ns: self.waking_ns + waking_ns,
        }
    }
}

/// A ring, as the task has it that sends the token and times the laps.
struct Ring {
    length: usize,
    /// `None` once the ring is to end.
    leader: Option<Member>,
    children: Vec<Pid>,
}

impl Ring {
    /// The leader and the others of a ring.
    fn members(length: usize) -> Option<(Ring, Vec<Member>)> {
        let pipes: Option<Vec<_>> = (0..length).map(|_| pipe().ok()).collect();
        let (inputs, mut outputs): (Vec<_>, Vec<_>) = pipes?.into_iter().unzip();
        // Each writes to the pipe that the next one reads.
        outputs.rotate_left(1);
        let ends = inputs.into_iter().zip(outputs);
        let members = ends.map(|(input, output)| {
            Some(Member {
                input,
                output,
                own: Own::new()?,
                waking_ns: 0,
            })
        });
        let mut members = members.collect::<Option<Vec<_>>>()?;
        let ring = Ring {
            length,
            leader: Some(members.remove(0)),
            children: Vec::new(),
        };
        Some((ring, members))
    }

    /// Threads on the caller's CPU. They end when the ring is dropped.
    fn of_threads<'scope>(length: usize, scope: &'scope Scope<'scope, '_>) -> Option<Ring> {
        let (ring, others) = Ring::members(length)?;
        for member in others {
            let thread = thread::Builder::new().spawn_scoped(scope, move || member.serve());
            thread.ok()?;
        }
        Some(ring)
    }

    /// Processes on the caller's CPU, which is the first of them. The others end when the ring is dropped, and when this process ends.
    fn of_processes(length: usize) -> Option<Ring> {
        let (mut ring, others) = Ring::members(length)?;
        for member in others {
            let child = fork(move || {
                // With copies of the others' ends it would never see that they have ended.
                if close_all_but(member.descriptors()) {
                    member.serve();
                }
            });
            ring.children.push(child?);
        }
        Some(ring)
    }

    fn lap(&mut self, token: u8) -> Option<()> {
        let leader = self.leader.as_mut()?;
        leader.pass(Token::Hop(token)).then_some(())?;
        leader.receive().map(|_| ())
    }

    /// The counters of all, and when the leader's were read.
    fn tally(&mut self) -> Option<(Instant, Tally)> {
        let leader = self.leader.as_mut()?;
        let now = Instant::now();
        leader.pass(Token::Tally(Tally::default())).then_some(())?;
        match leader.receive()? {
            Token::Tally(tally) => Some((now, tally)),
            Token::Hop(_) => None,
        }
    }

    /// A series of laps: the time of a hop, and by how much a timed write to the next task took longer, in
    /// nanoseconds. `None` if the ring has ended, `Some(None)` if the series was disturbed.
    fn series(&mut self, token: u8) -> Option<Option<(f64, f64)>> {
        // Counting is the first lap, too, in which what the other rings displaced comes back.
        let (begun, before) = self.tally()?;
        let laps = HOPS.div_ceil(self.length);
        let start = Instant::now();
        for _ in 0..laps {
            self.lap(token)?;
        }
        let took = start.elapsed();
        let (ended, after) = self.tally()?;
        let ran = (after.cpu_ns - before.cpu_ns) as f64;
        let alone = ran >= SHARE_MIN * (ended - begun).as_nanos() as f64;
        let hops = (laps * self.length) as f64;
        let each = |ns: f64| ns / hops;
        let result = (
            each(took.as_nanos() as f64),
            each((after.waking_ns - before.waking_ns) as f64),
        );
        Some((alone && after.preemptions == before.preemptions).then_some(result))
    }

    fn hop(&mut self, own: u8) -> Option<Option<f64>> {
        Some(self.series(own)?.map(|(hop, _)| hop))
    }

    fn wakeup(&mut self) -> Option<Option<f64>> {
        Some(self.series(TIMED)?.map(|(_, waking)| waking))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The next task reads the end of the file, ends, and so on round the ring.
        self.leader = None;
        for &child in &self.children {
            let _ = waitpid(Some(child), WaitOptions::empty());
        }
    }
}

/// Closes a forked child's copies of all descriptors but these and the standard ones. False where the kernel cannot.
fn close_all_but(mut kept: [RawFd; 4]) -> bool {
    kept.sort_unstable();
    let mut first = 3;
    for next in kept.into_iter().chain([RawFd::MAX]) {
        if first < next {
            // SAFETY: only called in a forked child, which uses none of these descriptors and leaves by `_exit` without
            // running destructors.
            let failed = unsafe { libc::syscall(libc::SYS_close_range, first, next - 1, 0) };
            if failed != 0 {
                return false;
            }
        }
        first = next.saturating_add(1);
    }
    true
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// The result of `work` on another thread, which must not take long: a ring that hangs would hang the tests.
    fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        thread::spawn(move || done.send(work()));
        let result = result.recv_timeout(Duration::from_secs(30));
        result.expect("it ends by itself")
    }

    #[test]
    fn rounds_computed_by_hand_give_calls_and_rest() {
        // A write and a read take 450 ns, the first own pair 100 more, and the rest of a hop 1,000.
        let hops = [1_450.0, 2_000.0, 2_900.0, 4_700.0];
        assert_eq!(beyond_calls(&hops), Some(1_000.0));
        // The means are 2 and 20, the deviations -1, 0, 1 and -7, 2, 5: (7 + 0 + 5) / (1 + 0 + 1).
        let points = [(1.0, 13.0), (2.0, 22.0), (3.0, 25.0)];
        assert_eq!(slope(&points), Some(6.0));
        assert_eq!(slope(&points[..1]), None);
        assert_eq!(slope(&[]), None);
    }

    #[test]
    fn a_disturbed_series_is_in_no_figure() {
        let sample = |n: usize| Measured {
            schedule: Some(130.0),
            wakeup: n.is_multiple_of(2).then_some(200.0 + n as f64),
            hop: Some(1_500.0),
            rest: [[Some(1_000.0 + n as f64), Some(1_030.0 + n as f64), None]; 2],
        };
        let samples: Vec<Measured> = (0..2 * SAMPLES_MIN).map(sample).collect();
        let switches = told(&samples, "");
        // The wakeup and the rest of a sample rise alike, so their difference has no spread.
        let rest = switches.threads.unwrap();
        assert_eq!(rest.to_string(), "800 ns, p10–p90 800 to 800 ns");
        assert_eq!(switches.change.unwrap().ps(), None);
        assert!(
            switches.method.ends_with("20 of 40 samples undisturbed"),
            "{}",
            switches.method
        );
        assert_eq!(switches.growth[0], "; longer rings add +30.0 ns with 4");
        // One sample fewer is too few.
        assert!(told(&samples[2..], "").threads.is_none());
    }

    #[test]
    fn the_token_comes_back_and_counts_the_tasks() {
        let took = in_time(|| {
            thread::scope(|scope| {
                let threads = Ring::of_threads(3, scope)?;
                let rings = [threads, Ring::of_processes(3)?];
                rings
                    .map(|mut ring| {
                        ring.lap(0)?;
                        let (_, before) = ring.tally()?;
                        for token in [0, 7, TIMED] {
                            ring.lap(token)?;
                        }
                        let (_, after) = ring.tally()?;
                        Some((before, after))
                    })
                    .into_iter()
                    .collect::<Option<Vec<_>>>()
            })
        });
        for (before, after) in took.expect("rings of threads and of processes") {
            // Own calls take time on each of the CPUs, and a write that is not timed is not counted.
            assert!(after.cpu_ns > before.cpu_ns, "{before:?} {after:?}");
            assert_eq!(before.waking_ns, 0);
            assert_ne!(after.waking_ns, 0);
        }
    }

    #[test]
    fn a_ring_ends_when_its_leader_does() {
        let children = in_time(|| {
            let ring = Ring::of_processes(4)?;
            let children = ring.children.clone();
            thread::scope(|scope| {
                let threads = Ring::of_threads(4, scope);
                // The children have copies of no end of this ring, nor this one of theirs.
                drop(threads);
            });
            drop(ring);
            Some(children)
        });
        let children = children.expect("a ring of processes");
        assert_eq!(children.len(), 3);
        for child in children {
            // It was waited for: it is no child any more.
            assert!(waitpid(Some(child), WaitOptions::NOHANG).is_err());
        }
    }

    #[test]
    fn a_ring_with_a_dead_task_says_so() {
        let laps = in_time(|| {
            let mut ring = Ring::of_processes(4)?;
            ring.lap(1)?;
            rustix::process::kill_process(ring.children[1], rustix::process::Signal::KILL).ok()?;
            // The first laps may find it alive.
            Some((0..1_000).take_while(|_| ring.lap(1).is_some()).count())
        });
        assert!(laps.expect("a ring of processes") < 1_000);
    }

    #[test]
    fn on_a_cpu_that_is_not_there_nothing_is_measured() {
        assert!(in_time(|| switches(100_000).is_none()));
        assert!(in_time(|| switches(usize::MAX).is_none()));
    }
}
