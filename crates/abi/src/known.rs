//! Facts about places for the cache model, which are wanted again and again.

/// `N` places about which a fact was wanted lately, with it. Keep facts alone that stay: nothing that is modelled moves.
pub struct Known<F, const N: usize>(Box<[(usize, F); N]>);

impl<F: Copy + Default, const N: usize> Known<F, N> {
    pub fn new() -> Known<F, N> {
        // Each entry begins with a place that belongs into another one.
        let unused = (1..=N).map(|entry| (entry * 8, F::default()));
        let unused: Box<[_]> = unused.collect();
        let Ok(unused) = unused.try_into() else {
            unreachable!("there are N of them")
        };
        Known(unused)
    }

    #[inline]
    pub fn get(&self, place: usize) -> Option<F> {
        let (known, fact) = self.0[place / 8 % N];
        (known == place).then_some(fact)
    }

    pub fn keep(&mut self, place: usize, fact: F) {
        self.0[place / 8 % N] = (place, fact);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_share_an_entry_are_told_apart() {
        let mut known: Known<u64, 64> = Known::new();
        let (one, another) = (0x1000, 0x1000 + 64 * 8);
        assert_eq!(known.get(one), None);
        known.keep(one, 7);
        assert_eq!((known.get(one), known.get(another)), (Some(7), None));
        assert_eq!(known.get(one + 4), None, "in the same word");
        known.keep(another, 8);
        assert_eq!((known.get(one), known.get(another)), (None, Some(8)));
    }

    #[test]
    fn an_unused_entry_has_no_place() {
        let known: Known<Option<u64>, 16> = Known::new();
        for place in (0..64 * 16).chain([usize::MAX]) {
            assert_eq!(known.get(place), None);
        }
    }
}
