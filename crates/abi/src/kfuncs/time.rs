//! Time, chance and timers (kernel/bpf/helpers.c).

use std::collections::BTreeMap;
use std::ffi::{c_long, c_void};

use rand_core::RngCore as _;
use schedlab_engine::KernelVersion;
use schedlab_engine::policy::TimerId;

use crate::host::Context;
use crate::layout::Timer;
use crate::maps::{EINVAL, EOPNOTSUPP};
use crate::ops;

const EBUSY: c_long = -16;
const EDEADLK: c_long = -35;
/// `BPF_F_TIMER_ABS`, `BPF_F_TIMER_CPU_PIN`.
const START_FLAGS: u64 = 3;

/// A timer's callback with its arguments.
struct Armed {
    map: *const u64,
    key: *const u8,
    value: *mut u8,
    /// Null until it is set, and again when the timer is cancelled.
    callback: *const c_void,
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

    fn armed(&mut self, timer: TimerId) -> &mut Armed {
        &mut self.list[timer.0 as usize]
    }

    /// Forgets the timers of a value.
    fn take(&mut self, value: *mut u8, bytes: usize) -> Vec<TimerId> {
        let start = value as usize;
        let within = self.places.extract_if(start..start + bytes, |_, _| true);
        let gone: Vec<TimerId> = within.map(|(_, timer)| timer).collect();
        for &timer in &gone {
            self.armed(timer).callback = std::ptr::null();
        }
        gone
    }
}

/// `scx_bpf_now()` and `bpf_ktime_get_ns()`.
// Model: scx_bpf_now() returns the run queue's clock, which stands still during an op; ours goes on.
pub extern "C" fn now(context: Context) -> u64 {
    let ns = context.with(|host| host.kfunc_ns);
    context.env(|env| {
        env.cpu.charge_ns(ns);
        env.cpu.now.get()
    })
}

/// `bpf_get_prandom_u32()`.
pub extern "C" fn random(context: Context) -> u32 {
    context.charge_kfunc();
    // The stream belongs to all CPUs, so its order is the order of time.
    crate::primitives::sync(context);
    context.env(|env| env.shared.random.borrow_mut().next_u32())
}

/// `bpf_timer_init()`.
pub extern "C" fn timer_init(
    context: Context,
    timer: *mut Timer,
    map: *const u64,
    flags: u64,
) -> c_long {
    context.charge_kfunc();
    // CLOCK_REALTIME, CLOCK_MONOTONIC and CLOCK_BOOTTIME exist.
    if flags > 1 && flags != 7 {
        return EINVAL;
    }
    if context.with(|host| host.timers.at(timer).is_some()) {
        return EBUSY;
    }
    let around = context.with(|host| {
        let mut maps = host.maps.all_mut();
        maps.find_map(|map| map.value_around(timer as usize))
    });
    let Some((key, value)) = around else {
        context.fault("bpf_timer_init() was called for a timer outside of maps".to_owned());
    };
    context.with(|host| {
        let key = host.maps.memory.put_bytes(&key);
        let timers = &mut host.timers;
        let id = TimerId(timers.list.len() as u32);
        timers.places.insert(timer as usize, id);
        timers.list.push(Armed {
            map,
            key,
            value,
            callback: std::ptr::null(),
        });
    });
    0
}

/// `bpf_timer_set_callback()`.
pub extern "C" fn timer_set_callback(
    context: Context,
    timer: *mut Timer,
    callback: *const c_void,
) -> c_long {
    context.charge_kfunc();
    context.with(|host| match host.timers.at(timer) {
        Some(timer) => {
            host.timers.armed(timer).callback = callback;
            0
        }
        None => EINVAL,
    })
}

/// `bpf_timer_start()`.
pub extern "C" fn timer_start(
    context: Context,
    timer: *mut Timer,
    nsecs: u64,
    flags: u64,
) -> c_long {
    context.charge_kfunc();
    let ready = context.with(|host| {
        let timer = host.timers.at(timer)?;
        let is_set = !host.timers.armed(timer).callback.is_null();
        is_set.then_some(timer)
    });
    match ready {
        Some(timer) if flags & !START_FLAGS == 0 => {
            context.ask(|kernel| kernel.timer_start(timer, nsecs, flags))
        }
        _ => EINVAL,
    }
}

/// `bpf_timer_cancel()`: it has no callback then.
pub extern "C" fn timer_cancel(context: Context, timer: *mut Timer) -> c_long {
    context.charge_kfunc();
    let is_interruptible = context.op().is_some_and(|op| ops::INTERRUPTIBLE.has(op));
    let cancelled = context.with(|host| {
        // A wait for a callback with interrupts off might never end.
        if host.version >= KernelVersion::V7_2 && !is_interruptible {
            return Err(EOPNOTSUPP);
        }
        let timer = host.timers.at(timer).ok_or(EINVAL)?;
        if host.current().timer == Some(timer) {
            return Err(EDEADLK);
        }
        host.timers.armed(timer).callback = std::ptr::null();
        Ok(timer)
    });
    match cancelled {
        Ok(timer) => context.ask(|kernel| kernel.timer_cancel(timer)),
        Err(error) => error,
    }
}

/// `bpf_timer_cancel_and_free()` of the timers in a value that is deleted or overwritten.
pub fn forget(context: Context, value: *mut u8, bytes: usize) {
    for timer in context.with(|host| host.timers.take(value, bytes)) {
        context.ask(|kernel| kernel.timer_cancel(timer));
    }
}

/// Calls a timer's function with its map, key and value.
pub fn callback(context: Context, timer: TimerId) -> i64 {
    let armed = context.with(|host| {
        let armed = host.timers.list.get(timer.0 as usize)?;
        if armed.callback.is_null() {
            return None;
        }
        let call = (armed.map, armed.key, armed.value, armed.callback);
        host.current().timer = Some(timer);
        Some(call)
    });
    let Some((map, key, value, callback)) = armed else {
        return 0;
    };
    if context.with(|host| host.image.bpf().is_some()) {
        let arguments = [map as u64, key as u64, value as u64];
        let result = crate::bpf::timer_callback(context, callback, arguments);
        context.with(|host| host.current().timer = None);
        return result;
    }
    // SAFETY: bpf_timer_set_callback() takes a function of this type; its arguments live as long as
    // the map. The key is only read.
    let result = unsafe {
        let callback: extern "C" fn(*const u64, *const u8, *mut u8) -> i32 =
            std::mem::transmute(callback);
        callback(map, key, value)
    };
    context.with(|host| host.current().timer = None);
    result.into()
}
