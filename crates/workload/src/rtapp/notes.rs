//! Notes for the user about a file that runs although parts of it have no effect or not the effect that they seem to
//! have.

use std::collections::BTreeMap;

use super::values::Place;

/// Notes in the order of the file. A generated file may have the same thing odd in each of thousands of tasks: that is
/// one note, with the first place.
#[derive(Debug, Default)]
pub(super) struct Notes {
    list: Vec<Note>,
    /// Places in `list`, by the text and the last key of the place.
    known: BTreeMap<(String, String), usize>,
}

#[derive(Debug)]
struct Note {
    place: Option<Place>,
    text: String,
    /// Further places of which the same is true.
    more: u64,
}

impl Notes {
    /// Tells something that has no place in the file.
    pub fn add(&mut self, text: impl Into<String>) {
        self.insert(None, text.into());
    }

    /// Tells something of a place; `text` goes on after its name.
    pub fn at(&mut self, place: &Place, text: impl Into<String>) {
        self.insert(Some(place), text.into());
    }

    fn insert(&mut self, place: Option<&Place>, text: String) {
        let path = place.map_or("", |place| &place.path);
        let key = path.rsplit('.').next().unwrap_or_default().to_owned();
        let next = self.list.len();
        let at = *self.known.entry((text.clone(), key)).or_insert(next);
        if at < next {
            self.list[at].more += u64::from(place.is_some());
            return;
        }
        self.list.push(Note {
            place: place.cloned(),
            text,
            more: 0,
        });
    }

    /// Returns all of them, in words.
    pub fn told(self) -> Vec<String> {
        let told = |note: Note| {
            let more = match note.more {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            match note.place {
                None => note.text,
                Some(Place { path, line }) => {
                    format!("line {line}: `{path}` {}{more}", note.text)
                }
            }
        };
        self.list.into_iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_true_of_many_places_is_one_note_with_the_first() {
        let mut notes = Notes::default();
        let place = |path: &str, line| Place {
            path: path.to_owned(),
            line,
        };
        notes.at(&place("tasks.a.x", 3), "has no effect");
        notes.add("plain");
        notes.at(&place("tasks.b.x", 7), "has no effect");
        notes.at(&place("tasks.b.y", 8), "has no effect");
        notes.add("plain");
        notes.at(&place("tasks.c.x", 9), "has no effect");
        assert_eq!(
            notes.told(),
            [
                "line 3: `tasks.a.x` has no effect (and 2 more)",
                "plain",
                "line 8: `tasks.b.y` has no effect",
            ]
        );
    }
}
