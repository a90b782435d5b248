//! Completion scripts and man pages, generated from the definition of the command line.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Cli;
use crate::output::{Output, print};
use crate::status::Status;

/// Returns the command line without what is not for people.
fn visible() -> clap::Command {
    let all = Cli::command();
    let commands = all.get_subcommands().filter(|inner| !inner.is_hide_set());
    clap::Command::new("schedlab")
        .version(env!("CARGO_PKG_VERSION"))
        .about(all.get_about().cloned().unwrap_or_default())
        .after_help(all.get_after_help().cloned().unwrap_or_default())
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args(all.get_arguments().cloned())
        .subcommands(commands.cloned())
}

pub fn completions(shell: Shell) -> anyhow::Result<Status> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible(), "schedlab", &mut script);
    print(script)?;
    Ok(Status::Done)
}

const EXIT: &str = "Exit status:";

/// Returns the paragraph of a command's help that begins so, if it has one.
fn paragraph(command: &clap::Command, start: &str) -> Option<String> {
    let text = command.get_after_help()?.to_string();
    let mut paragraphs = text.split("\n\n").map(str::trim_start);
    paragraphs
        .find(|paragraph| paragraph.starts_with(start))
        .map(str::to_owned)
}

/// Returns the text that follows a heading, line by line: clap_mangen would fill lines and hyphenate.
fn section(text: &str) -> String {
    let Some((heading, lines)) = text.split_once(':') else {
        return String::new();
    };
    let mut section = format!(".SH \"{}\"\n.nf\n", heading.to_uppercase());
    for line in lines.trim_start_matches('\n').lines() {
        // Neither an escape nor a request.
        let line = line.trim().replace('\\', "\\e").replace('-', "\\-");
        section += &format!("\\&{line}\n");
    }
    section + ".fi\n"
}

pub fn man(folder: &Path) -> anyhow::Result<Status> {
    let mut command = visible().disable_help_subcommand(true);
    command.build();
    let mut pages = vec![command.clone()];
    pages.extend(command.get_subcommands().map(|inner| {
        let name = format!("schedlab-{}", inner.get_name());
        inner.clone().name(name.clone()).display_name(name)
    }));
    let exit = paragraph(&command, EXIT).unwrap_or_default();
    for page in pages {
        let examples = paragraph(&page, "Example").unwrap_or_default();
        // Few commands end otherwise than all others.
        let exit = paragraph(&page, EXIT).unwrap_or_else(|| exit.clone());
        let is_first = page.has_subcommands();
        let page = clap_mangen::Man::new(page);
        let mut text = Vec::new();
        page.render_title(&mut text)?;
        page.render_name_section(&mut text)?;
        page.render_synopsis_section(&mut text)?;
        page.render_description_section(&mut text)?;
        page.render_options_section(&mut text)?;
        if is_first {
            page.render_subcommands_section(&mut text)?;
        }
        for verbatim in [examples, exit] {
            text.extend(section(&verbatim).bytes());
        }
        if is_first {
            page.render_version_section(&mut text)?;
        }
        let path = folder.join(page.get_filename());
        let mut file = Output::create(&path)?;
        file.write_all(&text)
            .with_context(|| format!("cannot write {}", path.display()))?;
        file.commit()?;
    }
    Ok(Status::Done)
}
