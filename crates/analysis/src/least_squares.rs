//! Least squares where combinations are missing: what each alternative adds to the value of a scheduler, and how
//! much of the differences that leaves.

use nalgebra::linalg::ColPivQR;
use nalgebra::{DMatrix, DVector, Dyn};

/// Below this, relative to the greatest that it could be, a column says nothing that the others do not say.
const RANK_MIN: f64 = 1e-9;

/// The sum of the effects of single features, fitted to points. Features may be confounded: then fewer differences
/// are estimable than there are alternatives.
pub struct Fit {
    qr: ColPivQR<f64, Dyn, Dyn>,
    /// Independent columns.
    rank: usize,
    /// The first column of each feature; the last entry is the number of columns.
    begin: Vec<usize>,
}

impl Fit {
    /// With these features, each given by the place of its alternative among those that occur, for every point.
    pub fn new(features: &[&[usize]], points: usize) -> Fit {
        // The first alternative of each is what the others are compared with.
        let widths = features
            .iter()
            .map(|places| places.iter().max().copied().unwrap_or(0));
        let begin: Vec<usize> = std::iter::once(1)
            .chain(widths.scan(1, |sum, width| {
                *sum += width;
                Some(*sum)
            }))
            .collect();
        let mut matrix = DMatrix::zeros(points, begin[features.len()]);
        matrix.column_mut(0).fill(1.0);
        for (places, begin) in features.iter().zip(&begin) {
            for (row, place) in places.iter().enumerate().filter(|(_, place)| **place > 0) {
                matrix[(row, begin + place - 1)] = 1.0;
            }
        }
        let qr = matrix.col_piv_qr();
        let least = RANK_MIN * (points as f64).sqrt();
        let r = qr.r();
        let rank = (0..r.nrows())
            .take_while(|&column| f64::abs(r[(column, column)]) > least)
            .count();
        Fit { qr, rank, begin }
    }

    /// Returns the number of estimable differences, the mean included.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the sum of squares that it leaves of values.
    pub fn left(&self, values: &[f64]) -> f64 {
        let rotated = self.rotated(values);
        rotated.rows_range(self.rank..).norm_squared()
    }

    /// For each feature what its alternatives add, the mean of them being zero. It says something only of features
    /// that are not confounded with others.
    pub fn adds(&self, values: &[f64]) -> Vec<Vec<f64>> {
        let rotated = self.rotated(values);
        let r = self.qr.r();
        let solved = r
            .view((0, 0), (self.rank, self.rank))
            .solve_upper_triangular(&rotated.rows_range(..self.rank))
            .expect("the columns are independent");
        let columns = self.begin[self.begin.len() - 1];
        let mut all = DVector::zeros(columns);
        all.rows_range_mut(..self.rank).copy_from(&solved);
        self.qr.p().inv_permute_rows(&mut all);
        self.begin
            .windows(2)
            .map(|ends| {
                let own = all.rows_range(ends[0]..ends[1]);
                let mean = own.sum() / (own.len() + 1) as f64;
                let others = own.iter().map(|add| add - mean);
                std::iter::once(-mean).chain(others).collect()
            })
            .collect()
    }

    fn rotated(&self, values: &[f64]) -> DVector<f64> {
        let mut values = DVector::from_column_slice(values);
        self.qr.q_tr_mul(&mut values);
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_found_though_combinations_are_missing() {
        // a: 0, 10; b: 0, 1, 5. Five of the six.
        let (a, b) = ([0, 0, 0, 1, 1], [0, 1, 2, 0, 1]);
        let values: Vec<f64> = a
            .iter()
            .zip(&b)
            .map(|(&a, &b)| 100.0 + [0.0, 10.0][a] + [0.0, 1.0, 5.0][b])
            .collect();
        let fit = Fit::new(&[&a, &b], 5);
        assert_eq!(fit.rank(), 4);
        assert!(fit.left(&values) < 1e-18);
        let near = |found: &[f64], expected: &[f64]| {
            let pairs = found.iter().zip(expected);
            found.len() == expected.len() && pairs.into_iter().all(|(x, y)| (x - y).abs() < 1e-9)
        };
        let adds = fit.adds(&values);
        assert!(near(&adds[0], &[-5.0, 5.0]) && near(&adds[1], &[-2.0, -1.0, 3.0]));
        // Without b: the means of 0, 1, 5 and of 0, 1 beside a.
        let without = Fit::new(&[&a], 5);
        let left = [0.0, 1.0, 5.0].map(|x| f64::powi(x - 2.0, 2));
        assert!((without.left(&values) - left.iter().sum::<f64>() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn confounded_features_are_one() {
        let a = [0, 0, 1, 1];
        let fit = Fit::new(&[&a, &a], 4);
        assert_eq!(fit.rank(), 2);
        assert_eq!(Fit::new(&[&a], 4).rank(), 2);
        assert!((fit.left(&[1.0, 3.0, 7.0, 7.0]) - 2.0).abs() < 1e-12);
        // Fewer points than columns.
        let fit = Fit::new(&[&[0, 1], &[0, 1], &[0, 1]], 2);
        assert_eq!((fit.rank(), fit.left(&[4.0, 9.0]) < 1e-20), (2, true));
    }
}
