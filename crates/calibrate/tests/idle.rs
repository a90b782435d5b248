//! Backgrounds of machines whose /proc folders are made by hand.

use std::fs;
use std::path::Path;
use std::time::Duration;

use schedlab_calibrate::idle::{Idle, Snapshot, background};
use schedlab_machine::{Background, Change, Machine};

const KERNEL: u64 = 0x0020_8040;
const PROGRAM: u64 = 0x0040_0100;
/// The process that looks.
const OWN: u32 = 900;

/// A thread of the hand-made machine, before and after.
#[derive(Clone, Copy)]
struct Thread {
    process: u32,
    thread: u32,
    start: u64,
    name: &'static str,
    flags: u64,
    cpus: &'static str,
    nice: i8,
    realtime: u32,
    /// CPU time in ns, and voluntary switches.
    did: [u64; 2],
}

/// A process of one thread.
fn thread(
    process: u32,
    name: &'static str,
    flags: u64,
    cpus: &'static str,
    did: [u64; 2],
) -> Thread {
    Thread {
        process,
        thread: process,
        start: u64::from(process),
        name,
        flags,
        cpus,
        nice: 0,
        realtime: 0,
        did,
    }
}

fn write(proc: &Path, forks: u64, threads: &[Thread]) {
    fs::create_dir_all(proc.join("self")).unwrap();
    fs::write(
        proc.join("stat"),
        format!("cpu  1 2 3 4\nctxt 5\nprocesses {forks}\n"),
    )
    .unwrap();
    for one in threads {
        let folder = proc.join(format!("{}/task/{}", one.process, one.thread));
        fs::create_dir_all(&folder).unwrap();
        let (flags, nice, start, realtime) = (one.flags, one.nice, one.start, one.realtime);
        let stat = format!(
            "{} ({}) S 2 0 0 0 -1 {flags} 0 0 0 0 9 9 9 9 20 {nice} 1 0 {start} 0 0 \
             18446744073709551615 0 0 0 0 0 0 0 2147483647 0 0 0 0 17 1 {realtime} 0 0 0 0 0\n",
            one.thread, one.name
        );
        let status = format!(
            "Name:\t{}\nCpus_allowed:\tff\nCpus_allowed_list:\t{}\nvoluntary_ctxt_switches:\t{}\nnonvoluntary_ctxt_switches:\t77\n",
            one.name, one.cpus, one.did[1]
        );
        fs::write(folder.join("stat"), stat).unwrap();
        fs::write(folder.join("status"), status).unwrap();
        fs::write(
            folder.join("schedstat"),
            format!("{} 12345 99\n", one.did[0]),
        )
        .unwrap();
    }
}

/// Returns the background of a machine of so many CPUs over 60 s. Each thread stands with its work before them.
fn watch(nr_cpus: u64, threads: &[(Thread, Option<[u64; 2]>)], forks: [u64; 2]) -> Idle {
    let folder = tempfile::tempdir().unwrap();
    let look = |name: &str, forks, threads: &[Thread]| {
        let proc = folder.path().join(name);
        write(&proc, forks, threads);
        Snapshot::read(&proc)
    };
    let old: Vec<Thread> = threads
        .iter()
        .filter_map(|&(one, did)| Some(Thread { did: did?, ..one }))
        .collect();
    let new: Vec<Thread> = threads.iter().map(|&(one, _)| one).collect();
    let before = look("before", forks[0], &old);
    let after = look("after", forks[1], &new);
    background(&before, &after, Duration::from_secs(60), nr_cpus, OWN)
}

fn section(found: &Idle, name: &str) -> Background {
    let mut sections = found.sections.iter();
    let one = sections.find(|one| one.name == name);
    one.unwrap_or_else(|| panic!("no {name}: {found:?}"))
        .task
        .clone()
}

fn names(found: &Idle) -> Vec<&str> {
    found.sections.iter().map(|one| one.name.as_str()).collect()
}

#[track_caller]
fn says(found: &Idle, words: &str) {
    assert!(
        found.notes.iter().any(|note| note.contains(words)),
        "{words}: {:#?}",
        found.notes
    );
}

const MS: u64 = 1_000_000;

/// A machine of four CPUs with workers, a daemon of two threads and a real-time thread.
fn machine() -> Vec<(Thread, Option<[u64; 2]>)> {
    let worker =
        |process, name, cpus, did| (thread(process, name, KERNEL, cpus, did), Some([5 * MS, 50]));
    let high = Thread {
        nice: -20,
        ..thread(20, "kworker/0:1H-kblockd", KERNEL, "0", [20 * MS, 400])
    };
    let realtime = Thread {
        realtime: 50,
        ..thread(21, "irq/24-ACPI:Ged", KERNEL, "1", [30 * MS, 300])
    };
    let second = Thread {
        thread: 101,
        start: 7,
        ..thread(100, "daemon) S (2", PROGRAM, "0-3", [40 * MS, 500])
    };
    vec![
        worker(10, "kworker/0:1-events", "0", [25 * MS, 650]),
        worker(11, "kworker/3:0", "3", [45 * MS, 650]),
        worker(
            12,
            "kworker/u8:2-ext4-rsv-conversion",
            "0-3",
            [65 * MS, 350],
        ),
        (high, Some([0, 0])),
        (realtime, Some([0, 0])),
        (
            thread(100, "daemon1", PROGRAM, "2", [90 * MS, 1_100]),
            Some([30 * MS, 100]),
        ),
        (second, None),
        (
            thread(OWN, "schedlab", PROGRAM, "0-3", [6_000 * MS, 9_000]),
            Some([0, 0]),
        ),
        (thread(30, "kauditd", KERNEL, "0-3", [7, 9]), Some([7, 9])),
    ]
}

#[test]
fn tasks_of_a_name_and_kind_are_a_section() {
    let found = watch(4, &machine(), [100, 100]);
    let expected = [
        "daemon",
        "daemonS",
        "irq",
        "kworker",
        "kworker-p0",
        "kworker-u",
    ];
    assert_eq!(names(&found), expected, "{found:#?}");
    let is = |name: &str, period_us, run_us, per_cpu, static_prio| {
        let task = Background {
            period_us,
            run_us,
            per_cpu,
            static_prio,
        };
        assert_eq!(section(&found, name), task, "{name}");
    };
    // 1,200 wakeups on four CPUs with 60 ms.
    is("kworker", 200_000, 50, true, None);
    is("kworker-u", 200_000, 200, false, None);
    is("kworker-p0", 600_000, 50, true, Some(0));
    is("irq", 800_000, 100, true, Some(0));
    // A program that was bound to a CPU is not of each CPU.
    is("daemon", 60_000, 60, false, None);
    // It began meanwhile.
    is("daemonS", 120_000, 80, false, None);
    says(&found, "irq has a real-time priority");
    says(
        &found,
        "what the machine did in 60 s: 0.45 % of a CPU and 61.7 wakeups a second",
    );
    says(&found, "own 10.00 % of a CPU");
    says(&found, "bursts");
    assert_eq!(found.notes.len(), 3, "{:#?}", found.notes);
}

#[test]
fn a_machine_with_one_cpu_has_no_tasks_of_each() {
    let found = watch(1, &machine(), [100, 100]);
    assert!(found.sections.iter().all(|one| !one.task.per_cpu));
    // Bound workers and others are one kind.
    assert_eq!(section(&found, "kworker").period_us, 40_000);
    assert!(names(&found).contains(&"kworker-p0"));
}

#[test]
fn most_of_the_work_is_enough() {
    // 95 of 100 are of the first three.
    let daemon = |process, name, did: u64| {
        (
            thread(process, name, PROGRAM, "0-1", [did * MS, did]),
            Some([0, 0]),
        )
    };
    let mut threads = vec![daemon(1, "a", 50), daemon(2, "b", 30), daemon(3, "c", 15)];
    threads.extend([daemon(4, "d", 3), daemon(5, "e", 2)]);
    let found = watch(2, &threads, [100, 107]);
    assert_eq!(names(&found), ["a", "b", "c"]);
    says(&found, "5.0 % and 5.0 % are in no section");
    says(&found, "7 tasks began and ended meanwhile");
    says(&found, "no kernel thread can be seen from here");
    // Another one has no CPU time, but most wakeups.
    threads.push((thread(6, "f", PROGRAM, "0-1", [1_000, 900]), Some([0, 0])));
    assert_eq!(names(&watch(2, &threads, [100, 100])), ["a", "b", "c", "f"]);
    // Twelve are enough.
    let names_20: Vec<String> = (b'a'..b'u')
        .map(|letter| char::from(letter).to_string())
        .collect();
    let threads: Vec<_> = names_20
        .iter()
        .enumerate()
        .map(|(n, name)| daemon(n as u32 + 1, &*name.clone().leak(), 10))
        .collect();
    assert_eq!(watch(2, &threads, [0, 0]).sections.len(), 12);
}

#[test]
fn what_no_section_can_say_is_told() {
    let threads = vec![
        (
            thread(1, "spinner", PROGRAM, "0-7", [3_000 * MS, 0]),
            Some([0, 0]),
        ),
        (
            thread(2, "hog", PROGRAM, "0-7", [9_000 * MS, 150]),
            Some([0, 0]),
        ),
        (
            thread(3, "ksoftirqd/0", KERNEL, "0", [60 * MS, 60]),
            Some([0, 0]),
        ),
    ];
    let found = watch(8, &threads, [0, 0]);
    assert_eq!(names(&found), ["hog", "ksoftirqd"]);
    says(
        &found,
        "spinner computed for 3000.0 ms in 0 wakeups of 60000 ms",
    );
    // A busy machine has no background.
    let found = watch(2, &threads, [0, 0]);
    assert_eq!(names(&found), [""; 0]);
    says(
        &found,
        "other programs took 10.1 % of the CPUs' time in the 60 s",
    );
    // Nor has one on which tasks came and went.
    let folder = tempfile::tempdir().unwrap();
    let look = |stat: &str| {
        write(folder.path(), 0, &[threads[2].0]);
        fs::write(folder.path().join("stat"), stat).unwrap();
        Snapshot::read(folder.path())
    };
    let before = look("cpu  100 10 50 9000 40 0 0 0 7 7\nprocesses 1\n");
    for (idle_ticks, is_idle) in [(10_900, true), (10_600, false)] {
        let stat = format!("cpu  250 20 90 {idle_ticks} 40 0 0 0 99 99\nprocesses 99\n");
        let after = look(&stat);
        let found = background(&before, &after, Duration::from_secs(60), 2, OWN);
        assert_eq!(
            found.notes[0].contains("other programs took"),
            !is_idle,
            "{found:?}"
        );
    }
    // Nor has one of whose tasks nothing is known.
    let nothing = Snapshot::read(Path::new("/no/such/folder"));
    let found = background(&nothing, &nothing, Duration::from_secs(1), 2, OWN);
    assert!(found.sections.is_empty());
    says(&found, "/proc tells the CPU time of no task");
}

#[test]
fn long_names_stay_apart() {
    let high = |process, name| Thread {
        nice: -5,
        ..thread(process, name, PROGRAM, "0-1", [50 * MS, 50])
    };
    let threads = vec![
        (
            thread(1, "rcu_exp_par_gp_kthread", KERNEL, "0-1", [60 * MS, 60]),
            Some([0, 0]),
        ),
        (
            thread(2, "rcu_exp_par_gp_kthr", KERNEL, "0-1", [60 * MS, 60]),
            Some([0, 0]),
        ),
        (high(3, "rcu_exp_par_gp_"), Some([0, 0])),
        (
            thread(4, "rcu_exp_par_gp/0", KERNEL, "0", [60 * MS, 60]),
            Some([0, 0]),
        ),
        (
            thread(5, "(42)", PROGRAM, "0-1", [60 * MS, 60]),
            Some([0, 0]),
        ),
    ];
    let found = watch(2, &threads, [0, 0]);
    assert!(
        found.sections.iter().all(|one| one.name.len() <= 15),
        "{:?}",
        names(&found)
    );
    let expected = [
        "rcu_exp_p-u-p15",
        "rcu_exp_par_g-u",
        "rcu_exp_par_gp",
        "task",
    ];
    assert_eq!(names(&found), expected);
    assert_eq!(section(&found, "rcu_exp_p-u-p15").static_prio, Some(15));
    assert_eq!(section(&found, "rcu_exp_par_g-u").period_us, 500_000);
}

/// A profile with the sections reads back as it was written.
#[test]
fn the_sections_are_read_back() {
    let found = watch(4, &machine(), [100, 100]);
    let mut machine = Machine::builtin("laptop").unwrap();
    let sections = found.sections.iter();
    machine.background = sections
        .map(|one| (one.name.clone(), one.task.clone()))
        .collect();
    let change = Change {
        field: "background.kworker.run_us".to_owned(),
        value: "50".to_owned(),
        source: "measured: here".to_owned(),
    };
    let machine = machine.with_changes(&[change]).unwrap();
    let again = Machine::from_toml("again", &machine.to_toml()).unwrap();
    assert_eq!(again, machine);
    assert_eq!(again.background["kworker"].nice(), 0);
    assert_eq!(again.background["irq"].nice(), -20);
}
