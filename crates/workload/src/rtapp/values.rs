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

    /// Returns the error that `message` is wrong here; the file is filled in by who knows it.
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

/// Returns an integer as `json_object_get_int()` reads it: what is beyond 32 bits is the nearest that is not.
pub(super) fn int(node: &Node, place: &Place) -> Result<i32> {
    match node.value {
        Value::Int(n) => Ok(n.clamp(i32::MIN.into(), i32::MAX.into()) as i32),
        ref other => Err(place.error(format!("must be an integer, not {}", other.kind()))),
    }
}

/// Returns an integer in a range.
pub(super) fn integer(node: &Node, place: &Place, min: i32, max: i32) -> Result<i32> {
    let n = int(node, place)?;
    if (min..=max).contains(&n) {
        return Ok(n);
    }
    Err(place.error(format!("must be from {min} to {max}, not {n}")))
}

/// Returns an amount that C makes endless where it is below zero, since it ends up in an unsigned type.
pub(super) fn amount(node: &Node, place: &Place) -> Result<Option<u64>> {
    int(node, place).map(|n| u64::try_from(n).ok())
}

/// Returns a list of numbers from 0 on. rt-app asks each item for its number, whatever it is
/// (`json_object_get_int()`).
pub(super) fn numbers(node: &Node, place: &Place) -> Result<Vec<u32>> {
    let Value::Array(items) = &node.value else {
        return Err(place.error(format!(
            "must be a list of integers, not {}",
            node.value.kind()
        )));
    };
    let number = |item: &Node| {
        let n = match &item.value {
            Value::Int(n) => *n,
            Value::Bool(flag) => i64::from(*flag),
            Value::String(text) => leading(text),
            // As a cast does; what is no number in C, either, is refused below.
            Value::Other(text) => text
                .trim_end_matches(['e', 'E', '-', '+'])
                .parse()
                .map_or(-1, |n: f64| if n.is_nan() { -1 } else { n as i64 }),
            Value::Null | Value::Array(_) | Value::Object(_) => 0,
        };
        u32::try_from(n)
            .ok()
            .filter(|&n| n <= 65_535)
            .ok_or_else(|| place.error(format!("has an item that is not from 0 to 65535: {n}")))
    };
    items.iter().map(number).collect()
}

/// Returns the number that a text begins with (strtoll()), or 0.
fn leading(text: &str) -> i64 {
    let text = text.trim_start_matches([' ', '\t', '\n', '\r', '\u{b}', '\u{c}']);
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let nr_digits = digits.bytes().take_while(u8::is_ascii_digit).count();
    let end = text.len() - digits.len() + nr_digits;
    let limit = if text.starts_with('-') {
        i64::MIN
    } else {
        i64::MAX
    };
    match nr_digits {
        0 => 0,
        _ => text[..end].parse().unwrap_or(limit),
    }
}
