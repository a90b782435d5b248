//! The crate embeds every file of `experiments/`, which may be new.

fn main() {
    println!("cargo::rerun-if-changed=../../experiments");
}
