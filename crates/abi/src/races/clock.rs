//! Vector clocks: what a thread of control knows of the others.

/// By thread: up to which of its moments it is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Clock(Vec<u32>);

impl Clock {
    pub(super) fn get(&self, thread: u16) -> u32 {
        self.0.get(usize::from(thread)).copied().unwrap_or(0)
    }

    /// Its thread goes on to the next moment.
    pub(super) fn tick(&mut self, thread: u16) {
        let thread = usize::from(thread);
        if self.0.len() <= thread {
            self.0.resize(thread + 1, 0);
        }
        // Beyond the last moment nothing is distinguished any more: races may be missed, none is made up.
        self.0[thread] = self.0[thread].saturating_add(1);
    }

    /// Learns what the other knows.
    pub(super) fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// Becomes the other, in the memory that it has.
    pub(super) fn set(&mut self, other: &Clock) {
        self.0.clone_from(&other.0);
    }

    /// Forgets all, and gives its memory back.
    pub(super) fn clear(&mut self) {
        self.0 = Vec::new();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_joins_knows_what_either_knew() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        a.tick(0);
        a.tick(0);
        b.tick(3);
        a.join(&b);
        assert_eq!((a.get(0), a.get(1), a.get(3), a.get(9)), (2, 0, 1, 0));
        b.set(&a);
        assert_eq!(a, b);
        b.clear();
        assert!(b.is_empty() && b.get(0) == 0);
    }
}
