//! The workloads, one file each. A new one is its file and its line here.

macro_rules! models {
    ($($name:ident),* $(,)?) => {
        $(mod $name;)*
        pub(crate) const ALL: &[crate::Model] = &[$($name::MODEL),*];
    };
}

models! {
    chat,
    cpu,
    pipe,
    reflex,
}
