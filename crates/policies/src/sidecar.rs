//! Reads `x.sched.toml`, the file beside an object or a source that says what its loader would do.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use schedlab_abi::decisions::{
    Call, Decisions, Each, Entry, Expression, Flag, Given, Inner, MapDecision, Variable,
};
use schedlab_trace::nearest;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The contents of such a file.
#[derive(Default, Debug)]
pub struct Sidecar {
    /// Where it lies.
    pub path: PathBuf,
    /// Folders of headers, for sources.
    pub include: Vec<PathBuf>,
    /// Further arguments for clang.
    pub cflags: Vec<String>,
    /// Further objects and sources, which are linked to the one beside it.
    pub link: Vec<PathBuf>,
    pub decisions: Decisions,
}

/// The file beside an object or a source, if there is one.
pub fn beside(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let name = name
        .strip_suffix(".o")
        .or_else(|| name.strip_suffix(".c"))?;
    let name = name.strip_suffix(".bpf").unwrap_or(name);
    let beside = path.with_file_name(format!("{name}.sched.toml"));
    beside.is_file().then_some(beside)
}

/// Reads it.
///
/// # Errors
/// If it cannot be read, or has what it must not have: the line names the file and the line in it.
pub fn read(path: &Path) -> Result<Sidecar, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let reader = Reader { path, text: &text };
    let table = DeTable::parse(&text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        reader.said(at, error.message())
    })?;
    reader.all(table.get_ref())
}

struct Reader<'t> {
    path: &'t Path,
    text: &'t str,
}

type Read<T> = Result<T, String>;
type Key<'a, 'i> = (&'a str, usize, &'a Spanned<DeValue<'i>>);

impl Reader<'_> {
    fn line(&self, at: usize) -> usize {
        let before = self.text.get(..at).unwrap_or_default();
        before.bytes().filter(|byte| *byte == b'\n').count() + 1
    }

    fn said(&self, at: usize, what: impl Display) -> String {
        format!("{}:{}: {what}", self.path.display(), self.line(at))
    }

    /// The keys of a table, in the order of the file, of which it may have some.
    fn keys<'a, 'i>(&self, table: &'a DeTable<'i>, known: &[&str]) -> Read<Vec<Key<'a, 'i>>> {
        let mut keys: Vec<Key<'a, 'i>> = table
            .iter()
            .map(|(key, value)| (key.get_ref().as_ref(), key.span().start, value))
            .collect();
        keys.sort_by_key(|(_, at, _)| *at);
        if !known.is_empty() {
            for (key, at, _) in &keys {
                if !known.contains(key) {
                    let what = format!("there is no key `{key}`{}", nearest(key, known));
                    return Err(self.said(*at, format!("{what} (it takes {})", known.join(", "))));
                }
            }
        }
        Ok(keys)
    }

    fn table<'a, 'i>(&self, value: &'a Spanned<DeValue<'i>>) -> Read<&'a DeTable<'i>> {
        let table = value.get_ref().as_table();
        table.ok_or_else(|| self.said(value.span().start, "this is no table"))
    }

    fn list<'a, 'i>(&self, value: &'a Spanned<DeValue<'i>>) -> Read<&'a [Spanned<DeValue<'i>>]> {
        match value.get_ref() {
            DeValue::Array(list) => Ok(list),
            _ => Err(self.said(value.span().start, "this is no list")),
        }
    }

    fn text<'a>(&self, value: &'a Spanned<DeValue<'_>>) -> Read<&'a str> {
        let text = value.get_ref().as_str();
        text.ok_or_else(|| self.said(value.span().start, "this is no text"))
    }

    fn texts<'a>(&self, value: &'a Spanned<DeValue<'_>>) -> Read<Vec<&'a str>> {
        self.list(value)?.iter().map(|it| self.text(it)).collect()
    }

    /// A number, a truth value, or an expression in quotes.
    fn expression(&self, value: &Spanned<DeValue<'_>>) -> Read<Expression> {
        let at = value.span().start;
        match value.get_ref() {
            DeValue::Integer(number) => {
                let digits = number.as_str().replace('_', "");
                let number = i128::from_str_radix(&digits, number.radix());
                let number = number.map_err(|_| self.said(at, "this number is too large"))?;
                Ok(Expression::Number(number))
            }
            DeValue::Boolean(is) => Ok(Expression::Number((*is).into())),
            DeValue::String(text) => Expression::parse(text).map_err(|what| self.said(at, what)),
            _ => Err(self.said(at, "this is no whole number, truth value or expression")),
        }
    }

    fn given(&self, value: &Spanned<DeValue<'_>>) -> Read<Given> {
        Ok(match value.get_ref() {
            DeValue::Array(list) => {
                Given::List(list.iter().map(|it| self.given(it)).collect::<Read<_>>()?)
            }
            // { text = "…" } is a text; any other table has members.
            DeValue::Table(table) => match table.iter().next() {
                Some((key, text)) if key.get_ref() == "text" && table.len() == 1 => {
                    Given::Text(self.text(text)?.to_owned())
                }
                _ => Given::Table(self.members(table)?),
            },
            _ => Given::Number(self.expression(value)?),
        })
    }

    fn members(&self, table: &DeTable<'_>) -> Read<Vec<(String, Given)>> {
        let keys = self.keys(table, &[])?.into_iter();
        keys.map(|(key, _, value)| Ok((key.to_owned(), self.given(value)?)))
            .collect()
    }

    fn each(&self, value: &Spanned<DeValue<'_>>) -> Read<Each> {
        let text = self.text(value)?;
        Each::of(text).ok_or_else(|| {
            let known = Each::NAMES.map(|(name, _)| name);
            let like = nearest(text, &known);
            let what = format!("`{text}` is no part of a machine{like}");
            self.said(
                value.span().start,
                format!("{what}: write cpu, core, llc or node"),
            )
        })
    }

    fn all(&self, table: &DeTable<'_>) -> Read<Sidecar> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let mut read = Sidecar {
            path: self.path.to_owned(),
            ..Sidecar::default()
        };
        let file = self.path.file_name().unwrap_or_default();
        read.decisions.file = file.to_string_lossy().into_owned();
        let known = [
            "include",
            "cflags",
            "link",
            "ops",
            "variables",
            "maps",
            "call",
        ];
        for (key, _, value) in self.keys(table, &known)? {
            match key {
                "include" => {
                    let folders = self.texts(value)?.into_iter();
                    read.include = folders.map(|it| folder.join(it)).collect();
                }
                "cflags" => {
                    let flags = self.texts(value)?.into_iter();
                    read.cflags = flags.map(str::to_owned).collect();
                }
                "link" => {
                    for it in self.list(value)? {
                        let path = folder.join(self.text(it)?);
                        if !path.is_file() {
                            let what = format!("{} is not there", path.display());
                            return Err(self.said(it.span().start, what));
                        }
                        read.link.push(path);
                    }
                }
                "ops" => self.ops(self.table(value)?, &mut read.decisions)?,
                "variables" => {
                    for (path, at, value) in self.keys(self.table(value)?, &[])? {
                        read.decisions.variables.push(Variable {
                            line: self.line(at),
                            path: path.to_owned(),
                            value: self.given(value)?,
                        });
                    }
                }
                "maps" => {
                    for (map, at, value) in self.keys(self.table(value)?, &[])? {
                        let decision = self.map(map, at, self.table(value)?)?;
                        read.decisions.maps.push(decision);
                    }
                }
                _ => {
                    for it in self.list(value)? {
                        let call = self.call(it)?;
                        read.decisions.calls.push(call);
                    }
                }
            }
        }
        Ok(read)
    }

    fn ops(&self, table: &DeTable<'_>, decisions: &mut Decisions) -> Read<()> {
        for (key, at, value) in self.keys(table, &["flags", "timeout_ms", "without"])? {
            match key {
                "flags" => {
                    let flags = self.list(value)?.iter().map(|it| self.flag(it));
                    decisions.flags = Some(flags.collect::<Read<_>>()?);
                }
                "timeout_ms" => match self.expression(value)? {
                    Expression::Number(ms @ 1..=30_000) => decisions.timeout_ms = Some(ms as u32),
                    _ => return Err(self.said(at, "timeout_ms is a number from 1 to 30000")),
                },
                _ => {
                    for it in self.list(value)? {
                        let line = self.line(it.span().start);
                        decisions.without.push((line, self.text(it)?.to_owned()));
                    }
                }
            }
        }
        Ok(())
    }

    /// `SCX_OPS_X`, or `SCX_OPS_X if nr_nodes > 1`.
    fn flag(&self, value: &Spanned<DeValue<'_>>) -> Read<Flag> {
        let at = value.span().start;
        let text = self.text(value)?;
        let (name, when) = match text.split_once(" if ") {
            Some((name, when)) => {
                let when = Expression::parse(when).map_err(|what| self.said(at, what))?;
                (name.trim(), Some(when))
            }
            None => (text, None),
        };
        if !schedlab_abi::decisions::OPS_FLAGS.contains(&name) {
            let known = schedlab_abi::decisions::OPS_FLAGS;
            let like = nearest(name, &known);
            return Err(self.said(at, format!("`{name}` is no flag of ops{like}")));
        }
        Ok(Flag {
            line: self.line(at),
            name: name.to_owned(),
            when,
        })
    }

    fn map(&self, map: &str, at: usize, table: &DeTable<'_>) -> Read<MapDecision> {
        let mut decision = MapDecision {
            line: self.line(at),
            map: map.to_owned(),
            max_entries: None,
            inner: None,
            entries: Vec::new(),
        };
        for (key, at, value) in self.keys(table, &["max_entries", "inner", "entries"])? {
            match key {
                "max_entries" => decision.max_entries = Some(self.expression(value)?),
                "inner" => decision.inner = Some(self.inner(at, self.table(value)?)?),
                _ => {
                    for it in self.list(value)? {
                        decision.entries.push(self.entry(it)?);
                    }
                }
            }
        }
        Ok(decision)
    }

    /// `{ number = 4, max_entries = 16 }`
    fn inner(&self, at: usize, table: &DeTable<'_>) -> Read<Inner> {
        let (mut number, mut max_entries) = (None, None);
        for (key, _, value) in self.keys(table, &["number", "max_entries"])? {
            match key {
                "number" => number = Some(self.expression(value)?),
                _ => max_entries = Some(self.expression(value)?),
            }
        }
        Ok(Inner {
            line: self.line(at),
            number: number
                .ok_or_else(|| self.said(at, "inner has a number: of maps in the map"))?,
            max_entries,
        })
    }

    fn entry(&self, it: &Spanned<DeValue<'_>>) -> Read<Entry> {
        let at = it.span().start;
        let (mut each, mut when, mut key, mut value) = (None, None, None, None);
        for (name, _, given) in self.keys(self.table(it)?, &["for", "when", "key", "value"])? {
            match name {
                "for" => each = Some(self.each(given)?),
                "when" => when = Some(self.expression(given)?),
                "key" => key = Some(self.given(given)?),
                _ => value = Some(self.given(given)?),
            }
        }
        let (Some(key), Some(value)) = (key, value) else {
            return Err(self.said(at, "an entry has a key and a value"));
        };
        Ok(Entry {
            line: self.line(at),
            each,
            when,
            key,
            value,
        })
    }

    fn call(&self, it: &Spanned<DeValue<'_>>) -> Read<Call> {
        let at = it.span().start;
        let table = self.table(it)?;
        let (mut program, mut each, mut when, mut arguments) = (None, None, None, Vec::new());
        let mut after = false;
        let mut line = self.line(at);
        for (name, at, given) in self.keys(table, &["program", "after", "for", "when", "args"])? {
            match name {
                "program" => {
                    (program, line) = (Some(self.text(given)?.to_owned()), self.line(at));
                }
                "after" => match given.get_ref().as_bool() {
                    Some(is) => after = is,
                    None => return Err(self.said(at, "after is true or false")),
                },
                "for" => each = Some(self.each(given)?),
                "when" => when = Some(self.expression(given)?),
                _ => arguments = self.members(self.table(given)?)?,
            }
        }
        let program = program.ok_or_else(|| self.said(at, "a call has a program"))?;
        Ok(Call {
            line,
            program,
            after,
            each,
            when,
            arguments,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.sched.toml");
        fs::write(&path, text).unwrap();
        let text = read(&path).unwrap_err();
        let at = text.find("x.sched.toml").unwrap();
        text[at..].to_owned()
    }

    #[test]
    fn faults_are_told_with_their_line() {
        for (text, expected) in [
            (
                "[ops]\nflag = []",
                "x.sched.toml:2: there is no key `flag` (did you mean `flags`?)",
            ),
            (
                "[variables]\n\na = 'nr_cpu'",
                "x.sched.toml:3: `nr_cpu` is no word",
            ),
            (
                "[[call]]\nargs = {}",
                "x.sched.toml:1: a call has a program",
            ),
            ("link = [\n 'gone.bpf.o']", "x.sched.toml:2: "),
            ("a = ", "x.sched.toml:1: "),
            (
                "[ops]\nflags = ['SCX_OPS_ENQ_LAS']",
                "x.sched.toml:2: `SCX_OPS_ENQ_LAS` is no flag",
            ),
            ("[ops]\ntimeout_ms = 0", "x.sched.toml:2: timeout_ms"),
            (
                "[maps.a]\ninner = { max_entries = 4 }",
                "x.sched.toml:2: inner has a number",
            ),
        ] {
            let told = told(text);
            assert!(told.starts_with(expected), "{told}");
        }
    }
}
