//! Layouts of the task structure that can be put in the place of a profile's own.
//!
//! A layout is no property of a scheduler: it changes where a task's scheduling fields lie and whether
//! they are there in time, not which task is chosen. The layouts are those that were compared under the
//! scheduler of Linux 2.4 (Yamamura, Hirai, Sato, Yamamoto, Naruse, Kumon: *Speeding up kernel
//! scheduler by reducing cache misses*, FREENIX 2002).

mod machine;

use std::fmt;
use std::str::FromStr;

/// Where the fields lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// In the structures, at the same offset in each.
    Plain,
    /// In the structures, each shifted by one of so many colours.
    Coloured(u32),
    /// Side by side, outside of the structures.
    Separate,
}

/// A layout: `plain`, `coloured`, `coloured:N` or `separate`, each also with `+prefetch`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    place: Place,
    prefetch: bool,
}

/// Colours of `coloured` without a number, as in the paper.
const COLOURS: u32 = 32;

const PREFETCH: &str = "+prefetch";

/// Why a text is no layout.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "there is no task layout `{0}`: choose plain, coloured, coloured:N (2 or more colours) or separate, and append +prefetch if the next candidate is to be prefetched"
)]
pub struct UnknownLayout(String);

impl FromStr for Layout {
    type Err = UnknownLayout;

    fn from_str(text: &str) -> Result<Self, UnknownLayout> {
        let unknown = || UnknownLayout(text.to_owned());
        let (place, prefetch) = match text.strip_suffix(PREFETCH) {
            Some(place) => (place, true),
            None => (text, false),
        };
        let place = match place.split_once(':') {
            None if place == "plain" => Place::Plain,
            None if place == "coloured" => Place::Coloured(COLOURS),
            None if place == "separate" => Place::Separate,
            Some(("coloured", number)) => match number.parse() {
                Ok(colours) if colours >= 2 => Place::Coloured(colours),
                _ => return Err(unknown()),
            },
            _ => return Err(unknown()),
        };
        Ok(Layout { place, prefetch })
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Plain => f.write_str("plain")?,
            Place::Coloured(colours) => write!(f, "coloured:{colours}")?,
            Place::Separate => f.write_str("separate")?,
        }
        f.write_str(if self.prefetch { PREFETCH } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;

    fn layout(text: &str) -> Layout {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn every_layout_is_written_as_it_is_read() {
        for text in [
            "plain",
            "plain+prefetch",
            "coloured:4",
            "coloured:32+prefetch",
            "separate",
            "separate+prefetch",
        ] {
            assert_eq!(layout(text).to_string(), text);
            let machine = Machine::builtin("netfinity-8500r").unwrap();
            let machine = machine.with_layout(layout(text)).unwrap();
            assert_eq!(machine.layout(), layout(text));
        }
        assert_eq!(layout("coloured").to_string(), "coloured:32");
    }

    #[test]
    fn a_machine_with_another_layout_says_so_in_its_profile() {
        let machine = Machine::builtin("netfinity-8500r").unwrap();
        let plain = machine.clone().with_layout(layout("plain")).unwrap();
        assert_eq!(plain, machine);
        let machine = machine.with_layout(layout("coloured:4+prefetch")).unwrap();
        let again = Machine::from_toml("again", &machine.to_toml()).unwrap();
        assert_eq!(again, machine);
        let found = again.provenance().iter();
        let asked = found.filter(|one| one.source.contains("`coloured:4+prefetch` was asked for"));
        assert_eq!(asked.count(), 2);
    }

    #[test]
    fn other_texts_are_refused_with_what_there_is() {
        for text in [
            "",
            "colored",
            "plain:2",
            "coloured:1",
            "coloured:0",
            "coloured:",
            "coloured:x",
            "coloured:-3",
            "coloured:99999999999",
            "separate:4",
            "prefetch",
            "plain+prefetch+prefetch",
            "Plain",
            "plain ",
        ] {
            let error = text.parse::<Layout>().unwrap_err().to_string();
            assert!(error.contains("coloured:N"), "{text}: {error}");
            assert!(error.contains(&format!("`{text}`")), "{text}: {error}");
        }
    }

    #[test]
    fn colours_must_fit_into_the_structure() {
        // 8,192 − 32 − 32 bytes of room are 254 lines of 32 bytes: 255 places.
        let machine = || Machine::builtin("netfinity-8500r").unwrap();
        assert!(machine().with_layout(layout("coloured:255")).is_ok());
        let error = machine().with_layout(layout("coloured:256")).unwrap_err();
        assert!(error.to_string().contains("at most 255"), "{error}");
        let error = machine().with_layout(layout("coloured:4294967295"));
        assert!(error.is_err());
    }

    #[test]
    fn a_profiles_own_layout_is_plain() {
        for name in Machine::builtin_names() {
            let machine = Machine::builtin(name).unwrap();
            assert_eq!(machine.layout(), layout("plain"), "{name}");
        }
    }
}
