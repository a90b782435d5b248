//! Real programs in a real kernel, this machine's or a virtual machine's, where this program was built with that side.

mod contract;
#[cfg(feature = "kernel")]
mod here;
#[cfg(feature = "kernel")]
mod jobs;
#[cfg(feature = "kernel")]
mod machine;
#[cfg(not(feature = "kernel"))]
mod without;

pub use contract::{Emulated, RealRun, Spoils};
#[cfg(feature = "kernel")]
pub use here::{complain, host, not_stock, place, release, run_once, warm_up};
#[cfg(feature = "kernel")]
pub use jobs::{emulate, inside};
#[cfg(feature = "kernel")]
pub use machine::{forward, in_vm, machine, sweep_in_vm, timeout_of_runs};
#[cfg(not(feature = "kernel"))]
pub use without::{
    REMEDY, emulate, host, in_vm, inside, not_stock, place, run_once, sweep_in_vm, warm_up,
};
