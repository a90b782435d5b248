//! Inside the virtual machine: yielders under a policy, and who ran when.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use libbpf_rs::{Link, MapCore as _, MapFlags, ObjectBuilder};
use schedlab_kernel::bpf_policy;
use schedlab_kernel::load::{Loaded, Tasks, Terms};

use super::record::{Case, End, POLICIES, SIZES, Turn, yields};

/// The kernel's number of the policy SCHED_EXT (include/uapi/linux/sched.h).
const SCHED_EXT: i32 = 7;

/// Number of loads of a policy until no other task has cut in on a yield (see [`Fault::CutIn`]).
const ATTEMPTS: u32 = 10;

/// How much more of a turn the switches' clock may show than the policy was charged for, in ns: the policy
/// reads it in the same switch, some thousand instructions earlier at one end or the other. Here, where an
/// instruction takes 2 ns, 2.0 to 5.5 µs were seen in 9,000 turns.
const CLOCK_APART_NS: u64 = 10_000;

/// Prints one case a line, as JSON.
pub fn run(recorder: &Path, policies: &[String]) -> Result<(), String> {
    let recorder = fs::read(recorder).map_err(|e| format!("{}: {e}", recorder.display()))?;
    for (name, options) in POLICIES {
        if !policies.iter().any(|one| one == name) {
            continue;
        }
        let mut sizes = SIZES.to_vec();
        for attempt in 1..=ATTEMPTS {
            let cases = attempt_all(&recorder, name, options, &sizes)?;
            sizes.clear();
            for (size, case) in cases {
                match case {
                    Ok((turns, interruptions)) => {
                        let case = Case {
                            policy: name.to_owned(),
                            yielders: size,
                            attempts: attempt,
                            interruptions,
                            turns,
                        };
                        println!("{}", serde_json::to_string(&case).expect("plain data"));
                    }
                    Err(Fault::CutIn) => {
                        println!("# {name}, {size} yielders: another task cut in on a yield");
                        sizes.push(size);
                    }
                    Err(Fault::Wrong(what)) => {
                        return Err(format!("{name}, {size} yielders: {what}"));
                    }
                }
            }
            if sizes.is_empty() {
                break;
            }
        }
        ensure(sizes.is_empty(), || {
            format!("{name}: another task cut in on a yield each of {ATTEMPTS} times: {sizes:?}")
        })?;
    }
    Ok(())
}

fn ensure(condition: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(otherwise()) }
}

/// Why a record says nothing.
#[derive(Debug, PartialEq)]
pub enum Fault {
    /// An interrupt woke a task of a higher class between the two steps of sched_yield(): the policy has
    /// heard of the yield and is asked for the next task only after the yielder has been queued again,
    /// when that task is done. Rightly another order than without it.
    CutIn,
    /// Anything else: the kernel did what this test does not understand.
    Wrong(String),
}

type Outcome = Result<(Vec<Turn>, u32), Fault>;

/// Loads the policy once and has yielders of all sizes run under it, one size after the other.
fn attempt_all(
    recorder: &[u8],
    name: &str,
    options: &[(&str, &str)],
    sizes: &[u32],
) -> Result<Vec<(u32, Outcome)>, String> {
    let text = |error: schedlab_kernel::Error| error.to_string();
    // All of them are there, and asleep, before the policy: then it gives each the same.
    let groups: Vec<Group> = sizes.iter().map(|&n| Group::start(n)).collect();
    // A policy may know what ran on the CPU last; in the simulation it does.
    let first = Group::start(1);
    for group in groups.iter().chain([&first]) {
        group.wait_until_asleep()?;
    }
    // A page that has to be read would block a yielder in the middle of its turn. Not what is mapped
    // later: a policy's arena would be filled with pages.
    // SAFETY: takes no pointers.
    let locked = unsafe { libc::mlockall(libc::MCL_CURRENT) };
    ensure(locked == 0, || "memory cannot be locked".to_owned())?;
    let object = bpf_policy::resolve(name).map_err(text)?;
    let settings: Vec<(String, String)> = options
        .iter()
        .chain(&[("lab_keeps_place", "true")])
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    let terms = Terms {
        tasks: Tasks::Asking,
        ..Terms::default()
    };
    let loaded = Loaded::load_on(&object, &settings, terms).map_err(text)?;
    let recorder = Recorder::attach(recorder, &loaded)?;
    first.run()?;
    let mut cases = Vec::new();
    for (&size, group) in sizes.iter().zip(&groups) {
        let from = recorder.nr()?;
        let examined = examined(&loaded)?;
        group.run()?;
        let raw = recorder.read(from, recorder.nr()?)?;
        // The policy that charges by that clock shows whether it was read right.
        let charged = name == "vtime";
        cases.push((size, turns(&raw, &group.tids(), examined, charged)));
    }
    drop(recorder);
    ensure(loaded.is_running(), || {
        format!("{name} was ejected: {:?}", loaded.exit())
    })?;
    loaded.unload().map_err(text)?;
    groups.into_iter().chain([first]).for_each(Group::end);
    Ok(cases)
}

/// Tasks that the policy has examined so far; 0 where it does not count.
fn examined(policy: &Loaded) -> Result<u64, String> {
    // LAB_EXAMINED is the first of the probes.
    let probes = policy.per_cpu("lab_probes").map_err(|e| e.to_string())?;
    let cpus = probes.and_then(|probes| probes.into_iter().next());
    let number = |bytes: &Vec<u8>| u64::from_ne_bytes(bytes[..8].try_into().expect("8 bytes"));
    Ok(cpus.unwrap_or_default().iter().map(number).sum())
}

/// Threads that wait, yield so many times, and wait.
struct Group {
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

struct Shared {
    tids: Vec<AtomicU32>,
    go: AtomicBool,
    end: AtomicBool,
    /// Yielders that have not done all their yields.
    left: AtomicU32,
    main: Thread,
}

impl Group {
    fn start(size: u32) -> Group {
        let shared = Arc::new(Shared {
            tids: (0..size).map(|_| AtomicU32::new(0)).collect(),
            go: AtomicBool::new(false),
            end: AtomicBool::new(false),
            left: AtomicU32::new(size),
            main: thread::current(),
        });
        let threads = (0..size)
            .map(|number| {
                let shared = Arc::clone(&shared);
                let builder = thread::Builder::new().stack_size(64 << 10);
                let yielder = builder.spawn(move || yielder(number, yields(size), &shared));
                yielder.expect("a thread can be started")
            })
            .collect();
        Group { threads, shared }
    }

    fn tids(&self) -> Vec<u32> {
        self.shared.tids.iter().map(|t| t.load(SeqCst)).collect()
    }

    /// Wakes them in the order of their numbers; they run when this thread, which is of a higher class,
    /// leaves the CPU. Returns when all of them wait again.
    fn run(&self) -> Result<(), String> {
        self.shared.go.store(true, SeqCst);
        for yielder in &self.threads {
            yielder.thread().unpark();
        }
        while self.shared.left.load(SeqCst) > 0 {
            thread::park();
        }
        self.wait_until_asleep()
    }

    fn wait_until_asleep(&self) -> Result<(), String> {
        for _ in 0..10_000 {
            let asleep = |tid: u32| {
                let stat = fs::read_to_string(format!("/proc/self/task/{tid}/stat"));
                stat.is_ok_and(|stat| stat.rsplit(')').next().unwrap_or("").starts_with(" S"))
            };
            if self.tids().into_iter().all(|tid| tid > 0 && asleep(tid)) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Err("yielders are still awake after 20 s".to_owned())
    }

    fn end(self) {
        self.shared.end.store(true, SeqCst);
        for yielder in self.threads {
            yielder.thread().unpark();
            yielder.join().expect("yielding does not panic");
        }
    }
}

fn yielder(number: u32, yields: u32, shared: &Shared) {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: `param` lives through the call.
    let asked = unsafe { libc::sched_setscheduler(0, SCHED_EXT, &param) };
    assert_eq!(asked, 0, "a task may ask for SCHED_EXT");
    // SAFETY: takes nothing.
    let tid = unsafe { libc::gettid() };
    shared.tids[number as usize].store(tid.unsigned_abs(), SeqCst);
    while !shared.go.load(SeqCst) {
        thread::park();
    }
    for turn in 0..yields {
        // Unequal turns, so that an order by running time is not the order of arrival.
        // Counted by hand: an iterator may be the copy of another crate, without optimization, and time is counted in
        // instructions here.
        let mut left = (number * 7 + turn * 5) % 11 * 500;
        while left > 0 {
            left = std::hint::black_box(left) - 1;
        }
        thread::yield_now();
    }
    if shared.left.fetch_sub(1, SeqCst) == 1 {
        shared.main.unpark();
    }
    while !shared.end.load(SeqCst) {
        thread::park();
    }
}

/// `struct record` of order.bpf.c.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawSwitch {
    pub at_ns: u64,
    pub prev_vtime: u64,
    pub next_vtime: u64,
    pub examined: u64,
    pub prev: u32,
    pub next: u32,
    pub blocked: bool,
    pub yielding: bool,
    pub yields: u32,
}

impl RawSwitch {
    fn parse(bytes: &[u8]) -> RawSwitch {
        let long = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        RawSwitch {
            at_ns: long(0),
            prev_vtime: long(8),
            next_vtime: long(16),
            examined: long(24),
            prev: word(32),
            next: word(36),
            blocked: word(40) != 0,
            yielding: word(44) != 0,
            yields: word(48),
        }
    }
}

/// The programs of order.bpf.c at work.
struct Recorder {
    object: libbpf_rs::Object,
    _links: Vec<Link>,
}

impl Recorder {
    fn attach(bytes: &[u8], policy: &Loaded) -> Result<Recorder, String> {
        let text = |error: libbpf_rs::Error| format!("the recorder: {error}");
        let mut builder = ObjectBuilder::default();
        let mut open = builder.open_memory(bytes).map_err(text)?;
        for mut map in open.maps_mut() {
            // Its probes are read where it counts them.
            if map.name() == "lab_probes"
                && let Some(probes) = policy.map("lab_probes")
            {
                map.reuse_fd(std::os::fd::AsFd::as_fd(&probes))
                    .map_err(text)?;
            }
        }
        let object = open.load().map_err(text)?;
        let mut recorder = Recorder {
            object,
            _links: Vec::new(),
        };
        let mut state = recorder.state()?;
        state[..4].copy_from_slice(&std::process::id().to_ne_bytes());
        let zero = 0_u32.to_ne_bytes();
        let map = recorder.map("states");
        map.update(&zero, &state, MapFlags::ANY).map_err(text)?;
        for program in recorder.object.progs_mut() {
            recorder._links.push(program.attach().map_err(text)?);
        }
        Ok(recorder)
    }

    fn map(&self, name: &str) -> libbpf_rs::Map<'_> {
        let map = self.object.maps().find(|map| map.name() == name);
        map.expect("a map of order.bpf.c")
    }

    fn state(&self) -> Result<Vec<u8>, String> {
        let state = self
            .map("states")
            .lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        Ok(state.map_err(|e| e.to_string())?.expect("an array's entry"))
    }

    /// Records so far.
    fn nr(&self) -> Result<u32, String> {
        let state = self.state()?;
        Ok(u32::from_ne_bytes(state[4..8].try_into().expect("4 bytes")))
    }

    fn read(&self, from: u32, to: u32) -> Result<Vec<RawSwitch>, String> {
        let map = self.map("records");
        let record = |index: u32| {
            let bytes = map.lookup(&index.to_ne_bytes(), MapFlags::ANY);
            match bytes.map_err(|e| e.to_string())? {
                Some(bytes) => Ok(RawSwitch::parse(&bytes)),
                None => Err("there were more switches than records".to_owned()),
            }
        };
        (from..to).map(record).collect()
    }
}

/// The turns in a record, and how often they were interrupted. `examined`: tasks examined before.
/// `charged`: virtual times grow by a yielder's run time, at the weight of nice level 0, and give it more exactly
/// than the clock at the switches: the policy read that a moment before.
pub fn turns(raw: &[RawSwitch], tids: &[u32], mut examined: u64, charged: bool) -> Outcome {
    let wrong = |what: String| Err(Fault::Wrong(what));
    let number = |pid: u32| tids.iter().position(|&tid| tid == pid).map(|n| n as u32);
    let mut turns: Vec<Turn> = Vec::new();
    let mut interruptions = 0;
    // The turn under way, and the switch by which it has the CPU, if it has it.
    let mut open: Option<Turn> = None;
    let mut since: Option<RawSwitch> = None;
    for (index, record) in raw.iter().enumerate() {
        if record.prev != 0 {
            let Some(mut turn) = open.take() else {
                return wrong(format!("record {index}: {record:?} without a turn"));
            };
            let Some(start) = since.take() else {
                return wrong(format!(
                    "record {index}: {record:?} of one who does not run"
                ));
            };
            if number(record.prev) != Some(turn.task) {
                return wrong(format!(
                    "record {index}: {record:?} in a turn of {}",
                    turn.task
                ));
            }
            let ran = record.at_ns - start.at_ns;
            let charge = record.prev_vtime - start.next_vtime;
            if charged && !(charge..=charge + CLOCK_APART_NS).contains(&ran) {
                return wrong(format!(
                    "record {index}: {charge} ns charged, {ran} ns seen"
                ));
            }
            let ran = if charged { charge } else { ran };
            turn.ran_ns += ran;
            turn.yields += record.yields;
            turn.end = match (record.blocked, record.yielding) {
                (true, _) => End::Block,
                (_, true) => End::Yield,
                _ => End::Preempted,
            };
            match turn.end {
                End::Yield if record.next == 0 => return Err(Fault::CutIn),
                End::Preempted if record.next == 0 => {
                    interruptions += 1;
                    open = Some(turn);
                }
                _ => turns.push(turn),
            }
        }
        if record.next != 0 {
            let Some(task) = number(record.next) else {
                return wrong(format!("record {index}: {record:?} of another group"));
            };
            match open {
                // Back from an interruption.
                Some(turn) if turn.task == task => {}
                // Another one instead: that turn has ended so.
                Some(turn) => {
                    turns.push(turn);
                    open = None;
                }
                None => {}
            }
            open.get_or_insert(Turn {
                task,
                ran_ns: 0,
                yields: 0,
                end: End::Preempted,
                examined: record.examined - examined,
            });
            examined = record.examined;
            since = Some(*record);
        }
    }
    if open.is_some() || turns.is_empty() {
        return wrong(format!("{} records do not end with a turn", raw.len()));
    }
    Ok((turns, interruptions))
}
