//! Cgroups of workloads: the options of models, the keys of rt-app files, and parts that share them.

use schedlab_trace::{CpuId, Instant};
use schedlab_workload::{Action, CgroupId, Context, Outcome, TaskSpec, Workload, rtapp, stream};

fn parsed(text: &str) -> Workload {
    Workload::parse(text, 2).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> String {
    match Workload::parse(text, 2) {
        Ok(_) => panic!("{text}: it is accepted"),
        Err(error) => error.to_string(),
    }
}

/// The first `nr` actions of a task.
fn actions(task: &mut TaskSpec, nr: usize) -> Vec<Action> {
    let mut rng = stream(1, 0);
    let mut next = || {
        let mut context = Context {
            now: Instant::ZERO,
            outcome: Outcome::Done,
            cpu: CpuId(0),
            rng: &mut rng,
        };
        task.behaviour.next(&mut context)
    };
    (0..nr).map(|_| next()).collect()
}

fn joins(task: &mut TaskSpec, nr: usize) -> Vec<u32> {
    let joined = actions(task, nr)
        .into_iter()
        .filter_map(|action| match action {
            Action::JoinCgroup(cgroup) => Some(cgroup.0),
            _ => None,
        });
    joined.collect()
}

#[test]
fn every_task_joins_the_cgroup_of_the_option_first() {
    let mut workload =
        parsed("cpu:tasks=2,cgroup=/web/api,cpu.weight=300,cpu.max=50ms/100ms,cpu.idle=true");
    let cgroups = &workload.cgroups;
    assert_eq!(cgroups.path(CgroupId(2)), "/web/api");
    let settings = cgroups.settings(CgroupId(2));
    assert_eq!((settings.weight, settings.idle), (300, true));
    assert_eq!(settings.bandwidth.to_string(), "50000 100000");
    assert_eq!(cgroups.settings(CgroupId(1)), Default::default());
    for task in &mut workload.tasks {
        assert!(matches!(
            actions(task, 1)[..],
            [Action::JoinCgroup(CgroupId(2))]
        ));
        assert_eq!(joins(task, 20), []);
    }
    // Options of cgroups are shown where they are given.
    let shown = |workload: &Workload| {
        let names = workload.params.iter().map(|(name, _)| name.clone());
        names
            .filter(|name| name == "cgroup" || name.starts_with("cpu."))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        shown(&workload),
        ["cgroup", "cpu.weight", "cpu.max", "cpu.idle"]
    );
    let mut without = parsed("cpu:tasks=2");
    assert!(without.cgroups.is_empty() && shown(&without).is_empty());
    assert_eq!(joins(&mut without.tasks[0], 20), []);
}

#[test]
fn parts_share_the_cgroups_with_one_path() {
    let mut workload = parsed(
        "cpu:tasks=1,cgroup=/db + cpu:tasks=1,cgroup=/web/api,cpu.weight=50 + cpu:tasks=1,cgroup=/db,cpu.weight=7",
    );
    assert_eq!(workload.cgroups.len(), 4);
    assert_eq!(workload.cgroups.settings(CgroupId(1)).weight, 7);
    let joined: Vec<_> = workload
        .tasks
        .iter_mut()
        .flat_map(|task| joins(task, 5))
        .collect();
    assert_eq!(joined, [1, 3, 1]);
}

#[test]
fn settings_that_cannot_be_are_refused_with_the_remedy() {
    assert_eq!(
        refusal("cpu:cpu.weight=300"),
        "workload `cpu`: `cpu.weight` needs a cgroup below the root: add `cgroup=/NAME`"
    );
    assert_eq!(
        refusal("cpu:cgroup=/a,cpu.max=20ms/100ms,cpu.max.burst=21ms"),
        "workload `cpu`: `cpu.max` and `cpu.max.burst` do not go together: the burst must not be longer than the quota"
    );
    assert_eq!(
        refusal("cpu:cgroup=/a,cpu.weight=2 + cpu:cgroup=/a,cpu.weight=3"),
        "workload `cpu:cgroup=/a,cpu.weight=2 + cpu:cgroup=/a,cpu.weight=3`: two parts give the cgroup `/a` different settings; give them in one part"
    );
    let path = refusal("cpu:cgroup=a");
    assert!(
        path.contains("`cgroup=a` is not possible: it takes a path such as /web/api: at most 16 names of letters, digits and `-_.@`, none of them `.` or `..`"),
        "{path}"
    );
}

fn file(text: &str) -> Result<Workload, String> {
    rtapp::parse("f.json", text, "", 2).map_err(|error| error.to_string())
}

#[test]
fn a_thread_of_rt_app_is_in_the_group_of_its_task_and_then_of_its_phases() {
    let text = r#"{"tasks": {"t": {"taskgroup": "/a", "loop": 2, "phases": {
        "p": {"run": 1}, "q": {"taskgroup": "/a/b", "run": 1}, "r": {"run": 1}}}},
        "cgroups": {"/a": {"cpu.weight": 20, "cpu.max": "max 50000"}, "/a/b": {"cpu.max": "30000 50000", "cpu.max.burst": 10, "cpu.idle": 1}}}"#;
    let mut workload = file(text).unwrap();
    let settings = |id| workload.cgroups.settings(CgroupId(id));
    assert_eq!(
        (settings(1).weight, settings(1).bandwidth.to_string()),
        (20, "max 50000".to_owned())
    );
    assert_eq!(
        (settings(2).idle, settings(2).bandwidth.to_string()),
        (true, "30000 50000".to_owned())
    );
    assert_eq!(settings(2).bandwidth.burst.ns(), 10_000);
    // In the second loop a phase without a group leaves it where it is; at its end it goes back to the root.
    assert_eq!(joins(&mut workload.tasks[0], 30), [1, 2, 0]);
    assert!(
        workload.notes.iter().all(|note| !note.contains("group")),
        "{:?}",
        workload.notes
    );
}

/// The cgroups that a task joins and its sleeps until a time, as far as its end.
fn joins_and_sleeps(task: &mut TaskSpec) -> Vec<String> {
    let mut told = Vec::new();
    for action in actions(task, 30) {
        match action {
            Action::JoinCgroup(cgroup) => told.push(format!("join {}", cgroup.0)),
            Action::SleepUntil(time) => told.push(format!("sleep until {}", time.ns())),
            Action::Exit => {
                told.push("exit".to_owned());
                break;
            }
            _ => {}
        }
    }
    told
}

/// `thread_body()` sets the group after the delay, and each thread of a file that names any group ends in the root.
#[test]
fn a_thread_of_rt_app_joins_its_group_after_its_delay_and_ends_in_the_root() {
    let text = r#"{"tasks": {
        "t": {"taskgroup": "/a", "delay": 5000, "loop": 1, "run": 1},
        "u": {"loop": 1, "phases": {"p": {"taskgroup": "/a", "run": 1}}},
        "v": {"loop": 1, "run": 1}}}"#;
    let mut workload = file(text).unwrap();
    let mut told = workload.tasks.iter_mut().map(joins_and_sleeps);
    assert_eq!(
        told.next().unwrap(),
        ["sleep until 5000000", "join 1", "join 0", "exit"]
    );
    assert_eq!(told.next().unwrap(), ["join 1", "join 0", "exit"]);
    assert_eq!(told.next().unwrap(), ["join 0", "exit"]);
    // Where no task names one, none is left.
    let without = r#"{"tasks": {"t": {"loop": 1, "run": 1}}}"#;
    let mut workload = file(without).unwrap();
    assert_eq!(joins_and_sleeps(&mut workload.tasks[0]), ["exit"]);
}

#[test]
fn cgroups_of_a_file_are_refused_at_their_place() {
    let with = |cgroups: &str| {
        let text = format!("{{\"tasks\": {{\"t\": {{\"run\": 1}}}},\n\"cgroups\": {{{cgroups}}}}}");
        file(&text).err().expect("it is refused")
    };
    for (cgroups, expected) in [
        (
            r#""/a": {"cpu.weight": 0}"#,
            "f.json:2: `cgroups./a.cpu.weight`: must be from 1 to 10000, not 0",
        ),
        (
            r#""/a": {"cpu.wait": 1}"#,
            "f.json:2: `cgroups./a.cpu.wait`: there is no setting `cpu.wait` (did you mean `cpu.weight`?)",
        ),
        (
            r#""/a": {"cpu.max": "1 2 3"}"#,
            "f.json:2: `cgroups./a.cpu.max`: must be as in cgroup v2: `max`, or a quota and a period in us such as \"50000 100000\"",
        ),
        (
            r#""/a": {"cpu.max": "10 100000"}"#,
            "f.json:2: `cgroups./a.cpu.max`: the quota must be at least 1 ms",
        ),
        (
            r#""/a": {"cpu.max": "18446744073709551615 100000"}"#,
            "f.json:2: `cgroups./a.cpu.max`: the quota must be at most a day",
        ),
        (
            r#""/a": {"cpu.max": "max 18446744073709551615"}"#,
            "f.json:2: `cgroups./a.cpu.max`: the period must be from 1 ms to 1 s",
        ),
        (
            r#""/a": {"cpu.max": "20000 100000", "cpu.max.burst": 20001, "cpu.idle": 0}"#,
            "f.json:2: `cgroups./a.cpu.max.burst`: the burst must not be longer than the quota",
        ),
        (
            r#""/a/../b": {}"#,
            "f.json:2: `cgroups./a/../b`: no cgroup is named `.` or `..`",
        ),
        (
            r#""a": {}"#,
            "f.json:2: `cgroups.a`: the path of a cgroup begins with `/`",
        ),
        (
            r#""/": {"cpu.weight": 5}"#,
            "f.json:2: `cgroups./`: is the root, which has no settings",
        ),
    ] {
        let message = with(cgroups);
        assert!(message.starts_with(expected), "{message}");
    }
}
