//! The kernel's paths: what is done with the state, in functions that have the names of Linux's.

pub(crate) mod balance;
pub(crate) mod check;
pub(crate) mod cost;
pub(crate) mod cpu;
pub(crate) mod deadline;
pub(crate) mod deferred;
pub(crate) mod dispatch;
pub(crate) mod dump;
pub(crate) mod ext;
pub(crate) mod fair;
pub(crate) mod hotplug;
pub(crate) mod idle;
pub(crate) mod kernel;
pub(crate) mod kick;
pub(crate) mod lifecycle;
pub(crate) mod lock;
pub(crate) mod memory;
pub(crate) mod ops;
pub(crate) mod pi;
pub(crate) mod prefetch;
pub(crate) mod rt;
pub(crate) mod sched;
pub(crate) mod starter;
pub(crate) mod syscall;
pub(crate) mod wake;
pub(crate) mod watchdog;
