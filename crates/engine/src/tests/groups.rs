//! Groups of tasks in the fair class (-s kernel): `cpu.weight`, `cpu.idle` and `cpu.max`.

use schedlab_machine::Topology;
use schedlab_trace::{Duration, Event, Instant, PrevState, TaskId};
use schedlab_workload::{Action, CgroupId, ObjectId, ObjectSpec, SchedClass, TaskSpec, Workload};

use crate::testing::*;
use crate::{Hotplug, NormalClass};

const MS: u64 = 1_000_000;
const ROOT: u32 = 0;

/// A task that joins a cgroup and then does as `spec` does.
fn inside(cgroup: u32, mut spec: TaskSpec) -> TaskSpec {
    let mut joins = (cgroup != ROOT).then_some(Action::JoinCgroup(CgroupId(cgroup)));
    let mut inner = spec.behaviour;
    spec.behaviour = task("", move |_, context| {
        Some(joins.take().unwrap_or_else(|| inner.next(context)))
    })
    .behaviour;
    spec
}

fn hogs(cgroup: u32, n: usize) -> Vec<TaskSpec> {
    let hogs = (0..n).map(|_| inside(cgroup, hog("hog", 60_000)));
    hogs.collect()
}

/// A run of tasks beside the cgroups of a workload, for so long.
struct Run {
    cpus: usize,
    ms: u64,
    tasks: Vec<TaskSpec>,
    objects: Vec<ObjectSpec>,
    hotplug: Vec<Hotplug>,
    cgroups: &'static str,
    syscall_ns: Option<u64>,
    topology: Option<Topology>,
}

impl Run {
    /// `cgroups`: as parts of a workload; they are numbered from 1 on, parents first.
    fn new(cpus: usize, ms: u64, cgroups: &'static str, tasks: Vec<TaskSpec>) -> Run {
        Run {
            cpus,
            ms,
            tasks,
            objects: Vec::new(),
            hotplug: Vec::new(),
            cgroups,
            syscall_ns: None,
            topology: None,
        }
    }

    fn check(self) -> Checked {
        let mut workload = workload(self.objects, self.tasks);
        let parts: Vec<String> = (self.cgroups.split(' '))
            .map(|options| format!("cpu:tasks=1,{options}"))
            .collect();
        workload.cgroups = Workload::parse(&parts.join(" + "), 1).unwrap().cgroups;
        workload.duration = Some(Duration::from_ms(self.ms));
        let mut machine = machine(self.cpus);
        let syscall_ns = &mut machine.paths.syscall_ns;
        *syscall_ns = self.syscall_ns.unwrap_or(*syscall_ns);
        machine.topology = self.topology.unwrap_or(machine.topology);
        let mut scenario = scenario_of(machine, workload);
        scenario.normal_class = NormalClass::Fair;
        scenario.hotplug = self.hotplug;
        run_checked(scenario, Stub::minimal())
    }
}

/// The stretches for which each task ran: CPU, begin and end.
fn stretches(checked: &Checked) -> Vec<Vec<(u32, u64, u64)>> {
    let mut ran = vec![Vec::new(); checked.end.tasks as usize];
    let mut since = [None; 64];
    let end = checked.end.end.ns();
    let mut switch = |at: u64, cpu: u32, next: Option<TaskId>| {
        if let Some((task, from)) = since[cpu as usize].take() {
            let task: TaskId = task;
            ran[task.index()].push((cpu, from, at.min(end)));
        }
        since[cpu as usize] = next.map(|task| (task, at));
    };
    for &(at, cpu, event) in &checked.events {
        match event {
            Event::Switch { next, .. } => switch(at, cpu, next),
            Event::End => switch(at, cpu, None),
            _ => {}
        }
    }
    ran
}

/// The time for which each task ran from `from` to `to`.
fn ran_between(checked: &Checked, from: u64, to: u64) -> Vec<u64> {
    let within = |&(_, begin, end): &(u32, u64, u64)| end.min(to).saturating_sub(begin.max(from));
    let all = stretches(checked);
    all.iter()
        .map(|task| task.iter().map(within).sum())
        .collect()
}

/// Parts per thousand of `cpus` CPUs that the tasks of each group have, which are so many each.
fn shares(checked: &Checked, cpus: u64, groups: &[usize]) -> Vec<u64> {
    let end = checked.end.end.ns();
    // Their first tenth is the beginning.
    let ran = ran_between(checked, end / 10, end);
    let mut ran = ran.iter();
    let mut share = |&n: &usize| {
        let time: u64 = ran.by_ref().take(n).sum();
        (time * 1_000).div_ceil(cpus * (end - end / 10))
    };
    groups.iter().map(&mut share).collect()
}

#[track_caller]
fn are_near(found: &[u64], expected: &[u64], tolerance: u64) {
    let mut pairs = found.iter().zip(expected);
    let near = pairs.all(|(found, expected)| found.abs_diff(*expected) <= tolerance);
    assert!(
        near && found.len() == expected.len(),
        "{found:?} {expected:?}"
    );
}

/// The times of an event of a task.
fn times(checked: &Checked, event: Event) -> Vec<u64> {
    let events = checked.events.iter();
    let same = events.filter(|&&(_, _, other)| other == event);
    same.map(|&(at, ..)| at).collect()
}

fn throttled(checked: &Checked, task: u32) -> Vec<u64> {
    times(checked, Event::Throttled { task: TaskId(task) })
}

fn replenished(checked: &Checked, task: u32) -> Vec<u64> {
    times(checked, Event::Replenished { task: TaskId(task) })
}

/// 300 : 100, whatever the number of tasks is; within a group its tasks share equally.
#[test]
fn two_groups_share_a_cpu_by_their_weights() {
    let tasks = [hogs(1, 2), hogs(2, 6)].concat_tasks();
    let checked = Run::new(1, 4_000, "cgroup=/a,cpu.weight=300 cgroup=/b", tasks).check();
    are_near(&shares(&checked, 1, &[2, 6]), &[750, 250], 8);
    let each = shares(&checked, 1, &[1; 8]);
    are_near(&each, &[375, 375, 42, 42, 42, 42, 42, 42], 8);
}

/// Without groups eight equal tasks have an eighth each, and a run whose tasks stay in the root is one without groups.
#[test]
fn tasks_of_the_root_share_as_if_there_were_no_groups() {
    let tasks = || [hogs(ROOT, 5), vec![periodic("p", 700, 900, 300)]].concat_tasks();
    let beside = Run::new(2, 500, "cgroup=/a,cpu.weight=300", tasks()).check();
    let alone = {
        let mut workload = workload(Vec::new(), tasks());
        workload.duration = Some(Duration::from_ms(500));
        let mut scenario = scenario_of(machine(2), workload);
        scenario.normal_class = NormalClass::Fair;
        run_checked(scenario, Stub::minimal())
    };
    assert_eq!(beside.events, alone.events);
}

/// `/a` has 2/3 and `/b` 1/3; of the part of `/a`, `/a/x` has 4/5 and a task of `/a` itself, whose weight is a group's
/// default, 1/5.
#[test]
fn weights_of_nested_groups_multiply() {
    let groups = "cgroup=/a,cpu.weight=200 cgroup=/a/x,cpu.weight=400 cgroup=/b";
    let tasks = [hogs(1, 1), hogs(2, 3), hogs(3, 1)].concat_tasks();
    let checked = Run::new(1, 4_000, groups, tasks).check();
    are_near(&shares(&checked, 1, &[1, 3, 1]), &[133, 533, 333], 8);
}

/// A task of the root counts as a group of weight 100: 1/4, 1/2 and 1/4.
#[test]
fn a_task_of_the_root_is_beside_the_groups() {
    let tasks = [hogs(ROOT, 1), hogs(1, 3), hogs(2, 2)].concat_tasks();
    let checked = Run::new(1, 4_000, "cgroup=/a,cpu.weight=200 cgroup=/b", tasks).check();
    are_near(&shares(&checked, 1, &[1, 3, 2]), &[250, 500, 250], 8);
}

/// CPU 0 has a hog of the root and eight of a group, which weigh 128 each there: of 1,024 more than CPU 1 has, half can go,
/// so the first time that CPU 1 takes some it takes four.
#[test]
fn a_busy_cpu_takes_tasks_by_their_part_of_the_weight() {
    let ready = 610 * MS;
    let moves = |_| {
        let mut frees = Some(Action::SetAffinity("0-1".parse().unwrap()));
        let spec = task("moves", move |n, context| {
            Some(match n {
                0 => Action::JoinCgroup(CgroupId(1)),
                _ if context.now.ns() < ready => Action::Compute(Duration::from_us(200)),
                _ => frees
                    .take()
                    .unwrap_or(Action::Compute(Duration::from_ms(60_000))),
            })
        });
        on_cpus(spec, "0")
    };
    let mut tasks: Vec<TaskSpec> = (0..8).map(moves).collect();
    tasks.extend(["0", "1"].map(|cpu| on_cpus(hog("root", 60_000), cpu)));
    let checked = Run::new(2, 1_000, "cgroup=/a", tasks).check();
    let mut moved: Vec<(u64, usize)> = Vec::new();
    for &(at, _, event) in &checked.events {
        if let Event::Migrate { task, .. } = event
            && at > ready
            && task.0 < 8
        {
            match moved.last_mut() {
                Some((last, n)) if at - *last < MS => *n += 1,
                _ => moved.push((at, 1)),
            }
        }
    }
    assert_eq!(moved.first().map(|&(_, n)| n), Some(4), "{moved:?}");
}

/// Equal weights over four CPUs: half of the machine for each group, although one has three times as many tasks.
#[test]
fn groups_with_unequal_numbers_of_tasks_share_several_cpus() {
    let tasks = [hogs(1, 4), hogs(2, 12)].concat_tasks();
    let checked = Run::new(4, 6_000, "cgroup=/a cgroup=/b", tasks).check();
    are_near(&shares(&checked, 4, &[4, 12]), &[500, 500], 40);
}

/// The tasks of a group on one CPU have the weight that the group has there: with a hog of `/a` on each of two CPUs, and
/// one of the root beside the first, that has half of its weight there: 512 to 1,024.
#[test]
fn the_weight_of_a_group_is_divided_among_its_cpus() {
    let tasks = vec![
        on_cpus(inside(1, hog("a0", 60_000)), "0"),
        on_cpus(inside(1, hog("a1", 60_000)), "1"),
        on_cpus(hog("root", 60_000), "0"),
    ];
    let checked = Run::new(2, 4_000, "cgroup=/a", tasks).check();
    let ran = ran_between(&checked, 400 * MS, 4_000 * MS);
    are_near(&[ran[0] / (3_600 * 1_000)], &[333], 8);
}

/// The part of a weight of 3 that goes to each of eight CPUs is less than 1, and counts in the group above: that has an eighth
/// of its own weight on each CPU, 128 to 1,024, or 1/9. Averages are rounded down, from 2 to 1, which gives it more, but
/// far from the half that a group has whose weight is not divided.
#[test]
fn the_smallest_weights_divide_the_weight_of_the_group_above() {
    let below = (0..8).map(|cpu| on_cpus(inside(2, hog("x", 60_000)), &format!("{cpu}")));
    let root = (0..8).map(|cpu| on_cpus(hog("root", 60_000), &format!("{cpu}")));
    let groups = "cgroup=/a cgroup=/a/x,cpu.idle=true";
    let checked = Run::new(8, 4_000, groups, below.chain(root).collect()).check();
    let shares = shares(&checked, 8, &[8, 8]);
    assert!((100..200).contains(&shares[0]), "{shares:?}");
}

/// An idle group has weight 3: 3 of 1,027 beside a group of weight 100, and a task that wakes up in the other one takes the
/// CPU at once.
#[test]
fn an_idle_group_has_what_is_left() {
    let sleeper = || inside(2, periodic("p", 1_000, 9_000, 400));
    let groups = "cgroup=/idle,cpu.idle=true cgroup=/b";
    let tasks = [hogs(1, 2), hogs(2, 1)].concat_tasks();
    let checked = Run::new(1, 4_000, groups, tasks).check();
    are_near(&shares(&checked, 1, &[2, 1]), &[3, 997], 3);
    let tasks = [hogs(1, 2), vec![sleeper()]].concat_tasks();
    let checked = Run::new(1, 2_000, groups, tasks).check();
    let delays = wakeup_delays(&checked, 2);
    assert!(
        delays.len() > 150 && delays.iter().all(|&ns| ns < 20_000),
        "{delays:?}"
    );
}

/// Of two idle groups, each with a request of 0.7 ms at a time, one has had less than the other half of the time. A task that
/// wakes 0.3 ms after that was chosen has the CPU at once all the same.
#[test]
fn a_request_does_not_protect_an_idle_group() {
    let sleeper = inside(3, periodic("p", 300, 300, 400));
    let groups = "cgroup=/i,cpu.idle=true cgroup=/j,cpu.idle=true cgroup=/b";
    let tasks = [hogs(1, 1), hogs(2, 1), vec![sleeper]].concat_tasks();
    let checked = Run::new(1, 200, groups, tasks).check();
    let delays = wakeup_delays(&checked, 2);
    assert!(
        delays.len() > 250 && delays.iter().all(|&ns| ns < 20_000),
        "{delays:?}"
    );
}

/// A CPU with tasks of idle groups alone is as good as idle: a task that begins beside a hog goes there.
#[test]
fn a_cpu_with_an_idle_group_alone_is_free() {
    let mut starts = task("starts", |n, _| {
        (n < 40).then(|| match n % 2 {
            0 => Action::Compute(Duration::from_us(500)),
            _ => Action::Sleep(Duration::from_ms(5)),
        })
    });
    starts.start = Instant::from_ns(20 * MS);
    let tasks = vec![
        on_cpus(hog("hog", 60_000), "0"),
        on_cpus(inside(1, hog("idle", 60_000)), "1"),
        on_cpus(inside(1, hog("idle", 60_000)), "1"),
        starts,
    ];
    let checked = Run::new(2, 300, "cgroup=/idle,cpu.idle=true", tasks).check();
    let ran = &stretches(&checked)[3];
    assert!(
        ran.len() >= 20 && ran.iter().all(|&(cpu, ..)| cpu == 1),
        "{ran:?}"
    );
}

/// A task of an idle group never takes the CPU at its wakeup, however long it has not run.
#[test]
fn a_task_of_an_idle_group_preempts_nobody() {
    let groups = "cgroup=/idle,cpu.idle=true cgroup=/b,cpu.weight=1";
    let sleeper = inside(1, periodic("p", 100, 9_900, 400));
    let checked = Run::new(1, 3_000, groups, [vec![sleeper], hogs(2, 1)].concat_tasks()).check();
    let delays = wakeup_delays(&checked, 0);
    assert!(
        delays.len() > 100 && delays[1..].iter().all(|&ns| ns > 50_000),
        "{delays:?}"
    );
}

/// How long a task waited after each wakeup.
fn wakeup_delays(checked: &Checked, task: u32) -> Vec<u64> {
    let (mut woken, mut delays) = (None, Vec::new());
    for &(at, _, event) in &checked.events {
        match event {
            Event::Wakeup { task: p, .. } if p.0 == task => woken = Some(at),
            Event::Switch { next: Some(p), .. } if p.0 == task => {
                delays.extend(woken.take().map(|since| at - since));
            }
            _ => {}
        }
    }
    delays
}

/// A task that sleeps most of the time preempts the hogs of the other group when that has had more than its share, which
/// depends on how long it waited the time before.
#[test]
fn a_task_that_wakes_preempts_a_task_of_another_group() {
    let sleeper = inside(2, periodic("p", 500, 9_500, 400));
    let tasks = [hogs(1, 4), vec![sleeper]].concat_tasks();
    let checked = Run::new(1, 3_000, "cgroup=/a cgroup=/b", tasks).check();
    let delays = wakeup_delays(&checked, 4);
    let at_once = delays.iter().filter(|&&ns| ns < 20_000).count();
    assert!(delays.len() > 200 && at_once >= 30, "{delays:?}");
    are_near(&shares(&checked, 1, &[4, 1]), &[950, 50], 6);
}

/// 20 ms in each 100 ms. Overruns are noticed by the tick, every 4 ms at most, and are paid back.
#[test]
fn a_limit_holds_on_one_cpu() {
    let checked = Run::new(1, 2_000, "cgroup=/a,cpu.max=20ms/100ms", hogs(1, 1)).check();
    let (stops, goes) = (throttled(&checked, 0), replenished(&checked, 0));
    // The first quota is there at the beginning; where the periods begin is drawn.
    let first = goes[0];
    assert!(first < 100 * MS + MS, "{first}");
    for (n, &at) in goes.iter().enumerate() {
        let expected = first + n as u64 * 100 * MS;
        assert!(at.abs_diff(expected) < MS / 10, "{n}: {at} {expected}");
    }
    for (&go, &stop) in goes.iter().zip(&stops[1..]) {
        assert!((16 * MS..=24 * MS).contains(&(stop - go)), "{go} {stop}");
    }
    assert!(goes.len() >= 19 && stops.len().abs_diff(goes.len()) <= 1);
    let ran = ran_between(&checked, first, first + 1_800 * MS)[0];
    assert!(ran.abs_diff(18 * 20 * MS) < 4 * MS, "{ran}");
}

/// One CPU and a half of four, for eight hogs; what is left goes to others.
#[test]
fn a_limit_holds_over_several_cpus() {
    let tasks = [hogs(1, 8), hogs(ROOT, 4)].concat_tasks();
    let checked = Run::new(
        4,
        3_000,
        "cgroup=/a,cpu.weight=10000,cpu.max=150ms/100ms",
        tasks,
    )
    .check();
    are_near(&shares(&checked, 4, &[8, 4]), &[375, 625], 8);
}

/// A task that needs 35 ms every 240 ms, with a quota of 20 ms per 100 ms: each time it is stopped, unless it may keep
/// another 20 ms that it has not used.
#[test]
fn a_burst_keeps_what_was_not_used() {
    let bursty = || vec![inside(1, periodic("p", 35_000, 205_000, 10))];
    let limited = Run::new(1, 1_900, "cgroup=/a,cpu.max=20ms/100ms", bursty()).check();
    let burst = Run::new(
        1,
        1_900,
        "cgroup=/a,cpu.max=20ms/100ms,cpu.max.burst=20ms",
        bursty(),
    )
    .check();
    assert!((7..=8).contains(&throttled(&limited, 0).len()));
    assert_eq!(throttled(&burst, 0), []);
}

/// `/a` may have 20 % and `/a/x` in it 60 %; `/b` and `/b/x` the other way round: the smaller limit holds.
#[test]
fn nested_limits_hold_both() {
    for (outer, inner) in [("20ms/100ms", "60ms/100ms"), ("60ms/100ms", "20ms/100ms")] {
        let groups = format!("cgroup=/a,cpu.max={outer} cgroup=/a/x,cpu.max={inner}");
        let tasks = [hogs(2, 3), hogs(ROOT, 1)].concat_tasks();
        let checked = Run::new(1, 3_000, groups.leak(), tasks).check();
        let all = shares(&checked, 1, &[3, 1]);
        are_near(&all, &[200, 800], 8);
    }
}

/// A group that may have 40 % lets one below have 20 % and itself the rest.
#[test]
fn a_limited_group_below_leaves_the_rest() {
    let groups = "cgroup=/a,cpu.max=40ms/100ms cgroup=/a/x,cpu.max=10ms/100ms";
    let tasks = [hogs(1, 1), hogs(2, 2)].concat_tasks();
    let checked = Run::new(1, 3_000, groups, tasks).check();
    are_near(&shares(&checked, 1, &[1, 2]), &[300, 100], 8);
}

/// The task that runs goes to a group of 1/4 of the CPU, and later back; one that waited in the other group meanwhile is not
/// disturbed.
#[test]
fn a_task_takes_the_share_of_the_group_that_it_joins() {
    let moves = task("moves", |n, _| {
        Some(match n {
            0 => Action::JoinCgroup(CgroupId(1)),
            // It has half of the group's 3/4.
            1 => Action::Compute(Duration::from_ms(375)),
            2 => Action::JoinCgroup(CgroupId(2)),
            _ => Action::Compute(Duration::from_ms(60_000)),
        })
    });
    let tasks = [vec![moves], hogs(1, 1), hogs(2, 1)].concat_tasks();
    let groups = "cgroup=/a,cpu.weight=300 cgroup=/b";
    let checked = Run::new(1, 3_000, groups, tasks).check();
    are_near(
        &ran_between(&checked, 0, 1_000 * MS).map_ms(),
        &[375, 375, 250],
        12,
    );
    are_near(
        &ran_between(&checked, 1_000 * MS, 3_000 * MS).map_ms(),
        &[250, 1_500, 250],
        20,
    );
}

/// Nine hogs of `/a` run on CPU 0 and one on CPU 1, beside a hog of the root on each. When eight of the nine have gone to
/// another group, where they sleep, they weigh nothing in `/a`: it has half of its weight on CPU 0, so 1/3 of the time from
/// then on, at once.
#[test]
fn a_task_that_leaves_a_group_takes_its_load_along() {
    let leave = 300 * MS;
    let leaves = |_| {
        let mut joins = Some(Action::JoinCgroup(CgroupId(2)));
        let spec = task("leaves", move |n, context| {
            Some(match n {
                0 => Action::JoinCgroup(CgroupId(1)),
                _ if context.now.ns() < leave => Action::Compute(Duration::from_us(100)),
                _ => joins
                    .take()
                    .unwrap_or(Action::Sleep(Duration::from_ms(60_000))),
            })
        });
        on_cpus(spec, "0")
    };
    let mut tasks: Vec<TaskSpec> = vec![
        on_cpus(inside(1, hog("a0", 60_000)), "0"),
        on_cpus(inside(1, hog("a1", 60_000)), "1"),
        on_cpus(hog("root0", 60_000), "0"),
        on_cpus(hog("root1", 60_000), "1"),
    ];
    tasks.extend((0..8).map(leaves));
    let checked = Run::new(2, 500, "cgroup=/a cgroup=/b", tasks).check();
    let all = stretches(&checked);
    let last = all[4..].iter().map(|ran| ran.last().unwrap().2).max();
    let last = last.unwrap();
    let ran = ran_between(&checked, last, last + 80 * MS);
    are_near(&ran[..1].to_vec().map_ms(), &[27], 3);
}

/// A task that has been stopped at its limit joins a group without one, and is not stopped again.
#[test]
fn a_task_leaves_a_throttled_group() {
    let leaves = task("leaves", |n, _| {
        Some(match n {
            0 => Action::JoinCgroup(CgroupId(1)),
            1 => Action::Compute(Duration::from_ms(60)),
            2 => Action::JoinCgroup(CgroupId(2)),
            3 => Action::Compute(Duration::from_ms(500)),
            _ => return None,
        })
    });
    let groups = "cgroup=/a,cpu.max=20ms/100ms cgroup=/b";
    let checked = Run::new(1, 2_000, groups, vec![leaves]).check();
    let stops = throttled(&checked, 0);
    assert!((2..=4).contains(&stops.len()), "{stops:?}");
    let last = *stops.last().unwrap();
    let ran = ran_between(&checked, last, 2_000 * MS)[0];
    // The rest of the 60 ms, and 500 ms without a stop.
    assert!(ran >= 500 * MS, "{ran}");
    let makespan = checked.end.makespan.expect("it ends").ns();
    assert!(makespan < last + 700 * MS, "{last} {makespan}");
}

/// A task is stopped only in user space: a system call of 30 ms goes on to its end, although the group has 10 ms.
#[test]
fn a_task_is_not_stopped_within_the_kernel() {
    let calls = task("calls", |n, _| {
        Some(match n {
            0 => Action::JoinCgroup(CgroupId(1)),
            1 => Action::Compute(Duration::from_ms(1)),
            2 => Action::Syscall,
            3 => Action::Compute(Duration::from_ms(1)),
            _ => return None,
        })
    });
    let mut run = Run::new(1, 2_000, "cgroup=/a,cpu.max=10ms/100ms", vec![calls]);
    run.syscall_ns = Some(30 * MS);
    let checked = run.check();
    let ran = &stretches(&checked)[0];
    let stops = throttled(&checked, 0);
    // 30 ms to join, 31 ms in one piece, and so long a stop that what was over the limit is paid back.
    assert_eq!(stops.len(), 1, "{stops:?}");
    assert!((61 * MS..62 * MS).contains(&stops[0]), "{stops:?}");
    assert!((61 * MS..62 * MS).contains(&ran[0].2), "{ran:?}");
    let goes = replenished(&checked, 0)[0];
    assert!((200 * MS..=320 * MS).contains(&goes), "{goes}");
}

/// The holder of the application's mutex is stopped in user space, and its waiter, in a group without a limit, waits for
/// that; the CPU is idle meanwhile, as nobody else has work.
#[test]
fn a_stopped_task_keeps_the_locks_of_the_application() {
    let lock = ObjectId(0);
    let holder = task("holder", move |n, _| {
        Some(match n {
            0 => Action::JoinCgroup(CgroupId(1)),
            1 => Action::Lock(lock),
            2 => Action::Compute(Duration::from_ms(30)),
            3 => Action::Unlock(lock),
            _ => return None,
        })
    });
    let mut waiter = task("waiter", move |n, _| {
        Some(match n {
            0 => Action::Lock(lock),
            1 => Action::Compute(Duration::from_ms(1)),
            2 => Action::Unlock(lock),
            _ => return None,
        })
    });
    waiter.start = Instant::from_ns(5 * MS);
    let mut run = Run::new(
        1,
        2_000,
        "cgroup=/a,cpu.max=20ms/100ms",
        vec![holder, waiter],
    );
    run.objects = vec![ObjectSpec::Mutex];
    let checked = run.check();
    let goes = replenished(&checked, 0);
    let ran = stretches(&checked);
    let &(_, got, _) = ran[1].last().expect("it runs");
    assert_eq!(goes.len(), 1, "{goes:?}");
    assert!(got > goes[0] && got < goes[0] + 15 * MS, "{got} {goes:?}");
}

/// CPU time that CPUs give back when their tasks sleep goes to CPUs that wait, after 5 ms and within the period: at the
/// second tick three CPUs take the last 24 ms of the quota, of which they give 10.5 back at 8.5 ms.
#[test]
fn time_that_is_given_back_is_used() {
    let sleepers = (0..3).map(|cpu: u32| {
        on_cpus(
            inside(1, periodic("p", 8_500, 500_000, 1)),
            &cpu.to_string(),
        )
    });
    let hogs = [3, 4].map(|cpu: u32| on_cpus(inside(1, hog("hog", 60_000)), &cpu.to_string()));
    let tasks = sleepers.chain(hogs).collect();
    let checked = Run::new(5, 30, "cgroup=/a,cpu.max=49ms/100ms", tasks).check();
    for task in [3, 4] {
        let (stops, goes) = (throttled(&checked, task), replenished(&checked, task));
        assert!(stops[0].abs_diff(8 * MS) < MS / 10, "{stops:?}");
        assert!(goes[0].abs_diff(13_500_000) < MS / 10, "{goes:?}");
    }
}

/// A CPU goes offline while tasks are stopped there: they go on elsewhere, under the same limit.
#[test]
fn stopped_tasks_leave_a_cpu_that_goes_offline() {
    let cpu = schedlab_trace::CpuId(1);
    let event = |ms, online| Hotplug {
        at: Instant::from_ns(ms * MS),
        cpu,
        online,
    };
    for offline in [330, 350, 370, 390] {
        let mut run = Run::new(2, 1_500, "cgroup=/a,cpu.max=20ms/100ms", hogs(1, 4));
        run.hotplug = vec![event(offline, false), event(900, true)];
        let checked = run.check();
        are_near(&shares(&checked, 1, &[4]), &[200], 25);
        let late = |&(on, begin, _): &(u32, u64, u64)| {
            on == cpu.0 && (offline * MS + MS..900 * MS).contains(&begin)
        };
        assert!(!stretches(&checked).iter().flatten().any(late));
    }
}

/// A system call of 60 ms leaves CPU 1 with 41 ms more than the quota of 20 ms. When it goes offline the stopped task goes on
/// elsewhere, and what CPU 1 owes is forgotten: of the next period's quota the task has what it needs.
#[test]
fn an_offline_cpu_owes_nothing() {
    let task = task("t", |n, _| {
        Some(match n {
            0 => Action::JoinCgroup(CgroupId(1)),
            1 => Action::Compute(Duration::from_ms(1)),
            2 => Action::Syscall,
            3 => Action::Compute(Duration::from_ms(10)),
            _ => return None,
        })
    });
    let mut run = Run::new(
        2,
        2_000,
        "cgroup=/a,cpu.max=20ms/100ms",
        vec![on_cpus(task, "1")],
    );
    run.syscall_ns = Some(60 * MS);
    run.hotplug = vec![Hotplug {
        at: Instant::from_ns(130 * MS),
        cpu: schedlab_trace::CpuId(1),
        online: false,
    }];
    let checked = run.check();
    let makespan = checked.end.makespan.expect("it ends").ns();
    assert!(makespan < 260 * MS, "{makespan}");
}

/// CPU 1 has taken 5 ms of the quota of 10 ms when it goes offline at 2 ms, and these stay there. On CPU 0 the hog has the
/// other 5 ms, and is stopped at the first tick after that, at 8 ms.
#[test]
fn an_offline_cpu_keeps_the_time_that_it_has_taken() {
    let mut run = Run::new(
        2,
        50,
        "cgroup=/a,cpu.max=10ms/100ms",
        vec![on_cpus(inside(1, hog("hog", 60_000)), "1")],
    );
    run.hotplug = vec![Hotplug {
        at: Instant::from_ns(2 * MS),
        cpu: schedlab_trace::CpuId(1),
        online: false,
    }];
    let checked = run.check();
    let stops = throttled(&checked, 0);
    assert!(stops[0].abs_diff(8 * MS) < MS / 10, "{stops:?}");
}

/// How often a task was moved to a CPU where another one was stopped.
fn moves_to_stopped(checked: &Checked) -> usize {
    let mut stopped_on = vec![None; checked.end.tasks as usize];
    let mut nr = 0;
    for &(_, cpu, event) in &checked.events {
        match event {
            Event::Throttled { task } => stopped_on[task.index()] = Some(cpu),
            Event::Replenished { task } => stopped_on[task.index()] = None,
            Event::Migrate { task, to, .. } if stopped_on[task.index()].is_none() => {
                nr += usize::from(stopped_on.contains(&Some(to.0)));
            }
            _ => {}
        }
    }
    nr
}

/// A CPU where a group is stopped is idle, and takes no waiting task of the group from others.
#[test]
fn a_cpu_takes_no_task_of_a_group_that_is_stopped_there() {
    let checked = Run::new(4, 2_000, "cgroup=/a,cpu.max=150ms/100ms", hogs(1, 12)).check();
    assert!((0..12).any(|task| throttled(&checked, task).len() > 5));
    assert_eq!(moves_to_stopped(&checked), 0);
}

/// Nor is a running task pushed there, from a core with two to an idle one.
#[test]
fn no_task_is_pushed_to_a_cpu_where_its_group_is_stopped() {
    // They stay in the kernel, where they are not stopped.
    let calls = |_| {
        task("calls", |n, _| {
            Some(match n {
                0 => Action::JoinCgroup(CgroupId(1)),
                _ => Action::Syscall,
            })
        })
    };
    let mut tasks: Vec<TaskSpec> = (0..2).map(calls).collect();
    // The threads of a core.
    tasks.extend(["0", "2"].map(|cpu| on_cpus(inside(1, hog("hog", 60_000)), cpu)));
    let mut run = Run::new(4, 2_000, "cgroup=/a,cpu.max=20ms/100ms", tasks);
    run.syscall_ns = Some(200 * MS);
    run.topology = Some(Topology::new(1, 1, 2, 2));
    let checked = run.check();
    assert_eq!(moves_to_stopped(&checked), 0);
}

/// A real-time task of the group is not limited, nor is the time that it takes charged.
#[test]
fn a_limit_is_the_fair_class_s() {
    let mut realtime = inside(1, hog("realtime", 500));
    realtime.class = SchedClass::Fifo(10);
    let checked = Run::new(1, 2_000, "cgroup=/a,cpu.max=20ms/100ms", vec![realtime]).check();
    assert_eq!(throttled(&checked, 0), []);
    let makespan = checked.end.makespan.expect("it ends").ns();
    assert!(makespan < 510 * MS, "{makespan}");
}

/// Random tasks, groups and limits keep the invariants, and no group has more than its limit.
#[test]
fn random_groups_keep_the_invariants() {
    use schedlab_workload::{below, stream};
    let groups = "cgroup=/a,cpu.weight=300,cpu.max=30ms/50ms cgroup=/a/x,cpu.max=10ms/20ms cgroup=/b,cpu.idle=true \
                  cgroup=/c,cpu.weight=20,cpu.max=5ms/100ms,cpu.max.burst=5ms cgroup=/a/y";
    for seed in 0..30 {
        let mut rng = stream(seed, 0);
        let cpus = 1 + below(&mut rng, 4) as usize;
        let tasks = (0..2 + below(&mut rng, 8)).map(|index| {
            let mut rng = stream(seed, index as u32 + 1);
            let mut spec = task("t", move |_, _| {
                let us = Duration::from_us(1 + below(&mut rng, 8_000));
                Some(match below(&mut rng, 12) {
                    0..6 => Action::Compute(us),
                    6..9 => Action::Sleep(us),
                    9 => Action::Yield,
                    10 => Action::Fault(1 + below(&mut rng, 5_000) as u32),
                    _ => Action::JoinCgroup(CgroupId(below(&mut rng, 6) as u32)),
                })
            });
            spec.nice = (below(&mut stream(seed, 99 + index as u32), 11) as i8) - 5;
            spec
        });
        let tasks = tasks.collect();
        let mut run = Run::new(cpus, 700, groups, tasks);
        if cpus > 1 && seed % 3 == 0 {
            let event = |ms, online| Hotplug {
                at: Instant::from_ns(ms * MS),
                cpu: schedlab_trace::CpuId(1),
                online,
            };
            run.hotplug = vec![event(200, false), event(400, true)];
        }
        let checked = run.check();
        checked.is_done();
        // Work conservation: a task that waits beside an idle CPU for long is stopped.
        let waits = longest_wait_beside_idle(&checked);
        assert!(waits < 9 * MS, "{seed}: {waits}");
    }
}

/// Tasks that fork, change their class, nice level and CPUs, and hold mutexes with priority inheritance, in groups with short
/// limits that they leave and join at random, while CPUs go and come: none is lost, and the state's own checks hold.
#[test]
fn random_tasks_of_all_classes_in_groups_keep_the_invariants() {
    use schedlab_workload::{below, stream};
    let groups = "cgroup=/a,cpu.weight=300,cpu.max=3ms/5ms cgroup=/a/x,cpu.max=1ms/4ms cgroup=/b,cpu.idle=true \
                  cgroup=/c,cpu.weight=1,cpu.max=1ms/10ms,cpu.max.burst=1ms cgroup=/a/x/y cgroup=/b/z,cpu.max=2ms/3ms";
    let mut stops = 0;
    for seed in 0..60 {
        let mut rng = stream(seed, 904);
        let cpus = 1 + below(&mut rng, 4) as usize;
        let mut specs: Vec<TaskSpec> = (0..2 + below(&mut rng, 12))
            .map(|_| super::chaos::random_task(&mut rng, cpus, 0))
            .collect();
        // Two of them may be deadline tasks.
        let holders = 2 + below(&mut rng, 6);
        specs.extend((0..holders).map(|n| super::chaos::random_holder(&mut rng, 3, 3, n < 2)));
        let reader = task("reader", |n, _| {
            let from = ObjectId(0);
            (n < 5_000).then_some(Action::Read { from, limit: 3 })
        });
        let roams = |mut spec: TaskSpec, mut rng: schedlab_workload::Rng| {
            let mut inner = spec.behaviour;
            spec.behaviour = task("", move |n, context| {
                if n == 0 || below(&mut rng, 16) == 0 {
                    return Some(Action::JoinCgroup(CgroupId(below(&mut rng, 7) as u32)));
                }
                Some(inner.next(context))
            })
            .behaviour;
            spec
        };
        let specs = specs.into_iter().zip(1_000..);
        let mut tasks: Vec<TaskSpec> = specs
            .map(|(spec, index)| roams(spec, stream(seed, index)))
            .collect();
        tasks[0].start = Instant::ZERO;
        tasks.push(reader);
        let mut run = Run::new(cpus, 3_000, groups, tasks);
        let capacity = 1_000_000;
        run.objects = vec![
            ObjectSpec::Pipe { capacity },
            ObjectSpec::Semaphore { initial: 0 },
            ObjectSpec::Event,
            ObjectSpec::PiMutex,
            ObjectSpec::PiMutex,
            ObjectSpec::PiMutex,
        ];
        let mut at = 0;
        for n in 0..if cpus > 1 { 2 * below(&mut rng, 6) } else { 0 } {
            at += below(&mut rng, 4 * MS);
            run.hotplug.push(Hotplug {
                at: Instant::from_ns(at),
                cpu: schedlab_trace::CpuId(1),
                online: n % 2 == 1,
            });
        }
        let checked = run.check();
        checked.is_done();
        let unfinished = &checked.end.unfinished;
        assert!(unfinished.len() <= 1, "{seed}: {unfinished:?}");
        for &(_, _, event) in &checked.events {
            stops += u32::from(matches!(event, Event::Throttled { .. }));
        }
    }
    assert!(stops > 1_000, "{stops}");
}

/// The longest time for which a CPU was idle while a task that was not stopped waited on it.
fn longest_wait_beside_idle(checked: &Checked) -> u64 {
    let nr = checked.end.tasks as usize;
    let mut waits: Vec<Option<u32>> = vec![None; nr];
    let mut stopped = vec![false; nr];
    let mut idle_since = [Some(0); 64];
    let mut longest = 0;
    let mut begun = [None; 64];
    for &(at, cpu, event) in &checked.events {
        match event {
            Event::Wakeup { task, to, .. } => waits[task.index()] = Some(to.0),
            Event::Migrate { task, to, .. } => {
                let waits = &mut waits[task.index()];
                *waits = waits.map(|_| to.0);
            }
            Event::Throttled { task } => stopped[task.index()] = true,
            Event::Replenished { task } => stopped[task.index()] = false,
            Event::Switch {
                prev,
                prev_state,
                next,
            } => {
                if let Some(prev) = prev {
                    let runnable = matches!(prev_state, PrevState::Preempted | PrevState::Yielded);
                    waits[prev.index()] = runnable.then_some(cpu);
                }
                if let Some(next) = next {
                    waits[next.index()] = None;
                }
                idle_since[cpu as usize] = next.is_none().then_some(at);
            }
            _ => {}
        }
        for (cpu, since) in begun.iter_mut().enumerate() {
            let mut all = waits.iter().zip(&stopped);
            let has_waiting = all.any(|(on, stopped)| *on == Some(cpu as u32) && !stopped);
            if idle_since[cpu].is_some() && has_waiting {
                let since = *since.get_or_insert(at);
                longest = longest.max(at.saturating_sub(since));
            } else {
                *since = None;
            }
        }
    }
    longest
}

trait Concat {
    fn concat_tasks(self) -> Vec<TaskSpec>;
}

impl<const N: usize> Concat for [Vec<TaskSpec>; N] {
    fn concat_tasks(self) -> Vec<TaskSpec> {
        self.into_iter().flatten().collect()
    }
}

trait Milliseconds {
    fn map_ms(self) -> Vec<u64>;
}

impl Milliseconds for Vec<u64> {
    fn map_ms(self) -> Vec<u64> {
        self.into_iter().map(|ns| ns / MS).collect()
    }
}
