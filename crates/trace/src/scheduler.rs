//! The notation for schedulers: `name`, `name:option=value,option=value`, or the path of a `.bpf.c` file in place of
//! the name. This module alone splits such a text.

use std::fmt;
use std::path::Path;

use crate::{nearest, shell_word};

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

    /// Returns whether it is the kernel's own.
    pub fn is_kernels_own(&self) -> bool {
        self.name == Self::KERNELS_OWN
    }

    /// The beginning of one that its own loader loads: `exec:PROGRAM ARGUMENTS…`.
    pub const EXEC: &str = "exec:";

    /// Returns the command of its own loader, if it has one.
    pub fn exec(&self) -> Option<&str> {
        self.name.strip_prefix(Self::EXEC)
    }

    /// One scheduler; options follow the first `:`, for a path the first one behind `.bpf.c` or `.bpf.o`.
    pub fn parse(text: &str) -> Scheduler {
        if text.starts_with(Self::EXEC) {
            return Scheduler::plain(text);
        }
        let endings = [".bpf.c", ".bpf.o"].map(|ending| Some(text.find(ending)? + ending.len()));
        let path = endings.into_iter().flatten().min().unwrap_or(0);
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

    /// Why there is no scheduler of this name among the `known` ones, in one line: if a source of that name is there,
    /// how to use it, and otherwise what there is.
    pub fn unknown(name: &str, known: &[&str]) -> String {
        let places = [format!("policies/{name}.bpf.c"), format!("{name}.bpf.c")];
        let source = places.into_iter().find(|path| Path::new(path).is_file());
        match source {
            Some(path) => format!(
                "unknown scheduler `{name}`: {path} exists, but this schedlab was built without it; name the file (-s {}), \
                 or build schedlab again",
                shell_word(&path)
            ),
            None => format!(
                "unknown scheduler `{name}`{}; there are: {}, or the path of a .bpf.c or .bpf.o file",
                nearest(name, known),
                known.join(", ")
            ),
        }
    }

    /// Returns whether it is the path of an object, which is already compiled.
    pub fn is_object(&self) -> bool {
        self.name.ends_with(".o") && self.exec().is_none()
    }

    /// Returns whether it is the path of a policy's source or object, not a name.
    pub fn is_path(&self) -> bool {
        let is_path =
            |name: &str| name.ends_with(".c") || name.ends_with(".o") || name.contains('/');
        is_path(&self.name) && self.exec().is_none()
    }

    /// Says how a comma is written that belongs to an argument of this one's loader, and not before a further scheduler.
    pub fn comma_of_argument(&self, behind: &str) -> String {
        let whole = format!("{}\\,{behind}", self.name);
        format!(
            "`{behind}` is no scheduler; if the comma before it belongs to an argument of `{}`, it needs a backslash: write {}",
            self.name,
            shell_word(&whole)
        )
    }

    /// Returns a list of schedulers. A part between commas that has a `=` and no `:` before it is a further option
    /// of the scheduler before: `a:x=1,y=2,b` is `a` with `x` and `y`, and `b`. A comma of a path has a backslash before
    /// it, or is found where the file exists.
    ///
    /// # Errors
    /// One line that says what is wrong and what to write.
    pub fn parse_list(text: &str) -> Result<Vec<Scheduler>, String> {
        let mut schedulers: Vec<Scheduler> = Vec::new();
        for Part {
            text: part,
            is_path,
        } in parts(text)
        {
            let part = part.as_str();
            let equals = part.find('=');
            let colon = part.find(':');
            let is_option =
                !is_path && equals.is_some_and(|equals| colon.is_none_or(|colon| equals < colon));
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
                Some(last) if last.exec().is_some() => return Err(last.comma_of_argument(part)),
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

/// A text between two commas.
struct Part {
    text: String,
    /// It begins with the path of a file that exists: a `=` before its end is of the path.
    is_path: bool,
}

/// Returns the parts between commas, except commas inside paths.
fn parts(text: &str) -> Vec<Part> {
    let mut parts: Vec<String> = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let part = parts.last_mut().expect("there is one from the start");
        match letter {
            '\\' if letters.peek() == Some(&',') => part.extend(letters.next()),
            ',' => parts.push(String::new()),
            letter => part.push(letter),
        }
    }
    let mut joined: Vec<Part> = Vec::new();
    let mut from = 0;
    while from < parts.len() {
        // The longest run of parts that is a file; most parts are not files.
        let ends = (from + 1..=parts.len()).rev();
        let ends = ends.skip((parts.len() - from).saturating_sub(MOST_PARTS));
        let path_to = ends.into_iter().find(|&to| {
            let before = parts[from..to - 1].iter().map(|part| format!("{part},"));
            begins_with_file(&before.collect::<String>(), &parts[to - 1])
        });
        let to = path_to.unwrap_or(from + 1);
        joined.push(Part {
            text: parts[from..to].join(","),
            is_path: path_to.is_some(),
        });
        from = to;
    }
    joined
}

/// Returns whether `before`, and `last` up to its end or to a `:` with options behind it, are the path of a file.
fn begins_with_file(before: &str, last: &str) -> bool {
    let ends = last.match_indices(':').map(|(colon, _)| colon);
    ends.chain([last.len()]).any(|end| {
        let path = &last[..end];
        let is_source = path.ends_with(".c") || path.ends_with(".o");
        is_source && Path::new(format!("{before}{path}").trim()).is_file()
    })
}

/// So many places are looked for a file whose path has commas.
const MOST_PARTS: usize = 64;

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
            ("exec:./x -a b=1,c", &[("exec:./x -a b=1", ""), ("c", "")]),
            ("c,exec:x --a=b:c", &[("c", ""), ("exec:x --a=b:c", "")]),
        ] {
            assert_eq!(list(text), pairs(expected), "{text}");
        }
    }

    #[test]
    fn paths_may_have_commas() {
        assert_eq!(
            list(r"./a\,b/x.bpf.c:y=1,c"),
            pairs(&[("./a,b/x.bpf.c", "y=1"), ("c", "")])
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a,b.bpf.c");
        std::fs::write(&path, "").unwrap();
        let path = path.to_str().unwrap();
        assert_eq!(
            list(&format!("d,{path},c")),
            pairs(&[("d", ""), (path, ""), ("c", "")])
        );
        assert_eq!(
            list(&format!("{path}:x=1,y=2,d:z=3,{path}:flag")),
            pairs(&[(path, "x=1,y=2"), ("d", "z=3"), (path, "flag=true")])
        );
        // A `=` is no less a part of a path.
        std::fs::create_dir(folder.path().join("e=f,g")).unwrap();
        for name in ["e=f,g/h=1.bpf.c", "h=1.bpf.o"] {
            let path = folder.path().join(name);
            std::fs::write(&path, "").unwrap();
            let path = path.to_str().unwrap();
            assert_eq!(
                list(&format!("{path},d,{path}:x=1,y=2")),
                pairs(&[(path, ""), ("d", ""), (path, "x=1,y=2")])
            );
        }
    }

    #[test]
    fn a_scheduler_that_was_not_built_in_is_named_with_its_file() {
        let told = Scheduler::unknown("fif", &["dss", "fifo"]);
        assert_eq!(
            told,
            "unknown scheduler `fif` (did you mean `fifo`?); there are: dss, fifo, or the path of a .bpf.c or .bpf.o file"
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (text, expected) in [
            ("", "empty scheduler"),
            ("a,,b", "empty scheduler"),
            ("x=1", "write SCHEDULER:x=1"),
            ("a,x=1", "write a:x=1"),
            (
                "exec:./x o.bpf.o b=1,c=2",
                r"write 'exec:./x o.bpf.o b=1\,c=2'",
            ),
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
