//! Schedulers by their own loaders: `exec:PROGRAM ARGUMENTS…`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use schedlab_abi::{KernelVersion, NativeObject, ObjectErrors, Recorder, kconfig};
use schedlab_loader::{Facts, Order, Patience, RecordError};
use schedlab_machine::Machine;

use crate::compile;
use crate::diagnostics::Diagnostics;
use crate::kept::Entry;
use crate::{Selection, objects};

/// A loader that is at work uses a CPU or asks for something. One that polls does so for ever.
const PATIENCE: Patience = Patience {
    idle: Duration::from_secs(30),
    whole: Duration::from_mins(10),
};

/// Why a loader leads to no scheduler.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The command is none.
    #[error("exec:{command}: write exec: and a program with its arguments, quoted as in a shell")]
    Command { command: String },
    /// The loader did not come to its end.
    #[error("exec:{command}: {reason}")]
    Record {
        command: String,
        reason: RecordError,
    },
    /// The virtual kernel cannot have what it loads.
    #[error("exec:{command}: {reason}")]
    Object { command: String, reason: String },
    /// There is no place for the virtual kernel's files.
    #[error("exec:{command}: {reason}")]
    Place {
        command: String,
        reason: Diagnostics,
    },
}

/// A scheduler by its own loader.
pub struct Selected {
    pub selection: Selection,
    /// The loader did not run: what it does was known.
    pub is_kept: bool,
}

/// Runs a loader on a machine until it has attached its scheduler, and makes an object of what it has loaded. Transcripts are kept
/// in a folder, if one is given ([`crate::kept`]).
///
/// # Errors
/// If it does not come that far, or loads what the virtual kernel does not have.
pub fn select(
    command: &str,
    machine: &Machine,
    version: KernelVersion,
    kept: Option<&Path>,
) -> Result<Selected, ExecError> {
    let of_command = || command.to_owned();
    let words = shlex::split(command).filter(|words| !words.is_empty());
    let words = words.ok_or_else(|| ExecError::Command {
        command: of_command(),
    })?;
    let (program, arguments) = words.split_first().expect("there is one");
    let name = Path::new(program)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let types = objects::kernel_types();
    let release = format!("{}.0", version.name());
    let config = kconfig::configuration(machine, version);
    let facts = Facts {
        machine,
        release: &release,
        config: &config,
        types: types.of(version),
    };
    let mut order = Order {
        program: program.into(),
        arguments: arguments.iter().map(Into::into).collect(),
        folder: std::env::current_dir().unwrap_or_default(),
        files: PathBuf::new(),
        patience: PATIENCE,
        is_ending: compile::is_ending,
    };
    let entry = kept.and_then(|folder| Entry::of(folder, &order, &facts));
    let known = entry.as_ref().and_then(Entry::read);
    let is_kept = known.is_some();
    let record = match known {
        Some(record) => record,
        None => {
            let place = compile::private_folder().map_err(|reason| ExecError::Place {
                command: of_command(),
                reason,
            })?;
            place.path().clone_into(&mut order.files);
            let mut recorder = Recorder::new(&name, types, machine, version);
            let recorded = schedlab_loader::record(&order, &facts, &mut recorder);
            drop(place);
            let recorded = recorded.map_err(|reason| ExecError::Record {
                command: of_command(),
                reason,
            })?;
            if let Some(entry) = &entry {
                entry.write(&recorded);
            }
            recorded
        }
    };
    let transcript = &record.transcript;
    let object = NativeObject::from_transcript(&name, transcript, types);
    let object = object.map_err(|errors| ExecError::Object {
        command: of_command(),
        reason: told(&name, &errors),
    })?;
    let sum =
        crc32fast::hash(&postcard::to_stdvec(transcript).expect("it is made of numbers and bytes"));
    // The loader has run what it needs of `SEC("syscall")`.
    let left_out = object
        .left_out()
        .iter()
        .filter(|it| it.section != "syscall");
    let mut notes: Vec<String> = left_out
        .map(|it| objects::left_out(it, Path::new(program)))
        .collect();
    notes.extend(record.notes.iter().map(|note| format!("{name}: {note}")));
    notes.push(format!(
        "{name}: its loader is ended where it has attached the scheduler: what it does later is not simulated"
    ));
    let settings = object.settings(&[]).unwrap_or_default();
    let selection = Selection {
        object,
        settings,
        warnings: Arc::from(notes),
        sum: Some(sum),
        unwatched: None,
    };
    Ok(Selected { selection, is_kept })
}

/// The errors of an object; the command says which one it is.
fn told(name: &str, errors: &ObjectErrors) -> String {
    let own = format!("{name}: ");
    let lines = errors.0.iter().map(|error| {
        let text = error.to_string();
        text.strip_prefix(&own).unwrap_or(&text).to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}
