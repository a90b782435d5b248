//! `explain`: why a scheduler was ejected, from a text.

use std::fs::File;
use std::io::{IsTerminal as _, Read};
use std::path::Path;

use anyhow::{Context as _, bail};
use schedlab_explain::Explanation;
use schedlab_report::export::lines::fill;
use serde::Serialize;

use crate::args::ExplainArgs;
use crate::output::{harmless, is_stdout, print, tell, width};
use crate::status::Status;

/// The longest text that is read: a log of months is shorter.
const BYTES_MAX: u64 = 256 << 20;
/// Columns of the names before the rows of an explanation.
const NAMES: usize = 11;

pub fn run(args: &ExplainArgs) -> anyhow::Result<Status> {
    let file = args.file.as_deref().filter(|file| !is_stdout(file));
    let name = match file {
        Some(file) => file.display().to_string(),
        None => "standard input".to_owned(),
    };
    let text = read(file, args.file.is_some(), &name)?;
    let found = schedlab_explain::explain(&text).map_err(|why| anyhow::anyhow!("{name}: {why}"))?;
    if args.json {
        let mut document = serde_json::to_string_pretty(&Document { ejections: &found })?;
        document.push('\n');
        print(document)?;
    } else {
        print(harmless(&render(&found, width())))?;
    }
    Ok(Status::Done)
}

#[derive(Serialize)]
struct Document<'a> {
    ejections: &'a [Explanation],
}

fn read(file: Option<&Path>, is_asked: bool, name: &str) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    match file {
        Some(file) => {
            let file = File::open(file).with_context(|| format!("cannot read {name}"))?;
            read_some(file, &mut text, name)?;
        }
        None => {
            let stdin = std::io::stdin().lock();
            if stdin.is_terminal() && !is_asked {
                bail!(
                    "explain reads a log: name its file, or pipe it in (`sudo dmesg | schedlab explain`); `schedlab explain -` reads what you paste, up to Ctrl-D"
                );
            }
            read_some(stdin, &mut text, name)?;
        }
    }
    Ok(text)
}

fn read_some(from: impl Read, text: &mut Vec<u8>, name: &str) -> anyhow::Result<()> {
    let read = from.take(BYTES_MAX).read_to_end(text);
    read.with_context(|| format!("cannot read {name}"))?;
    if text.len() as u64 == BYTES_MAX {
        tell(format_args!(
            "{name}: only the first {} MB are looked at",
            BYTES_MAX >> 20
        ));
    }
    Ok(())
}

fn render(found: &[Explanation], width: usize) -> String {
    let mut text = String::new();
    for (index, one) in found.iter().enumerate() {
        if found.len() > 1 {
            text.push_str(&format!("Ejection {} of {}\n\n", index + 1, found.len()));
        }
        fill(&mut text, "", &one.sentence, 0, width);
        text.push('\n');
        for (name, body) in one.rows() {
            fill(&mut text, &format!("{name:<NAMES$}"), &body, NAMES, width);
        }
        if index + 1 < found.len() {
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_ejections_are_numbered() {
        let text = |log: &str| render(&schedlab_explain::explain(log.as_bytes()).unwrap(), 80);
        let one = "EXIT: disabled by sysrq-S\n";
        let alone = text(one);
        assert!(alone.starts_with("Somebody pressed SysRq-S,"), "{alone}");
        let both = text(&format!("{one}EXIT: unregistered from user space\n"));
        assert!(
            both.starts_with("Ejection 1 of 2\n\nSomebody pressed"),
            "{both}"
        );
        assert!(
            both.contains("\n\nEjection 2 of 2\n\nNobody ejected"),
            "{both}"
        );
    }
}
