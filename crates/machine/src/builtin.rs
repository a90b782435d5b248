//! The profiles that are embedded in the program, and finding one by name or path.

use crate::{Machine, ProfileError};

include!(concat!(env!("OUT_DIR"), "/builtin.rs"));

impl Machine {
    /// Returns the names of the built-in profiles, in alphabetical order.
    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|&(name, _)| name)
    }

    /// Returns the built-in profile of that name; `NAME:quiet` is the same without the tasks that run beside any workload,
    /// `NAME:background` the same with a server's such tasks if it has none of its own.
    pub fn builtin(name: &str) -> Result<Machine, ProfileError> {
        if let Some((base, ending)) = Ending::of(name) {
            return Ok(Machine::builtin(base)?.with(ending));
        }
        match BUILTIN.iter().find(|&&(known, _)| known == name) {
            Some((name, text)) => Machine::from_toml(&format!("machines/{name}.toml"), text),
            None => Err(ProfileError::Unknown {
                name: name.to_owned(),
                known: known(),
            }),
        }
    }

    fn with(mut self, ending: Ending) -> Machine {
        match ending {
            Ending::Quiet => self.background.clear(),
            Ending::Background if self.background.is_empty() => {
                let server = Machine::builtin(SERVER).expect("a built-in profile loads");
                self.background = server.background;
            }
            Ending::Background => {}
        }
        self
    }

    /// Returns a built-in profile by name, or a profile file by path: anything with a `/` or ending in `.toml`. With `:quiet` or
    /// `:background` at the end as [`Machine::builtin`].
    pub fn find(name_or_path: &str) -> Result<Machine, ProfileError> {
        Ok(Machine::find_with_text(name_or_path)?.0)
    }

    /// Returns the same with the text of the file.
    pub fn find_with_text(name_or_path: &str) -> Result<(Machine, Option<String>), ProfileError> {
        if let Some((base, ending)) = Ending::of(name_or_path) {
            let (machine, text) = Machine::find_with_text(base)?;
            return Ok((machine.with(ending), text));
        }
        if !name_or_path.contains('/') && !name_or_path.ends_with(".toml") {
            return Ok((Machine::builtin(name_or_path)?, None));
        }
        let text = std::fs::read_to_string(name_or_path).map_err(|error| ProfileError::Read {
            file: name_or_path.to_owned(),
            error,
            known: known(),
        })?;
        Ok((Machine::from_toml(name_or_path, &text)?, Some(text)))
    }
}

/// The profile whose background other machines may have.
const SERVER: &str = "xeon-e5645-2x6x2";

/// The end of a machine's name.
#[derive(Clone, Copy)]
enum Ending {
    /// Without background.
    Quiet,
    /// With one.
    Background,
}

impl Ending {
    /// Splits a name that has exactly one.
    fn of(name: &str) -> Option<(&str, Ending)> {
        let all = [
            (":quiet", Ending::Quiet),
            (":background", Ending::Background),
        ];
        let split = |name| {
            all.iter()
                .find_map(|&(end, ending)| Some((str::strip_suffix(name, end)?, ending)))
        };
        split(name).filter(|&(base, _)| split(base).is_none())
    }
}

fn known() -> String {
    Machine::builtin_names().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_loads_under_the_name_of_its_file() {
        assert!(Machine::builtin_names().count() >= 8);
        for name in Machine::builtin_names() {
            let machine = Machine::builtin(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(machine.name, name);
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = Machine::find("pdp-11").unwrap_err().to_string();
        assert!(
            error.contains("pdp-11") && error.contains("netfinity-8500r"),
            "{error}"
        );
        let error = Machine::find("no/such/file.toml").unwrap_err().to_string();
        assert!(error.starts_with("no/such/file.toml: "), "{error}");
    }
}
