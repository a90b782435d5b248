//! The kernel's functions that policies call, one short function each. Those that touch what CPUs
//! share ask the virtual kernel; the rest are answered here.

pub mod cpu;
pub mod dsq;
pub mod map;
pub mod task;
pub mod text;
pub mod time;
