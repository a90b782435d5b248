//! Small recordings as text, whose programs are known.

use schedlab_recording::{About, Costs, Inferred, Options, Select, import};
use schedlab_workload::recorded::{File, Step};

/// Lines of ftrace: `at_us cpu current flags event`.
struct Trace(String);

impl Trace {
    fn new() -> Self {
        Trace("# tracer: nop\n".to_owned())
    }

    fn line(&mut self, at_us: u64, cpu: u32, current: i32, flags: &str, event: &str) {
        let (s, us) = (at_us / 1_000_000, at_us % 1_000_000);
        self.0 += &format!("  t{current}-{current} [{cpu:03}] {flags} {s}.{us:06}: {event}\n");
    }

    fn switch(&mut self, at_us: u64, cpu: u32, prev: i32, state: &str, next: i32) {
        let event = format!(
            "sched_switch: prev_comm=t{prev} prev_pid={prev} prev_prio=120 prev_state={state} ==> next_comm=t{next} next_pid={next} next_prio=120"
        );
        self.line(at_us, cpu, prev, "d..2.", &event);
    }

    fn waking(&mut self, at_us: u64, cpu: u32, current: i32, flags: &str, task: i32) {
        let event = format!("sched_waking: comm=t{task} pid={task} prio=120 target_cpu=000");
        self.line(at_us, cpu, current, flags, &event);
    }

    fn read(&self, select: Select) -> (Inferred, About) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &self.0).unwrap();
        let options = Options {
            select,
            ..Options::default()
        };
        import(file.path().to_str().unwrap(), &options).unwrap()
    }

    fn import(&self, costs: Costs) -> File {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &self.0).unwrap();
        let options = Options {
            select: Select::All,
            costs,
            ..Options::default()
        };
        import(file.path().to_str().unwrap(), &options)
            .unwrap()
            .0
            .file
    }
}

/// Task 10 runs 100 us, is preempted by 30 for 50 us, runs 20 us and wakes 11, which answers; then a timer wakes 10.
fn pair() -> Trace {
    let mut trace = Trace::new();
    trace.switch(1_000, 0, 30, "S", 10);
    trace.switch(1_100, 0, 10, "R+", 30);
    trace.switch(1_150, 0, 30, "S", 10);
    trace.switch(1_160, 1, 11, "S", 0);
    trace.waking(1_170, 0, 10, "d..2.", 11);
    trace.switch(1_175, 1, 0, "R", 11);
    trace.switch(1_180, 0, 10, "S", 0);
    trace.waking(1_195, 1, 11, "d..2.", 10);
    trace.switch(1_200, 0, 0, "R", 10);
    trace.switch(1_205, 1, 11, "S", 0);
    trace.switch(1_240, 0, 10, "S", 0);
    trace.waking(1_340, 0, 0, "d.h3.", 10);
    trace.switch(1_345, 0, 0, "R", 10);
    trace.switch(1_350, 0, 10, "X", 0);
    trace
}

fn steps(file: &File, comm: &str) -> Vec<Step> {
    let at = file
        .head
        .tasks
        .iter()
        .position(|task| task.comm == comm)
        .unwrap();
    file.steps[at].clone()
}

fn number(file: &File, comm: &str) -> u32 {
    1 + file
        .head
        .tasks
        .iter()
        .position(|task| task.comm == comm)
        .unwrap() as u32
}

#[test]
fn preempted_stretches_are_one_and_wakers_post() {
    let file = pair().import(Costs::default());
    let eleven = number(&file, "t11");
    assert_eq!(
        steps(&file, "t10"),
        [
            Step::Run(120_000),
            Step::Post(eleven),
            Step::Run(10_000),
            Step::Wait,
            Step::Run(40_000),
            Step::Device(100_000),
            Step::Run(5_000),
        ]
    );
    let ten = number(&file, "t10");
    assert_eq!(
        steps(&file, "t11"),
        [
            Step::Wait,
            Step::Run(20_000),
            Step::Post(ten),
            Step::Run(10_000)
        ]
    );
    let recorded = file.head.recorded.unwrap();
    assert_eq!(
        (recorded.waits.task_ns, recorded.waits.device_ns),
        (15_000 + 10_000, 100_000)
    );
    // By hand: waits for a CPU of 10 are 50 (preempted), 5 and 5, of 11 is 5.
    assert_eq!(recorded.measured.wait_ns_sum, 65_000);
    assert_eq!(recorded.measured.makespan_ns, 350_000);
    assert_eq!(recorded.measured.cpu_ns, 175_000 + 30_000 + 50_000);
}

#[test]
fn the_models_own_paths_are_taken_out() {
    let costs = Costs {
        switch_ns: 1_000,
        wake_ns: 2_000,
        wait_ns: 500,
        sleep_ns: 100,
        ..Costs::default()
    };
    let file = pair().import(costs);
    // Two switches and the wakeup; the wait; the switch and the wait for the timer; the last switch.
    assert_eq!(
        steps(&file, "t10")
            .into_iter()
            .filter(|step| matches!(step, Step::Run(_)))
            .collect::<Vec<_>>(),
        [
            Step::Run(116_000),
            Step::Run(9_500),
            Step::Run(38_900),
            Step::Run(4_000)
        ]
    );
}

/// The waker sees the state of a task that is about to wait: the wakeup comes first. One that ends no wait is nothing.
#[test]
fn a_wakeup_that_comes_early_counts_for_the_wait_that_it_ends() {
    let mut trace = Trace::new();
    trace.switch(1_000, 0, 30, "S", 10);
    trace.switch(1_000, 1, 31, "S", 11);
    trace.waking(1_010, 1, 11, "d..2.", 10);
    trace.switch(1_012, 0, 10, "S", 0);
    trace.switch(1_014, 0, 0, "R", 10);
    trace.waking(1_020, 1, 11, "d..2.", 10);
    trace.switch(1_040, 0, 10, "S", 0);
    trace.waking(1_050, 1, 11, "d..2.", 10);
    trace.switch(1_052, 0, 0, "R", 10);
    trace.switch(1_060, 0, 10, "S", 0);
    let file = trace.import(Costs::default());
    let ten = number(&file, "t10");
    assert_eq!(
        steps(&file, "t11"),
        [
            Step::Run(10_000),
            Step::Post(ten),
            Step::Run(40_000),
            Step::Post(ten),
            Step::Run(10_000)
        ]
    );
    assert_eq!(
        steps(&file, "t10"),
        [
            Step::Run(12_000),
            Step::Wait,
            Step::Run(26_000),
            Step::Wait,
            Step::Run(8_000)
        ]
    );
}

/// Three tasks meet twice, and each time another one is the last.
#[test]
fn who_comes_last_wakes_the_others_is_a_barrier() {
    let mut trace = Trace::new();
    for (cpu, task) in [(0, 10), (1, 11), (2, 12)] {
        trace.switch(1_000, cpu, 30 + task, "S", task);
    }
    trace.switch(1_100, 0, 10, "S", 0);
    trace.switch(1_200, 1, 11, "S", 0);
    trace.waking(1_300, 2, 12, "d..2.", 10);
    trace.waking(1_302, 2, 12, "d..2.", 11);
    trace.switch(1_310, 0, 0, "R", 10);
    trace.switch(1_310, 1, 0, "R", 11);
    trace.switch(1_400, 2, 12, "S", 0);
    trace.switch(1_500, 1, 11, "S", 0);
    trace.waking(1_600, 0, 10, "d..2.", 11);
    trace.waking(1_602, 0, 10, "d..2.", 12);
    trace.switch(1_610, 1, 0, "R", 11);
    trace.switch(1_610, 2, 0, "R", 12);
    trace.switch(1_700, 0, 10, "X", 0);
    trace.switch(1_700, 1, 11, "X", 0);
    trace.switch(1_700, 2, 12, "X", 0);
    let file = trace.import(Costs::default());
    assert_eq!(file.head.barriers.len(), 1);
    assert_eq!(file.head.barriers[0].tasks.len(), 3);
    for comm in ["t10", "t11", "t12"] {
        let meets = steps(&file, comm)
            .into_iter()
            .filter(|step| *step == Step::Meet(1))
            .count();
        assert_eq!(meets, 2, "{comm}: {:?}", steps(&file, comm));
    }
    assert!(
        !file
            .steps
            .iter()
            .flatten()
            .any(|step| matches!(step, Step::Wait | Step::Post(_)))
    );
    assert!(file.head.recorded.unwrap().waits.barrier_ns > 0);
}

#[test]
fn losses_are_in_the_file() {
    let mut trace = pair();
    trace.0 += "CPU:1 [LOST 12 EVENTS]\n";
    let file = trace.import(Costs::default());
    assert_eq!(file.head.recorded.unwrap().lost_events, 12);
}

#[test]
fn a_cut_keeps_what_lies_in_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), pair().0).unwrap();
    let options = Options {
        select: Select::All,
        from_ns: 190_000,
        to_ns: 240_000,
        ..Options::default()
    };
    let cut = import(file.path().to_str().unwrap(), &options)
        .unwrap()
        .0
        .file;
    let runs: Vec<Step> = steps(&cut, "t10");
    assert_eq!(runs, [Step::Wait, Step::Run(40_000)]);
    assert_eq!(cut.head.recorded.unwrap().measured.cpu_ns, 40_000 + 10_000);
}

/// Task 12 runs on CPU 0 and is gone from there without a trace: nobody knows how long it ran.
#[test]
fn a_cpu_runs_one_task_at_a_time() {
    let mut trace = pair();
    trace.0 = trace.0.replace("# tracer: nop\n", "");
    let mut lost = Trace::new();
    lost.switch(900, 0, 0, "R", 12);
    lost.0 += &trace.0;
    let file = lost.import(Costs::default());
    let twelve = file.head.tasks.iter().find(|task| task.comm == "t12");
    assert!(twelve.is_none_or(|task| task.cpu_ns == 0), "{twelve:?}");
    let recorded = file.head.recorded.unwrap();
    assert_eq!(recorded.measured.cpu_ns, 175_000 + 30_000 + 50_000);
}

/// Without wakeups a wait ends when its task runs, and no latency is measured.
#[test]
fn waits_without_wakeups_are_of_unknown_cause() {
    let mut trace = Trace::new();
    trace.switch(1_000, 0, 30, "S", 10);
    trace.switch(1_100, 0, 10, "S", 0);
    trace.switch(1_400, 0, 0, "R", 10);
    trace.switch(1_450, 0, 10, "S", 0);
    let (inferred, _) = trace.read(Select::All);
    let file = &inferred.file;
    assert_eq!(
        steps(file, "t10"),
        [Step::Run(100_000), Step::Device(300_000), Step::Run(50_000)]
    );
    let recorded = file.head.recorded.as_ref().unwrap();
    assert_eq!(recorded.waits.unknown_ns, 300_000);
    assert_eq!(
        (recorded.measured.wakeups, recorded.measured.wait_ns_sum),
        (0, 0)
    );
    assert!(
        inferred.warnings[0].starts_with("no wakeups were recorded"),
        "{:?}",
        inferred.warnings
    );
}

/// Names of the tasks that are the program.
fn program(inferred: &Inferred) -> Vec<&str> {
    let tasks = inferred.file.head.tasks.iter();
    tasks
        .filter(|task| !task.background)
        .map(|task| task.comm.as_str())
        .collect()
}

/// The child of trace-cmd becomes the command, which is then the program.
#[test]
fn the_command_of_trace_cmd_is_the_program() {
    let began = pair().0;
    let (began, rest) = began.split_at(began.find("\n  t10").unwrap() + 1);
    let exec = "sched_process_exec: filename=/bin/x pid=10 old_pid=10";
    let mut trace = Trace(began.replace("next_comm=t10", "next_comm=trace-cmd"));
    let mut without = Trace(trace.0.clone());
    trace.line(1_010, 0, 10, "d..2.", exec);
    trace.0 += rest;
    assert_eq!(program(&trace.read(Select::Command).0), ["t10"]);
    // Without events of exec all tasks are the program; its new name is no recorder's.
    without.0 += rest;
    let (inferred, _) = without.read(Select::Command);
    let mut names = program(&inferred);
    names.sort_unstable();
    assert_eq!(names, ["t10", "t11", "t30"]);
    assert_eq!(steps(&inferred.file, "t10")[0], Step::Run(120_000));
}

/// How many switches do not fit, by the warning.
fn misfits(trace: &Trace) -> Option<u64> {
    let (inferred, _) = trace.read(Select::All);
    let warning = inferred.warnings.iter().find_map(|warning| {
        warning.strip_prefix("switches that do not fit to what was recorded before: ")
    })?;
    let (count, rest) = warning.split_once(';').unwrap();
    assert_eq!(rest, " events are missing, or the clocks of CPUs disagree");
    Some(count.parse().unwrap())
}

/// The clock of CPU 1 is behind: task 10 comes there before it has left CPU 0. Or the switch by which it left was lost.
#[test]
fn a_task_in_two_places_is_one_misfit() {
    let of = |has_left: bool| {
        let mut trace = Trace::new();
        trace.switch(1_000, 0, 30, "S", 10);
        trace.switch(1_050, 1, 31, "S", 10);
        if has_left {
            trace.switch(1_100, 0, 10, "R", 30);
        }
        trace.switch(1_200, 1, 10, "S", 31);
        trace.switch(1_300, 1, 31, "S", 10);
        trace.switch(1_400, 1, 10, "S", 31);
        trace
    };
    assert_eq!(misfits(&of(true)), Some(1));
    assert_eq!(misfits(&of(false)), Some(1));
    assert_eq!(misfits(&pair()), None);
}
