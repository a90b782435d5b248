//! Choosing a scheduler by the name of a policy or of a point, which stands for a policy with options, or by the path
//! of a `.bpf.c` file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use schedlab_abi::{
    KernelVersion, LoadError, NativeObject, NativePolicy, OptionError, Settings, Watch, compiler,
};
use schedlab_machine::Machine;
use schedlab_trace::{Scheduler, nearest_of};

use crate::compile::{self, Compiled};
use crate::diagnostics::Diagnostics;
use crate::{PolicyDoc, PolicyFile, objects};

/// A scheduler with its options, ready to be loaded as often as one likes.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The compiled policy.
    pub object: Arc<NativeObject>,
    /// Its options.
    pub settings: Settings,
    /// The compiler's warnings: lines for people. A policy that comes with the program has none.
    pub warnings: Arc<[String]>,
    /// The check sum of the source that it was compiled of and of the headers that it includes; `None` of one that
    /// comes with the program.
    pub sum: Option<u32>,
    /// Of an object that [`select_watched`] has found: why it is not watched, lines for people.
    pub(crate) unwatched: Option<Arc<[String]>>,
}

impl Selection {
    /// Returns the same policy with other options, whatever its source says by now.
    ///
    /// # Errors
    /// If an option is wrong.
    pub fn with_options(&self, options: &[(String, String)]) -> Result<Selection, SelectError> {
        Ok(Selection {
            settings: self.object.settings(options)?,
            ..self.clone()
        })
    }

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

    /// Loads a private copy for one run in which it is watched, of what [`select_watched`] has found. An object is not looked
    /// at for races.
    ///
    /// # Errors
    /// As [`NativePolicy::load`], or if an object is to be audited.
    pub fn load_watched(
        &self,
        machine: &Machine,
        version: KernelVersion,
        watch: Watch,
    ) -> Result<NativePolicy<true>, LoadError> {
        match &self.unwatched {
            Some(lines) if watch.payment => Err(LoadError::Unwatched {
                reason: lines.join("\n"),
            }),
            _ => NativePolicy::load_watched(&self.object, &self.settings, machine, version, watch),
        }
    }
}

/// Why a scheduler cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// No such scheduler.
    #[error(
        "no scheduler is called {name}{}: choose one of {known}, or give the path of a .bpf.c or .bpf.o file",
        nearest_of(.name, .known)
    )]
    Unknown {
        /// The requested name.
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
    /// A scheduler of its own loader is asked for without a machine ([`crate::exec::select`]).
    #[error(
        "{name} has no options here, and can be neither listed nor swept: give the loader its own arguments"
    )]
    Loader {
        /// The scheduler as it was asked for.
        name: String,
    },
}

/// With the name of a point replaced by the policy and the options that it stands for; options that are given
/// beside it come in place of its own.
pub fn spelled_out(scheduler: &Scheduler) -> Scheduler {
    // Nearly every name is a policy's.
    if crate::find(&scheduler.name).is_some() {
        return scheduler.clone();
    }
    let found = crate::builtin().iter().find_map(|file| {
        let points = file.doc().points;
        let point = points
            .into_iter()
            .find(|(known, _)| *known == scheduler.name)?;
        Some((file.name, Scheduler::parse_options(&point.1)))
    });
    let Some((policy, mut options)) = found else {
        return scheduler.clone();
    };
    options.retain(|(key, _)| scheduler.options.iter().all(|(given, _)| given != key));
    options.extend(scheduler.options.iter().cloned());
    Scheduler {
        name: policy.to_owned(),
        options,
    }
}

/// Reads the head of a policy's source; `name` is a policy's or the path of one.
///
/// # Errors
/// If the path cannot be read.
pub fn doc(name: &str) -> Result<PolicyDoc, SelectError> {
    if let Some(file) = crate::find(name) {
        return Ok(file.doc());
    }
    if objects::is_object(Path::new(name)) || Scheduler::plain(name).exec().is_some() {
        return Ok(PolicyDoc::parse(""));
    }
    let source = fs::read_to_string(name).map_err(|error| Diagnostics {
        lines: vec![format!("{name}: {error}")],
    })?;
    Ok(PolicyDoc::parse(&source))
}

/// Compiles the policy at a path, once as long as its source and headers stay the same, however often it is asked
/// for with whatever options.
fn compiled<A>(
    path: &Path,
    audit: bool,
    answer: impl FnOnce(&Compiled) -> A,
) -> Result<A, Diagnostics> {
    static COMPILED: Mutex<BTreeMap<(PathBuf, bool), Compiled>> = Mutex::new(BTreeMap::new());
    // Other callers wait meanwhile: nearly always for the same policy, which would be compiled twice.
    let mut all = COMPILED.lock().expect("compiling does not panic");
    let key = (path.to_owned(), audit);
    if let Some(known) = all.get(&key).filter(|known| known.is_current()) {
        return Ok(answer(known));
    }
    if objects::runs_as_object(path) {
        let compiled = Compiled::of_object(path, audit)?;
        let answer = answer(&compiled);
        all.insert(key, compiled);
        return Ok(answer);
    }
    let compiler = match audit {
        true => compile::audit_compiler()?,
        false => compiler::default_compiler(),
    };
    let compiled = match compile::compiled(path, &compiler, audit) {
        Ok(native) => match compile::objects_alone(path) {
            Some(told) => Compiled::for_bpf_or(native, path, told, audit),
            None => native,
        },
        Err(refused) if !audit => Compiled::for_bpf(path, refused, audit)?,
        Err(refused) => match compile::compiled(path, &compiler::default_compiler(), false) {
            // Without the calls of the audit, which it knows nothing of.
            Err(plain) => Compiled::for_bpf(path, plain, audit)?,
            Ok(_) => return Err(refused.told),
        },
    };
    let answer = answer(&compiled);
    all.insert(key, compiled);
    Ok(answer)
}

/// Returns a policy that comes with the program, compiled for an audit: once, as it does not change.
fn builtin_audited(file: &'static PolicyFile) -> Result<Arc<NativeObject>, Diagnostics> {
    static COMPILED: Mutex<BTreeMap<&str, Arc<NativeObject>>> = Mutex::new(BTreeMap::new());
    let mut all = COMPILED.lock().expect("compiling does not panic");
    if let Some(known) = all.get(file.name) {
        return Ok(Arc::clone(known));
    }
    let compiler = compile::audit_compiler()?;
    let object = compile::builtin_audited(file.name, file.source, &compiler)?;
    all.insert(file.name, Arc::clone(&object));
    Ok(object)
}

/// Finds or compiles a scheduler and reads its options.
///
/// # Errors
/// If there is no such scheduler, it does not compile, or an option is wrong.
pub fn select(scheduler: &Scheduler) -> Result<Selection, SelectError> {
    find(scheduler, false)
}

/// Returns the same, compiled for an audit and for the checker of races.
///
/// # Errors
/// As [`select`], or if there is no clang ([`compile::audit_compiler`]).
pub fn select_watched(scheduler: &Scheduler) -> Result<Selection, SelectError> {
    find(scheduler, true)
}

fn find(scheduler: &Scheduler, audit: bool) -> Result<Selection, SelectError> {
    let Scheduler { name, options } = spelled_out(scheduler);
    if scheduler.exec().is_some() {
        return Err(SelectError::Loader { name });
    }
    let (object, warnings, sum, unwatched) = if scheduler.is_path() {
        compiled(Path::new(&name), audit, |it| {
            let warnings = Arc::clone(&it.warnings);
            let object = Arc::clone(&it.object);
            (object, warnings, Some(it.sum), it.unwatched.clone())
        })?
    } else {
        match crate::find(&name) {
            Some(file) => {
                let object = match audit {
                    true => builtin_audited(file)?,
                    false => file.object(),
                };
                (object, Arc::default(), None, None)
            }
            None => {
                let known: Vec<&str> = crate::builtin().iter().map(|file| file.name).collect();
                return Err(SelectError::Unknown {
                    name,
                    known: known.join(", "),
                });
            }
        }
    };
    let settings = object.settings(&options)?;
    Ok(Selection {
        object,
        settings,
        warnings,
        sum,
        unwatched,
    })
}
