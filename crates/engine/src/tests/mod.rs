//! The rules of sched_ext and of the virtual kernel, each with the smallest policy that shows it.

mod attributes;
mod background;
mod balance;
mod bus;
mod chaos;
mod classes;
mod cores;
mod custody;
mod deadline;
mod endless;
mod errors;
mod groups;
mod hotplug;
mod idle;
mod inherit;
mod lifecycle;
mod locks;
mod memory;
mod queues;
mod shared;
mod slices;
mod start;
mod tcp;
mod timers;
mod wild;
mod workload;
