//! The rules of sched_ext and of the virtual kernel, each with the smallest policy that shows it.

mod lifecycle;
