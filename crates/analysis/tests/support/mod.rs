//! Synthetic sweeps whose true effects are known.

use std::collections::BTreeMap;

use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use schedlab_analysis::{Analysis, Bounds, analyse};
use schedlab_report::Exit;
use schedlab_search::Plan;
use schedlab_sim::{Scheduler, SimSpec};
use schedlab_sweep::{Asked, Definition, MEASURES, Row, Space};

/// The feature tree with some options fixed, on workloads that do not run here. Each scheduler has a run of its own.
pub fn definition(
    fixed: &[&str],
    workloads: &[&str],
    repeat: u32,
    sample: Option<u64>,
    seed: u64,
) -> Definition {
    asked(fixed, workloads, repeat, sample, seed, true)
}

/// The whole tree, with one run of schedulers that are the same by what the source says under `Mute:`.
#[allow(dead_code)] // Not every test needs it.
pub fn sharing(sample: Option<u64>, seed: u64) -> Definition {
    asked(&[], &["cpu"], 1, sample, seed, false)
}

fn asked(
    fixed: &[&str],
    workloads: &[&str],
    repeat: u32,
    sample: Option<u64>,
    seed: u64,
    each: bool,
) -> Definition {
    let fixed: Vec<(String, String)> = fixed
        .iter()
        .filter_map(|text| text.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let asked = Asked {
        workloads: workloads.iter().map(|text| text.to_string()).collect(),
        space: Space::of("feature", &fixed).unwrap(),
        sample,
        repeat,
        run: SimSpec::new("", Scheduler::parse("feature"), "laptop"),
        seed,
        live: None,
        each,
        budget: None,
    };
    Definition::new(asked).unwrap()
}

/// Standard normal numbers, near enough: the sum of twelve uniform ones.
pub struct Noise(Pcg64Mcg);

impl Noise {
    pub fn new(seed: u64) -> Noise {
        Noise(Pcg64Mcg::seed_from_u64(seed))
    }

    pub fn draw(&mut self) -> f64 {
        let uniform =
            |random: &mut Pcg64Mcg| (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        (0..12).map(|_| uniform(&mut self.0)).sum::<f64>() - 6.0
    }
}

/// Rows whose score and p99 wakeup latency a function makes of a point's alternatives and a seed.
pub fn rows(
    definition: &Definition,
    mut value: impl FnMut(&dyn Fn(&str) -> String, u64) -> (f64, f64),
) -> Vec<Row> {
    let (score, p99) = (place("score"), place("wakeup.latency_ns_p99"));
    (0..definition.jobs())
        .map(|job| {
            let spec = definition.spec(job);
            let (at, workload, _) = definition.parts(job);
            let choices = definition.space.choices(definition.points()[at]);
            let features = definition.space.features.iter();
            let chosen: Vec<String> = features
                .zip(choices)
                .map(|(feature, choice)| feature.alternatives[choice].clone())
                .collect();
            let of = |name: &str| {
                let index = definition
                    .space
                    .features
                    .iter()
                    .position(|f| f.name == name);
                chosen[index.unwrap()].clone()
            };
            let (one, other) = value(&of, spec.seed);
            let mut values = vec![None; MEASURES.len()];
            values[score] = Some(one);
            values[p99] = Some(other);
            Row {
                job,
                workload: definition.workloads[workload].clone(),
                scheduler: spec.scheduler.to_string(),
                choices: chosen.clone(),
                seed: spec.seed,
                exit: Exit::Done,
                message: None,
                score_unit: Some("s".into()),
                score_better: Some("lower".into()),
                values,
            }
        })
        .collect()
}

pub fn place(measure: &str) -> usize {
    MEASURES.iter().position(|known| *known == measure).unwrap()
}

pub fn analysis(definition: &Definition, rows: &[Row]) -> Analysis {
    analyse(
        definition,
        rows,
        &definition.workloads[0],
        "score",
        &Bounds::default(),
    )
    .unwrap()
}

/// The rows of a search whose runs are looked up instead of made, in the order of the search.
#[allow(dead_code)] // Not every test needs it.
pub fn searched(definition: &Definition, row: impl Fn(u64) -> Row) -> Vec<Row> {
    let mut plan = Plan::new(definition).expect("it has a budget");
    let mut rows = BTreeMap::new();
    let mut order = Vec::new();
    while let Some(stage) = plan.stage(&rows) {
        for job in stage.iter().flat_map(|&run| definition.jobs_of(run)) {
            let found = row(job);
            rows.insert(job, found.clone());
            order.push(found);
        }
    }
    order
}
