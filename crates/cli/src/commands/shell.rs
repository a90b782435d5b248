//! Completion scripts and man pages, generated from the definition of the command line.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Status, print};
use crate::args::Cli;
use crate::output::Output;

pub fn completions(shell: Shell) -> anyhow::Result<Status> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "schedlab", &mut script);
    print(script)?;
    Ok(Status::Done)
}

pub fn man(folder: &Path) -> anyhow::Result<Status> {
    let mut command = Cli::command().disable_help_subcommand(true);
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
