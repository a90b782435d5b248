//! Objects of the kernel that calls of tasks share, in cases computed by hand: accesses cost nothing but what a test says.

use schedlab_machine::{KernelPath, Machine, Scope, SharedObject};
use schedlab_trace::{Event, Instant};
use schedlab_workload::{Action, ObjectId, ObjectSpec, TaskSpec};

use crate::testing::*;

fn object(paths: &[KernelPath], scope: Scope) -> SharedObject {
    SharedObject {
        paths: paths.to_vec(),
        scope,
        hold_ns: None,
        atomics: 0,
        lines: 0,
        per_cpu: None,
        buckets: None,
    }
}

/// A machine on which memory is free, with these objects.
fn free_memory(nr_cpus: usize, objects: &[SharedObject]) -> Machine {
    let mut machine = machine(nr_cpus);
    let memory = &mut machine.memory;
    (memory.hit_ps, memory.llc_hit_ps, memory.miss_ps) = (0, 0, 0);
    (memory.transfer_llc_ps, memory.atomic_ps, memory.bus_ps) = (0, 0, 0);
    machine.locks.meter_ns = 0;
    machine.locks.handover_ns = 100;
    let named = objects.iter().enumerate();
    machine.shared = named
        .map(|(n, object)| (format!("o{n}"), object.clone()))
        .collect();
    machine
}

const AT_ONCE: Instant = Instant::from_ns(1_000_000);

/// A task on `cpu` that writes `times` one-byte messages to `to` from the instant [`AT_ONCE`] on.
fn sender(cpu: u32, to: u32, times: u32) -> TaskSpec {
    let spec = task("s", move |n, _| match n {
        0 => Some(Action::SleepUntil(AT_ONCE)),
        n if n <= times => Some(Action::Write {
            to: ObjectId(to),
            bytes: 1,
        }),
        _ => None,
    });
    on_cpus(spec, &cpu.to_string())
}

fn reader(cpu: u32, from: u32, times: u32) -> TaskSpec {
    let spec = task("r", move |n, _| {
        (n < times).then(|| Action::Read {
            from: ObjectId(from),
            limit: 1,
        })
    });
    on_cpus(spec, &cpu.to_string())
}

fn sockets(nr: usize) -> Vec<ObjectSpec> {
    vec![ObjectSpec::Socket { capacity: 10_000 }; nr]
}

fn run(machine: Machine, objects: Vec<ObjectSpec>, tasks: Vec<TaskSpec>) -> Checked {
    let checked = run_checked(
        scenario_of(machine, workload(objects, tasks)),
        Stub::fifo(&[]),
    );
    checked.is_done();
    checked
}

/// How long each shared object's lock was held, in order, and when those who waited got one, since the first one was
/// taken.
fn holds_and_ends_of_waits(checked: &Checked) -> (Vec<u64>, Vec<u64>) {
    let shared = &checked.end.recorder.1.shared_locks;
    let mut first = None;
    let (mut holds, mut ends) = (Vec::new(), Vec::new());
    for &(at, _, event) in &checked.events {
        match event {
            Event::LockReleased { lock, held } if shared.contains(&lock) => holds.push(held.ns()),
            Event::LockAcquired {
                lock, contended, ..
            } if shared.contains(&lock) => {
                let first = *first.get_or_insert(at);
                if contended {
                    ends.push(at - first);
                }
            }
            _ => {}
        }
    }
    (holds, ends)
}

/// Two CPUs send at once through a device whose lock is held for 10 µs: the second one waits 10 µs and for the hand-over.
#[test]
fn the_second_sender_waits_for_the_first_and_the_hand_over() {
    let device = SharedObject {
        hold_ns: Some(10_000),
        ..object(&[KernelPath::Send], Scope::Machine)
    };
    let machine = free_memory(2, &[device]);
    let tasks = vec![sender(0, 0, 1), sender(1, 1, 1)];
    let (holds, ends) = holds_and_ends_of_waits(&run(machine, sockets(2), tasks));
    assert_eq!(holds, [10_000, 10_000]);
    assert_eq!(ends, [10_100]);
}

/// Three of them: the last one waits for two holds and two hand-overs, the first of which had two spinners.
#[test]
fn the_third_sender_waits_for_both() {
    let device = SharedObject {
        hold_ns: Some(10_000),
        ..object(&[KernelPath::Send], Scope::Machine)
    };
    let mut machine = free_memory(3, &[device]);
    machine.locks.kind = schedlab_machine::LockKind::Tas;
    machine.locks.handover_per_spinner_ns = 30;
    let tasks = vec![sender(0, 0, 1), sender(1, 1, 1), sender(2, 2, 1)];
    let (_, ends) = holds_and_ends_of_waits(&run(machine, sockets(3), tasks));
    assert_eq!(ends, [10_130, 20_230]);
}

/// The same with one of each socket: nobody waits, unless both write to the same one.
#[test]
fn a_lock_of_an_object_is_shared_by_its_users_alone() {
    let lock = |buckets| SharedObject {
        hold_ns: Some(10_000),
        buckets,
        ..object(&[KernelPath::Send], Scope::Object)
    };
    let waits = |to, buckets| {
        let machine = free_memory(2, &[lock(buckets)]);
        let tasks = vec![sender(0, 0, 1), sender(1, to, 1)];
        holds_and_ends_of_waits(&run(machine, sockets(3), tasks)).1
    };
    assert_eq!(waits(1, None), []);
    assert_eq!(waits(0, None), [10_100]);
    // Two buckets: sockets 0 and 2 are in one.
    assert_eq!(waits(1, Some(2)), []);
    assert_eq!(waits(2, Some(2)), [10_100]);
}

#[test]
fn a_lock_of_a_process_is_shared_by_its_threads() {
    let table = SharedObject {
        hold_ns: Some(10_000),
        ..object(&[KernelPath::Send], Scope::Process)
    };
    let waits = |spaces: [Option<u32>; 2]| {
        let [mut one, mut other] = [sender(0, 0, 1), sender(1, 1, 1)];
        [one.address_space, other.address_space] = spaces;
        let machine = free_memory(2, std::slice::from_ref(&table));
        holds_and_ends_of_waits(&run(machine, sockets(2), vec![one, other])).1
    };
    assert_eq!(waits([Some(3), Some(3)]), [10_100]);
    assert_eq!(waits([Some(3), Some(4)]), []);
    assert_eq!(waits([None, None]), []);
}

/// The time of a run in which CPU 0 writes five messages, and CPU 1 reads them later.
fn five_messages(objects: &[SharedObject], transfer_llc_ps: u64) -> u64 {
    let mut machine = free_memory(2, objects);
    machine.memory.transfer_llc_ps = transfer_llc_ps;
    let read_later = task("r", move |n, _| match n {
        0 => Some(Action::SleepUntil(Instant::from_ns(2_000_000))),
        1..=5 => Some(Action::Read {
            from: ObjectId(0),
            limit: 1,
        }),
        _ => None,
    });
    let tasks = vec![sender(0, 0, 5), on_cpus(read_later, "1")];
    let checked = run(machine, sockets(1), tasks);
    checked.end.makespan.unwrap().ns()
}

/// Each line that another CPU has written costs a transfer; what a CPU has written itself costs nothing here.
#[test]
fn a_line_costs_a_transfer_after_another_cpu_wrote_it() {
    let data = SharedObject {
        atomics: 2,
        lines: 3,
        ..object(&[KernelPath::Send, KernelPath::Receive], Scope::Object)
    };
    let data = std::slice::from_ref(&data);
    // The first read moves four lines of one microsecond each: the counter's and three more.
    let with_lines = five_messages(data, 1_000_000) - five_messages(&[], 1_000_000);
    let free = five_messages(data, 0) - five_messages(&[], 0);
    assert_eq!((with_lines, free), (4_000, 0));
}

/// A message's buffer comes over to its reader: one line of its head and one of its data.
#[test]
fn a_message_moves_with_its_buffer() {
    let message = SharedObject {
        lines: 1,
        per_cpu: Some(2),
        ..object(&[KernelPath::Send, KernelPath::Receive], Scope::Message)
    };
    let message = std::slice::from_ref(&message);
    let moved = five_messages(message, 1_000_000) - five_messages(&[], 1_000_000);
    // Five messages, two lines each, a microsecond a line.
    assert_eq!(moved, 10_000);
    assert_eq!(five_messages(message, 0), five_messages(&[], 0));
}

/// Buffers that one CPU takes and another frees go through the common list, under its lock: here each second one.
#[test]
fn buffers_go_back_in_batches_under_a_lock() {
    let message = SharedObject {
        hold_ns: Some(5_000),
        lines: 1,
        per_cpu: Some(4),
        ..object(&[KernelPath::Send, KernelPath::Receive], Scope::Message)
    };
    let machine = free_memory(2, &[message]);
    let tasks = vec![sender(0, 0, 40), reader(1, 0, 40)];
    let (holds, _) = holds_and_ends_of_waits(&run(machine, sockets(1), tasks));
    assert!(holds.iter().all(|&ns| ns == 5_000), "{holds:?}");
    let batches = holds.len();
    // The reader leaves two of each two that come beyond its four; the writer takes two at a time, or a new one.
    assert!((30..=50).contains(&batches), "{batches}: {holds:?}");
}

#[test]
fn forks_and_exits_use_what_is_theirs() {
    let list = |paths: &[KernelPath]| SharedObject {
        hold_ns: Some(7_000),
        ..object(paths, Scope::Machine)
    };
    let holds = |paths: &[KernelPath]| {
        let machine = free_memory(1, &[list(paths)]);
        let parent = task("parent", |n, _| {
            (n < 3).then(|| Action::Fork(Box::new(periodic("child", 1, 0, 1))))
        });
        let (holds, _) = holds_and_ends_of_waits(&run(machine, Vec::new(), vec![parent]));
        assert!(holds.iter().all(|&ns| ns == 7_000), "{holds:?}");
        holds.len()
    };
    let none = holds(&[KernelPath::Futex]);
    assert_eq!(none, 0);
    // The main thread creates the parent and ends, too.
    assert_eq!(holds(&[KernelPath::Exec, KernelPath::Fault]), 0);
    let forks = holds(&[KernelPath::Fork]);
    let exits = holds(&[KernelPath::Exit]);
    assert!((3..=5).contains(&forks), "{forks}");
    assert!((4..=5).contains(&exits), "{exits}");
    assert_eq!(holds(&[KernelPath::Fork, KernelPath::Exit]), forks + exits);
}

/// Page faults go through what they share one by one, and each takes its time; threads of one process wait for each other.
#[test]
fn faults_use_what_is_theirs_one_by_one() {
    let table = SharedObject {
        hold_ns: Some(10_000),
        ..object(&[KernelPath::Fault], Scope::Process)
    };
    let toucher = |cpu: u32| {
        let spec = task("f", |n, _| match n {
            0 => Some(Action::SleepUntil(AT_ONCE)),
            1 => Some(Action::Fault(3)),
            _ => None,
        });
        let mut spec = on_cpus(spec, &cpu.to_string());
        spec.address_space = Some(3);
        spec
    };
    let mut machine = free_memory(2, &[table]);
    machine.paths.fault_ns = Some(2_000);
    let checked = run(machine, Vec::new(), vec![toucher(0), toucher(1)]);
    let (holds, ends) = holds_and_ends_of_waits(&checked);
    assert_eq!(holds, [10_000; 6]);
    // A: 0-10, B: waits to 10.1, A: 12, waits for B's end at 20.1, and so on by turns.
    assert_eq!(ends, [10_100, 20_200, 30_300, 40_400, 50_500]);
}

/// A fault takes the time of the profile, or of three system calls; an exec takes as long as a fork without one.
#[test]
fn faults_and_execs_take_the_times_of_the_profile() {
    let ran = |action: Action, set: fn(&mut Machine)| {
        let mut machine = free_memory(1, &[]);
        set(&mut machine);
        let cost = |action: Option<Action>| {
            let mut action = action;
            let spec = task("one", move |_, _| action.take());
            let end = run(machine.clone(), Vec::new(), vec![spec]).end;
            end.makespan.unwrap().ns()
        };
        cost(Some(action)) - cost(None)
    };
    let m = free_memory(1, &[]);
    assert_eq!(
        ran(Action::Fault(4), |m| m.paths.fault_ns = Some(700)),
        2_800
    );
    assert_eq!(
        ran(Action::Fault(4), |m| m.paths.fault_ns = None),
        12 * m.paths.syscall_ns
    );
    let exec = ran(Action::Exec, |m| m.paths.exec_ns = Some(90_000));
    assert_eq!(exec, m.paths.syscall_ns + 90_000);
    assert_eq!(
        ran(Action::Exec, |m| m.paths.exec_ns = None),
        m.paths.syscall_ns + m.paths.fork_ns
    );
}
