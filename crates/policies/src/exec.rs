//! Schedulers by their own loaders: `exec:PROGRAM ARGUMENTS…`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use schedlab_abi::{KernelVersion, Object, Recorder, kconfig};
use schedlab_loader::{Facts, Order, RecordError, record};
use schedlab_machine::Machine;

use crate::{Selection, objects};

/// A loader that does nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(30);

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
}

/// Runs a loader on a machine until it has attached its scheduler, and makes an object of what it has loaded.
///
/// # Errors
/// If it does not come that far, or loads what the virtual kernel does not have.
pub fn select(
    command: &str,
    machine: &Machine,
    version: KernelVersion,
) -> Result<Selection, ExecError> {
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
    let order = Order {
        program: program.into(),
        arguments: arguments.iter().map(Into::into).collect(),
        folder: std::env::current_dir().unwrap_or_default(),
        patience: PATIENCE,
    };
    let mut recorder = Recorder::new(&name, types, machine, version);
    let transcript = record(&order, &facts, &mut recorder).map_err(|reason| ExecError::Record {
        command: of_command(),
        reason,
    })?;
    drop(recorder);
    let object = Object::from_transcript(&name, &transcript, types);
    let object = object.map_err(|errors| ExecError::Object {
        command: of_command(),
        reason: errors.to_string().replace(&format!("{name}: "), ""),
    })?;
    let mut sum = crc32fast::Hasher::new();
    std::hash::Hash::hash(&transcript, &mut sum);
    // The loader has run what it needs of `SEC("syscall")`.
    let left_out = object
        .left_out()
        .iter()
        .filter(|it| it.section != "syscall");
    let mut notes: Vec<String> = left_out
        .map(|it| objects::left_out(it, Path::new(program)))
        .collect();
    notes.push(format!(
        "{name}: its loader is ended where it has attached the scheduler: what it does later is not simulated"
    ));
    let settings = object.settings(&[]).unwrap_or_default();
    Ok(Selection {
        object,
        settings,
        warnings: Arc::from(notes),
        sum: Some(sum.finalize()),
    })
}
