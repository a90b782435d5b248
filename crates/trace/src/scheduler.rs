//! Schedulers as they are asked for: `name`, `name:option=value,option=value`, or the path of a `.bpf.c`
//! file in place of the name. Nobody else splits such a text.

use std::fmt;

/// A scheduler and the options it was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scheduler {
    /// Name of a built-in scheduler, or the path of a policy's source.
    pub name: String,
    /// Options with their values.
    pub options: Vec<(String, String)>,
}

impl Scheduler {
    /// The name that stands for the kernel's own scheduler, in both worlds.
    pub const KERNELS_OWN: &str = "kernel";

    /// Whether it is the kernel's own.
    pub fn is_kernels_own(&self) -> bool {
        self.name == Self::KERNELS_OWN
    }

    /// One scheduler; options follow the first `:`, for a path the first one behind `.bpf.c`.
    pub fn parse(text: &str) -> Scheduler {
        const ENDING: &str = ".bpf.c";
        let path = text.find(ENDING).map_or(0, |ending| ending + ENDING.len());
        let (name, options) = match text[path..].find(':') {
            Some(colon) => (&text[..path + colon], &text[path + colon + 1..]),
            None => (text, ""),
        };
        Scheduler {
            name: name.to_owned(),
            options: Self::parse_options(options),
        }
    }

    /// One without options.
    pub fn plain(name: impl Into<String>) -> Scheduler {
        Scheduler {
            name: name.into(),
            options: Vec::new(),
        }
    }

    /// Reads `option=value,…`. An option without a value is a switch that is turned on: its value is `true`.
    pub fn parse_options(text: &str) -> Vec<(String, String)> {
        text.split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(|part| {
                let (key, value) = part.split_once('=').unwrap_or((part, "true"));
                (key.trim().to_owned(), value.trim().to_owned())
            })
            .collect()
    }

    /// Writes what [`Scheduler::parse_options`] reads.
    pub fn options_text(options: &[(String, String)]) -> String {
        let parts = options.iter().map(|(key, value)| format!("{key}={value}"));
        parts.collect::<Vec<_>>().join(",")
    }

    /// Whether it is the path of a policy's source, not a name.
    pub fn is_path(&self) -> bool {
        self.name.ends_with(".c") || self.name.contains('/')
    }

    /// A list of schedulers. A part between commas that has a `=` and no `:` before it is a further option
    /// of the scheduler before: `a:x=1,y=2,b` is `a` with `x` and `y`, and `b`.
    ///
    /// # Errors
    /// One line that says what is wrong and what to write.
    pub fn parse_list(text: &str) -> Result<Vec<Scheduler>, String> {
        let mut schedulers: Vec<Scheduler> = Vec::new();
        for part in text.split(',') {
            let equals = part.find('=');
            let colon = part.find(':');
            let is_option = equals.is_some_and(|equals| colon.is_none_or(|colon| equals < colon));
            if !is_option {
                if part.trim().is_empty() {
                    return Err(format!(
                        "`{text}` names an empty scheduler: write for example a,b or a:option=value,b"
                    ));
                }
                schedulers.push(Scheduler::parse(part.trim()));
                continue;
            }
            match schedulers.last_mut() {
                Some(last) if !last.options.is_empty() => {
                    last.options.extend(Self::parse_options(part));
                }
                Some(last) => {
                    return Err(format!(
                        "`{part}` is an option without a `:` before it: write {}:{part}",
                        last.name
                    ));
                }
                None => {
                    return Err(format!(
                        "`{part}` is an option without a scheduler: write SCHEDULER:{part}"
                    ));
                }
            }
        }
        Ok(schedulers)
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scheduler { name, options } = self;
        if options.is_empty() {
            write!(f, "{name}")
        } else {
            write!(f, "{name}:{}", Self::options_text(options))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<(String, String)> {
        let schedulers = Scheduler::parse_list(text).unwrap();
        schedulers
            .into_iter()
            .map(|scheduler| {
                let options = Scheduler::options_text(&scheduler.options);
                (scheduler.name, options)
            })
            .collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected
            .iter()
            .map(|(name, options)| (name.to_string(), options.to_string()))
            .collect()
    }

    #[test]
    fn commas_separate_schedulers_and_options() {
        for (text, expected) in [
            ("a", &[("a", "")][..]),
            ("a,b", &[("a", ""), ("b", "")]),
            ("a:x=1,y=2,b", &[("a", "x=1,y=2"), ("b", "")]),
            ("a:x=1,b:y=2,z=3", &[("a", "x=1"), ("b", "y=2,z=3")]),
            ("a,b:x=1", &[("a", ""), ("b", "x=1")]),
            // A value may hold a `:`; a scheduler's first option comes after one.
            ("a:x=1,y=u:v,b", &[("a", "x=1,y=u:v"), ("b", "")]),
            ("a:flag,b", &[("a", "flag=true"), ("b", "")]),
            ("./p.bpf.c:x=1,b", &[("./p.bpf.c", "x=1"), ("b", "")]),
            ("/od:d/p.bpf.c,b", &[("/od:d/p.bpf.c", ""), ("b", "")]),
            ("/od:d/p.bpf.c:x=1", &[("/od:d/p.bpf.c", "x=1")]),
            ("a:file=/tmp/x,b", &[("a", "file=/tmp/x"), ("b", "")]),
            ("a: x = 1, b", &[("a", "x=1"), ("b", "")]),
        ] {
            assert_eq!(list(text), pairs(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (text, expected) in [
            ("", "empty scheduler"),
            ("a,,b", "empty scheduler"),
            ("x=1", "write SCHEDULER:x=1"),
            ("a,x=1", "write a:x=1"),
        ] {
            let error = Scheduler::parse_list(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_scheduler_is_shown_as_it_was_written() {
        for text in ["a", "a:x=1,y=2", "./p.bpf.c:x=1"] {
            assert_eq!(Scheduler::parse(text).to_string(), text);
        }
    }
}
