//! How the scores of a scheduler differ from another one's.

use schedlab_report::stats::{Interval, difference_in_percent};
use serde::Serialize;

/// How a scheduler's score differs from the reference's with the same seeds.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Differs {
    /// By how many percent: the Hodges–Lehmann estimate over pairs of the same seed.
    pub percent: f64,
    /// 95 % interval of that; absent below six seeds, and where no seed changes any score: copies of one run are no sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_pct: Option<[f64; 2]>,
    /// Seeds with which it is better than the reference.
    pub wins: usize,
    /// Seeds.
    pub seeds: usize,
    /// All seeds give the same scores.
    pub seeds_same: bool,
}

impl Differs {
    /// Compares scores with others of the same seeds; `None` where they are none, or nothing can be a part of the others.
    pub fn of(own: &[f64], others: &[f64], higher: bool) -> Option<Differs> {
        let pairs: Vec<(f64, f64)> = own.iter().copied().zip(others.iter().copied()).collect();
        let difference = difference_in_percent(&pairs)?;
        let seeds_same = pairs.len() > 1 && pairs.iter().all(|pair| *pair == pairs[0]);
        let interval = difference.interval.filter(|_| !seeds_same);
        let is_better = |(own, other): &&(f64, f64)| match higher {
            true => own > other,
            false => own < other,
        };
        Some(Differs {
            percent: difference.estimate,
            interval_pct: interval.map(|Interval { low, high }| [low, high]),
            wins: pairs.iter().filter(is_better).count(),
            seeds: pairs.len(),
            seeds_same,
        })
    }

    /// By how many percent it is better.
    pub fn gain_pct(&self, higher: bool) -> f64 {
        if higher { self.percent } else { -self.percent }
    }

    /// Whether chance between seeds would hardly give it.
    pub fn is_shown(&self) -> bool {
        match self.interval_pct {
            Some([low, high]) => low > 0.0 || high < 0.0,
            // There is no chance between seeds.
            None => self.seeds_same && self.percent != 0.0,
        }
    }
}
