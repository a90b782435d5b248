//! The timers in the values of maps.

use std::collections::BTreeMap;
use std::ffi::c_void;

use schedlab_engine::policy::TimerId;

use crate::layout::Timer;

/// A timer's callback with its arguments.
#[derive(Clone, Copy)]
pub struct Armed {
    pub map: *const u64,
    pub key: *const u8,
    pub value: *mut u8,
    /// Null until it is set, and again when the timer is cancelled.
    pub callback: *const c_void,
}

/// The timers of a run.
#[derive(Default)]
pub struct Timers {
    /// By [`TimerId`]. Those that are gone stay: a callback may be running with their key.
    list: Vec<Armed>,
    /// Where those lie that are there.
    places: BTreeMap<usize, TimerId>,
}

impl Timers {
    /// The timer that lies there.
    pub fn at(&self, timer: *mut Timer) -> Option<TimerId> {
        self.places.get(&(timer as usize)).copied()
    }

    /// Adds one whose callback will get this map, key and value.
    pub fn add(&mut self, timer: *mut Timer, (map, key, value): (*const u64, *const u8, *mut u8)) {
        let id = TimerId(self.list.len() as u32);
        self.places.insert(timer as usize, id);
        self.list.push(Armed {
            map,
            key,
            value,
            callback: std::ptr::null(),
        });
    }

    pub fn set_callback(&mut self, timer: TimerId, callback: *const c_void) {
        self.list[timer.0 as usize].callback = callback;
    }

    /// One that has a callback.
    pub fn armed(&self, timer: TimerId) -> Option<Armed> {
        let armed = self.list.get(timer.0 as usize)?;
        (!armed.callback.is_null()).then_some(*armed)
    }

    /// Forgets the timers of a value.
    pub fn take(&mut self, value: *mut u8, bytes: usize) -> Vec<TimerId> {
        let start = value as usize;
        let within = self.places.extract_if(start..start + bytes, |_, _| true);
        let gone: Vec<TimerId> = within.map(|(_, timer)| timer).collect();
        for &timer in &gone {
            self.set_callback(timer, std::ptr::null());
        }
        gone
    }
}
