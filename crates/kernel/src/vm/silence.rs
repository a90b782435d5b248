//! Notices a machine without output: its last action is reported, and a machine without a sign of life is stopped.

use std::time::{Duration, Instant};

/// Length of a silence before it is reported.
const TOLD: Duration = Duration::from_secs(30);

/// How long it may show no sign of life at all before it is given up. A program in it that outranks every scheduler
/// gives one every few seconds; only CPUs that take no interrupts, or a host that has no time, keep it from that.
const GIVEN_UP: Duration = Duration::from_secs(120);

/// The next step for a machine.
#[derive(PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing.
    Fine,
    /// It has said nothing for so long, but lives.
    Quiet(Duration),
    /// It has shown no sign of life for so long.
    Lifeless(Duration),
    /// It will not come back.
    Lost(Duration),
}

/// When a machine was last heard.
pub struct Silence {
    /// It wrote something.
    said: Instant,
    /// It wrote something, or gave a sign of life.
    lived: Instant,
    /// The next silence that is reported, from `said`.
    next: Duration,
    /// It has given signs of life: more are to be expected.
    beats: bool,
}

impl Silence {
    pub fn new(now: Instant) -> Silence {
        Silence {
            said: now,
            lived: now,
            next: TOLD,
            beats: false,
        }
    }

    /// It wrote something.
    pub fn hears(&mut self, now: Instant) {
        (self.said, self.lived, self.next) = (now, now, TOLD);
    }

    /// It gave a sign of life.
    pub fn feels(&mut self, now: Instant) {
        self.lived = now;
        self.beats = true;
    }

    /// Each silence is reported once, and again when it has doubled.
    pub fn judge(&mut self, now: Instant) -> Verdict {
        let lifeless = now.duration_since(self.lived);
        if self.beats && lifeless >= GIVEN_UP {
            return Verdict::Lost(lifeless);
        }
        let quiet = now.duration_since(self.said);
        if quiet < self.next {
            return Verdict::Fine;
        }
        self.next *= 2;
        match self.beats && lifeless >= TOLD {
            true => Verdict::Lifeless(lifeless),
            false => Verdict::Quiet(quiet),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, s: u64) -> Instant {
        start + Duration::from_secs(s)
    }

    #[test]
    fn a_quiet_machine_that_lives_is_told_and_never_given_up() {
        let start = Instant::now();
        let mut silence = Silence::new(start);
        let mut told = Vec::new();
        for s in 1..=500 {
            silence.feels(after(start, s));
            match silence.judge(after(start, s)) {
                Verdict::Fine => {}
                Verdict::Quiet(quiet) => told.push(quiet.as_secs()),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(told, [30, 60, 120, 240, 480]);
        silence.hears(after(start, 500));
        assert_eq!(silence.judge(after(start, 529)), Verdict::Fine);
        silence.feels(after(start, 530));
        let quiet = silence.judge(after(start, 530));
        assert_eq!(quiet, Verdict::Quiet(Duration::from_secs(30)));
    }

    #[test]
    fn a_machine_without_a_sign_of_life_is_told_and_given_up() {
        let start = Instant::now();
        let mut silence = Silence::new(start);
        silence.feels(start);
        assert_eq!(silence.judge(after(start, 29)), Verdict::Fine);
        let lifeless = silence.judge(after(start, 30));
        assert_eq!(lifeless, Verdict::Lifeless(Duration::from_secs(30)));
        let lifeless = silence.judge(after(start, 60));
        assert_eq!(lifeless, Verdict::Lifeless(Duration::from_secs(60)));
        assert_eq!(silence.judge(after(start, 119)), Verdict::Fine);
        let lost = silence.judge(after(start, 120));
        assert_eq!(lost, Verdict::Lost(Duration::from_secs(120)));
    }

    #[test]
    fn of_a_machine_that_never_gave_a_sign_of_life_none_is_missed() {
        let start = Instant::now();
        let mut silence = Silence::new(start);
        let quiet = silence.judge(after(start, 121));
        assert_eq!(quiet, Verdict::Quiet(Duration::from_secs(121)));
    }
}
