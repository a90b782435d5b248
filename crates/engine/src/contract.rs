//! The contract between the virtual kernel and its users: scenarios and their outcome, policies and their requests.

pub mod consts;
pub(crate) mod facts;
pub(crate) mod ids;
pub mod mutation;
pub(crate) mod op;
pub(crate) mod op_context;
pub(crate) mod op_kind;
pub mod outcome;
pub mod policy;
pub(crate) mod request;
pub mod scenario;
pub(crate) mod this_cpu;
pub mod version;
