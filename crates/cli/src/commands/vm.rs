//! `vm`: a command in a virtual machine.

use crate::args::VmArgs;
use crate::real;
use crate::status::Status;

pub fn run(args: &VmArgs) -> anyhow::Result<Status> {
    real::in_vm(args.cpus, args.time_limit, &args.command)
}
