//! Compares native code with the interpreter on random programs:
//! `cargo run --release -p schedlab-bpf --example differential -- PROGRAMS [SEED]`.

#[path = "../tests/random/mod.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod random;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |otherwise| match arguments.next() {
        None => otherwise,
        Some(text) => text.parse().unwrap_or_else(|_| {
            eprintln!("`{text}` is not a number: give PROGRAMS and, if you like, SEED");
            std::process::exit(2)
        }),
    };
    let programs: u64 = number(10_000);
    let seed = number(1);
    random::compare(programs as usize, seed, |done| {
        if done % 32_000 == 0 {
            eprintln!("{done} of {programs}");
        }
    });
    println!("{programs} programs from seed {seed}: no difference");
}
