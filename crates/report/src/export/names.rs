//! Names that fit into a column.

use crate::export::lines::width_of;

/// Names keep so many columns on however narrow a terminal.
const NAME_MIN: usize = 12;

/// Returns as many of the first characters as fit into `room` columns.
fn within(chars: impl Iterator<Item = char>, room: usize) -> Vec<char> {
    let mut used = 0;
    let fits = |letter: &char| {
        used += width_of(letter.encode_utf8(&mut [0; 4]));
        used <= room
    };
    chars.take_while(fits).collect()
}

/// Shortens names to `room` by leaving out their middle: the end of a path and the beginning of options say most.
/// Numbers the names that have become equal, in the order of the request.
pub(crate) fn shorten(names: &mut [String], room: usize) {
    let room = room.max(NAME_MIN);
    let cut = |name: &str, room: usize| {
        if width_of(name) <= room {
            return name.to_owned();
        }
        let kept = room - 1;
        let head = within(name.chars(), kept / 2);
        let tail = within(name.chars().rev(), kept.div_ceil(2));
        let tail = tail.into_iter().rev();
        head.into_iter().chain(['…']).chain(tail).collect()
    };
    let mut different: Vec<&String> = Vec::new();
    for name in names.iter() {
        if !different.contains(&name) {
            different.push(name);
        }
    }
    let mut short: Vec<String> = different.iter().map(|name| cut(name, room)).collect();
    let is_twin = |name: &String| short.iter().filter(|other| *other == name).count() > 1;
    if short.iter().any(is_twin) {
        let numbered = different.iter().zip(1..);
        short = numbered
            .map(|(name, number)| {
                let number = format!("{number} ");
                number.clone() + &cut(name, room - number.len())
            })
            .collect();
    }
    let places: Vec<usize> = names
        .iter()
        .map(|name| {
            different
                .iter()
                .position(|other| *other == name)
                .expect("each is there")
        })
        .collect();
    for (name, place) in names.iter_mut().zip(places) {
        name.clone_from(&short[place]);
    }
}
