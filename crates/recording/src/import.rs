//! A recording as a workload file.

use crate::{About, Costs, Inference, Inferred, RecordingError, Select, read};

/// How a recording is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Which tasks are the program.
    pub select: Select,
    /// The simulated machine's own paths.
    pub costs: Costs,
    /// Whether the kernel shared CPUs out by session (`sched_autogroup_enabled`): nice levels count within one then, so
    /// tasks beside the program are as urgent as it is.
    pub autogroup: bool,
    /// From when, in ns from the first event.
    pub from_ns: u64,
    /// Until when, in ns from the first event.
    pub to_ns: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            select: Select::Command,
            costs: Costs::default(),
            autogroup: false,
            from_ns: 0,
            to_ns: u64::MAX,
        }
    }
}

/// Reads a recording and infers its program. If it has no command of the recorder, or only `sleep`, the program is all
/// tasks, and the file is read once more.
///
/// # Errors
/// As [`read`] and [`Inference::finish`].
pub fn import(path: &str, options: &Options) -> Result<(Inferred, About), RecordingError> {
    let once = |select: Select| {
        let mut inference = Inference::new(select, options.costs)
            .cut(options.from_ns, options.to_ns)
            .autogroup(options.autogroup);
        let about = read(path, &mut |event| inference.event(event))?;
        Ok((inference, about))
    };
    let (mut inference, mut about) = once(options.select)?;
    if options.select == Select::Command && !inference.has_command() {
        (inference, about) = once(Select::All)?;
    }
    let inferred = inference.finish(path, &about)?;
    Ok((inferred, about))
}
