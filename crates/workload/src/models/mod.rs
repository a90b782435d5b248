//! The workloads, one file each. A new one is its file and its line here.

macro_rules! models {
    ($($name:ident),* $(,)?) => {
        $(mod $name;)*
        pub(crate) const ALL: &[crate::Model] = &[$($name::MODEL),*];
    };
}

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
    ferret,
    fluidanimate,
    hackbench,
    httpd,
    kbuild,
    lat_ctx,
    pipe,
    reflex,
    schbench,
    streamcluster,
    tpch,
    volano,
}
