//! Facts about places for the cache model, which are wanted again and again.

/// `N` places about which a fact was wanted lately, with it. Keep facts alone that stay: nothing that is modelled moves.
///
/// Structures of one kind lie at equal distances. `SPREAD` keeps many of them from meeting in few entries, for two
/// instructions a look-up.
pub struct Known<F, const N: usize, const SPREAD: bool>(Box<[(usize, F); N]>);

impl<F: Copy + Default, const N: usize, const SPREAD: bool> Known<F, N, SPREAD> {
    pub fn new() -> Self {
        // Each entry begins with a place that belongs into another one.
        let unused = (0..N).map(|entry| ((entry + 1) % N * 8, F::default()));
        let unused: Box<[_]> = unused.collect();
        let Ok(unused) = unused.try_into() else {
            unreachable!("there are N of them")
        };
        Known(unused)
    }

    #[inline]
    pub fn get(&self, place: usize) -> Option<F> {
        let (known, fact) = self.0[Self::entry(place)];
        (known == place).then_some(fact)
    }

    pub fn keep(&mut self, place: usize, fact: F) {
        self.0[Self::entry(place)] = (place, fact);
    }

    #[inline]
    fn entry(place: usize) -> usize {
        let word = place / 8;
        match SPREAD {
            true => (word ^ (word / N)) % N,
            false => word % N,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_share_an_entry_are_told_apart() {
        let mut known: Known<u64, 64, false> = Known::new();
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
        let known: Known<Option<u64>, 16, false> = Known::new();
        let spread: Known<Option<u64>, 16, true> = Known::new();
        for place in (0..64 * 16).chain([usize::MAX]) {
            assert_eq!((known.get(place), spread.get(place)), (None, None));
        }
    }

    #[test]
    fn places_at_equal_distances_are_spread() {
        let kept = |distance: usize| {
            let mut known: Known<usize, 4096, true> = Known::new();
            let places = (0..400).map(|number| 0x7f00_0000_0000 + number * distance);
            places.clone().for_each(|place| known.keep(place, place));
            places.filter(|&place| known.get(place).is_some()).count()
        };
        for distance in [64, 4096, 9216, 32768] {
            assert!(kept(distance) >= 300, "{} at {distance}", kept(distance));
        }
    }
}
