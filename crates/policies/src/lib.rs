//! The schedulers: finds, compiles and embeds `policies/*.bpf.c`, and compiles policies of others.
//!
//! A policy is registered by existing. Nothing here knows one by name.
#![forbid(unsafe_code)]

pub mod clang;
pub mod compile;
mod diagnostics;
pub mod doc;
pub mod exec;
mod for_bpf;
pub mod kept;
pub mod objects;
mod older;
mod prerequisites;
mod said;
mod select;
mod sidecar;

use std::sync::{Arc, OnceLock};

pub use compile::compile;
pub use diagnostics::Diagnostics;
pub use doc::PolicyDoc;
pub use for_bpf::{FindHeaders, use_headers as use_bpf_headers};
use schedlab_abi::NativeObject;
pub use select::{SelectError, Selection, doc, select, select_watched, spelled_out};

mod embedded {
    include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
}

/// A policy that comes with the program.
#[derive(Debug)]
pub struct PolicyFile {
    /// Its name: the file's, without `.bpf.c`.
    pub name: &'static str,
    /// Its C source, for the BPF build and for reading.
    pub source: &'static str,
    elf: &'static [u8],
    object: OnceLock<Arc<NativeObject>>,
}

impl PolicyFile {
    /// Returns the policy compiled for the virtual kernel.
    ///
    /// # Panics
    /// If it is not one; a test loads each.
    pub fn object(&self) -> Arc<NativeObject> {
        let object = self.object.get_or_init(|| {
            NativeObject::from_elf(self.name, self.source, self.elf.to_vec())
                .unwrap_or_else(|error| panic!("{error}"))
        });
        Arc::clone(object)
    }

    /// Returns the text of its header comment.
    pub fn doc(&self) -> PolicyDoc {
        PolicyDoc::parse(self.source)
    }
}

/// Returns the policies that come with the program, by name.
pub fn builtin() -> &'static [PolicyFile] {
    static FILES: OnceLock<Vec<PolicyFile>> = OnceLock::new();
    FILES.get_or_init(|| {
        let files = embedded::FILES.iter();
        let file =
            |&(name, source, elf): &(&'static str, &'static str, &'static [u8])| PolicyFile {
                name,
                source,
                elf,
                object: OnceLock::new(),
            };
        files.map(file).collect()
    })
}

/// Returns the policy of that name that comes with the program.
pub fn find(name: &str) -> Option<&'static PolicyFile> {
    builtin().iter().find(|file| file.name == name)
}

/// Returns the headers below `include/`, as (path, text): the native world's in `native/`, the library that policies
/// share in `lab/`.
pub fn headers() -> &'static [(&'static str, &'static str)] {
    embedded::HEADERS
}
