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
    reads! { has_fair of fair: bool, has_rt of rt: bool, has_dl of dl: bool }

    sets! {
        use_fair(): fair = true;
        use_rt(): rt = true;
    }

    pub fn use_dl(&self) {
        self.rt.set(true);
        self.dl.set(true);
    }
}
