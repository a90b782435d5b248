//! The status of a command, which becomes the program's exit code.

/// How a command ended that could do its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// As it should.
    Done,
    /// A run failed or its scheduler was ejected; the results say so.
    Failed,
    /// With the exit code of a command that was run.
    #[cfg(feature = "kernel")]
    Code(u8),
}
