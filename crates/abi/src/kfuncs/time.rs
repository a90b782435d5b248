//! Time, chance and timers (kernel/bpf/helpers.c).

use std::ffi::{c_long, c_void};

use rand_core::RngCore as _;
use schedlab_engine::KernelVersion;
use schedlab_engine::policy::TimerId;

use crate::host::Context;
use crate::layout::Timer;
use crate::maps::{EINVAL, EOPNOTSUPP};
use crate::ops_table::INTERRUPTIBLE;
use crate::timers::Armed;

const EBUSY: c_long = -16;
const EDEADLK: c_long = -35;
/// `BPF_F_TIMER_ABS`, `BPF_F_TIMER_CPU_PIN`.
const START_FLAGS: u64 = 3;

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
        host.timers.add(timer, (map, key, value));
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
            host.timers.set_callback(timer, callback);
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
        host.timers.armed(timer).map(|_| timer)
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
    let is_interruptible = context.op().is_some_and(|op| INTERRUPTIBLE.has(op));
    let cancelled = context.with(|host| {
        // A wait for a callback with interrupts off might never end.
        if host.version >= KernelVersion::V7_2 && !is_interruptible {
            return Err(EOPNOTSUPP);
        }
        let timer = host.timers.at(timer).ok_or(EINVAL)?;
        if host.current().timer == Some(timer) {
            return Err(EDEADLK);
        }
        host.timers.set_callback(timer, std::ptr::null());
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
        let armed = host.timers.armed(timer)?;
        host.current().timer = Some(timer);
        Some(armed)
    });
    let Some(Armed {
        map,
        key,
        value,
        callback,
    }) = armed
    else {
        return 0;
    };
    if context.with(|host| host.image.bpf().is_some()) {
        let arguments = [map as u64, key as u64, value as u64, 0];
        let result = context.call_back(callback as u64, arguments);
        context.with(|host| host.current().timer = None);
        return result as i64;
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
