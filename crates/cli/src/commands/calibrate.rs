//! `calibrate`: a machine profile of the machine that it runs on, or of another one.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use schedlab_report::export::lines::fill;

use crate::args::CalibrateArgs;
use crate::output::{Output, cannot_write, is_stdout, print, width};
use crate::signals;
use crate::status::Status;

/// Measures this machine, which takes some seconds more than it is watched while `idle`.
fn measure(idle: Duration) -> schedlab_calibrate::Report {
    let spinner = indicatif::ProgressBar::new_spinner();
    let report = schedlab_calibrate::calibrate(idle, |what| {
        spinner.set_message(format!("measuring {what}"));
        spinner.tick();
    });
    spinner.finish_and_clear();
    report
}

pub fn run(args: &CalibrateArgs) -> anyhow::Result<Status> {
    // Before the file is touched: the description may be wrong.
    let described = args.from.as_deref().map(schedlab_calibrate::from::from);
    let described = described.transpose()?;
    let begin = |path| Output::create(path).map(|file| (path, file));
    let output = args.output.as_deref().filter(|path| !is_stdout(path));
    let file = output.map(begin).transpose()?;
    signals::listen().context("cannot listen to signals")?;
    let report = described.unwrap_or_else(|| measure(args.idle.to_std()));
    let text = report.to_toml();
    match file {
        None => print(text)?,
        Some((path, mut file)) => {
            file.write_all(text.as_bytes())
                .with_context(|| cannot_write(path))?;
            file.commit()?;
            let mut notes = String::new();
            for note in &report.notes {
                fill(&mut notes, "", note, 2, width());
            }
            print(notes)?;
        }
    }
    Ok(Status::Done)
}
