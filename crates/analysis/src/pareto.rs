//! Where two measures matter: the schedulers that no other beats in both.

use serde::Serialize;

use crate::Data;

/// A scheduler of the front.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Front {
    /// The scheduler.
    pub scheduler: String,
    /// The first measure.
    pub first: f64,
    /// The second one.
    pub second: f64,
    /// The point of the space.
    #[serde(skip)]
    pub point: usize,
}

/// Returns the front of points with both measures, the best in the first measure first. Of schedulers with equal
/// results there is one.
pub fn front(first: &Data, second: &Data, both: &[(usize, f64, f64)]) -> Vec<Front> {
    let mut both = both.to_vec();
    let order = |data: &Data, a: f64, b: f64| {
        let order = a.total_cmp(&b);
        if data.metric.higher {
            order.reverse()
        } else {
            order
        }
    };
    both.sort_by(|a, b| {
        order(first, a.1, b.1)
            .then(order(second, a.2, b.2))
            .then(a.0.cmp(&b.0))
    });
    let mut found: Vec<Front> = Vec::new();
    for (point, one, other) in both {
        let beats = found
            .last()
            .is_none_or(|last| second.better(other, last.second));
        if beats {
            found.push(Front {
                scheduler: first.space.scheduler(point as u64).to_string(),
                first: one,
                second: other,
                point,
            });
        }
    }
    found
}
