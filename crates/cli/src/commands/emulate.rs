//! `emulate`: the runs of `reproduce --vm`, inside of a virtual machine.

use crate::args::EmulateArgs;
use crate::real;
use crate::status::Status;

pub fn run(args: &EmulateArgs) -> anyhow::Result<Status> {
    real::inside(&args.folder, args.time_limit)
}
