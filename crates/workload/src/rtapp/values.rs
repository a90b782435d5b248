//! Values at their places in a file, and what is said when one is wrong.

use schedlab_trace::nearest;

use super::json::{Member, Node, Value};
use crate::WorkloadError;

/// A place in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub path: String,
    pub line: usize,
}

impl Place {
    pub fn at(&self, key: &str, line: usize) -> Place {
        let path = match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        };
        Place { path, line }
    }

    /// The error that `message` is wrong here; the file is filled in by who knows it.
    pub fn error(&self, message: impl Into<String>) -> WorkloadError {
        WorkloadError::File {
            file: String::new(),
            line: self.line,
            path: self.path.clone(),
            message: message.into(),
        }
    }
}

pub(super) type Result<T> = std::result::Result<T, WorkloadError>;

/// rt-app keeps numbers in 32 bits.
pub(super) const INT_MAX: u64 = i32::MAX as u64;

pub(super) fn unknown(what: &str, key: &str, known: &[&str]) -> String {
    let choices = known.join(", ");
    format!(
        "there is no {what} `{key}`{}, only {choices}",
        nearest(key, known)
    )
}

pub(super) fn object<'a>(node: &'a Node, place: &Place) -> Result<&'a [Member]> {
    match &node.value {
        Value::Object(members) => Ok(members),
        other => Err(place.error(format!("must be an object, not {}", other.kind()))),
    }
}

pub(super) fn string(node: &Node, place: &Place) -> Result<String> {
    match &node.value {
        Value::String(text) => Ok(text.clone()),
        other => Err(place.error(format!("must be a string, not {}", other.kind()))),
    }
}

pub(super) fn flag(node: &Node, place: &Place) -> Result<bool> {
    match node.value {
        Value::Bool(flag) => Ok(flag),
        ref other => Err(place.error(format!("must be true or false, not {}", other.kind()))),
    }
}

pub(super) fn integer(node: &Node, place: &Place, min: i64, max: i64) -> Result<i64> {
    match node.value {
        Value::Int(n) if (min..=max).contains(&n) => Ok(n),
        Value::Int(n) => Err(place.error(format!("must be from {min} to {max}, not {n}"))),
        ref other => Err(place.error(format!("must be an integer, not {}", other.kind()))),
    }
}

pub(super) fn unsigned(node: &Node, place: &Place) -> Result<u64> {
    integer(node, place, 0, INT_MAX as i64).map(i64::unsigned_abs)
}

/// A `loop`: −1 is for ever.
pub(super) fn loops(node: &Node, place: &Place, min: i64) -> Result<Option<u64>> {
    match node.value {
        Value::Int(0) if min > 0 => Err(place.error(
            "must be -1 (for ever) or at least 1; a phase with 0 would never end in rt-app",
        )),
        _ => Ok(match integer(node, place, -1, INT_MAX as i64)? {
            -1 => None,
            n => Some(n.unsigned_abs()),
        }),
    }
}

pub(super) fn numbers(node: &Node, place: &Place) -> Result<Vec<u32>> {
    let Value::Array(items) = &node.value else {
        return Err(place.error(format!(
            "must be a list of integers, not {}",
            node.value.kind()
        )));
    };
    items
        .iter()
        .map(|item| integer(item, place, 0, 65_535).map(|n| n as u32))
        .collect()
}
