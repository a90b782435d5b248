//! Small real runs of every workload: exact counts, and an end in every case.

use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use schedlab_programs::{End, Options, Report, nr_allowed_cpus, nr_cpus, parse, run, run_workload};
use schedlab_workload::{Action, Behaviour, Context, Counters, Workload, list};

fn options(limit_s: u64) -> Options {
    Options {
        seed: 1,
        limit: Duration::from_secs(limit_s),
    }
}

fn check(text: &str) -> Report {
    let report = run(text, &options(120)).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(report.end, End::Done, "{text}");
    report
}

fn counter(report: &Report, name: &str) -> i64 {
    report.counters.get(name)
}

#[test]
fn a_chat_room_of_twenty_delivers_38_000_messages() {
    for server in ["queue", "direct"] {
        let report = check(&format!("chat:rooms=1,server={server}"));
        assert_eq!(report.work, 38_000, "{server}");
        assert_eq!(report.tasks, 82);
        assert_eq!(counter(&report, "chat.messages_delivered"), 38_000);
        assert_eq!(counter(&report, "chat.messages_sent"), 2_000);
        assert!(report.measured_ns < report.makespan_ns);
        assert!(report.score_value().unwrap() > 100.0);
    }
}

#[test]
fn small_chats_deliver_everything_whatever_the_options() {
    for shape in [
        "read=all",
        "server=queue,read=one",
        "server=queue,release=together,take=4",
        "server=queue,queue=1,full=yield",
        "server=queue,wake=unlocked,queue=2",
        "socket_buffer=100",
    ] {
        let report = check(&format!("chat:rooms=2,users=4,messages=25,{shape}"));
        assert_eq!(report.work, 2 * 4 * 25 * 3, "{shape}");
    }
}

#[test]
fn pipe_does_its_round_trips_in_two_processes_or_two_threads() {
    for threads in [false, true] {
        let report = check(&format!("pipe:loops=2000,threads={threads}"));
        assert_eq!((report.work, report.tasks), (2_000, 2));
    }
}

#[test]
fn reflex_does_its_rounds() {
    let report = check("reflex:active_sets=4,threads=3,rounds=500");
    assert_eq!((report.work, report.tasks), (2_000, 12));
    let ends = counter(&report, "reflex.yields") + counter(&report, "reflex.passes");
    assert_eq!(ends, 2_000);
}

#[test]
fn cpu_tasks_do_their_loops_or_run_their_time() {
    let report = check("cpu:tasks=3,run=100us,sleep=100us,loops=20,duration=0,nice=0/5,pin=true");
    assert_eq!((report.work, report.tasks), (60, 3));
    assert!(report.makespan_ns >= 20 * 200_000);
    // How many bursts of yielders end in time is up to the others here; see `end.rs`.
    let report = check("cpu:tasks=2,duration=300ms,yield=true,run=10us");
    assert_eq!(report.makespan_ns, 300_000_000);
    assert!(report.work > 0);
}

#[test]
fn a_thousand_processes_start_at_once() {
    let started = std::time::Instant::now();
    let report = check("cpu:tasks=1000,run=10us,sleep=1ms,loops=2,duration=0");
    assert_eq!((report.work, report.tasks), (2_000, 1_000));
    // Those that were there first used to leave the others no CPU, for minutes.
    assert!(started.elapsed() < Duration::from_secs(60));
}

/// Each with the work that there is to do; `None`: as much as its time allows.
const SMALL: &[(&str, Option<u64>)] = &[
    (
        "blackscholes:threads=3,iterations=4,phase=1ms,serial=1ms",
        Some(4),
    ),
    (
        "bodytrack:threads=3,iterations=3,kernels=2,tickets=5,task=200us,frame=1ms,serial=1ms",
        Some(3),
    ),
    (
        "canneal:threads=3,iterations=20,phase=200us,serial=1ms",
        Some(20),
    ),
    (
        "facesim:threads=3,iterations=3,phases=4,tasks=4,task=200us,frame=1ms,serial=1ms",
        Some(3),
    ),
    (
        "ferret:threads=2,iterations=30,queue=2,load=100us,segment=100us,index=200us,rank=500us,serial=1ms",
        Some(30),
    ),
    (
        "fluidanimate:threads=3,iterations=3,phases=4,phase=500us,serial=1ms",
        Some(3),
    ),
    ("hackbench:groups=2,fds=3,loops=10", Some(2 * 3 * 3 * 10)),
    (
        "hackbench:groups=1,fds=3,loops=10,pipe=true,threads=true",
        Some(3 * 3 * 10),
    ),
    ("httpd:workers=6,connections=4,duration=300ms", None),
    (
        "lat_ctx:processes=3,rounds=50,samples=3,background=2",
        Some(150),
    ),
    ("schbench:workers=3,duration=300ms,operation=100us", None),
    (
        "service:clients=3,think=1ms,service=100us,duration=300ms",
        None,
    ),
    ("faults:threads=2,pages=768", Some(1_536)),
    ("stream:threads=2,size=1M,passes=3", Some(6)),
    (
        "streamcluster:threads=3,iterations=20,phase=200us,serial=1ms",
        Some(20),
    ),
    ("tpch:degree=2,queries=2,operators=2,batches=20", Some(2)),
    // Two rooms of three users, five messages to two others, two runs that count.
    (
        "volano:rooms=2,users=3,messages=5,runs=3",
        Some(2 * 3 * 5 * 2 * 2),
    ),
];

#[test]
fn every_model_runs_as_real_threads() {
    for (text, work) in SMALL {
        let report = check(text);
        match work {
            Some(work) => assert_eq!(report.work, *work, "{text}"),
            None => assert!(report.work > 10, "{text}: {}", report.work),
        }
        assert!(report.score_value().is_some(), "{text}");
    }
    let mut covered = vec!["chat", "cpu", "kbuild", "pipe", "reflex"];
    covered.extend(SMALL.iter().filter_map(|(text, _)| text.split(':').next()));
    for model in list() {
        assert!(
            covered.contains(&model.name),
            "{} is not run here",
            model.name
        );
    }
}

/// Its compilers are processes of their own: the real side is make.
#[test]
fn kbuild_says_what_to_run_instead() {
    let started = std::time::Instant::now();
    let error = run("kbuild:units=2,parse=100s", &options(60)).unwrap_err();
    assert!(
        error.to_string().contains("make clean; make -j4"),
        "{error}"
    );
    assert!(error.is_usage(), "it never runs");
    assert!(
        started.elapsed() < Duration::from_secs(50),
        "it says so before it starts"
    );
}

#[test]
fn rt_app_files_run_and_tell_their_slack() {
    let file = |name: &str| {
        format!(
            "{}/../../workloads/rt-app/{name}.json",
            env!("CARGO_MANIFEST_DIR")
        )
    };
    let report = check(&file("periodic"));
    assert_eq!(counter(&report, "rtapp.light-0.iterations"), 10);
    // Ten timers of 10 ms end 100 ms after the start, however late each one was.
    assert!(report.makespan_ns >= 100_000_000);
    assert!(
        report
            .measures()
            .iter()
            .any(|(name, _)| name == "rtapp.light-0.slack_ns_mean")
    );
    for (name, work) in [
        ("suspend", 40),
        ("barrier", 16),
        ("pipeline", 60),
        ("fork", 12),
        ("lenient", 2),
    ] {
        let text = format!("{}:duration=2", file(name));
        if name == "suspend" {
            // A resume that finds no suspended thread is lost in rt-app too, so it may have to be stopped.
            let report = run(&text, &options(120)).unwrap();
            let failed = matches!(
                report.end,
                End::TimedOut(_) | End::Stuck { at_mutex: true, .. }
            );
            assert!(!failed, "{:?}", report.end);
            assert!((11..=work).contains(&report.work), "{}", report.work);
        } else {
            assert_eq!(check(&text).work, work, "{name}");
        }
    }
    // No task brings the object that the second of its pair waits for: which one that is, and whether others come too
    // late for their only signal, is up to the machine.
    let report = run(&file("locks"), &options(120)).unwrap();
    let End::Stuck { left, at_mutex } = &report.end else {
        panic!("{:?}", report.end);
    };
    assert!(!at_mutex);
    assert!(
        left.iter()
            .all(|task| task.ends_with("(waiting for a condition)"))
    );
    let (pair, missed): (Vec<_>, Vec<_>) = left
        .iter()
        .partition(|task| task.starts_with("left") || task.starts_with("right"));
    assert_eq!(pair.len(), 1, "{left:?}");
    match missed.is_empty() {
        true => assert_eq!(report.work, 18),
        false => assert!((11..18).contains(&report.work), "{}", report.work),
    }
}

/// Counts the CPUs that it may use, at first and when it has asked for all.
#[derive(Default)]
struct Looks(Vec<u32>);

impl Behaviour for Looks {
    fn next(&mut self, _: &mut Context<'_>) -> Action {
        self.0.push(sched_getaffinity(None).unwrap().count());
        match self.0.len() {
            1 => Action::SetAffinity(schedlab_trace::CpuSet::all(nr_cpus())),
            _ => Action::Exit,
        }
    }

    fn report(&self, counters: &mut Counters) {
        for cpus in &self.0 {
            counters.max("looks.cpus", i64::from(*cpus));
        }
    }
}

/// Those of `taskset`, for example.
#[test]
fn tasks_stay_on_the_cpus_of_who_starts_them() {
    let mut workload = Workload::parse("cpu:tasks=1,loops=1,duration=0", nr_cpus()).unwrap();
    workload.tasks[0].behaviour = Box::new(Looks::default());
    let limited = std::thread::spawn(|| {
        let all = sched_getaffinity(None).unwrap();
        let last = (0..CpuSet::MAX_CPU).rfind(|&cpu| all.is_set(cpu)).unwrap();
        let mut one = CpuSet::new();
        one.set(last);
        sched_setaffinity(None, &one).unwrap();
        assert_eq!(nr_allowed_cpus(), 1);
        // There are as many workers as CPUs, and no task is pinned elsewhere.
        assert_eq!(parse("schbench").unwrap().tasks.len(), 2);
        for task in parse("cpu:tasks=2,pin=true").unwrap().tasks {
            let cpus = task.affinity.unwrap();
            let its: Vec<usize> = cpus.iter().map(|cpu| cpu.index()).collect();
            assert_eq!(its, [last]);
        }
        run_workload(workload, &options(60), None).unwrap()
    });
    let report = limited.join().unwrap();
    assert_eq!(counter(&report, "looks.cpus"), 1);
}

#[test]
fn who_waits_hears_of_it() {
    let mut heard = 0;
    let workload = parse("cpu:tasks=1,duration=1s").unwrap();
    let report = run_workload(workload, &options(60), Some(&mut || heard += 1)).unwrap();
    assert_eq!(report.end, End::Done);
    assert!(heard >= 2, "{heard}");
}

/// How an rt-app file's run ends.
fn end_of(tasks: &str) -> End {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.json");
    std::fs::write(&path, tasks).unwrap();
    run(path.to_str().unwrap(), &options(1)).unwrap().end
}

#[test]
fn what_waits_for_ever_is_ended_and_named() {
    let end = end_of(r#"{"tasks": {"stuck": {"loop": 1, "sem_wait": "never"}}}"#);
    assert_eq!(
        end,
        End::TimedOut(vec!["stuck-0 (at a semaphore)".to_owned()])
    );
}

#[test]
fn what_waits_for_ever_until_the_duration_is_over_is_named() {
    let lasting = |tasks: &str| {
        end_of(&format!(
            r#"{{"global": {{"duration": 1}}, "tasks": {{{tasks}}}}}"#
        ))
    };
    let circle = r#""a": {"loop": 1, "lock": "m", "sleep": 20000, "lock0": "n"},
        "b": {"loop": 1, "lock": "n", "sleep": 20000, "lock0": "m"}"#;
    let stuck = |left: &[&str], at_mutex| End::Stuck {
        left: left.iter().map(ToString::to_string).collect(),
        at_mutex,
    };
    let both = ["a-0 (at a mutex)", "b-1 (at a mutex)"];
    assert_eq!(lasting(circle), stuck(&both, true));
    // A task that has ended wakes no task, either.
    let waits = r#""a": {"loop": 1, "lock": "m", "wait": {"ref": "c", "mutex": "m"}}"#;
    let ends = format!(r#"{waits}, "b": {{"loop": 1, "run": 1000}}"#);
    let one = ["a-0 (waiting for a condition)"];
    assert_eq!(lasting(&ends), stuck(&one, false));
    // A task that runs or sleeps may.
    for more in [r#""run": 1000"#, r#""sleep": 300000"#] {
        let others = format!(r#"{circle}, "c": {{"loop": -1, {more}}}"#);
        assert_eq!(lasting(&others), End::Done, "{more}");
    }
}

#[test]
fn what_is_not_there_is_an_error() {
    let error = run("pip", &options(1)).unwrap_err().to_string();
    assert!(error.contains("did you mean `pipe`?"), "{error}");
}

/// Whether this process may ask for real-time and deadline policies.
fn may_be_urgent() -> bool {
    let refused = run(
        "cpu:tasks=1,run=1ms,loops=1,duration=0,policy=fifo:1",
        &options(20),
    )
    .is_err_and(|error| error.to_string().contains("refuses its policy"));
    if refused {
        schedlab_testing::skipped("programs: real-time policies are refused here; run it as root");
    }
    !refused
}

/// The kernel's own classes: PTHREAD_PRIO_INHERIT and sched_setattr().
#[test]
fn real_mutexes_inherit_and_real_reservations_throttle() {
    if !may_be_urgent() {
        return;
    }
    let file = |name: &str| {
        format!(
            "{}/../../workloads/rt-app/{name}.json",
            env!("CARGO_MANIFEST_DIR")
        )
    };
    let high_ms = |text: &str| counter(&check(text), "rtapp.hi-2.period_ns_sum") / 1_000_000;
    let inherits = high_ms(&file("inherit"));
    assert!((15..200).contains(&inherits), "{inherits} ms");
    let text = std::fs::read_to_string(file("inherit")).unwrap();
    let text = text.replace("\"pi_enabled\" : true", "\"pi_enabled\" : false");
    let plain = std::env::temp_dir().join(format!("schedlab-plain-{}.json", std::process::id()));
    std::fs::write(&plain, text).unwrap();
    let waits = high_ms(plain.to_str().unwrap());
    std::fs::remove_file(&plain).unwrap();
    assert!(waits > 500, "{waits} ms");
    // 50 ms of 4 in each 20 ms take 240 ms and more, 8 runs of that 2 s.
    let report = check(&file("deadline"));
    let greedy = counter(&report, "rtapp.greedy-1.iterations");
    assert!((5..=8).contains(&greedy), "{greedy}");
    assert!(counter(&report, "rtapp.frame-0.iterations") > 110);
    // Attributes that the kernel does not grant.
    let refused = run(
        "cpu:tasks=1,policy=deadline:99ms/100ms,pin=true",
        &options(20),
    );
    let refused = refused.map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("refuses its policy"), "{refused}");
}

/// Open loop: what comes is answered, unless the machine has no time for it.
#[test]
fn a_service_answers_what_comes() {
    let report = check("service:rate=400/s,service=200us,duration=2s");
    // A busy machine answers some of them too late, but they come as they do.
    let came = report.work as i64 + counter(&report, "service.unanswered");
    assert!((500..=900).contains(&came), "{came} {}", report.work);
    let mean = report.counters.number("service.response_ns_mean").unwrap();
    let service = report.counters.number("service.service_ns_mean").unwrap();
    assert!((150_000.0..250_000.0).contains(&service), "{service}");
    assert!(mean > service, "{mean} {service}");
    assert_eq!(
        report.score_value(),
        report.counters.number("service.response_ns_p99")
    );
    let closed = check("service:clients=3,think=2ms,service=200us,duration=1s");
    assert!(closed.work > 10, "{}", closed.work);
    assert!(counter(&closed, "service.think_ns_sum") > 0);
}

/// The service goes on until the pipe's tasks have ended, in processes of their own.
#[test]
fn parts_run_beside_each_other() {
    let report = check("service:rate=300/s,service=100us,duration=1 + pipe:loops=20000");
    assert_eq!(report.parts.len(), 2);
    let (mut counters, end) = (
        report.counters.clone(),
        schedlab_trace::Instant::from_ns(report.makespan_ns),
    );
    let [service, pipe] = &report.parts[..] else {
        panic!("{:?}", report.parts)
    };
    let (service, pipe) = (
        service.end(&mut counters, end),
        pipe.end(&mut counters, end),
    );
    assert_eq!(pipe.work, 20_000);
    assert_eq!(service.work + pipe.work, report.work);
    assert_eq!(service.score, report.score_value());
    assert!(pipe.score.unwrap() > 0.0);
    assert_eq!(service.makespan.ns(), report.makespan_ns);
    assert!(pipe.makespan.ns() <= report.makespan_ns);
}
