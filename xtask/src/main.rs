//! Chores of the repository: `cargo xtask tidy`, `cargo xtask words`.
#![forbid(unsafe_code)]

mod tidy;
mod words;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the repository");
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => {
            let complaints = tidy::check(root);
            for complaint in &complaints {
                eprintln!("{complaint}");
            }
            if complaints.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Some("words") => {
            let counts = tidy::phrases(root);
            for count in &counts {
                for found in &count.found {
                    println!("{}:{}: {}", found.file.display(), found.line, found.text);
                }
            }
            for count in &counts {
                println!(
                    "{} lines of at most {}: {}",
                    count.found.len(),
                    count.lines_max,
                    count.name
                );
            }
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: cargo xtask tidy|words");
            ExitCode::from(2)
        }
    }
}
