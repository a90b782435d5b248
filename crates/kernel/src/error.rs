//! Errors of the real kernel's side. Each message ends with the remedy.

use std::path::PathBuf;

use schedlab_trace::options::OptionError;

use crate::exit::PolicyExit;

/// Why something on the real kernel's side was not done.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum Error {
    /// Something must be installed or allowed first.
    #[error("{what} is missing: {remedy}")]
    Missing {
        /// The requested action.
        what: String,
        /// The command that cures it.
        remedy: String,
    },
    /// The running kernel cannot do it.
    #[error(
        "this kernel cannot run sched_ext schedulers ({reason}): use --vm, or boot a kernel with CONFIG_SCHED_CLASS_EXT=y"
    )]
    Kernel {
        /// The missing feature.
        reason: String,
    },
    /// Another program's scheduler is loaded. It is never replaced.
    #[error(
        "the scheduler '{name}' is loaded already and is left alone: stop the program that loaded it, then run again"
    )]
    AlreadyLoaded {
        /// Its `ops.name`.
        name: String,
    },
    /// No policy has this name and it is no path to a `.bpf.c` file.
    #[error("{told}")]
    UnknownPolicy {
        /// The known names, or the way to use a file of that name.
        told: String,
    },
    /// A policy's C file does not compile for BPF.
    #[error("{} does not compile for BPF: {diagnostics}", path.display())]
    Compile {
        /// The C file.
        path: PathBuf,
        /// The compiler's first error, with its place, and the remedy.
        diagnostics: String,
    },
    /// An option of a policy has a wrong name or value.
    #[error(transparent)]
    Options(OptionError),
    /// An option of a policy cannot be set, or it lacks a variable.
    #[error("scheduler '{policy}': {problem}")]
    Option {
        /// The policy.
        policy: String,
        /// The fault and the correction.
        problem: String,
    },
    /// The kernel refuses the policy.
    #[error("the kernel rejects '{policy}': {reason} (whole log: {})", log.display())]
    Rejected {
        /// The policy.
        policy: String,
        /// The one line of the log that matters.
        reason: String,
        /// The whole log.
        log: PathBuf,
    },
    /// Nothing can be measured, whatever the scheduler.
    #[error("{0}")]
    Measuring(Box<Error>),
    /// The policy went in, but the kernel does not run it.
    #[error("'{policy}' was loaded, but {problem}")]
    NotAttached {
        /// The policy.
        policy: String,
        /// The kernel's message.
        problem: String,
    },
    /// The policy went in and was thrown out before anybody could look.
    #[error("'{policy}' was loaded, but the kernel ejected it at once: {}", exit.told())]
    Ejected {
        /// The policy.
        policy: String,
        /// Its exit.
        exit: Box<PolicyExit>,
    },
    /// A scheduler's own loader does not load it.
    #[error("exec:{command}: {problem}")]
    Loader {
        /// Its command.
        command: String,
        /// The fault.
        problem: String,
    },
    /// A workload cannot be run as it was asked for.
    #[error("{0}")]
    Workload(String),
    /// A virtual machine did not do what it should.
    #[error("virtual machine: {0}")]
    Vm(String),
    /// A virtual machine did not boot in time.
    #[error("virtual machine: {0}")]
    VmTimeout(String),
    /// A virtual machine booted and did not come to its end: what ran in it is to blame.
    #[error("virtual machine: {0}")]
    VmLost(String),
    /// No kernel for the virtual machine.
    #[error("no kernel for the virtual machine: {0}")]
    NoKernel(String),
    /// A program that is to be measured could not be started.
    #[error("cannot start '{command}': {cause}")]
    Command {
        /// The program to start.
        command: String,
        /// Why not.
        cause: std::io::Error,
    },
    /// A file or device.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// libbpf says no to something other than loading.
    #[error("{doing}: {cause}")]
    Bpf {
        /// The attempted operation.
        doing: String,
        /// Why not.
        cause: libbpf_rs::Error,
    },
}

impl Error {
    /// Returns whether the policy is what is wrong, and another one may well run.
    pub fn is_of_policy(&self) -> bool {
        matches!(
            self,
            Error::UnknownPolicy { .. }
                | Error::Compile { .. }
                | Error::Options(_)
                | Error::Option { .. }
                | Error::Rejected { .. }
                | Error::NotAttached { .. }
                | Error::Ejected { .. }
                | Error::Loader { .. }
        )
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Adds the path to an I/O error.
pub(crate) trait At<T> {
    fn at(self, path: impl Into<PathBuf>) -> Result<T>;
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, path: impl Into<PathBuf>) -> Result<T> {
        self.map_err(|cause| Error::Io {
            path: path.into(),
            cause,
        })
    }
}

/// Adds what was tried to a libbpf error.
pub(crate) trait Doing<T> {
    fn doing(self, what: &str) -> Result<T>;
}

impl<T> Doing<T> for libbpf_rs::Result<T> {
    fn doing(self, what: &str) -> Result<T> {
        self.map_err(|cause| Error::Bpf {
            doing: what.to_owned(),
            cause,
        })
    }
}
