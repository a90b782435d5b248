//! `import`: a recording as a workload file.

use schedlab_recording::page;

use crate::args::ImportArgs;
use crate::output::{one_file_each, print};
use crate::recording::{costs, cut, inferred, write};
use crate::status::Status;

pub fn run(args: &ImportArgs) -> anyhow::Result<Status> {
    one_file_each(&[("-o", Some(args.out.as_path()))], [&args.recording])?;
    let options = cut(&args.cut, costs(&args.reading)?)?;
    let file = inferred(&args.recording, &options)?;
    write(&file, &args.out)?;
    print(page::show(&args.out.display().to_string(), &file, None))?;
    Ok(Status::Done)
}
