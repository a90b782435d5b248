//! Positive definite matrices, with the same bits on every machine: no library that chooses its instructions at run time.

/// Below this a pivot says nothing: two points are the same.
const PIVOT_MIN: f64 = 1e-12;

/// The factor U of a matrix A = UᵀU.
#[derive(Clone, Debug)]
pub struct Factor {
    size: usize,
    rows: Vec<f64>,
}

impl Factor {
    /// Factors a symmetric matrix, of which the upper half is read; `None` if it is not positive definite.
    pub fn of(size: usize, mut rows: Vec<f64>) -> Option<Factor> {
        let mut top = vec![0.0; size];
        for k in 0..size {
            let pivot = rows[k * size + k];
            if pivot.is_nan() || pivot <= PIVOT_MIN {
                return None;
            }
            let root = pivot.sqrt();
            let row = &mut rows[k * size + k..(k + 1) * size];
            row.iter_mut().for_each(|value| *value /= root);
            top[k..].copy_from_slice(row);
            for i in k + 1..size {
                let times = top[i];
                let row = &mut rows[i * size + i..(i + 1) * size];
                for (value, above) in row.iter_mut().zip(&top[i..]) {
                    *value -= times * above;
                }
            }
        }
        Some(Factor { size, rows })
    }

    fn row(&self, k: usize) -> &[f64] {
        &self.rows[k * self.size..(k + 1) * self.size]
    }

    /// Returns the logarithm of the determinant.
    pub fn log_determinant(&self) -> f64 {
        let roots = (0..self.size).map(|k| libm::log(self.row(k)[k]));
        2.0 * roots.sum::<f64>()
    }

    /// Solves Uᵀx = b in place.
    pub fn half_solve(&self, b: &mut [f64]) {
        for k in 0..self.size {
            let row = self.row(k);
            b[k] /= row[k];
            let times = b[k];
            for (value, above) in b[k + 1..].iter_mut().zip(&row[k + 1..]) {
                *value -= times * above;
            }
        }
    }

    /// Solves Ax = b in place.
    pub fn solve(&self, b: &mut [f64]) {
        self.half_solve(b);
        for k in (0..self.size).rev() {
            let row = self.row(k);
            b[k] = (b[k] - dot(&row[k + 1..], &b[k + 1..])) / row[k];
        }
    }
}

/// Returns the sum of products.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_solved() {
        let matrix = vec![4.0, 2.0, 1.0, 2.0, 5.0, 3.0, 1.0, 3.0, 6.0];
        let factor = Factor::of(3, matrix.clone()).unwrap();
        let mut x = vec![1.0, -2.0, 3.0];
        factor.solve(&mut x);
        for (row, expected) in matrix.chunks(3).zip([1.0, -2.0, 3.0]) {
            assert!((dot(row, &x) - expected).abs() < 1e-12);
        }
        // 4·(5·6 − 3·3) − 2·(2·6 − 3·1) + 1·(2·3 − 5·1)
        assert!((factor.log_determinant() - f64::ln(67.0)).abs() < 1e-12);
    }

    #[test]
    fn what_is_not_positive_definite_is_refused() {
        assert!(Factor::of(2, vec![1.0, 1.0, 1.0, 1.0]).is_none());
        assert!(Factor::of(1, vec![f64::NAN]).is_none());
        assert!(Factor::of(2, vec![1.0, 2.0, 2.0, 1.0]).is_none());
    }
}
