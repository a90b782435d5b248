//! The workloads, one file each. A new one is its file and its line here.

use crate::Model;

macro_rules! models {
    ($($name:ident),* $(,)?) => {
        $(mod $name;)*
        const ALL: &[Model] = &[$($name::MODEL),*];
    };
}

mod buckets;
mod parsec;
mod phases;
mod plan;
mod pool;

models! {
    blackscholes,
    bodytrack,
    canneal,
    chat,
    cpu,
    facesim,
    faults,
    ferret,
    fluidanimate,
    hackbench,
    httpd,
    kbuild,
    lat_ctx,
    pipe,
    reflex,
    schbench,
    service,
    stream,
    streamcluster,
    tpch,
    volano,
}

/// Every model, in alphabetical order.
pub fn list() -> &'static [Model] {
    ALL
}
