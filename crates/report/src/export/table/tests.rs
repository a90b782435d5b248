//! Tables of results made by hand.

use super::*;
use crate::Exit;
use crate::Measures;

/// The usual table on a terminal that is so wide.
fn render(results: &[RunResult], width: usize) -> String {
    super::render(results, &View::of_width(width))
}

fn run(scheduler: &str, cpus: u32, seed: u64, score: f64) -> RunResult {
    let mut measures = Measures::default();
    measures.float("score", score);
    measures.text("score_unit", "messages/s");
    measures.text("score_better", "higher");
    measures.float("lock.runqueue.contention_pct", 18.34);
    measures.float("lock.runqueue.hold_ns_mean", 15_200.0);
    measures.int("lock.runqueue.hold_ns_max", 118_000);
    measures.float("runqueue.len_mean", 217.6);
    measures.int("runqueue.len_max", 571);
    measures.int("switches.total", 1_234_567);
    RunResult {
        workload: "chat".into(),
        asked: "chat:rooms=20".into(),
        params: vec![
            ("rooms".into(), "20".into()),
            ("messages".into(), "200".into()),
        ],
        scheduler: scheduler.into(),
        machine: "old".into(),
        cpus,
        seed,
        exit: crate::Exit::Done,
        replay: "schedlab sim chat -s b -c 8".into(),
        measures,
        ..RunResult::default()
    }
}

#[test]
fn a_row_per_scheduler_and_cpus() {
    let mut ejected = run("b", 8, 1, 900.0);
    ejected.exit = crate::Exit::ErrorStall;
    ejected.message = Some("runnable task stall".into());
    let results = [
        run("a", 2, 1, 12_345.6),
        run("b", 2, 1, 13_580.2),
        run("a", 8, 1, 1_000.0),
        ejected,
    ];
    let found = render(&results, 90);
    assert_lines(
        &found,
        &[
            "chat:rooms=20 on old",
            "",
            "                     messages/s  vs first  contention   hold µs     queue   switches",
            "cpus  scheduler  more is better         %           %  mean/max  mean/max",
            "   2  a                  12,346                  18.3  15.2/118   218/571  1,234,567",
            "   2  b                  13,580     +10.0        18.3  15.2/118   218/571  1,234,567",
            "",
            "   8  a                   1,000                  18.3  15.2/118   218/571  1,234,567",
            "   8  b                    900!         -        18.3  15.2/118   218/571  1,234,567",
            "differences may be chance: intervals need 6 runs (--repeat 6)",
            "! b on 8 CPUs, seed 1: error_stall: runnable task stall",
            "  replay: schedlab sim chat -s b -c 8",
        ],
    );
    let mut noted = run("a", 2, 1, 12_345.6);
    noted.message = Some("two tasks were left".into());
    let found = render(&[noted], 90);
    assert!(
        found.ends_with("\n- a on 2 CPUs, seed 1: two tasks were left\n"),
        "{found}"
    );
}

fn assert_lines(found: &str, expected: &[&str]) {
    let found_lines: Vec<_> = found.lines().collect();
    assert_eq!(found_lines, expected, "\n{found}");
}

#[test]
fn layouts_that_differ_have_rows_of_their_own() {
    let with = |layout: &str, score| {
        let mut run = run("a", 2, 1, score);
        run.task_layout = Some(layout.into());
        run
    };
    let found = render(&[with("plain", 1_000.0), with("separate", 1_100.0)], 60);
    assert!(found.starts_with("chat:rooms=20 on old\n\n"), "{found}");
    assert!(found.contains("   2  a, plain"), "{found}");
    let row = found.lines().find(|line| line.contains("a, separate"));
    assert!(row.unwrap().contains("+10.0"), "{found}");
    let found = render(&[with("plain", 1_000.0)], 60);
    assert!(!found.contains("plain"), "{found}");
    let found = render(&[with("coloured:4", 1_000.0)], 60);
    let title = "chat:rooms=20 on old, task structures coloured:4\n\n";
    assert!(found.starts_with(title), "{found}");
    assert!(found.contains("   2  a  "), "{found}");
}

#[test]
fn repeated_runs_have_intervals_and_differences() {
    let mut results = Vec::new();
    for seed in 0..7 {
        let noise = f64::from(seed as u32 * 37 % 7);
        results.push(run("a", 2, seed, 1_000.0 + noise));
        results.push(run("b", 2, seed, 1_200.0 + noise));
        results.push(run("c", 2, seed, 1_000.0 + f64::from(6 - seed as u32)));
    }
    let text = render(&results, WIDTH);
    assert!(text.contains("1,003 [1,000, 1,006]"), "{text}");
    assert!(text.contains("+19.9 [+19.9, +20.0]"), "{text}");
    assert!(text.contains(" ~ "), "{text}");
}

/// One to five runs give no interval, and the table says what that means.
#[test]
fn differences_of_few_runs_come_with_a_caution() {
    let table = |runs: u64, schedulers: &[&str]| {
        let results: Vec<_> = (0..runs)
            .flat_map(|seed| {
                schedulers
                    .iter()
                    .map(move |name| run(name, 2, seed, 1_000.0 + seed as f64))
            })
            .collect();
        render(&results, WIDTH)
    };
    let caution = "differences may be chance: intervals need 6 runs (--repeat 6)";
    for (runs, told) in [(1, true), (2, true), (5, true), (6, false)] {
        let found = table(runs, &["a", "b"]);
        assert_eq!(found.lines().any(|l| l == caution), told, "{runs}: {found}");
    }
    assert!(!table(5, &["a"]).contains(caution), "nothing is compared");
}

/// Also a row without any score says that its runs failed.
#[test]
fn failures_are_marked_where_there_is_no_score() {
    let scoreless = |scheduler, exit| {
        let mut run = run(scheduler, 2, 1, 0.0);
        run.measures = Measures::default();
        run.exit = exit;
        run
    };
    let results = [
        scoreless("a", crate::Exit::Done),
        scoreless("b", crate::Exit::ErrorStall),
    ];
    let found = render(&results, WIDTH);
    let row = |name: &str| found.lines().find(|line| line.contains(name)).unwrap();
    assert!(row("   2  a ").trim_end().ends_with(" -"), "{found}");
    assert!(row("   2  b ").contains(" -!  "), "{found}");
    // Without any unit the column has a heading all the same.
    assert_eq!(
        found.lines().nth(2).unwrap().trim(),
        "score  vs first",
        "{found}"
    );
}

/// Four of nine runs are not nine.
#[test]
fn it_is_said_of_how_many_runs_figures_are() {
    let table = |failed: u64| {
        let results: Vec<_> = (0..9)
            .flat_map(|seed| {
                let mut other = run("b", 2, seed, 1_100.0 + seed as f64);
                if seed < failed {
                    other.exit = crate::Exit::ErrorStall;
                    other.measures.float("score", 1.0);
                }
                [run("a", 2, seed, 1_000.0 + seed as f64), other]
            })
            .collect();
        render(&results, WIDTH)
    };
    let told = "failed runs are not in the figures, which are of 4 of 9 runs of b on 2 CPUs";
    let found = table(5);
    assert!(found.lines().any(|line| line == told), "{found}");
    assert!(found.contains("1,106!"), "{found}");
    // Where none or all failed there is nothing to leave out.
    for failed in [0, 9] {
        let found = table(failed);
        assert!(!found.contains("not in the figures"), "{found}");
    }
}

/// The most important come first, and none vanishes unsaid.
#[test]
fn columns_without_room_are_named() {
    let mut one = run("a", 2, 1, 1_000.0);
    for name in ["lock.runqueue.wait_ns_mean", "lock.runqueue.wait_ns_max"] {
        one.measures.float(name, 123_456.0);
    }
    for name in ["wakeup.latency_ns_p50", "wakeup.latency_ns_p99"] {
        one.measures.float(name, 123_456.0);
    }
    one.measures.float("cpu.idle_pct", 1.0);
    one.measures.float("schedule.examined_mean", 7.0);
    let results = [
        one.clone(),
        RunResult {
            scheduler: "b".into(),
            ..one
        },
    ];
    let found = render(&results, 74);
    let headings = found.lines().nth(2).unwrap();
    let shown: Vec<&str> = headings.split_whitespace().collect();
    let expected = [
        "messages/s",
        "vs",
        "first",
        "contention",
        "hold",
        "µs",
        "wait",
        "µs",
    ];
    assert_eq!(shown, expected, "{found}");
    // Though there is room for `idle`.
    let note = "no room for queue, examined, wakeup, idle, switches: 121 columns show all\n  (in a pipe, set COLUMNS=121), as does --json\n";
    assert!(found.contains(note), "{found}");
    let found = render(&results, 121);
    assert!(!found.contains("no room"), "{found}");
    let long = results.clone().map(|result| RunResult {
        scheduler: format!("{}:{}", result.scheduler, "option=value,".repeat(9)),
        ..result
    });
    // Long names take more where there is more.
    let told = |width| {
        let found = render(&long, width);
        let (_, behind) = found.split_once("COLUMNS=")?;
        behind.split(')').next()?.parse::<usize>().ok()
    };
    let wide = told(80).unwrap();
    assert_eq!(told(wide), None);
    assert!(told(wide - 1).is_some());
    let order = [
        "contention",
        "hold",
        "wait",
        "queue",
        "examined",
        "wakeup",
        "idle",
        "switches",
    ];
    let places = order.map(|name| found.find(name).unwrap());
    assert!(places.is_sorted(), "{found}");
}

/// Where runs fail, more of them may not be what is missing.
#[test]
fn advice_after_failures_is_about_runs_that_ended() {
    let table = |failed: u64, score: fn(u64) -> f64| {
        let results: Vec<_> = (0..7)
            .flat_map(|seed| {
                let mut other = run("b", 2, seed, 1_000.0);
                if seed < failed {
                    other.exit = crate::Exit::ErrorStall;
                }
                [run("a", 2, seed, score(seed)), other]
            })
            .collect();
        render(&results, WIDTH)
    };
    let found = table(2, |seed| 1_000.0 + seed as f64);
    let told = "intervals need 6 seeds with which both runs end with\n  a score\n";
    assert!(found.contains(told), "{found}");
    assert!(!found.contains("--repeat"), "{found}");
    let found = table(7, |seed| 1_000.0 + seed as f64);
    assert!(!found.contains("the seed changes nothing"), "{found}");
    let found = table(7, |_| 1_000.0);
    assert!(found.contains("nothing in 1 of 2 rows: 7 runs"), "{found}");
}

#[test]
fn more_of_a_score_below_zero_is_more() {
    let text = render(&[run("a", 2, 1, -100.0), run("b", 2, 1, -50.0)], WIDTH);
    assert!(text.contains("+50.0"), "{text}");
}

/// Scores of 0 are scores: none of the pairs is left out, and more runs are not asked for.
#[test]
fn scores_of_zero_are_compared_like_others() {
    let row = |b: f64| {
        let results: Vec<_> = [0.0, 125.0, 0.0, 0.0, 125.0, 0.0]
            .into_iter()
            .zip(1..)
            .flat_map(|(a, seed)| [run("a", 2, seed, a), run("b", 2, seed, b)])
            .collect();
        let found = render(&results, WIDTH);
        assert!(!found.contains("chance"), "{found}");
        let row = found.lines().find(|line| line.starts_with("   2  b "));
        row.unwrap().to_owned()
    };
    assert!(row(0.0).contains(" ~ "), "{}", row(0.0));
    // Twice 125 and four times 250 more, of 41.7: of the averages of any two 3 are 125, 8 are 187.5 and 10 are 250.
    assert!(
        row(250.0).contains(" +450.0 [+300.0, +600.0] "),
        "{}",
        row(250.0)
    );
}

#[test]
fn half_as_much_is_the_opposite_of_double() {
    let results: Vec<_> = [(1.0, 2.0), (2.0, 1.0)]
        .into_iter()
        .zip(1..)
        .flat_map(|((a, b), seed)| [run("a", 2, seed, a), run("b", 2, seed, b)])
        .collect();
    let found = render(&results, 50);
    let row = found.lines().find(|line| line.starts_with("   2  b "));
    assert!(row.unwrap().ends_with("  0.0"), "{found}");
}

/// A value that is shown is not shown as zero, however small it is.
#[test]
fn differences_that_are_shown_do_not_look_like_none() {
    let column = |differences: &[f64]| {
        let results: Vec<_> = differences
            .iter()
            .zip(0..)
            .flat_map(|(percent, seed)| {
                let score = 1e7 + 1e5 * seed as f64;
                let other = score * (1.0 + percent / 100.0);
                [run("a", 2, seed, score), run("b", 2, seed, other)]
            })
            .collect();
        let found = render(&results, WIDTH);
        assert!(found.lines().all(|line| line.chars().count() <= WIDTH));
        let row = found.lines().find(|line| line.starts_with("   2  b "));
        let (_, end) = row
            .unwrap()
            .split_once("]  ")
            .expect("the score's interval");
        end.trim().split("  ").next().unwrap().to_owned()
    };
    let around =
        |middle: f64, step: f64| [-2.0, -1.0, 0.0, 0.0, 1.0, 2.0].map(|x| middle + x * step);
    assert_eq!(column(&around(20.0, 1.0)), "+20.0 [+18.0, +22.0]");
    assert_eq!(column(&around(0.06, 0.01)), "+0.06 [+0.04, +0.08]");
    assert_eq!(column(&around(-0.06, 0.01)), "-0.06 [-0.08, -0.04]");
    assert_eq!(column(&around(-1.0, 0.498)), "-1.000 [-1.996, -0.004]");
    assert_eq!(column(&around(60.0, 29.998)), "+60.0 [+0.004, +120.0]");
    assert_eq!(column(&around(-1.0, 0.499_99)), "-1.000 [-2.000, -<0.001]");
    assert_eq!(column(&around(-0.000_02, 0.000_002)), "-<0.001");
    assert_eq!(column(&around(-0.000_02, 1.0)), "~");
    let one = |percent: f64| {
        let text = render(
            &[run("a", 2, 1, 1e6), run("b", 2, 1, 1e6 + 1e4 * percent)],
            50,
        );
        text.lines()
            .nth(5)
            .unwrap()
            .split_whitespace()
            .last()
            .unwrap()
            .to_owned()
    };
    let found = [12.0, -0.06, -0.04, 0.004, 0.0001, 0.0].map(one);
    assert_eq!(
        found,
        ["+12.0", "-0.1", "-0.04", "+0.004", "+<0.001", "0.0"]
    );
    // Nor do those look like all of which something is left.
    let left = [1.0, 0.06, 0.04, 0.00667, 0.005, 0.0006, 0.0004, 1e-9].map(|x| one(x - 100.0));
    assert_eq!(
        left,
        [
            "-99.0", "-99.9", "-99.96", "-99.99", "-99.995", "-99.999", "<-99.999", "<-99.999"
        ]
    );
    assert_eq!([-100.0, -150.0].map(one), ["-100.0", "-150.0"]);
    assert_eq!(column(&around(-99.98, 0.009)), "-99.98 [-99.998, -99.96]");
}

#[test]
fn copies_of_one_run_are_no_sample() {
    let table = |runs: u64, of_b: fn(u64) -> f64| {
        let results: Vec<_> = (0..runs)
            .flat_map(|seed| [run("a", 2, seed, 1_000.0), run("b", 2, seed, of_b(seed))])
            .collect();
        render(&results, 110)
    };
    let found = table(6, |_| 920.0);
    let rows: Vec<_> = found.lines().skip(4).collect();
    assert!(rows[0].contains(" a       "), "{found}");
    assert!(!found.contains('±') && !found.contains('['), "{found}");
    assert!(rows[1].contains("  -8.0  "), "{found}");
    assert_eq!(rows[2], "the seed changes nothing here: 6 runs are one");
    let found = table(6, |seed| 920.0 + seed as f64);
    assert!(found.contains("-7.8 [-8.0, -7.5]"), "{found}");
    let told = "the seed changes nothing in 1 of 2 rows: 6 runs are one";
    assert!(found.lines().any(|line| line == told), "{found}");
    let found = table(3, |_| 920.0);
    assert!(!found.contains("chance"), "{found}");
    assert!(!table(1, |_| 920.0).contains("seed"));
}

#[test]
fn a_wait_that_did_not_end_is_told_if_none_that_ended_was_as_long() {
    let table = |waits: &[(&str, u64)]| {
        let results = waits.iter().map(|&(scheduler, unfinished)| {
            let mut run = run(scheduler, 1, 1, 1_000.0);
            run.measures.int("wait.ns_max", 500);
            run.measures.int("wait.unfinished_ns_max", unfinished);
            run
        });
        render(&results.collect::<Vec<_>>(), WIDTH)
    };
    let line = "a task had waited for a CPU for 998 ms when the run ended: b on 1 CPU";
    let told = table(&[("a", 600), ("b", 997_934_000), ("c", 700)]);
    assert!(told.lines().any(|l| l == line), "{told}");
    assert!(!table(&[("a", 500), ("b", 0)]).contains("had waited"));
    // In a run that ended early every task waits for something.
    let mut ejected = run("a", 1, 1, 1_000.0);
    ejected.exit = crate::Exit::Error;
    ejected.measures.int("wait.unfinished_ns_max", 435);
    assert!(!render(&[ejected], WIDTH).contains("had waited"));
}

#[test]
fn long_names_leave_room_for_what_the_table_is_for() {
    let long = "./a-folder/with-a-long-name/my-own-scheduler.bpf.c";
    let results = [run("short", 2, 1, 1_000.0), run(long, 2, 1, 1_100.0)];
    let found = render(&results, 60);
    let row = "   2  ./a-folder/…eduler.bpf.c           1,100     +10.0";
    assert!(found.lines().any(|line| line == row), "{found}");
    assert!(render(&results, 160).contains(long));
    assert!(render(&results, 90).contains("contention"));
    // Alike at both ends.
    let twins = [
        "x".repeat(40) + "1" + &"y".repeat(40),
        "x".repeat(40) + "2" + &"y".repeat(40),
    ];
    let results = twins.map(|name| run(&name, 2, 1, 1_000.0));
    let found = render(&results, 60);
    assert!(
        found.contains("   2  1 xxx") && found.contains("   2  2 xxx"),
        "{found}"
    );
}

/// A run whose score is a time.
fn timed(scheduler: &str, seed: u64, ns: f64) -> RunResult {
    let mut run = run(scheduler, 4, seed, ns);
    run.measures.text("score_unit", "ns");
    run.measures.text("score_better", "lower");
    run
}

#[test]
fn times_have_one_unit_that_suits_the_least() {
    let results = [
        timed("a", 1, 40_111_367_874.0),
        timed("b", 1, 812_345_678.0),
    ];
    let found = render(&results, 50);
    let lines: Vec<_> = found.lines().skip(2).collect();
    assert_eq!(
        lines,
        [
            "                             ms  vs first",
            "cpus  scheduler  less is better         %",
            "   4  a                  40,111",
            "   4  b                     812     -98.0",
            "no room for contention, hold, queue, switches: 84",
            "  columns show all (in a pipe, set COLUMNS=84), as",
            "  does --json",
            "differences may be chance: intervals need 6 runs",
            "  (--repeat 6)",
        ]
    );
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let results = [
        run("old:threshold=0,ties=list", 64, 1, 1e9),
        run(&"b".repeat(90), 64, 1, 1.0),
    ];
    let fits = |results: &[RunResult], width: usize| {
        for line in render(results, width).lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    };
    for width in [60, 80, 100] {
        fits(&results, width);
    }
    // With a long title, failures and notes; commands stay whole.
    let long = format!("./{}.bpf.c", "c".repeat(90));
    let mut failed = run(&long, 2, 1, 1.0);
    failed.asked = format!("chat:{}", "rooms=20,".repeat(20));
    failed.exit = crate::Exit::Error;
    failed.message = Some("a message of many words ".repeat(10));
    let mut noted = failed.clone();
    noted.exit = crate::Exit::Done;
    noted.measures.int("wait.unfinished_ns_max", 1_000);
    fits(&[failed.clone(), noted], 60);
    failed.replay = "schedlab ".repeat(20);
    let found = render(&[failed.clone()], 60);
    assert!(found.contains(&format!("\n  replay: {}\n", failed.replay)));
    // With intervals.
    let mut times = Vec::new();
    let mut rates = Vec::new();
    for seed in 0..6 {
        let noise = 1.0 + 0.002 * seed as f64;
        for (scheduler, factor) in [("first", 1.0), ("second", 1.3 * noise), ("third", 0.7)] {
            times.push(timed(scheduler, seed, 40_111_367_874.0 * factor * noise));
            rates.push(run(scheduler, 4, seed, 98_765_432.1 * factor * noise));
        }
    }
    fits(&times, 60);
    fits(&rates, WIDTH);
}

fn with_view(results: &[RunResult], change: impl Fn(&mut View)) -> String {
    let mut view = View::of_width(100);
    change(&mut view);
    super::render(results, &view)
}

/// A measure of a few runs, each with its seed's value.
fn with_measure(scheduler: &str, name: &str, values: &[f64]) -> Vec<RunResult> {
    let runs = values.iter().enumerate();
    runs.map(|(seed, &value)| {
        let mut run = run(scheduler, 2, seed as u64, 1_000.0 + seed as f64);
        run.measures.float(name, value);
        run
    })
    .collect()
}

#[test]
fn chosen_measures_are_columns_with_intervals() {
    let values: Vec<f64> = (0..7).map(|i| 2_000.0 + 100.0 * f64::from(i)).collect();
    let results = with_measure("a", "wakeup.latency_ns_p99", &values);
    let found = with_view(&results, |view| {
        view.measures = vec![
            "wakeup.latency_ns_p99".into(),
            "switches.*".into(),
            "no.such".into(),
        ];
    });
    // The interval of seven values goes from the lowest to the highest.
    assert_lines(
        &found,
        &[
            "chat:rooms=20 on old",
            "",
            "                           wakeup.     switches.   no.",
            "cpus  scheduler     latency_p99 µs         total  such",
            "   2  a          2.30 [2.00, 2.60]  1,234,567 ±0     -",
        ],
    );
}

#[test]
fn a_pattern_that_names_nothing_is_told() {
    let results = with_measure("a", "wakeup.latency_ns_p99", &[1_000.0]);
    for width in [80, 20] {
        let found = with_view(&results, |view| {
            view.measures = vec!["foo.*".into()];
            view.width = width;
        });
        assert!(found.contains("cpus  scheduler"), "{found}");
        let words: Vec<&str> = found.split_whitespace().collect();
        let words = words.join(" ");
        assert!(
            words.contains("no measure of these runs is called `foo.*`"),
            "{found}"
        );
    }
}

#[test]
fn several_patterns_that_name_nothing_are_told_together() {
    let results = with_measure("a", "wakeup.latency_ns_p99", &[1_000.0]);
    let found = with_view(&results, |view| {
        view.measures = vec!["foo.*".into(), "wakeup.*".into(), "bar*".into()];
    });
    let note = "\nno measure of these runs is called `foo.*` or `bar*`: --json writes all\n";
    assert!(found.ends_with(note), "{found}");
}

/// A difference that the digits of the median do not show is not "130 [130, 130]".
#[test]
fn narrow_intervals_have_digits() {
    let values: Vec<f64> = (0..7).map(|i| 130_000.0 + 10.0 * f64::from(i)).collect();
    let results = with_measure("a", "wakeup.latency_ns_p99", &values);
    let found = with_view(&results, |view| {
        view.measures = vec!["wakeup.latency_ns_p99".into()];
    });
    assert!(found.contains("130 ±0.030"), "{found}");
}

#[test]
fn medians_of_some_runs_say_of_how_many() {
    let mut results = with_measure("a", "wakeup.latency_ns_p99", &[1_000.0; 9]);
    for run in &mut results[3..] {
        let mut measures = Measures::default();
        for (name, value) in run
            .measures
            .iter()
            .filter(|(name, _)| !name.starts_with("wakeup"))
        {
            measures.set(name, value.clone());
        }
        run.measures = measures;
    }
    let told = |results: &[RunResult]| {
        let found = with_view(results, |view| {
            view.measures = vec!["wakeup.latency_ns_p99".into()];
        });
        let (_, note) = found.split_once("some runs lack").expect(&found);
        note.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let of = |name: &str| format!("wakeup.latency_ns_p99 of {name} on 2 CPUs (3 of 9 runs)");
    let head = "a figure, and medians leave them out:";
    assert_eq!(told(&results), format!("{head} {}", of("a")));
    let others = ["b", "c", "d"].map(|name| {
        let mut others = results.clone();
        others
            .iter_mut()
            .for_each(|run| run.scheduler = name.into());
        others
    });
    results.extend(others.concat());
    assert_eq!(
        told(&results),
        format!("{head} {}, {}, {} and 1 more", of("a"), of("b"), of("c"))
    );
}

#[test]
fn rows_are_sorted_and_compared_with_the_first_that_was_asked_for() {
    let results = [
        run("a", 2, 1, 1_000.0),
        run("b", 2, 1, 1_100.0),
        run("c", 2, 1, 900.0),
    ];
    let names = |sort: &str| {
        let found = with_view(&results, |view| view.sort = Some(Sort::parse(sort)));
        let rows = found.lines().filter(|line| line.starts_with("   2  "));
        rows.map(|row| row[6..7].to_owned()).collect::<String>()
    };
    assert_eq!(names("score"), "bac");
    assert_eq!(names("-score"), "cab");
    assert_eq!(names("switches.total"), "abc");
    let found = with_view(&results, |view| view.sort = Some(Sort::parse("score")));
    assert!(
        found.contains("b                   1,100     +10.0"),
        "{found}"
    );
}

#[test]
fn tables_of_emulated_machines_say_so_and_withhold_ratios() {
    let results = [run("a", 2, 1, 1_000.0), run("b", 2, 1, 1_100.0)].map(|run| RunResult {
        machine: RunResult::EMULATED.into(),
        ..run
    });
    let found = with_view(&results, |_| ());
    let heading =
        "chat:rooms=20 on vm-emulated (emulated CPUs: compare counts and orders, not times)\n";
    assert!(found.starts_with(heading), "{found}");
    assert!(
        !found.contains("vs first") && !found.contains("10.0"),
        "{found}"
    );
    let note =
        "ratios of scores are withheld: emulated CPUs do not keep the proportions of real ones";
    assert!(found.contains(note), "{found}");
    assert!(!found.contains("differences may be chance"), "{found}");
    let found = with_view(&results, |view| view.emulated_ratios = true);
    assert!(
        found.contains("+10.0") && !found.contains("withheld"),
        "{found}"
    );
    let found = with_view(&results[..1], |_| ());
    assert!(!found.contains("withheld"), "{found}");
}

#[test]
fn who_measures_latency_sees_wakeups_first() {
    let mut plain = run("a", 2, 1, 1_000.0);
    plain.measures.float("wakeup.latency_ns_p50", 1_000.0);
    plain.measures.float("wakeup.latency_ns_p99", 2_000.0);
    let mut asks = plain.clone();
    asks.measures.float("schbench.wakeup_ns_p99", 2_000.0);
    let first = |run: &RunResult| {
        let found = with_view(std::slice::from_ref(run), |_| ());
        let headings = found.lines().nth(2).unwrap_or_default();
        headings.find("wakeup") < headings.find("contention")
    };
    assert!(first(&asks) && !first(&plain));
}

/// Violations before another end stand below it.
#[test]
fn violations_stand_below_the_end_of_the_run() {
    let mut stalled = run("a", 2, 1, 0.0);
    stalled.exit = Exit::ErrorStall;
    stalled.message = Some("a stall".into());
    stalled.violations = Some("2 in all: a race; another one".into());
    stalled.replay = "schedlab sim".into();
    let text = failures(&[&stalled], WIDTH);
    let expected = "! a on 2 CPUs, seed 1: error_stall: a stall\n  \
        before that, violations: 2 in all: a race; another one\n  replay: schedlab sim\n";
    assert_eq!(text, expected);
}

/// A page has room for all columns, with the notes of the table.
#[test]
fn a_sheet_has_the_cells_of_the_table() {
    let results = [
        run("a", 2, 1, 12_345.6),
        run("b", 2, 1, 13_580.2),
        run("a", 8, 1, 1_000.0),
    ];
    let sheets = sheets(&results, &View::of_width(30));
    assert_eq!(sheets.len(), 1);
    let sheet = &sheets[0];
    assert_eq!(sheet.title, "chat:rooms=20 on old");
    assert_eq!(
        sheet.head[..5],
        [
            "cpus",
            "scheduler",
            "messages/s more is better",
            "vs first %",
            "contention %"
        ]
    );
    assert!(sheet.head.contains(&"switches".to_owned()), "{sheet:?}");
    assert_eq!(sheet.rows.len(), 3);
    assert_eq!(sheet.rows[1][..4], ["2", "b", "13,580", "+10.0"]);
    assert!(sheet.rows.iter().all(|row| row.len() == sheet.head.len()));
    assert!(
        sheet
            .notes
            .iter()
            .any(|note| note.contains("may be chance")),
        "{sheet:?}"
    );
    let chosen = View {
        measures: vec!["switches.*".to_owned()],
        ..View::of_width(30)
    };
    let head = &super::sheets(&results, &chosen)[0].head;
    assert_eq!(head[..], ["cpus", "scheduler", "switches. total"]);
}
