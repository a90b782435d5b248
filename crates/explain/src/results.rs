//! Reads ejections from schedlab's own results (`--json`).

use serde::Deserialize;

use crate::dump::{Ejection, Kind};
use crate::read;

#[derive(Deserialize)]
struct Document {
    results: Vec<Result>,
}

#[derive(Deserialize)]
struct Result {
    scheduler: String,
    exit: String,
    message: Option<String>,
    exit_code: Option<i64>,
    #[serde(default)]
    dump: String,
}

/// Returns the kinds by the names that results give them.
fn kind(exit: &str) -> Option<Kind> {
    Some(match exit {
        "unreg" => Kind::Unreg,
        "unreg_bpf" => Kind::UnregBpf,
        "unreg_kern" => Kind::UnregKern,
        "sysrq" => Kind::Sysrq,
        "error" => Kind::Error,
        "error_bpf" => Kind::ErrorBpf,
        "error_stall" => Kind::ErrorStall,
        "fault" => Kind::Fault,
        _ => return None,
    })
}

/// Returns the ejection that one result reports, or `None` if its scheduler was not ejected.
pub fn ejection(
    scheduler: &str,
    exit: &str,
    message: Option<&str>,
    exit_code: Option<i64>,
    dump: &str,
) -> Option<Ejection> {
    let kind = kind(exit)?;
    let told = read::read(dump.as_bytes()).ejections.pop();
    let mut ejection = told.unwrap_or_default();
    ejection.scheduler = Some(scheduler.to_owned());
    ejection.kind = Some(kind);
    message_of(kind, message.unwrap_or_default()).clone_into(&mut ejection.message);
    ejection.exit_code = exit_code;
    // It is all of the dump that there is.
    ejection.has_end = ejection.has_states;
    Some(ejection)
}

/// Returns the kernel's message from a result's `reason, code 0x1 (message)`, any part of which may be missing.
fn message_of(kind: Kind, message: &str) -> &str {
    let Some(rest) = message.strip_prefix(kind.reason()) else {
        return message;
    };
    let inner = rest.find('(').map(|at| rest[at + 1..].trim_end());
    match inner {
        Some(inner) => inner.strip_suffix(')').unwrap_or(inner),
        None => "",
    }
}

/// Reads a document; `None` if it is not schedlab's.
pub fn read_document(bytes: &[u8]) -> Option<Vec<Ejection>> {
    let document: Document = serde_json::from_slice(bytes).ok()?;
    let one = |result: &Result| {
        ejection(
            &result.scheduler,
            &result.exit,
            result.message.as_deref(),
            result.exit_code,
            &result.dump,
        )
    };
    Some(document.results.iter().filter_map(one).collect())
}
