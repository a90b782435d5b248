//! Reads ejections from schedlab's own results (`--json`).

use std::sync::LazyLock;

use regex::Regex;
use serde::Deserialize;

use crate::dump::{Ejection, Kind};
use crate::pattern::pattern;
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
    let (message, place) = message_of(kind, message.unwrap_or_default());
    message.clone_into(&mut ejection.message);
    ejection.place = place.map(str::to_owned);
    ejection.exit_code = exit_code;
    // It is all of the dump that there is.
    ejection.has_end = ejection.has_states;
    Some(ejection)
}

/// Returns the kernel's message and the place from a result's `reason, code 0x1 (message), in ops.enqueue at FILE:LINE`
/// (of the simulator) or `…, called at FILE:LINE` (of a kernel), any part of which may be missing. Behind the message of a
/// stall, the place where the task waits may stand, which is not of the scheduler's source.
fn message_of(kind: Kind, message: &str) -> (&str, Option<&str>) {
    static PLACE: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?s)^(.*), (?:(in (?:ops\.\w+|a timer callback)(?: at [^\n]+)?)|called (at [^\n]+))$",
        )
    });
    static STALL: LazyLock<Regex> = LazyLock::new(|| {
        pattern(r"(?s)^(.*(?:failed to run|failed to check in) for \d+\.\d{3}s\)): ")
    });
    let Some(rest) = message.strip_prefix(kind.reason()) else {
        return (message, None);
    };
    let found = PLACE.captures(rest);
    let (told, place) = match &found {
        Some(found) => (found.get(1), found.get(2).or(found.get(3))),
        None if kind == Kind::ErrorStall => {
            (STALL.captures(rest).and_then(|found| found.get(1)), None)
        }
        None => (None, None),
    };
    let told = told.map_or(rest, |told| told.as_str());
    let inner = told.find('(').map(|at| told[at + 1..].trim_end());
    let inner = match inner {
        Some(inner) => inner.strip_suffix(')').unwrap_or(inner),
        None => "",
    };
    (inner, place.map(|place| place.as_str()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_beside_the_kernel_s_words_is_told_apart() {
        let of = |text| message_of(Kind::Error, text);
        assert_eq!(
            of("runtime error (invalid CPU -3), in ops.enqueue at mine.bpf.c:12 (mine_enqueue)"),
            (
                "invalid CPU -3",
                Some("in ops.enqueue at mine.bpf.c:12 (mine_enqueue)")
            )
        );
        assert_eq!(
            of("runtime error (invalid CPU 9 (of 8)), in a timer callback"),
            ("invalid CPU 9 (of 8)", Some("in a timer callback"))
        );
        // A kernel's place is from the dump's stack.
        assert_eq!(
            of("runtime error (invalid CPU 9 (of 8)), called at /a,b/x y.bpf.c:12 (x_enqueue)"),
            (
                "invalid CPU 9 (of 8)",
                Some("at /a,b/x y.bpf.c:12 (x_enqueue)")
            )
        );
        assert_eq!(
            message_of(
                Kind::ErrorStall,
                "runnable task stall (a (b)[11] failed to run for 5.000s): it is in DSQ 0x1 (x)"
            ),
            ("a (b)[11] failed to run for 5.000s", None)
        );
        assert_eq!(
            of("runtime error (invalid CPU -3)"),
            ("invalid CPU -3", None)
        );
        assert_eq!(of("runtime error"), ("", None));
        assert_eq!(
            message_of(
                Kind::UnregBpf,
                "unregistered from BPF, code 0x5 (left), in ops.init at m.bpf.c:3"
            ),
            ("left", Some("in ops.init at m.bpf.c:3"))
        );
    }
}
