//! Choosing a scheduler as users write it: `name`, `name:key=value,…` or a path to a `.bpf.c` file
//! with the same options. A name may be that of a point, which stands for a policy with options.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use schedlab_abi::{
    KernelVersion, LoadError, NativePolicy, Object, OptionError, Settings, compiler,
};
use schedlab_machine::Machine;

use crate::PolicyDoc;
use crate::compile::{self, Compiled, Diagnostics};

/// A scheduler with its options, ready to be loaded as often as one likes.
#[derive(Clone, Debug)]
pub struct Selection {
    /// What the user wrote.
    pub text: String,
    /// The compiled policy.
    pub object: Arc<Object>,
    /// Its options.
    pub settings: Settings,
}

impl Selection {
    /// Loads a private copy for one run.
    ///
    /// # Errors
    /// As [`NativePolicy::load`].
    pub fn load(
        &self,
        machine: &Machine,
        version: KernelVersion,
    ) -> Result<NativePolicy, LoadError> {
        NativePolicy::load(&self.object, &self.settings, machine, version)
    }
}

/// Why a scheduler cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// No such scheduler.
    #[error(
        "no scheduler is called {name}: choose one of {known}, or give the path of a .bpf.c file"
    )]
    Unknown {
        /// What was asked for.
        name: String,
        /// The schedulers there are.
        known: String,
    },
    /// The source does not compile.
    #[error(transparent)]
    Source(#[from] Diagnostics),
    /// An option is wrong.
    #[error(transparent)]
    Option(#[from] OptionError),
}

/// The policy and the options that the name of a point stands for; options that are given beside it come
/// in place of its own. `None` where the name is not one of a point.
pub fn point(name: &str, options: &str) -> Option<(&'static str, String)> {
    let found = crate::builtin().iter().find_map(|file| {
        let points = file.doc().points;
        let point = points.into_iter().find(|(known, _)| known == name)?;
        Some((file.name, point.1))
    });
    let (policy, own) = found?;
    let key = |part: &str| part.split('=').next().unwrap_or_default().trim().to_owned();
    let given: Vec<String> = options.split(',').map(key).collect();
    let mut all: Vec<&str> = own
        .split(',')
        .filter(|part| !given.contains(&key(part)))
        .collect();
    all.extend(options.split(',').filter(|part| !part.is_empty()));
    Some((policy, all.join(",")))
}

/// What the head of a policy's source says; `name` is a policy's or the path of one.
///
/// # Errors
/// If the path cannot be read.
pub fn doc(name: &str) -> Result<PolicyDoc, SelectError> {
    if let Some(file) = crate::find(name) {
        return Ok(file.doc());
    }
    let source = fs::read_to_string(name).map_err(|error| Diagnostics {
        lines: vec![format!("{name}: {error}")],
    })?;
    Ok(PolicyDoc::parse(&source))
}

/// Compiles the policy at a path, once as long as its source and headers stay the same, however often it is asked
/// for with whatever options.
fn compiled(path: &Path) -> Result<(Arc<Object>, u32), Diagnostics> {
    static COMPILED: Mutex<BTreeMap<PathBuf, Compiled>> = Mutex::new(BTreeMap::new());
    // Whoever else asks meanwhile waits: nearly always for the same, which would be compiled twice.
    let mut all = COMPILED.lock().expect("compiling does not panic");
    if let Some(known) = all.get(path).filter(|known| known.is_current()) {
        return Ok((Arc::clone(&known.object), known.sum));
    }
    let compiled = compile::compiled(path, &compiler::default_compiler())?;
    let answer = (Arc::clone(&compiled.object), compiled.sum);
    all.insert(path.to_owned(), compiled);
    Ok(answer)
}

/// Whether a scheduler is asked for by the path of its source.
fn is_path(name: &str) -> bool {
    name.ends_with(".c") || name.contains('/')
}

/// The check sum of a policy's source and of the headers that it includes; `None` of one that comes with the
/// program.
///
/// # Errors
/// If it does not compile.
pub fn sum(name: &str) -> Result<Option<u32>, SelectError> {
    match is_path(name) {
        true => Ok(Some(compiled(Path::new(name))?.1)),
        false => Ok(None),
    }
}

/// Finds or compiles the scheduler that `text` names and reads its options.
///
/// # Errors
/// If there is no such scheduler, it does not compile, or an option is wrong.
pub fn select(text: &str) -> Result<Selection, SelectError> {
    let (name, options) = text.split_once(':').unwrap_or((text, ""));
    // Nearly every name is a policy's.
    let found = match crate::find(name) {
        Some(_) => None,
        None => point(name, options),
    };
    let (name, options) = match &found {
        Some((policy, options)) => (*policy, options.as_str()),
        None => (name, options),
    };
    let object = if is_path(name) {
        compiled(Path::new(name))?.0
    } else {
        match crate::find(name) {
            Some(file) => file.object(),
            None => {
                let known: Vec<&str> = crate::builtin().iter().map(|file| file.name).collect();
                return Err(SelectError::Unknown {
                    name: name.to_owned(),
                    known: known.join(", "),
                });
            }
        }
    };
    let settings = object.settings(options)?;
    Ok(Selection {
        text: text.to_owned(),
        object,
        settings,
    })
}
