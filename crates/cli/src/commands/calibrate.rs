//! `calibrate`: a machine profile of the machine that it runs on.

use std::io::Write as _;

use super::Status;
use crate::args::CalibrateArgs;
use crate::output::Output;

pub fn run(args: &CalibrateArgs) -> anyhow::Result<Status> {
    let file = args.output.as_deref().map(Output::create).transpose()?;
    let spinner = indicatif::ProgressBar::new_spinner();
    let report = schedlab_calibrate::calibrate(|what| {
        spinner.set_message(format!("measuring {what}"));
        spinner.tick();
    });
    spinner.finish_and_clear();
    let text = report.to_toml();
    match file {
        None => std::io::stdout().write_all(text.as_bytes())?,
        Some(mut file) => {
            file.write_all(text.as_bytes())?;
            file.commit()?;
            for note in &report.notes {
                writeln!(std::io::stdout(), "{note}")?;
            }
        }
    }
    Ok(Status::Done)
}
