//! `show`: what a recording or a workload file holds.

use anyhow::bail;
use schedlab_recording::{Costs, Kind, Options, kind, page};

use crate::args::ShowRecordingArgs;
use crate::output::print;
use crate::recording::{cut, inferred, workload_file};
use crate::status::Status;

pub fn run(args: &ShowRecordingArgs) -> anyhow::Result<Status> {
    let name = args.file.display().to_string();
    let options = cut(&args.cut, Costs::default())?;
    let file = match kind(&name)? {
        Kind::Workload if options != Options::default() => {
            bail!(
                "{name} is a workload file: --from, --to and --all are for recordings, before they are imported"
            );
        }
        Kind::Workload => workload_file(&name)?,
        _ => inferred(&args.file, &options)?,
    };
    let only = args.task.as_deref();
    if let Some(only) = only
        && !file.head.tasks.iter().any(|task| task.comm.contains(only))
    {
        bail!(
            "--task {only}: no task of {name} has a name that contains this; `schedlab show` without it lists the names"
        );
    }
    print(page::show(&name, &file, only))?;
    Ok(Status::Done)
}
