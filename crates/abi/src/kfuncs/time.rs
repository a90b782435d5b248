//! Time, chance and timers (kernel/bpf/helpers.c).

use std::ffi::{c_long, c_void};

use rand_core::RngCore as _;
use schedlab_engine::policy::TimerId;

use crate::host::Context;
use crate::layout::Timer;
use crate::maps::EINVAL;

const EBUSY: c_long = -16;
/// `BPF_F_TIMER_ABS`, `BPF_F_TIMER_CPU_PIN`.
const START_FLAGS: u64 = 3;

/// A timer's callback with its arguments.
struct Armed {
    map: *const u64,
    key: Vec<u8>,
    value: *mut u8,
    callback: *const c_void,
}

/// The timers of a run, by [`TimerId`].
#[derive(Default)]
pub struct Timers {
    list: Vec<Armed>,
}

/// `scx_bpf_now()` and `bpf_ktime_get_ns()`.
// Model: scx_bpf_now() returns the run queue's clock, which stands still during an op; ours goes on.
pub extern "C" fn now(context: Context) -> u64 {
    context.charge_kfunc();
    context.env(|env| env.now.get())
}

/// `bpf_get_prandom_u32()`.
pub extern "C" fn random(context: Context) -> u32 {
    context.charge_kfunc();
    // The stream belongs to all CPUs, so its order is the order of time.
    crate::primitives::sync(context);
    context.env(|env| env.random.borrow_mut().next_u32())
}

/// A timer's number is kept in its first word, one higher.
fn id(timer: *mut Timer) -> Option<TimerId> {
    // SAFETY: a timer lies in a map's value; a wild pointer faults, and that is caught.
    let number = unsafe { (*timer).opaque[0] };
    number.checked_sub(1).map(|number| TimerId(number as u32))
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
    if id(timer).is_some() {
        return EBUSY;
    }
    let around = context.with(|host| {
        let mut maps = host.maps.list.iter_mut();
        maps.find_map(|map| map.value_around(timer as usize))
    });
    let Some((key, value)) = around else {
        context.fault("bpf_timer_init() was called for a timer outside of maps".to_owned());
    };
    let number = context.with(|host| {
        host.timers.list.push(Armed {
            map,
            key,
            value,
            callback: std::ptr::null(),
        });
        host.timers.list.len()
    });
    // SAFETY: as in `id`.
    unsafe { (*timer).opaque[0] = number as u64 };
    0
}

/// `bpf_timer_set_callback()`.
pub extern "C" fn timer_set_callback(
    context: Context,
    timer: *mut Timer,
    callback: *const c_void,
) -> c_long {
    context.charge_kfunc();
    let Some(TimerId(index)) = id(timer) else {
        return EINVAL;
    };
    context.with(|host| host.timers.list[index as usize].callback = callback);
    0
}

/// `bpf_timer_start()`.
pub extern "C" fn timer_start(
    context: Context,
    timer: *mut Timer,
    nsecs: u64,
    flags: u64,
) -> c_long {
    context.charge_kfunc();
    let Some(timer) = id(timer) else {
        return EINVAL;
    };
    let ready = context.with(|host| !host.timers.list[timer.0 as usize].callback.is_null());
    if !ready || flags & !START_FLAGS != 0 {
        return EINVAL;
    }
    context.ask(|kernel| kernel.timer_start(timer, nsecs, flags))
}

/// `bpf_timer_cancel()`.
pub extern "C" fn timer_cancel(context: Context, timer: *mut Timer) -> c_long {
    context.charge_kfunc();
    let Some(timer) = id(timer) else {
        return EINVAL;
    };
    context.ask(|kernel| kernel.timer_cancel(timer))
}

/// Calls a timer's function with its map, key and value.
pub fn callback(context: Context, timer: TimerId) -> i64 {
    let armed = context.with(|host| {
        let armed = host.timers.list.get(timer.0 as usize)?;
        (!armed.callback.is_null()).then_some((
            armed.map,
            armed.key.as_ptr(),
            armed.value,
            armed.callback,
        ))
    });
    let Some((map, key, value, callback)) = armed else {
        return 0;
    };
    // SAFETY: bpf_timer_set_callback() takes a function of this type; its arguments live as long as
    // the map. The key is only read.
    unsafe {
        let callback: extern "C" fn(*const u64, *const u8, *mut u8) -> i32 =
            std::mem::transmute(callback);
        callback(map, key, value).into()
    }
}
