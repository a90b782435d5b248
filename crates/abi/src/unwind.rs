//! Which line of a policy has called the virtual kernel, for messages.

use std::ffi::{c_int, c_void};

/// `struct _Unwind_Context` of the C++ ABI's unwinder, which Rust's own panics use.
#[repr(C)]
struct Frame {
    _opaque: [u8; 0],
}

/// `_URC_NO_REASON`: go on.
const GO_ON: c_int = 0;
/// `_URC_NORMAL_STOP`.
const STOP: c_int = 4;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: extern "C" fn(*mut Frame, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut Frame) -> usize;
}

/// What `f` says of the call in the innermost frame of which it says anything.
pub fn find<A, F: Fn(usize) -> Option<A>>(f: F) -> Option<A> {
    extern "C" fn each<A, F: Fn(usize) -> Option<A>>(
        frame: *mut Frame,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: the unwinder hands on what it was given below, and a frame of its own.
        let (f, found) = unsafe { &mut *search.cast::<(F, Option<A>)>() };
        // SAFETY: as above. A call is before where it returns to.
        *found = f(unsafe { _Unwind_GetIP(frame) }.wrapping_sub(1));
        if found.is_some() { STOP } else { GO_ON }
    }

    let mut search = (f, None);
    // SAFETY: the search lives until the function returns, and `each` takes it for what it is.
    unsafe { _Unwind_Backtrace(each::<A, F>, (&raw mut search).cast()) };
    search.1
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_innermost_frame_is_found() {
        let mut asked = 0;
        let asked = std::cell::Cell::from_mut(&mut asked);
        let third = super::find(|place| {
            asked.set(asked.get() + 1);
            (asked.get() == 3).then_some(place)
        });
        assert!(third.is_some());
        assert_eq!(asked.get(), 3);
        assert_eq!(super::find(|_| None::<()>), None);
    }
}
