//! Weights of nice levels, as Linux uses them (`sched_prio_to_weight`, kernel/sched/core.c).

/// Weight of each nice level from −20 to 19: one level is a factor of about 1.25, nice 0 is 1024.
const WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

/// The weight of a task of `SCHED_IDLE`, whatever its nice level (`WEIGHT_IDLEPRIO`, kernel/sched/sched.h).
pub const IDLE: u32 = 3;

/// Returns the weight of a nice level; levels beyond −20 and 19 count as these.
pub fn of_nice(nice: i8) -> u32 {
    WEIGHTS[(i32::from(nice).clamp(-20, 19) + 20) as usize]
}

#[cfg(test)]
mod tests {
    use super::of_nice;

    #[test]
    fn a_level_is_about_a_factor_of_one_and_a_quarter() {
        assert_eq!(of_nice(0), 1024);
        assert_eq!((of_nice(-20), of_nice(19)), (88761, 15));
        assert_eq!((of_nice(-128), of_nice(127)), (88761, 15));
        for nice in -20..19 {
            let ratio = f64::from(of_nice(nice)) / f64::from(of_nice(nice + 1));
            assert!((1.15..1.35).contains(&ratio), "nice {nice}: {ratio}");
        }
    }
}
