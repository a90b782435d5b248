//! Instructions of BPF become native code: reading objects, answering CO-RE, verification of the structure, translation by
//! Cranelift, and a plain interpreter to compare with.
//!
//! It knows neither a scheduler nor a simulation: what a kernel has is handed to it ([`link::KernelSymbols`]).

pub mod btf;
pub mod btf_ext;
mod btf_write;
pub mod core_relo;
pub mod elf;
pub mod insn;
pub mod interpret;
pub mod join;
pub mod link;
pub mod originals;
mod private;
pub mod program;
pub mod recorded;
pub mod seen;
pub mod transcript;
pub mod translate;
pub mod verify;
