//! Reads the running kernel's state of sched_ext: `/sys/kernel/sched_ext`.

use std::fs;
use std::path::Path;

const ROOT: &str = "/sys/kernel/sched_ext";

/// State of sched_ext, from sysfs (`kernel/sched/ext/ext.c`, `scx_attr_state_show()`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// This kernel has no sched_ext.
    Absent,
    /// Nothing is loaded.
    Disabled,
    /// A scheduler is coming, running or going.
    Loaded {
        /// `enabling`, `enabled` or `disabling`.
        state: String,
        /// Its `ops.name`, if the kernel shows it.
        name: String,
    },
}

/// Asks the kernel.
pub fn state() -> State {
    if !Path::new(ROOT).is_dir() {
        return State::Absent;
    }
    match read("state").as_deref() {
        Some("disabled") => State::Disabled,
        Some(state) => State::Loaded {
            state: state.to_owned(),
            name: read("root/ops").unwrap_or_else(|| "?".to_owned()),
        },
        None => State::Absent,
    }
}

/// Returns how many schedulers have been enabled since boot.
pub fn enable_seq() -> Option<u64> {
    read("enable_seq")?.parse().ok()
}

/// Changes with every CPU that comes or goes; a policy gets the value for which it was made.
pub fn hotplug_seq() -> Option<u64> {
    read("hotplug_seq")?.parse().ok()
}

fn read(file: &str) -> Option<String> {
    Some(
        fs::read_to_string(Path::new(ROOT).join(file))
            .ok()?
            .trim()
            .to_owned(),
    )
}
