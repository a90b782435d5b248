//! How fast this machine makes the runs of a sweep.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use schedlab_sim::batch;

use crate::space::shuffle;
use crate::{Definition, SweepError};

/// So many different schedulers are tried on each workload, if there is time.
const TRIED: u64 = 64;

/// Makes runs of a balanced sample for about `time`, and returns how many it makes in a second. Their results are not kept.
///
/// # Errors
/// If a run cannot be begun.
pub fn rate(
    definition: &Definition,
    threads: NonZeroUsize,
    time: Duration,
) -> Result<f64, SweepError> {
    let jobs = jobs(definition);
    let begun = Instant::now();
    let mut outcome = Ok(0.0);
    let mut last = Duration::ZERO;
    batch::each(
        &jobs,
        threads,
        || begun.elapsed() >= time,
        |&job| definition.row(job),
        |heard| match heard {
            Some((_, Ok(_))) => {
                if let Ok(done) = &mut outcome {
                    *done += 1.0;
                }
                last = begun.elapsed();
            }
            Some((_, Err(error))) => outcome = Err(error),
            None => {}
        },
    );
    Ok(outcome? / last.as_secs_f64().max(1e-9))
}

/// The runs: a balanced sample of the points on each workload, in random order, since time may end it anywhere.
fn jobs(definition: &Definition) -> Vec<u64> {
    let points = definition.points();
    let sample = definition.space.sample(TRIED, definition.seed);
    let places = sample
        .iter()
        .filter_map(|point| points.binary_search(point).ok());
    let mut places: Vec<usize> = places.collect();
    shuffle(&mut places, &mut Pcg64Mcg::seed_from_u64(definition.seed));
    places
        .into_iter()
        .flat_map(|place| {
            let workloads = 0..definition.workloads.len();
            workloads.map(move |workload| definition.job(place, workload, 0))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use schedlab_sim::{Scheduler, SimSpec};

    use super::*;
    use crate::{Asked, Space};

    /// A step through the points in their order, which shares a factor with the number of alternatives, would try some of
    /// them and not others.
    #[test]
    fn every_alternative_is_tried_as_often_as_the_others() {
        let workloads = vec![
            "cpu:duration=10ms".to_owned(),
            "cpu:duration=20ms".to_owned(),
        ];
        let definition = Definition::new(Asked {
            run: SimSpec::new(&workloads[0], Scheduler::parse("feature"), "laptop"),
            workloads,
            space: Space::of("feature", &[]).unwrap(),
            sample: None,
            repeat: 1,
            seed: 1,
            live: None,
            each: false,
            budget: None,
        })
        .unwrap();
        let jobs = jobs(&definition);
        assert_eq!(jobs.len() as u64, 2 * TRIED);
        let choices: Vec<Vec<usize>> = jobs
            .iter()
            .map(|&job| {
                let (place, ..) = definition.parts(job);
                definition.space.choices(definition.points()[place])
            })
            .collect();
        for (index, feature) in definition.space.features.iter().enumerate() {
            let alternatives = feature.alternatives.len();
            let count = |of: &[Vec<usize>], choice: usize| {
                of.iter().filter(|point| point[index] == choice).count()
            };
            let counts: Vec<usize> = (0..alternatives)
                .map(|choice| count(&choices, choice))
                .collect();
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(most - least <= 2, "{}: {counts:?}", feature.name);
            // So is a part, if time ends it.
            let part = &choices[..choices.len() / 4];
            let met = (0..alternatives).filter(|choice| count(part, *choice) > 0);
            assert_eq!(met.count(), alternatives, "{}", feature.name);
        }
    }
}
