//! A recorded task: its actions in their order.

use crate::Tid;

/// The actions of a task, with the recording's own numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Raw {
    Run(u64),
    /// Of a task beside the program.
    RunOn {
        ns: u64,
        cpu: u32,
    },
    /// `data`: within a write, of a task within a read.
    Post {
        to: usize,
        post: usize,
        data: bool,
    },
    Wait {
        post: usize,
        ns: u64,
        data: bool,
    },
    /// Data were written or read.
    Transfer(usize),
    /// A write completes a read of that task …
    Token(usize),
    /// … which waits for it.
    Take,
    Sleep(u64),
    Until(u64),
    Device(u64),
    Fork(usize),
    Yield,
    Meet(usize),
}

/// A task.
pub(crate) struct Of {
    pub comm: String,
    pub process: Tid,
    pub prio: i32,
    pub is_member: bool,
    pub is_recorder: bool,
    pub steps: Vec<Raw>,
}
