//! State of a run: data that knows no executor.

pub(crate) mod account;
pub(crate) mod affinity;
pub(crate) mod costs;
pub(crate) mod cpu;
pub(crate) mod deadline;
pub(crate) mod deferred;
pub(crate) mod domains;
pub(crate) mod dsq;
pub(crate) mod event_queue;
pub(crate) mod fair;
pub(crate) mod idle;
pub(crate) mod kick;
pub(crate) mod life;
pub(crate) mod lock;
pub(crate) mod memory;
pub(crate) mod object;
pub(crate) mod online;
pub(crate) mod pi;
pub(crate) mod population;
pub(crate) mod rt;
pub(crate) mod shared;
pub(crate) mod sorted;
pub(crate) mod task;
pub(crate) mod tcp;
pub(crate) mod traffic;
pub(crate) mod utilisation;
