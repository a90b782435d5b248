//! Compares searches with a budget with whole sweeps, whose rows stand for the runs.
//!
//! ```text
//! search dump FOLDER >TABLE.csv
//! search compare FOLDER [--part 0.1] [--seeds 5] [--others OPTUNA.csv] [--svg FILE]
//! search planted [--sets 200]
//! ```
//!
//! `tools/compare-search` makes the sweeps, asks Optuna, and calls this.

#[allow(dead_code, reason = "tests need more of it")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::path::Path;

use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use schedlab_analysis::{Analysis, Bounds, Verdict, analyse};
use schedlab_figures::{Axis, Chart, Mark, Point, Series};
use schedlab_sweep::{Budget, Definition, Row};
use support::{Noise, searched, sharing};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1).cloned()
    };
    match words.first().map(String::as_str) {
        Some("dump") => dump(Path::new(&words[1])),
        Some("compare") => compare(
            Path::new(&words[1]),
            flag("--part").map_or(0.1, |text| text.parse().expect("a part")),
            flag("--seeds").map_or(5, |text| text.parse().expect("a number of seeds")),
            flag("--others").as_deref(),
            flag("--svg").as_deref(),
        ),
        Some("planted") => {
            planted(flag("--sets").map_or(200, |text| text.parse().expect("a number of sets")));
        }
        _ => panic!("write dump, compare or planted, as the head of this file says"),
    }
}

/// A whole sweep of one workload.
struct Whole {
    name: String,
    definition: Definition,
    rows: Vec<Row>,
}

/// The workloads of a folder, each as a sweep of its own.
fn wholes(folder: &Path) -> Vec<Whole> {
    let (definition, rows) = schedlab_sweep::read(folder).unwrap_or_else(|error| panic!("{error}"));
    let points = definition.points().len();
    let is_whole = |workload: &&String| {
        let own = rows.iter().filter(|row| row.workload == **workload);
        let own = own.count();
        if own < points {
            eprintln!("{workload} is left out: its sweep is not whole");
        }
        own == points
    };
    let of = |workload: &String| {
        let mut own = definition.clone();
        own.workloads = vec![workload.clone()];
        let mut own_rows: Vec<Row> = rows
            .iter()
            .filter(|row| row.workload == *workload)
            .cloned()
            .collect();
        for (job, row) in (0..).zip(&mut own_rows) {
            row.job = job;
        }
        Whole {
            name: workload.split(':').next().unwrap_or(workload).to_owned(),
            definition: own,
            rows: own_rows,
        }
    };
    let whole = definition.workloads.iter().filter(is_whole);
    whole.map(of).collect()
}

fn analysis(definition: &Definition, rows: &[Row]) -> Analysis {
    let workload = &definition.workloads[0];
    analyse(definition, rows, workload, "score", &Bounds::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

/// One line a point: its scheduler, its choices and its score; nothing where it failed.
fn dump(folder: &Path) {
    for whole in wholes(folder) {
        for (row, &point) in whole.rows.iter().zip(whole.definition.points()) {
            let scheduler = whole.definition.space.same_as(point);
            let score = row.value("score").filter(|_| row.is_done());
            let score = score.map_or(String::new(), |score| score.to_string());
            let choices = row.choices.join(",");
            println!("{},{scheduler},{choices},{score}", whole.name);
        }
    }
}

/// How much worse than the best of all, in percent, the best of the first n runs is.
fn curve(whole: &Whole, best: f64, rows: impl Iterator<Item = Row>) -> Vec<f64> {
    let mut least = f64::INFINITY;
    let mut seen = Vec::new();
    for row in rows {
        let score = row.value("score").filter(|_| row.is_done());
        if let Some(score) = score {
            let loss = match whole.rows[0].higher_is_better() {
                true => 100.0 * (best - score) / best,
                false => 100.0 * (score - best) / best,
            };
            least = least.min(loss);
        }
        seen.push(least);
    }
    seen
}

fn verdicts(analysis: &Analysis) -> Vec<Verdict> {
    let all = analysis.study.alternatives.iter();
    all.map(|one| one.verdict).collect()
}

/// The number of alternatives of which both say the same.
fn same(a: &Analysis, b: &Analysis) -> usize {
    let pairs = verdicts(a).into_iter().zip(verdicts(b));
    let word = |verdict: Verdict| match verdict {
        Verdict::NotCompared => Verdict::Neutral,
        other => other,
    };
    pairs.filter(|(a, b)| word(*a) == word(*b)).count()
}

/// Tells the cells that differ on standard error, with the shares of B that decide them.
fn differing(name: &str, seed: u64, truth: &Analysis, found: &Analysis) {
    let pairs = truth
        .study
        .alternatives
        .iter()
        .zip(&found.study.alternatives);
    for (a, b) in pairs.filter(|(a, b)| a.verdict != b.verdict) {
        eprintln!(
            "{name}, seed {seed}: {}={} is {:?} ({:.1} % of {}), found {:?} ({:.1} % of {})",
            a.feature,
            a.alternative,
            a.verdict,
            a.in_b_pct,
            truth.study.first[0],
            b.verdict,
            b.in_b_pct,
            found.study.first[0]
        );
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The rows of a random sample of schedulers, in random order.
fn at_random(whole: &Whole, size: usize, seed: u64) -> Vec<Row> {
    let mut firsts: Vec<usize> = (0..whole.definition.schedulers().count()).collect();
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    for last in (1..firsts.len()).rev() {
        firsts.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
    }
    firsts
        .into_iter()
        .take(size)
        .flat_map(|first| {
            let run = whole.definition.run_of(first, 0, 0);
            let jobs: Vec<u64> = whole.definition.jobs_of(run).collect();
            jobs
        })
        .map(|job| whole.rows[job as usize].clone())
        .collect()
}

/// One row of each run, in order.
fn of_runs(whole: &Whole, rows: &[Row]) -> Vec<Row> {
    let space = &whole.definition.space;
    let mut seen = std::collections::BTreeSet::new();
    let is_first = |row: &&Row| {
        let (place, ..) = whole.definition.parts(row.job);
        seen.insert(space.same_as(whole.definition.points()[place]))
    };
    rows.iter().filter(is_first).cloned().collect()
}

/// Curves of another optimiser: workload, seed and the scores of its runs in order.
fn others(path: &str) -> BTreeMap<String, Vec<Vec<f64>>> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut curves: BTreeMap<String, Vec<Vec<f64>>> = BTreeMap::new();
    for line in text.lines() {
        let mut parts = line.split(',');
        let name = parts.next().expect("a workload").to_owned();
        let scores = parts.map(|score| score.parse().unwrap_or(f64::NAN));
        curves.entry(name).or_default().push(scores.collect());
    }
    curves
}

fn compare(folder: &Path, part: f64, seeds: u64, optuna: Option<&str>, svg: Option<&str>) {
    let optuna = optuna.map(others).unwrap_or_default();
    println!(
        "| application | runs | of | simulated time | best: search | random | Optuna | cells: search | random | search of {} |",
        seeds
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut all_cells = [0, 0, 0];
    let mut curves: [Vec<Vec<f64>>; 3] = Default::default();
    let mut within = [0, 0];
    for whole in wholes(folder) {
        let truth = analysis(&whole.definition, &whole.rows);
        let best = truth.study.best;
        let nr_runs = whole.definition.runs();
        let budget = (nr_runs as f64 * part) as u64;
        let (mut lost, mut cells, mut lost_at_random, mut cells_at_random) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut time = Vec::new();
        let makespan =
            |rows: &[Row]| -> f64 { rows.iter().filter_map(|row| row.value("makespan_ns")).sum() };
        let firsts = whole.definition.schedulers();
        let all_time: f64 = firsts
            .map(|first| {
                whole.rows[first as usize]
                    .value("makespan_ns")
                    .unwrap_or(0.0)
            })
            .sum();
        for seed in 1..=seeds {
            let mut definition = whole.definition.clone();
            definition.budget = Some(Budget {
                runs: budget,
                timed: None,
            });
            definition.seed = seed;
            let found = searched(&definition, |job| whole.rows[job as usize].clone());
            let runs = of_runs(&whole, &found);
            assert!(runs.len() as u64 <= budget);
            time.push(100.0 * makespan(&runs) / all_time);
            let own = curve(&whole, best, runs.into_iter());
            lost.push(own[own.len() - 1]);
            curves[0].push(own);
            let own = analysis(&definition, &found);
            cells.push(same(&truth, &own));
            differing(&whole.name, seed, &truth, &own);
            let sample = at_random(&whole, budget as usize, seed);
            let own = curve(&whole, best, of_runs(&whole, &sample).into_iter());
            lost_at_random.push(own[own.len() - 1]);
            curves[1].push(own);
            cells_at_random.push(same(&truth, &analysis(&whole.definition, &sample)));
        }
        let of_optuna: Vec<f64> = optuna
            .get(&whole.name)
            .into_iter()
            .flatten()
            .map(|scores| {
                let rows = scores.iter().map(|score| {
                    let mut row = whole.rows[0].clone();
                    row.values[0] = Some(*score).filter(|score| score.is_finite());
                    row.exit = schedlab_report::Exit::Done;
                    row
                });
                let own = curve(&whole, best, rows);
                let last = own.last().copied().unwrap_or(f64::NAN);
                curves[2].push(own);
                last
            })
            .collect();
        let nr_cells = verdicts(&truth).len();
        let percent = |cells: &[usize]| {
            100.0 * cells.iter().sum::<usize>() as f64 / (cells.len() * nr_cells) as f64
        };
        within[0] += lost.iter().filter(|lost| **lost <= 1.0).count();
        within[1] += lost.len();
        all_cells[0] += cells.iter().sum::<usize>();
        all_cells[1] += cells_at_random.iter().sum::<usize>();
        all_cells[2] += cells.len() * nr_cells;
        let worst = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let pair = |values: &[f64]| match values.is_empty() {
            true => "–".to_owned(),
            false => format!("{:.2} % ({:.2} %)", median(values), worst(values)),
        };
        println!(
            "| {} | {budget} | {nr_runs} | {:.1} % | {} | {} | {} | {:.1} % | {:.1} % | {} |",
            whole.name,
            median(&time),
            pair(&lost),
            pair(&lost_at_random),
            pair(&of_optuna),
            percent(&cells),
            percent(&cells_at_random),
            lost.iter().filter(|lost| **lost <= 1.0).count()
        );
    }
    let percent = |cells: usize| 100.0 * cells as f64 / all_cells[2].max(1) as f64;
    println!(
        "\nThe best found is within 1 % of the best of all in {} of {} searches. Cells that are the same: {:.1} % by the \
         search, {:.1} % at random.",
        within[0],
        within[1],
        percent(all_cells[0]),
        percent(all_cells[1])
    );
    table(&curves);
    if let Some(path) = svg {
        std::fs::write(path, picture(&curves)).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}

const NAMES: [&str; 3] = ["search", "random", "Optuna"];

/// The mean of a method's curves after n runs.
fn after(curves: &[Vec<f64>], runs: usize) -> Option<f64> {
    let known = curves.iter().filter(|curve| !curve.is_empty());
    let values = known.map(|curve| curve[(runs - 1).min(curve.len() - 1)]);
    let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn steps(curves: &[Vec<Vec<f64>>; 3]) -> Vec<usize> {
    let most = curves.iter().flatten().map(Vec::len).max().unwrap_or(1);
    let doubling = (3..).map(|n| 1 << n).take_while(|n| *n < most);
    doubling.chain([most]).collect()
}

fn table(curves: &[Vec<Vec<f64>>; 3]) {
    println!("\n| runs | search | random | Optuna |\n|---|---|---|---|");
    for runs in steps(curves) {
        let cells = curves.iter().map(|own| match after(own, runs) {
            Some(lost) => format!("{lost:.2} %"),
            None => "–".to_owned(),
        });
        let cells: Vec<String> = cells.collect();
        println!("| {runs} | {} |", cells.join(" | "));
    }
}

fn picture(curves: &[Vec<Vec<f64>>; 3]) -> String {
    let series = NAMES.iter().zip(curves).filter(|(_, own)| !own.is_empty());
    let series = series.map(|(name, own)| {
        let most = own.iter().map(Vec::len).max().unwrap_or(1);
        let points = (1..=most).filter_map(|runs| {
            let lost = after(own, runs)?;
            Some(Point::from((runs as f64, lost.max(0.001))))
        });
        Series {
            name: (*name).to_owned(),
            mark: Mark::Line,
            points: points.collect(),
        }
    });
    Chart {
        title: "Loss of the best that was found, mean over applications and seeds".to_owned(),
        x: Axis::linear("runs"),
        y: Axis::log("% worse than the best of all"),
        series: series.collect(),
    }
    .svg()
}

/// Searches in data of which the truth is known: without any effect, and with planted ones.
fn planted(sets: u64) {
    let whole = sharing(None, 1);
    let (mut found_in_noise, mut missed, mut others) = (0, 0, 0);
    for set in 1..=sets {
        let mut definition = whole.clone();
        definition.budget = Some(Budget {
            runs: 291,
            timed: None,
        });
        definition.seed = set;
        let mut noise = Noise::new(set);
        let all = support::rows(&whole, |_, _| (100.0 + 5.0 * noise.draw(), 1.0));
        let found = searched(&definition, |job| all[job as usize].clone());
        found_in_noise += u64::from(!analysis(&definition, &found).findings().is_empty());
        let all = support::rows(&whole, |of, _| {
            let slow = if of("slice") == "split" { 0.0 } else { 45.0 };
            (100.0 + slow + noise.draw(), 1.0)
        });
        let found = searched(&definition, |job| all[job as usize].clone());
        let findings = analysis(&definition, &found).findings();
        missed += u64::from(!findings.contains(&"slice=split".to_owned()));
        others += u64::from(findings.iter().any(|name| !name.starts_with("slice")));
    }
    println!("of {sets} sets without any effect {found_in_noise} have a finding");
    println!("of {sets} sets with one effect {missed} miss it, {others} have another finding");
}
