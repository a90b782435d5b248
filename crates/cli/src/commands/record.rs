//! `record`: a command, or the whole machine, as a workload file.

use anyhow::Context as _;
use schedlab_recording::page;

use crate::args::RecordArgs;
use crate::output::{print, tell};
use crate::recording::{Recorded, record};
use crate::signals;
use crate::status::Status;

pub fn run(args: &RecordArgs) -> anyhow::Result<Status> {
    // perf and the command get Ctrl-C, too, and end; what they leave is worth reading.
    let stops = signals::listen()
        .context("cannot listen to signals")?
        .stop_softly();
    let Recorded { path, file, failed } = record(args, &stops)?;
    print(page::show(&path.display().to_string(), &file, None))?;
    if let Some(failed) = failed {
        tell(failed);
        return Ok(Status::Failed);
    }
    Ok(Status::Done)
}
