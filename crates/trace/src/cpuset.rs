//! Sets of CPUs in the kernel's list notation (`0-3,8`).

use std::fmt;
use std::str::FromStr;

use fixedbitset::FixedBitSet;

use crate::CpuId;

/// A set of CPUs, sized for the machine it belongs to.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct CpuSet(FixedBitSet);

/// Why a CPU list could not be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{text}` is not a CPU list; write it as the kernel does, for example `0-3,8`")]
pub struct CpuListError {
    text: String,
}

impl CpuSet {
    /// Returns the empty set on a machine with `nr_cpus` CPUs.
    pub fn empty(nr_cpus: usize) -> Self {
        CpuSet(FixedBitSet::with_capacity(nr_cpus))
    }

    /// Every CPU of a machine with `nr_cpus` CPUs.
    pub fn all(nr_cpus: usize) -> Self {
        let mut set = FixedBitSet::with_capacity(nr_cpus);
        set.insert_range(..);
        CpuSet(set)
    }

    /// One CPU of a machine with `nr_cpus` CPUs.
    ///
    /// # Panics
    /// If `cpu` is not one of them.
    pub fn single(nr_cpus: usize, cpu: CpuId) -> Self {
        let mut set = Self::empty(nr_cpus);
        set.insert(cpu);
        set
    }

    /// Returns the number of CPUs the set has room for.
    pub fn capacity(&self) -> usize {
        self.0.len()
    }

    /// Grows or cuts the set to a machine with `nr_cpus` CPUs.
    pub fn resized(&self, nr_cpus: usize) -> CpuSet {
        let mut set = FixedBitSet::with_capacity(nr_cpus);
        set.extend(self.0.ones().filter(|&cpu| cpu < nr_cpus));
        CpuSet(set)
    }

    /// Returns whether `cpu` is in the set.
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0.contains(cpu.index())
    }

    /// Adds `cpu`.
    pub fn insert(&mut self, cpu: CpuId) {
        self.0.insert(cpu.index());
    }

    /// Removes `cpu`.
    pub fn remove(&mut self, cpu: CpuId) {
        self.0.remove(cpu.index());
    }

    /// Returns the number of CPUs in the set.
    pub fn len(&self) -> usize {
        self.0.count_ones(..)
    }

    /// Returns whether no CPU is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_clear()
    }

    /// Returns the lowest CPU in the set.
    pub fn first(&self) -> Option<CpuId> {
        self.0.minimum().map(|cpu| CpuId(cpu as u32))
    }

    /// Returns the lowest CPU that is in both sets.
    pub fn first_and(&self, other: &CpuSet) -> Option<CpuId> {
        self.0
            .intersection(&other.0)
            .next()
            .map(|cpu| CpuId(cpu as u32))
    }

    /// Returns the CPUs in both sets.
    pub fn and(&self, other: &CpuSet) -> CpuSet {
        CpuSet(&self.0 & &other.0)
    }

    /// Adds every CPU of `other`.
    pub fn insert_all(&mut self, other: &CpuSet) {
        self.0.union_with(&other.0);
    }

    /// Removes every CPU of `other`.
    pub fn remove_all(&mut self, other: &CpuSet) {
        self.0.difference_with(&other.0);
    }

    /// Returns whether every CPU of this set is in `other`.
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.0.is_subset(&other.0)
    }

    /// Returns the first CPU at or after number `from` that is in both sets, beginning again at 0 if there is
    /// none (`find_next_and_bit_wrap()`).
    pub fn next_and_wrap(&self, other: &CpuSet, from: u32) -> Option<CpuId> {
        let (a, b) = (self.words(), other.words());
        let nr_words = a.len().min(b.len());
        let bits = usize::BITS as usize;
        let first = (from as usize / bits).min(nr_words);
        // The word of `from` comes twice: first what lies at or above it, at last what lies below.
        let low = (1usize << (from as usize % bits)) - 1;
        let upper = (first..nr_words).map(|i| (i, if i == first { !low } else { !0 }));
        let lower = (0..(first + 1).min(nr_words)).map(|i| (i, if i == first { low } else { !0 }));
        upper.chain(lower).find_map(|(i, mask)| {
            let common = a[i] & b[i] & mask;
            (common != 0).then(|| CpuId((i * bits) as u32 + common.trailing_zeros()))
        })
    }

    /// Returns the CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.0.ones().map(|cpu| CpuId(cpu as u32))
    }

    /// Returns the bits as words, CPU 0 in the lowest bit of the first, as the kernel lays out a cpumask.
    pub fn words(&self) -> &[usize] {
        self.0.as_slice()
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut set = FixedBitSet::new();
        for cpu in cpus {
            set.grow_and_insert(cpu.index());
        }
        CpuSet(set)
    }
}

impl FromStr for CpuSet {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || CpuListError {
            text: text.to_owned(),
        };
        let number = |part: &str| part.trim().parse::<u32>().map_err(|_| error());
        let mut set = FixedBitSet::new();
        for part in text.trim().split(',') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            // The kernel's own limit on CPU numbers keeps a typing error from taking all memory.
            if first > last || last >= 65_536 {
                return Err(error());
            }
            set.grow(last as usize + 1);
            set.insert_range(first as usize..last as usize + 1);
        }
        Ok(CpuSet(set))
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ones = self.0.ones().peekable();
        let mut separator = "";
        while let Some(first) = ones.next() {
            let mut last = first;
            while ones.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_notation_round_trips() {
        for text in ["0", "0-3,8", "1,3,5-7", "63-65"] {
            assert_eq!(text.parse::<CpuSet>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "a", "3-1", "1,,2", "-1", "99999999"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text} was accepted");
        }
    }

    #[test]
    fn first_and_is_the_lowest_common_cpu() {
        let a: CpuSet = "1,4-6".parse().unwrap();
        let b: CpuSet = "0,5,6".parse().unwrap();
        assert_eq!(a.first_and(&b), Some(CpuId(5)));
        assert_eq!(a.and(&b).to_string(), "5-6");
    }

    #[test]
    fn next_and_wrap_goes_round() {
        let a: CpuSet = "1,4-6,70".parse().unwrap();
        let b: CpuSet = "1,5,6,70,71".parse().unwrap();
        for (from, next) in [
            (0, 1),
            (1, 1),
            (2, 5),
            (6, 6),
            (7, 70),
            (70, 70),
            (71, 1),
            (500, 1),
        ] {
            assert_eq!(a.next_and_wrap(&b, from), Some(CpuId(next)), "from {from}");
        }
        let none: CpuSet = "2".parse().unwrap();
        assert_eq!(a.next_and_wrap(&none, 0), None);
    }
}
