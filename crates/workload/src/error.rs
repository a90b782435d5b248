//! Faults of a workload's notation.

use schedlab_trace::nearest;

/// Why there is no workload. Every message names what would be right.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// No model has this name.
    #[error("unknown workload `{name}`{}; there are: {}, or the path of an rt-app file (*.json)", nearest(.name, .choices), .choices.join(", "))]
    UnknownWorkload {
        /// The requested name.
        name: String,
        /// The known names.
        choices: Vec<&'static str>,
    },
    /// The workload takes no such option.
    #[error("workload `{workload}` has no option `{option}`{}; it takes: {}", nearest(.option, .choices), .choices.join(", "))]
    UnknownOption {
        /// The workload.
        workload: String,
        /// The given option.
        option: String,
        /// The options that exist.
        choices: Vec<&'static str>,
    },
    /// An option without `=`, given twice, or empty.
    #[error("workload `{workload}`: {message}; write `{workload}:option=value,option=value`")]
    Syntax {
        /// The workload.
        workload: String,
        /// The fault.
        message: String,
    },
    /// The option's value cannot be used.
    #[error("workload `{workload}`: `{option}={value}` is not possible: {expected}")]
    BadValue {
        /// The workload.
        workload: String,
        /// The option.
        option: String,
        /// The value that was given.
        value: String,
        /// The values that it takes.
        expected: String,
    },
    /// Workloads beside each other that have the same name.
    #[error(
        "`{text}`: {message}; write `one:option=value + other`, a name with ` + ` in it in double quotation marks"
    )]
    Composition {
        /// The requested workload.
        text: String,
        /// The fault.
        message: String,
    },
    /// Options that cannot go together.
    #[error("workload `{workload}`: {message}")]
    Contradiction {
        /// The workload.
        workload: String,
        /// The fault and the remedy.
        message: String,
    },
    /// Something in a workload file is wrong.
    #[error("{file}:{line}: {}{message}", if .path.is_empty() { String::new() } else { format!("`{path}`: ") })]
    File {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The keys that lead there, joined by dots.
        path: String,
        /// The fault and the remedy.
        message: String,
    },
    /// A workload file could not be read.
    #[error("cannot read the workload file `{path}`: {cause}")]
    Unreadable {
        /// The file.
        path: String,
        /// The reason. The message includes it, so it is no `source()`, which would be printed once more.
        cause: std::io::Error,
    },
}
