//! Averages of the recent past, as the fair class keeps them (kernel/sched/pelt.c): of a task, how much of the fastest core it
//! takes; of a CPU, how busy it is and how much weight it has.

use std::cell::Cell;

/// Time in which what was halves 1/32 (`LOAD_AVG_PERIOD` of them are a half): 1,024 µs.
const PERIOD_NS: u64 = 1_024 * 1_024;

/// Periods in which it halves (`LOAD_AVG_PERIOD`).
const HALF_LIFE: u64 = 32;

/// Decay over 0 to 31 periods, of 2^32: 2^32 × 2^(-n/32), rounded down (kernel/sched/sched-pelt.h).
const DECAY: [u32; HALF_LIFE as usize] = [
    4294967295, 4202935003, 4112874773, 4024744347, 3938502375, 3854108391, 3771522796, 3690706839,
    3611622602, 3534232977, 3458501653, 3384393094, 3311872529, 3240905930, 3171459999, 3103502151,
    3037000499, 2971923841, 2908241642, 2845924020, 2784941737, 2725266179, 2666869344, 2609723833,
    2553802833, 2499080104, 2445529971, 2393127307, 2341847523, 2291666560, 2242560871, 2194507416,
];

/// Returns the rest of an average after `ns`, of 2^32; linear within a period.
fn decay(ns: u64) -> u64 {
    let (periods, rest) = (ns / PERIOD_NS, ns % PERIOD_NS);
    let at = |n: u64| match n / HALF_LIFE {
        halves @ 0..=31 => u64::from(DECAY[(n % HALF_LIFE) as usize]) >> halves,
        _ => 0,
    };
    let (before, after) = (at(periods), at(periods + 1));
    before - (before - after) * rest / PERIOD_NS
}

/// An average that halves in 32 periods (`struct sched_avg`).
#[derive(Default)]
pub(crate) struct Average {
    /// Times 1,024, so that small steps are not lost.
    value: Cell<u64>,
    /// As of this instant.
    at: Cell<u64>,
}

/// A fraction of [`Average::value`].
const UNIT: u64 = 1_024;

impl Average {
    /// Up to `now` the value was `level`.
    pub fn update(&self, now: u64, level: u64) {
        let since = self.at.get();
        if now <= since {
            return;
        }
        self.at.set(now);
        let left = u128::from(decay(now - since));
        let before = u128::from(self.value.get());
        // The weights of many tasks do not fit into 64 bits here.
        let average = before * left + u128::from(level * UNIT) * ((1 << 32) - left);
        self.value.set((average >> 32) as u64);
    }

    pub fn get(&self) -> u64 {
        self.value.get() / UNIT
    }

    /// Begins at `level`.
    pub fn begin(&self, now: u64, level: u64) {
        self.at.set(now);
        self.value.set(level * UNIT);
    }

    /// The average becomes a part of another one, which is as of the same instant (`attach_entity_load_avg()`).
    pub fn attach(&self, part: &Average) {
        self.value.set(self.value.get() + part.value.get());
    }

    /// It is no longer a part of it (`detach_entity_load_avg()`).
    pub fn detach(&self, part: &Average) {
        self.value
            .set(self.value.get().saturating_sub(part.value.get()));
    }
}

/// Utilisation of a task, of 1,024 for all of the fastest core (`sched_avg::util_avg`, `util_est`).
#[derive(Default)]
pub(crate) struct Utilisation {
    average: Average,
    /// Its value when the task last went to sleep, averaged downwards, in fractions (`util_est`).
    estimated: Cell<u64>,
}

impl Utilisation {
    /// Up to `now` it `ran` on a core of that capacity, or did not run.
    pub fn update(&self, now: u64, ran: Option<u32>) {
        self.average.update(now, ran.map_or(0, u64::from));
    }

    /// `post_init_entity_util_avg()` of the first task of an idle CPU: half of its capacity.
    pub fn begin(&self, now: u64, capacity: u32) {
        self.average.begin(now, u64::from(capacity) / 2);
    }

    /// `util_est_update()`.
    pub fn sleeps(&self) {
        let now = self.average.value.get();
        let estimated = self.estimated.get();
        self.estimated.set(match estimated > now {
            true => estimated - (estimated - now) / 4,
            false => now,
        });
    }

    /// `task_util_est()`.
    pub fn estimate(&self) -> u64 {
        self.average.value.get().max(self.estimated.get()) / UNIT
    }
}

/// How many CPUs of a cache a wakeup looks at for an idle one, by the cache's utilisation: the busier, the fewer
/// (`update_idle_cpu_scan()`). `sum`: of the utilisations of its `nr_cpus`.
pub(crate) fn nr_idle_scan(sum: u64, nr_cpus: u64, imbalance_pct: u64) -> u64 {
    let mean = sum / nr_cpus;
    let busy = mean * mean * imbalance_pct * imbalance_pct / (10_000 * 1_024);
    (1_024 - busy.min(1_024)) * nr_cpus / 1_024
}

/// `fits_capacity()`: with a fifth to spare.
pub(crate) fn fits_capacity(utilisation: u64, capacity: u64) -> bool {
    utilisation * 1_280 < capacity * 1_024
}

/// `capacity_greater()`: by more than 5 %.
pub(crate) fn capacity_greater(a: u64, b: u64) -> bool {
    a * 1_024 > b * 1_078
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn an_average_halves_in_32_periods() {
        assert_eq!(decay(0), (1 << 32) - 1);
        assert_eq!(decay(HALF_LIFE * PERIOD_NS), ((1 << 32) - 1) / 2);
        assert_eq!(decay(64 * HALF_LIFE * PERIOD_NS), 0);
        // 16 periods twice are 32 of them.
        let half = decay(16 * PERIOD_NS);
        assert!(((half * half) >> 32).abs_diff(1 << 31) <= 2);
        for (n, pair) in DECAY.windows(2).enumerate() {
            let ratio = f64::from(pair[1]) / f64::from(pair[0]);
            assert!((ratio - 0.5_f64.powf(1.0 / 32.0)).abs() < 1e-8, "{n}");
        }
    }

    /// On a core of 400 a hog comes to 400, and no farther. Half of a core at the beginning, four fifths of it are reached
    /// when 0.4 of the rest is left: after 32 log2(2.5) = 42.3 periods of 1.05 ms.
    #[test]
    fn a_hog_takes_all_of_its_core() {
        let task = Utilisation::default();
        task.begin(0, 400);
        assert_eq!(task.estimate(), 200);
        task.update(43 * MS, Some(400));
        assert!(fits_capacity(task.estimate(), 400), "{}", task.estimate());
        task.update(45 * MS, Some(400));
        assert!(!fits_capacity(task.estimate(), 400), "{}", task.estimate());
        task.update(1_000 * MS, Some(400));
        assert!((399..=400).contains(&task.estimate()));
        assert!(fits_capacity(task.estimate(), 501) && !fits_capacity(task.estimate(), 498));
    }

    /// A task that runs half of the time is at about half, and its estimate outlives a sleep.
    #[test]
    fn a_sleeper_is_remembered() {
        let task = Utilisation::default();
        for ms in (0..2_000).step_by(2) {
            task.update(ms * MS, None);
            task.update((ms + 1) * MS, Some(1_024));
        }
        assert!(
            (505..=525).contains(&task.estimate()),
            "{}",
            task.estimate()
        );
        task.sleeps();
        let kept = task.estimate();
        task.update(4_000 * MS, None);
        assert_eq!((task.estimate(), task.average.get()), (kept, 0));
        // Smaller from now on: a quarter of the difference each time.
        task.sleeps();
        assert!(task.estimate().abs_diff(kept * 3 / 4) <= 1);
    }

    /// A cache of 16 CPUs: idle, half busy (512² × 1.3689 / 1,024 = 350), and from 85 % on, where no CPU is looked at.
    #[test]
    fn a_busy_cache_is_hardly_searched() {
        assert_eq!(nr_idle_scan(0, 16, 117), 16);
        assert_eq!(nr_idle_scan(16 * 512, 16, 117), (1_024 - 350) * 16 / 1_024);
        assert_eq!(nr_idle_scan(16 * 860, 16, 117), 0);
        assert_eq!(nr_idle_scan(16 * 876, 16, 117), 0);
    }

    #[test]
    fn capacities_that_are_nearly_the_same_are() {
        assert!(!capacity_greater(1_024, 1_000));
        assert!(capacity_greater(1_024, 900));
    }
}
