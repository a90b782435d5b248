//! The fields of a protobuf message by their numbers: few are wanted of very many.

use quick_protobuf::BytesReader;

/// The value of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value<'a> {
    /// Of a number of any size.
    Number(u64),
    /// Of a text, of a message, or of many numbers.
    Bytes(&'a [u8]),
}

/// All fields of a message in their order; the last one is `None` if the message is damaged.
pub(super) fn fields(bytes: &[u8]) -> impl Iterator<Item = Option<(u32, Value<'_>)>> {
    placed(bytes).map(|field| field.map(|(_, number, value)| (number, value)))
}

/// All fields as [`fields`], each with the offset of its begin.
pub(super) fn placed(bytes: &[u8]) -> impl Iterator<Item = Option<(usize, u32, Value<'_>)>> {
    let mut reader = BytesReader::from_bytes(bytes);
    let mut is_damaged = false;
    std::iter::from_fn(move || {
        if reader.is_eof() || is_damaged {
            return None;
        }
        let at = bytes.len() - reader.len();
        let field = field(&mut reader, bytes);
        is_damaged = field.is_none();
        Some(field.map(|(number, value)| (at, number, value)))
    })
}

fn field<'a>(reader: &mut BytesReader, bytes: &'a [u8]) -> Option<(u32, Value<'a>)> {
    let tag = reader.next_tag(bytes).ok()?;
    let value = match tag & 7 {
        0 => Value::Number(reader.read_varint64(bytes).ok()?),
        1 => Value::Number(reader.read_fixed64(bytes).ok()?),
        2 => Value::Bytes(reader.read_bytes(bytes).ok()?),
        5 => Value::Number(u64::from(reader.read_fixed32(bytes).ok()?)),
        _ => return None,
    };
    (tag >> 3 > 0).then_some((tag >> 3, value))
}

/// Many numbers in one field; `None` if they are damaged.
pub(super) fn numbers(value: Value<'_>) -> Option<Vec<u64>> {
    let bytes = match value {
        Value::Number(number) => return Some(vec![number]),
        Value::Bytes(bytes) => bytes,
    };
    let mut reader = BytesReader::from_bytes(bytes);
    let mut all = Vec::new();
    while !reader.is_eof() {
        all.push(reader.read_varint64(bytes).ok()?);
    }
    Some(all)
}

/// Returns the first of many numbers, `Some(None)` without any; `None` if it is damaged.
pub(super) fn first_number(value: Value<'_>) -> Option<Option<u64>> {
    match value {
        Value::Number(number) => Some(Some(number)),
        Value::Bytes([]) => Some(None),
        Value::Bytes(bytes) => {
            let mut reader = BytesReader::from_bytes(bytes);
            reader.read_varint64(bytes).ok().map(Some)
        }
    }
}

/// Whether the bytes are whole fields, but for the last if `is_cut`, and any.
pub(super) fn is_message(bytes: &[u8], is_cut: bool) -> bool {
    let mut read = 0;
    for field in fields(bytes) {
        match field {
            Some(_) => read += 1,
            None => return is_cut && read > 0,
        }
    }
    read > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_numbers_or_bytes() {
        let bytes = [
            0x08, 0x96, 0x01, 0x12, 2, 7, 9, 0x1d, 1, 0, 0, 0, 0x21, 2, 0, 0, 0, 0, 0, 0, 0,
        ];
        let all: Option<Vec<_>> = fields(&bytes).collect();
        let expected = [
            (1, Value::Number(150)),
            (2, Value::Bytes(&[7, 9])),
            (3, Value::Number(1)),
            (4, Value::Number(2)),
        ];
        assert_eq!(all.unwrap(), expected);
        assert_eq!(numbers(expected[1].1), Some(vec![7, 9]));
        assert_eq!(numbers(Value::Bytes(&[0x96])), None);
        let places: Vec<_> = placed(&bytes).flatten().map(|(at, ..)| at).collect();
        assert_eq!(places, [0, 3, 7, 12]);
        assert_eq!(first_number(expected[1].1), Some(Some(7)));
        assert_eq!(first_number(Value::Bytes(&[])), Some(None));
        assert_eq!(first_number(Value::Bytes(&[0x96])), None);
    }

    #[test]
    fn damage_ends_a_message() {
        for bytes in [
            &[0x08][..],
            &[0x12, 3, 1],
            &[0x0b, 1],
            &[0x00, 1],
            &[0x08, 0xff],
        ] {
            let all: Vec<_> = fields(bytes).collect();
            assert_eq!(all, [None], "{bytes:?}");
        }
        assert!(is_message(&[0x08, 1, 0x12, 3], true));
        assert!(!is_message(&[0x08, 1, 0x12, 3], false));
        assert!(!is_message(&[], false));
    }
}
