//! Prints the profile of this machine: `cargo run --release -p schedlab-calibrate --example calibrate`.

fn main() {
    let report = schedlab_calibrate::calibrate(std::time::Duration::ZERO, |what| {
        eprintln!("measuring {what} …")
    });
    print!("{}", report.to_toml());
}
