//! TCP over the loopback device, in cases computed by hand.

use std::sync::{Arc, Mutex};

use schedlab_machine::{Machine, Tcp};
use schedlab_trace::{Duration, Instant};
use schedlab_workload::{Action, ObjectId, ObjectSpec, Outcome, TaskSpec};

use crate::testing::*;

const THERE: ObjectId = ObjectId(0);
const BACK: ObjectId = ObjectId(1);
const BYTES: u32 = 10;

const SYSCALL_NS: u64 = 100;
const APPEND_NS: u64 = 2_000;
const TRANSMIT_NS: u64 = 8_000;
const RECEIVE_NS: u64 = 5_000;
const ACK_NS: u64 = 3_000;

/// Two CPUs on which a system call takes the time of its path alone.
fn loopback(ack_ns: u64) -> Machine {
    let mut machine = machine(2);
    machine.paths.syscall_ns = SYSCALL_NS;
    machine.paths.socket_send_ns = APPEND_NS + TRANSMIT_NS;
    machine.paths.socket_recv_ns = RECEIVE_NS;
    machine.tcp = Some(Tcp {
        mss_bytes: 1_000,
        window_bytes: 3_000,
        append_ns: APPEND_NS,
        ack_ns,
    });
    machine
}

fn connection(capacity: u32) -> Vec<ObjectSpec> {
    let direction = |is_first| ObjectSpec::Tcp { capacity, is_first };
    vec![direction(true), direction(false)]
}

/// Notes of a task: when each of its actions began, and the outcome of the one before.
type Log = Arc<Mutex<Vec<(Instant, Outcome)>>>;

/// A task on `cpu` that sleeps until `at`, then does what `step` says.
fn acting(
    cpu: u32,
    at: Instant,
    mut step: impl FnMut(u32) -> Option<Action> + Send + 'static,
) -> (TaskSpec, Log) {
    let log = Log::default();
    let noted = Arc::clone(&log);
    let spec = task("t", move |n, context| match n {
        0 => Some(Action::SleepUntil(at)),
        n => {
            noted.lock().unwrap().push((context.now, context.outcome));
            step(n - 1)
        }
    });
    (on_cpus(spec, &cpu.to_string()), log)
}

fn writer(at: Instant, times: u32) -> (TaskSpec, Log) {
    acting(0, at, move |n| {
        (n < times).then_some(Action::Write {
            to: THERE,
            bytes: BYTES,
        })
    })
}

fn reader(at: Instant, times: u32, limit: u32) -> (TaskSpec, Log) {
    acting(1, at, move |n| {
        (n < times).then_some(Action::Read { from: THERE, limit })
    })
}

fn run(machine: Machine, capacity: u32, tasks: Vec<TaskSpec>) {
    let checked = run_checked(
        scenario_of(machine, workload(connection(capacity), tasks)),
        Stub::fifo(&[]),
    );
    checked.is_done();
}

/// How long each action took.
fn durations(log: &Log) -> Vec<u64> {
    let log = log.lock().unwrap();
    let times = log.windows(2);
    times.map(|two| two[1].0.since(two[0].0).ns()).collect()
}

/// Messages that a reader got, of each read.
fn messages(log: &Log) -> Vec<u32> {
    let log = log.lock().unwrap();
    let of = |&(_, outcome): &(Instant, Outcome)| match outcome {
        Outcome::Messages(n) => Some(n),
        _ => None,
    };
    log.iter().filter_map(of).collect()
}

const fn ms(ms: u64) -> Instant {
    Instant::from_ns(ms * 1_000_000)
}

/// While a connection is young, each segment that nobody waits for is acknowledged at once, so each write transmits. The 17th
/// is not, so the later ones wait in the sender's queue. The read that leaves nothing sends them all off.
#[test]
fn messages_gather_until_the_reader_has_read_all() {
    let (writes, written) = writer(ms(1), 30);
    let (reads, read) = reader(ms(5), 30, 1);
    run(loopback(ACK_NS), 10_000, vec![writes, reads]);
    let append = SYSCALL_NS + APPEND_NS;
    let expected = [
        vec![append + TRANSMIT_NS + ACK_NS; 16],
        vec![append + TRANSMIT_NS],
        vec![append; 13],
    ];
    assert_eq!(durations(&written), expected.concat());
    let receive = SYSCALL_NS + RECEIVE_NS;
    let expected = [
        vec![receive; 16],
        vec![receive + ACK_NS + TRANSMIT_NS],
        vec![receive; 12],
        vec![receive + ACK_NS],
    ];
    assert_eq!(durations(&read), expected.concat());
    assert_eq!(messages(&read), [1; 30]);
}

/// Nobody reads: the timer acknowledges the 17th segment after 40 ms, and the others go.
#[test]
fn an_acknowledgement_is_delayed_for_40_ms_at_most() {
    for (at, there) in [(ms(39), 17), (ms(42), 30)] {
        let (writes, _) = writer(ms(1), 30);
        let (reads, read) = reader(at, 1, 100);
        run(loopback(ACK_NS), 10_000, vec![writes, reads]);
        assert_eq!(messages(&read), [there]);
    }
}

/// In Linux 2.4 timers expire with a tick: the fourth one, at 100 ticks a second, is 30 to 40 ms away.
#[test]
fn a_delayed_acknowledgement_comes_with_a_tick() {
    for (at, there) in [(ms(39), 17), (ms(41), 30)] {
        let mut machine = loopback(ACK_NS);
        machine.hz = 100;
        machine.timers = schedlab_machine::Timers::Jiffies;
        // Its sleep ends with a tick, too.
        let (writes, _) = acting(0, ms(0), |n| {
            (n < 30).then_some(Action::Write {
                to: THERE,
                bytes: BYTES,
            })
        });
        let (reads, read) = acting(1, ms(0), move |n| match n {
            0 => Some(Action::Compute(at.since(Instant::ZERO))),
            1 => Some(Action::Read {
                from: THERE,
                limit: 100,
            }),
            _ => None,
        });
        run(machine, 10_000, vec![writes, reads]);
        assert_eq!(messages(&read), [there]);
    }
}

/// A full segment goes though another one is under way, as much as the window takes; what remains is a short one.
#[test]
fn full_segments_do_not_wait() {
    let (writes, written) = writer(ms(1), 17 + 150);
    let (reads, read) = reader(ms(20), 1, 1_000);
    run(loopback(ACK_NS), 10_000, vec![writes, reads]);
    let append = SYSCALL_NS + APPEND_NS;
    let of_gathered = &durations(&written)[17..];
    let transmitting: Vec<usize> = (0..150).filter(|&n| of_gathered[n] > append).collect();
    // The 100th of them fills a segment of 1,000 bytes. It is acknowledged at once, more than one full segment being
    // unacknowledged. So the 101st, a short one, finds nothing under way.
    assert_eq!(transmitting, [99, 100]);
    assert_eq!(of_gathered[99], append + TRANSMIT_NS + ACK_NS);
    assert_eq!(of_gathered[100], append + TRANSMIT_NS);
    assert_eq!(messages(&read), [17 + 101]);
}

/// A writer waits when its buffer is full, having sent off what it has; each delayed acknowledgement makes room.
#[test]
fn a_full_buffer_blocks_the_writer() {
    let (writes, written) = writer(ms(1), 60);
    let (reads, read) = reader(ms(500), 60, 1);
    run(loopback(ACK_NS), 100, vec![writes, reads]);
    let log = written.lock().unwrap();
    // The 16 at once, one under way, nine gathered.
    let by = |at| log.iter().filter(|&&(began, _)| began <= at).count() - 1;
    assert_eq!(by(ms(40)), 26);
    assert_eq!(by(ms(80)), 26 + 10);
    assert_eq!(by(ms(120)), 26 + 20);
    assert_eq!(messages(&read).len(), 60);
}

/// An end that answers lets its data carry the acknowledgements.
#[test]
fn data_carries_the_acknowledgements_of_an_end_that_answers() {
    let rounds = 5;
    let (there, asked) = acting(0, ms(1), move |n| {
        (n < 2 * rounds).then(|| match n % 2 {
            0 => Action::Write {
                to: THERE,
                bytes: BYTES,
            },
            _ => Action::Read {
                from: BACK,
                limit: 1,
            },
        })
    });
    let (back, _) = acting(1, ms(0), move |n| {
        (n < 2 * rounds).then(|| match n % 2 {
            0 => Action::Read {
                from: THERE,
                limit: 1,
            },
            _ => Action::Write {
                to: BACK,
                bytes: BYTES,
            },
        })
    });
    run(loopback(10_000_000), 10_000, vec![there, back]);
    let taken: Vec<u64> = durations(&asked)
        .chunks(2)
        .map(|two| two[0] + two[1])
        .collect();
    // Each end acknowledges once before it has answered.
    assert!(taken[0] > 20_000_000, "{taken:?}");
    assert!(taken[1..].iter().all(|&ns| ns < 1_000_000), "{taken:?}");
}

/// Everything that is written is read once, whatever the buffer, the window and the size of a segment.
#[test]
fn no_message_is_lost() {
    for (capacity, mss, window, limit) in [
        (100, 1_000, 3_000, 1),
        (10_000, 25, 40, 3),
        (10_000, 1_000, 1_500, 100),
        (5, 3, 5, 1),
        (50, 10, 15, 7),
    ] {
        let mut machine = loopback(ACK_NS);
        let tcp = machine.tcp.as_mut().unwrap();
        (tcp.mss_bytes, tcp.window_bytes) = (mss, window);
        let write = |n| {
            (n < 600).then(|| match n % 3 {
                2 => Action::Compute(Duration::from_us(u64::from(n % 7) * 5 + 1)),
                _ => Action::Write {
                    to: THERE,
                    bytes: BYTES,
                },
            })
        };
        let (one, _) = acting(0, ms(1), write);
        let (other, _) = acting(1, ms(1), write);
        let left = Arc::new(Mutex::new(800_u32));
        let read = task("r", move |_, context| {
            let mut left = left.lock().unwrap();
            if let Outcome::Messages(n) = context.outcome {
                *left -= n;
            }
            (*left > 0).then(|| match *left % 5 {
                0 if !matches!(context.outcome, Outcome::Done) => {
                    Action::Compute(Duration::from_us(100))
                }
                _ => Action::Read { from: THERE, limit },
            })
        });
        let checked = run_checked(
            scenario_of(
                machine,
                workload(connection(capacity), vec![one, other, read]),
            ),
            Stub::fifo(&[]),
        );
        checked.is_done();
        assert!(
            checked.end.makespan.is_some(),
            "{capacity} {mss} {window} {limit}"
        );
    }
}
