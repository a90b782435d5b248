//! Chores of the repository: `cargo xtask tidy`, `cargo xtask words`, `cargo xtask modules`.
#![forbid(unsafe_code)]

mod module_graph;
mod modules;
mod tidy;
mod words;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask tidy               check the rules of the repository that no compiler checks, circles of modules included
       cargo xtask modules [CRATE…]   print which modules of each crate need which others
       cargo xtask modules --check    complain of modules that need each other
       cargo xtask words              print the lines of prose that are hard to read, and how many of each kind may be";

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the repository");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let complaints: Vec<String> = match words[..] {
        ["tidy"] => {
            let rules = tidy::check(root);
            let rules = rules.iter().map(ToString::to_string);
            rules.chain(modules::check(root)).collect()
        }
        ["modules", "--check"] => modules::check(root),
        ["modules", ..] if words.iter().all(|word| !word.starts_with('-')) => {
            modules::print(root, &arguments[1..])
                .err()
                .into_iter()
                .collect()
        }
        ["words"] => {
            print_phrases(root);
            Vec::new()
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    if complaints.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Prints the lines of prose that are hard to read, then how many of each kind there are and may be.
fn print_phrases(root: &Path) {
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
}
