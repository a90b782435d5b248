//! The bus that all last-level caches share, as a row of slots that one transaction each can have.
//!
//! A transaction takes the slot of its instant, or the next free one. The time between the two is its wait. So the
//! bus carries one transaction per slot and no more, an idle bus delays no transaction, and a busy bus serves in the
//! order of the slots.
//!
//! CPUs of a simulation arrive a little out of order: one may have run on to its next
//! synchronisation point before another, earlier one is resumed. The slots make that harmless: who
//! comes late finds the slots of his own time, free where the other left them free. A booking never
//! changes the wait of an earlier one, and a wait is never negative. Only a window of slots is
//! kept; an arrival from before the window passes without wait and is not booked.
//!
//! Applications take a share of the slots ([`Bus::load`]). A hash of a slot's number decides whether it is
//! theirs, so each slot has one answer for all CPUs and times. An application's own wait is not booked here: the engine slows it down.

/// Slots in one word of the ring; the word's other half says which lap of the ring it belongs to.
const SLOTS_PER_WORD: u64 = 32;

/// The window spans at least this time where the ring's limit allows it: longer than the longest
/// stretch between two synchronisation points (a scan of some hundred tasks).
const WINDOW_PS: u64 = 500_000_000;

/// Limits on the words of the ring: 2 KB to 128 KB.
const WORDS: (u64, u64) = (256, 16_384);

/// A shared bus.
#[derive(Clone, Debug)]
pub struct Bus {
    /// Length of a slot; 0 = the bus never saturates.
    slot_ps: u64,
    /// `lap << 32 | slots taken`. A word of an older lap counts as empty.
    ring: Box<[u64]>,
    /// Number of words minus 1; a power of two minus 1.
    mask: u64,
    /// Its binary logarithm.
    shift: u32,
    /// Share of the slots that applications take, in units of 1/2^32.
    load: u32,
}

impl Bus {
    /// Returns a bus that a transaction occupies for `slot_ps`; with 0 it never saturates.
    pub fn new(slot_ps: u64) -> Self {
        let words = match slot_ps {
            0 => 0,
            _ => (WINDOW_PS / slot_ps / SLOTS_PER_WORD)
                .clamp(WORDS.0, WORDS.1)
                .next_power_of_two(),
        };
        Bus {
            slot_ps,
            ring: vec![0; words as usize].into_boxed_slice(),
            mask: words.saturating_sub(1),
            shift: words.trailing_zeros(),
            load: 0,
        }
    }

    /// From now on applications take this share of the slots, in units of 1/2^32.
    pub fn load(&mut self, share: u32) {
        self.load = share;
    }

    /// Books a transaction at `now_ps` and returns how long it waits for its slot.
    pub fn transaction(&mut self, now_ps: u64) -> u64 {
        if self.slot_ps == 0 {
            return 0;
        }
        let slot = now_ps / self.slot_ps;
        if self.load > 0 {
            return self.next_free(slot, now_ps);
        }
        let word = slot / SLOTS_PER_WORD;
        let entry = &mut self.ring[(word & self.mask) as usize];
        let bit = 1 << (slot % SLOTS_PER_WORD);
        let lap = word.wrapping_shr(self.shift) + 1;
        let entry_lap = *entry >> 32;
        // Most transactions find the slot of their instant free.
        if entry_lap < lap {
            *entry = lap << 32 | bit;
            return 0;
        }
        if entry_lap == lap && *entry & bit == 0 {
            *entry |= bit;
            return 0;
        }
        self.next_free(slot, now_ps)
    }

    /// Books the first free slot from `first` on.
    fn next_free(&mut self, first: u64, now_ps: u64) -> u64 {
        let words = self.mask + 1;
        let first_word = first / SLOTS_PER_WORD;
        // Slots before the first one do not belong to this window.
        let mut passed = (1u64 << (first % SLOTS_PER_WORD)) - 1;
        for word in first_word..first_word + words {
            let lap = (word >> self.shift) + 1;
            let entry = &mut self.ring[(word & self.mask) as usize];
            let entry_lap = *entry >> 32;
            if entry_lap > lap {
                // The window has moved on.
                return 0;
            }
            if entry_lap < lap {
                *entry = lap << 32;
            }
            let mut free = !(*entry | passed) as u32;
            while free != 0 {
                let bit = u64::from(free.trailing_zeros());
                let slot = word * SLOTS_PER_WORD + bit;
                if !is_drawn(slot, self.load) {
                    *entry |= 1 << bit;
                    return (slot * self.slot_ps).saturating_sub(now_ps);
                }
                free &= free - 1;
            }
            passed = 0;
        }
        // Every slot of the window is taken: no transaction queues for longer than a window.
        words * SLOTS_PER_WORD * self.slot_ps
    }
}

/// Whether applications that take this share of all slots take this one. The numbers are from SplitMix64's
/// finalizer; its high bits depend on all of the number's.
fn is_drawn(slot: u64, share: u32) -> bool {
    let mixed = (slot ^ slot >> 31).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((mixed >> 32) as u32) < share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_bus_delays_nobody_and_a_busy_one_queues() {
        let mut bus = Bus::new(100);
        assert_eq!(bus.transaction(1_050), 0);
        // Slot 10 (1,000 to 1,099) is taken: slot 11 starts at 1,100.
        assert_eq!(bus.transaction(1_050), 50);
        assert_eq!(bus.transaction(1_060), 140);
        assert_eq!(bus.transaction(1_300), 0);
    }

    #[test]
    fn a_late_comer_finds_the_slots_of_his_own_time() {
        let mut bus = Bus::new(100);
        for now in (10_000..20_000).step_by(200) {
            assert_eq!(bus.transaction(now), 0);
        }
        // Every second slot is free.
        assert_eq!(bus.transaction(10_100), 0);
        assert_eq!(bus.transaction(10_000), 300);
        // From before all of them.
        assert_eq!(bus.transaction(0), 0);
    }

    #[test]
    fn what_is_older_than_the_window_passes() {
        let mut bus = Bus::new(1_000_000);
        let window = bus.ring.len() as u64 * SLOTS_PER_WORD * 1_000_000;
        assert_eq!(bus.transaction(5), 0);
        assert_eq!(bus.transaction(window + 5), 0);
        assert_eq!(bus.transaction(5), 0);
        assert_eq!(bus.transaction(window + 5), 999_995);
        // Nor is it booked where its slot of the new lap is free.
        assert_eq!(bus.transaction(2_000_000), 0);
        assert_eq!(bus.transaction(window + 2_000_000), 0);
    }

    #[test]
    fn nobody_queues_for_longer_than_a_window() {
        let mut bus = Bus::new(1_000_000);
        let slots = bus.ring.len() as u64 * SLOTS_PER_WORD;
        for slot in 0..slots {
            assert_eq!(bus.transaction(0), slot * 1_000_000);
        }
        assert_eq!(bus.transaction(0), slots * 1_000_000);
        assert_eq!(bus.transaction(0), slots * 1_000_000);
    }

    #[test]
    fn capacity_is_one_transaction_per_slot() {
        let mut bus = Bus::new(70);
        let mut ends: Vec<u64> = (0..1_000).map(|i| i * 3 + bus.transaction(i * 3)).collect();
        ends.sort_unstable();
        let slots: Vec<u64> = ends.iter().map(|end| end / 70).collect();
        assert!(slots.windows(2).all(|pair| pair[0] < pair[1]));
        // 1,000 transactions in 3 ns need 1,000 slots, 70 ns.
        assert_eq!(slots.last(), Some(&999));
    }

    /// A transaction on a bus of which applications take a share ρ waits for ρ / (1 - ρ) slots in the mean, as the
    /// number of taken slots in a row is geometrically distributed.
    #[test]
    fn applications_delay_a_transaction_by_their_share() {
        for (share, slots) in [(0.25, 1.0 / 3.0), (0.5, 1.0), (0.8, 4.0)] {
            let mut bus = Bus::new(1_000);
            bus.load((share * 2f64.powi(32)) as u32);
            let n = 20_000;
            // At the beginning of a slot, far enough from each other that none waits for another.
            let waits = (0..n).map(|i| bus.transaction(i * 200_000));
            let mean = waits.sum::<u64>() as f64 / n as f64 / 1_000.0;
            assert!((mean / slots - 1.0).abs() < 0.03, "{share}: {mean}");
        }
    }

    #[test]
    fn a_slot_of_an_application_is_nobody_elses() {
        let mut bus = Bus::new(100);
        bus.load(1 << 31);
        let taken: Vec<u64> = (0..50).map(|_| bus.transaction(0) / 100).collect();
        let free: Vec<u64> = (0..)
            .filter(|&slot| !is_drawn(slot, 1 << 31))
            .take(50)
            .collect();
        assert_eq!(taken, free);
        // Booked slots stay booked when the load ends.
        bus.load(0);
        assert_eq!(
            bus.transaction(0),
            (0..).find(|slot| is_drawn(*slot, 1 << 31)).unwrap() * 100
        );
    }

    #[test]
    fn without_a_slot_length_nothing_waits() {
        let mut bus = Bus::new(0);
        assert!((0..100).all(|_| bus.transaction(7) == 0));
    }

    proptest::proptest! {
        /// Against a set of taken slots: CPUs that advance at their own pace, a little apart.
        #[test]
        fn bookings_are_the_first_free_slots(
            slot_ps in 1_000..100_000u64,
            steps in proptest::collection::vec((0..4usize, 0..200_000u64), 1..300),
        ) {
            let mut bus = Bus::new(slot_ps);
            let mut taken = std::collections::BTreeSet::new();
            let mut now = [0u64; 4];
            for (cpu, pause) in steps {
                // No CPU is farther ahead than the window reaches back.
                now[cpu] = (now[cpu] + pause).min(now.iter().min().unwrap() + WINDOW_PS / 2);
                let first = now[cpu] / slot_ps;
                let slot = (first..).find(|slot| !taken.contains(slot)).unwrap();
                taken.insert(slot);
                let wait = bus.transaction(now[cpu]);
                proptest::prop_assert_eq!(wait, (slot * slot_ps).saturating_sub(now[cpu]));
                now[cpu] += wait;
            }
        }
    }
}
