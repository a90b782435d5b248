use schedlab_report::Exit;

use super::*;
use crate::path::OfName;
use crate::watched::{Behind, Runner};

fn result(measures: &[(&str, f64)]) -> RunResult {
    let mut result = RunResult {
        scheduler: "one".to_owned(),
        ..RunResult::default()
    };
    for (name, value) in measures {
        result.measures.float(*name, *value);
    }
    result
}

fn lock(name: &str, class: LockClass, held_ns: u64, contended: u64, failed: u64) -> Lock {
    Lock {
        name: name.to_owned(),
        class,
        acquisitions: 100 - failed,
        contended,
        failed,
        waited_ns: 3_000 * (contended - failed),
        held_ns,
    }
}

/// A run of 1 ms with these locks, whose last task ended earlier.
fn with_locks(locks: Vec<Lock>) -> Watched {
    Watched {
        time: Decomposed {
            makespan_ns: 100_000,
            ..Decomposed::default()
        },
        span_ns: 1_000_000,
        locks,
        ..Watched::default()
    }
}

#[test]
fn one_lock_is_told_with_its_share() {
    let of = |lock: Lock| locks("one", &with_locks(vec![lock])).unwrap();
    assert_eq!(
        of(lock("queue", LockClass::RunQueue, 470_000, 96, 0)),
        "`one` holds its one lock 47 % of the time; 96 % of attempts find it taken, and those that wait take 3.00 µs for it."
    );
    // Attempts that fail do not wait.
    assert_eq!(
        of(lock("queue", LockClass::Dsq, 5_000, 20, 20)),
        "`one` holds its one lock 0.5 % of the time; 20 % of attempts find it taken."
    );
    assert_eq!(
        of(lock("queue", LockClass::RunQueue, 5_000, 0, 0)),
        "`one` holds its one lock 0.5 % of the time; no attempt finds it taken."
    );
}

#[test]
fn of_several_locks_the_busiest_is_named() {
    let two = |contended| {
        let two = vec![
            lock("rq3", LockClass::RunQueue, 120_000, contended, 0),
            lock("rq1", LockClass::RunQueue, 60_000, 0, 0),
        ];
        locks("many", &with_locks(two)).unwrap()
    };
    assert_eq!(
        two(6),
        "`many` has 2 locks of queues in use, and holds the busiest, `rq3`, 12 % of the time; 3.0 % of attempts find theirs \
         taken, and those that wait take 3.00 µs for it."
    );
    assert_eq!(
        two(0),
        "`many` has 2 locks of queues in use, and holds the busiest, `rq3`, 12 % of the time; no attempt finds its lock taken."
    );
    // Locks of the kernel's own run queues do not belong to the scheduler.
    let kernels = vec![lock("rq0", LockClass::KernelRq, 500_000, 3, 0)];
    assert_eq!(locks("many", &with_locks(kernels)), None);
    assert_eq!(locks("many", &with_locks(Vec::new())), None);
}

#[test]
fn a_choice_is_told_as_far_as_it_is_measured() {
    let told = |measures: &[(&str, f64)]| {
        let result = result(measures);
        choice(&Shown {
            result: &result,
            watched: None,
        })
    };
    let (mean, most, time) = (
        ("schedule.examined_mean", 208.0),
        ("schedule.examined_max", 900.0),
        ("schedule.time_ns_mean", 12_000.0),
    );
    for (measures, expected) in [
        (
            &[mean, most, time][..],
            Some("A choice examines 208 tasks (900 at most) and takes 12.0 µs in the mean."),
        ),
        (&[mean], Some("A choice examines 208 tasks in the mean.")),
        (&[time], Some("A choice takes 12.0 µs in the mean.")),
        (
            &[("schedule.examined_mean", 1.0)],
            Some("A choice examines 1.00 task in the mean."),
        ),
        // Of one that takes the head of a queue.
        (
            &[("schedule.examined_mean", 0.0), time],
            Some("A choice takes 12.0 µs in the mean."),
        ),
        (&[], None),
    ] {
        assert_eq!(told(measures).as_deref(), expected);
    }
}

#[test]
fn the_time_of_cpus_is_told_as_far_as_it_is_measured() {
    let told = |measures: &[(&str, f64)]| {
        let result = result(measures);
        cpus(&Shown {
            result: &result,
            watched: None,
        })
    };
    assert_eq!(
        told(&[
            ("cpu.idle_pct", 5.0),
            ("cpu.user_pct", 62.0),
            ("cpu.kernel_pct", 20.0),
            ("cpu.spin_pct", 4.0),
            ("sched.share_of_all_pct", 13.0),
        ])
        .unwrap(),
        "Of the time of all CPUs 62 % is the tasks' own code, 20 % calls and interrupts, 9.0 % the scheduler, 4.0 % spinning \
         and 5.0 % idle."
    );
    // A real kernel.
    assert_eq!(
        told(&[("cpu.idle_pct", 12.0)]).unwrap(),
        "CPUs idle 12 % of the time."
    );
    assert_eq!(told(&[]), None);
}

/// Waits of 60 ns after wakeups and 40 behind others.
fn waits_of_100() -> Watched {
    let times = Times {
        woken_ns: 60,
        preempted_ns: 40,
        ..Times::default()
    };
    let of = OfName {
        tasks: 2,
        times,
        migrations: 0,
    };
    Watched {
        time: Decomposed {
            names: vec![("cc1".to_owned(), of)],
            ..Decomposed::default()
        },
        ..Watched::default()
    }
}

#[test]
fn waits_are_told_with_the_longest_and_whom_they_were_for() {
    let mut watched = waits_of_100();
    let first = "All tasks together wait 100 ns for a CPU: 60 % of it after a wakeup, 40 % after another task took theirs or they yielded it.";
    assert_eq!(waiting(&watched), [first]);
    let longest = |behind: Option<&str>| {
        let longest = Longest {
            at_ns: 2_000_000,
            ns: 30,
            cpu: Some(3),
            behind: behind.map(str::to_owned),
        };
        Some(("cc1 7".to_owned(), longest))
    };
    watched.longest = longest(Some("hog 2"));
    assert_eq!(
        waiting(&watched)[1],
        "The longest wait is 30.0 ns: `cc1 7` on CPU 3 at 2.00 ms, behind `hog 2`."
    );
    watched.longest = longest(None);
    assert_eq!(
        waiting(&watched)[1],
        "The longest wait is 30.0 ns: `cc1 7` on CPU 3 at 2.00 ms, with no other task before it."
    );
    if let Some((_, longest)) = &mut watched.longest {
        longest.cpu = None;
    }
    assert_eq!(
        waiting(&watched)[1],
        "The longest wait is 30.0 ns: `cc1 7` from 2.00 ms on; it had not ended when the run did."
    );
    watched.longest = None;
    let behind = |runner: Runner, ns: u64| Behind {
        waiter: "cc1".to_owned(),
        runner,
        ns,
    };
    let task = |name: &str| Runner::Task(name.to_owned());
    for (behind, told) in [
        (
            vec![behind(task("hog"), 70), behind(Runner::Nobody, 30)],
            Some("Most of it, 70 %, is `cc1` behind `hog`."),
        ),
        (
            vec![behind(task("hog"), 30), behind(task("cc1"), 20)],
            Some("The largest part, 30 %, is `cc1` behind `hog`."),
        ),
        (
            vec![behind(Runner::Nobody, 38), behind(task("hog"), 12)],
            Some(
                "The largest part, 38 %, is `cc1` with no other task on the CPU that ended the wait.",
            ),
        ),
        (
            vec![behind(Runner::NotEnded, 50), behind(Runner::NotEnded, 50)],
            Some("Most of it, 100 %, is in waits that had not ended when the run did."),
        ),
        (
            vec![
                behind(task("hog"), 40),
                behind(Runner::NotEnded, 30),
                behind(Runner::NotEnded, 30),
            ],
            Some("Most of it, 60 %, is in waits that had not ended when the run did."),
        ),
        // Too little for a word.
        (vec![behind(task("hog"), 0)], None),
    ] {
        watched.behind = behind;
        assert_eq!(waiting(&watched).get(1).map(String::as_str), told);
    }
    watched.behind.clear();
    for (idles, told) in [
        (
            7.5,
            "For 7.5 % of the time a CPU idles although a task waits.",
        ),
        (0.2, "A CPU hardly ever idles while a task waits."),
    ] {
        watched.idle_while_waiting_pct = Some(idles);
        assert_eq!(waiting(&watched)[1], told);
    }
    assert_eq!(waiting(&Watched::default()), ["No task waits for a CPU."]);
}

#[test]
fn scores_are_higher_or_lower_and_better_or_worse() {
    assert_eq!(
        scores(-20.0, false),
        "its score is 20 % lower, which is better"
    );
    assert_eq!(
        scores(5.0, false),
        "its score is 5.0 % higher, which is worse"
    );
    assert_eq!(scores(-0.04, false), "its score is about the same");
    assert_eq!(
        scores(12.0, true),
        "its score is 12 % higher, which is better"
    );
    assert_eq!(
        scores(-5.0, true),
        "its score is 5.0 % lower, which is worse"
    );
}

#[test]
fn scores_of_the_same_seeds_are_compared() {
    let runs = |scores: &[f64], exit: Exit| -> Vec<RunResult> {
        let run = |(seed, score): (u64, &f64)| RunResult {
            seed,
            exit,
            ..result(&[("score", *score)])
        };
        let runs = (1..).zip(scores).map(run);
        runs.map(|mut run| {
            run.measures.text("score_better", "higher");
            run
        })
        .collect()
    };
    let told = |own: &[f64], others: &[f64]| {
        let (own, others) = (runs(own, Exit::Done), runs(others, Exit::Done));
        against(
            "other",
            "one",
            &own.iter().collect::<Vec<_>>(),
            &others.iter().collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        told(&[110.0], &[100.0]).unwrap(),
        "`other` beside `one`: its score is 10 % higher, which is better, by one seed."
    );
    assert_eq!(
        told(&[110.0, 111.0], &[100.0, 100.0]).unwrap(),
        "`other` beside `one`: its score is 10 % higher, which is better, by 2 seeds, which are too few to tell that from chance."
    );
    assert_eq!(
        told(&[110.0; 6], &[100.0; 6]).unwrap(),
        "`other` beside `one`: its score is 10 % higher, which is better; the seed changes nothing here."
    );
    assert_eq!(
        told(&[110.0, 110.1, 109.9, 110.2, 109.8, 110.0], &[100.0; 6]).unwrap(),
        "`other` beside `one`: its score is 10 % higher, which is better (95 % interval: +9.8 to +10.2 %)."
    );
    let may_be_chance = told(&[90.0, 110.0, 95.0, 106.0, 96.0, 104.0], &[100.0; 6]).unwrap();
    assert!(
        may_be_chance.ends_with("%), which may be chance."),
        "{may_be_chance}"
    );
    // A run that failed has no score to compare.
    let mut failed = runs(&[110.0, 111.0], Exit::ErrorStall);
    failed[0].message = Some("cc1 for 30 s".to_owned());
    let good = runs(&[100.0, 100.0], Exit::Done);
    let end = Exit::ErrorStall;
    assert_eq!(
        against("other", "one", &[&failed[0]], &[&good[0]]).unwrap(),
        format!(
            "`other` is not compared with `one`: `other` did not come to its end ({end}: cc1 for 30 s)."
        )
    );
    assert_eq!(
        against("other", "one", &[&good[0]], &[&failed[0]]).unwrap(),
        format!(
            "`other` is not compared with `one`: `one` did not come to its end ({end}: cc1 for 30 s)."
        )
    );
    // Each has a seed with which the other one failed.
    let (own, others) = ([&good[0], &failed[1]], [&failed[0], &good[1]]);
    assert_eq!(
        against("other", "one", &own, &others).unwrap(),
        format!(
            "`other` is not compared with `one`: `other` did not come to its end ({end}: no message)."
        )
    );
    // The seed with which both came to their end is enough.
    let told = against(
        "other",
        "one",
        &[&failed[0], &good[1]],
        &[&good[0], &good[1]],
    )
    .unwrap();
    assert!(told.ends_with("about the same, by one seed."), "{told}");
}

#[test]
fn a_run_that_failed_or_was_too_long_says_so() {
    let mut failed = result(&[]);
    failed.exit = Exit::ErrorStall;
    failed.message = Some("cc1 for 30 s".to_owned());
    let said = sentences(&Shown {
        result: &failed,
        watched: None,
    });
    assert_eq!(
        said,
        [format!(
            "`one` did not come to its end ({}: cc1 for 30 s); all that follows is until then.",
            Exit::ErrorStall
        )]
    );
    failed.message = None;
    let said = sentences(&Shown {
        result: &failed,
        watched: None,
    });
    assert!(said[0].contains(": no message)"), "{said:?}");
    let never_began = Watched::default();
    let said = sentences(&Shown {
        result: &failed,
        watched: Some(&never_began),
    });
    let name = failed.exit;
    assert_eq!(
        said,
        [format!(
            "`one` did not come to its end ({name}: no message)."
        )]
    );
    let cut = Watched {
        span_ns: 1,
        is_cut: true,
        ..Watched::default()
    };
    let said = sentences(&Shown {
        result: &result(&[]),
        watched: Some(&cut),
    });
    assert_eq!(
        said[said.len() - 1],
        "The run is too long to keep all of it: the timeline and the waits are of its first part."
    );
}

#[test]
fn a_path_and_what_changes_in_it_are_told() {
    let run = |running_ns, woken_ns, preempted_ns, migrations| {
        let times = Times {
            running_ns,
            woken_ns,
            preempted_ns,
            ..Times::default()
        };
        let of = OfName {
            tasks: 2,
            times,
            migrations,
        };
        Decomposed {
            makespan_ns: times.total_ns(),
            names: vec![("cc1".to_owned(), of)],
            path: Some(times),
            ..Decomposed::default()
        }
    };
    let (slow, fast) = (run(700, 200, 100, 100), run(690, 50, 60, 20));
    assert_eq!(
        critical_path("one", &slow).unwrap(),
        "Of the critical path under `one` 70 % is on a CPU, 30 % waits for one and 0 % sleeps until a timer or a device."
    );
    assert_eq!(
        changes(&slow, &fast, "other"),
        [
            "Under `other` the path has waits for a CPU after a wakeup: 150 ns less; waits for a CPU lost or yielded: 40.0 ns \
             less; on a CPU: 10.0 ns less.",
            "Waits for a CPU under `other`, of all tasks of a name together: cc1 110 ns instead of 300 ns.",
            "Under `other` tasks change their CPU 20 times instead of 100.",
        ]
    );
    assert_eq!(
        changes(&slow, &slow, "other"),
        ["Under `other` no part of the path changes by 0.5 % of it."]
    );
    // A sleep at the end is no time on a CPU.
    let mut asleep = run(600, 100, 100, 0);
    if let Some(path) = &mut asleep.path {
        path.other_ns = 200;
    }
    assert_eq!(
        critical_path("one", &asleep).unwrap(),
        "Of the critical path under `one` 60 % is on a CPU, 20 % waits for one and 0 % sleeps until a timer or a device. The \
         rest, 20 %, is a sleep at the end of the run, or was not seen."
    );
    let rows = |runs: &[&Decomposed]| {
        let paths: Vec<&Times> = runs.iter().filter_map(|run| run.path.as_ref()).collect();
        parts_beside(&paths)
    };
    let mut begun = slow.clone();
    if let Some(path) = &mut begun.path {
        path.other_ns = 4;
    }
    assert_eq!(rows(&[&begun, &fast]).len(), 4);
    assert_eq!(rows(&[&begun, &fast])[0], ("on a CPU", vec![704, 690]));
    assert_eq!(
        rows(&[&slow, &asleep])[4],
        ("sleeps at the end, or not seen", vec![0, 200])
    );
    assert_eq!(critical_path("one", &Decomposed::default()), None);
    assert!(changes(&Decomposed::default(), &Decomposed::default(), "other").is_empty());
}
