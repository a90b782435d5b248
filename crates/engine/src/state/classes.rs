//! Which classes have had tasks: a run without some passes their paths by.

use std::cell::Cell;

/// Some task has been in each of them.
#[derive(Default)]
pub(crate) struct Classes {
    fair: Cell<bool>,
    /// In the real-time class or above.
    rt: Cell<bool>,
    dl: Cell<bool>,
}

impl Classes {
    #[inline(always)]
    pub fn has_fair(&self) -> bool {
        self.fair.get()
    }

    #[inline(always)]
    pub fn has_rt(&self) -> bool {
        self.rt.get()
    }

    #[inline(always)]
    pub fn has_dl(&self) -> bool {
        self.dl.get()
    }

    pub fn use_fair(&self) {
        self.fair.set(true);
    }

    pub fn use_rt(&self) {
        self.rt.set(true);
    }

    pub fn use_dl(&self) {
        self.rt.set(true);
        self.dl.set(true);
    }
}
