//! Completion scripts and man pages, generated from the definition of the command line.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Status, print};
use crate::args::Cli;
use crate::output::Output;

/// The command line without what is not for people.
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

pub fn man(folder: &Path) -> anyhow::Result<Status> {
    let mut command = visible().disable_help_subcommand(true);
    command.build();
    let mut pages = vec![command.clone()];
    pages.extend(command.get_subcommands().map(|inner| {
        let name = format!("schedlab-{}", inner.get_name());
        inner.clone().name(name.clone()).display_name(name)
    }));
    for page in pages {
        let page = clap_mangen::Man::new(page);
        let mut text = Vec::new();
        page.render(&mut text)?;
        let path = folder.join(page.get_filename());
        let mut file = Output::create(&path)?;
        file.write_all(&text)
            .with_context(|| format!("cannot write {}", path.display()))?;
        file.commit()?;
    }
    Ok(Status::Done)
}
