//! The stretch of task time under way on a CPU.

use std::cell::Cell;

use crate::state::costs::{FULL_SPEED, scaled};

/// When it began, and how fast the CPU works meanwhile.
pub(crate) struct Segment {
    /// Of [`FULL_SPEED`].
    speed: Cell<u32>,
    /// The CPU runs an application that uses the bus.
    asks_bus: Cell<bool>,
    start: Cell<u64>,
}

impl Default for Segment {
    fn default() -> Self {
        Segment {
            speed: Cell::new(FULL_SPEED),
            asks_bus: Cell::new(false),
            start: Cell::new(0),
        }
    }
}

impl Segment {
    reads! { asks_bus: bool }

    sets! {
        change_speed(speed: u32): speed = speed;
        ask_bus(asks: bool): asks_bus = asks;
    }

    #[inline(always)]
    pub fn begin(&self, now: u64, speed: u32) {
        self.start.set(now);
        self.speed.set(speed);
    }

    /// Returns how long it has taken since it began, or since its speed changed.
    #[inline(always)]
    pub fn elapsed(&self, now: u64) -> u64 {
        now.saturating_sub(self.start.get())
    }

    /// Returns how much has been done in the `elapsed` ns until `now`, in ns at full speed. It begins anew.
    #[inline(always)]
    pub fn cut(&self, now: u64, elapsed: u64) -> u64 {
        self.start.set(now);
        match self.speed.get() {
            FULL_SPEED => elapsed,
            speed => scaled(elapsed, speed, FULL_SPEED, false),
        }
    }
}
