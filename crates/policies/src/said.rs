//! Explains the errors and warnings of compilers and linkers to the author of a policy.

mod clash;

use std::path::Path;

use schedlab_abi::{is_known_kind, kconfig, unknown_kind};

use crate::Diagnostics;

/// Limits the number of plain C errors that a message shows.
const LINES_MAX: usize = 4;
/// Limits the number of lines of a message; further complaints are counted.
const MISSING_MAX: usize = 16;

/// Returns name and text of the header that defines the kernel's structures.
pub(crate) fn types() -> Option<(&'static str, &'static str)> {
    let mut headers = crate::headers().iter().copied();
    headers.find(|(name, _)| *name == "native/scx/types.h")
}

/// Tells causes from errors that may follow from them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Causes other errors: a missing header, or another meaning for a name of our headers.
    Cause,
    /// Names something that the virtual kernel lacks or forbids.
    Ours,
    /// Repeats the compiler's own text about C.
    Plain,
}

struct Complaint {
    kind: Kind,
    place: String,
    inside: String,
    what: String,
    /// Lists other places of the same complaint.
    others: Vec<String>,
}

/// Collects the errors of one source from the compiler, the linker and the reader of the object.
pub(crate) struct Complaints<'a> {
    /// Names the source as the user did.
    path: &'a Path,
    /// Names the folder of our headers.
    headers: &'a Path,
    all: Vec<Complaint>,
    /// Holds the other lines of the output, for the case that no error is recognized.
    rest: Vec<String>,
}

impl<'a> Complaints<'a> {
    pub(crate) fn new(path: &'a Path, headers: &'a Path) -> Complaints<'a> {
        Complaints {
            path,
            headers,
            all: Vec::new(),
            rest: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.rest.is_empty()
    }

    fn push(&mut self, kind: Kind, place: String, inside: &str, what: String) {
        let is_missing = what.contains(NOT_THERE) || what.contains(NO_VALUE);
        let mut known = self.all.iter_mut();
        let same = known.find(|it| it.what == what && (it.place == place || is_missing));
        match same {
            Some(same) if same.place == place => {}
            Some(same) => {
                if !same.others.contains(&place) {
                    same.others.push(place);
                }
            }
            None => self.all.push(Complaint {
                kind,
                place,
                inside: inside.to_owned(),
                what,
                others: Vec::new(),
            }),
        }
    }

    /// Adds something that the virtual kernel lacks or forbids. `place` is `file` or `file:line` in the compiler's words.
    pub(crate) fn add(&mut self, place: Option<&str>, what: String) {
        let place = match place {
            Some(place) => as_asked(place, self.path),
            None => self.path.display().to_string(),
        };
        self.push(Kind::Ours, place, "", what);
    }

    /// Adds the missing headers and returns their names. The compiler stops at the first one.
    pub(crate) fn add_missing_headers(&mut self, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (place, header) in text.lines().filter_map(missing_header) {
            let what = format!(
                "{header} is neither beside it nor in the virtual kernel{}",
                other_place(&header)
            );
            self.push(Kind::Cause, as_asked(place, self.path), "", what);
            found.push(header);
        }
        found
    }

    /// Adds the symbols that the linker does not find.
    pub(crate) fn add_undefined(&mut self, text: &str) {
        for (place, symbol) in text.lines().filter_map(undefined) {
            if !kconfig::is_known(&symbol) {
                self.add(place.as_deref(), missing(&symbol));
            }
        }
    }

    /// Returns whether a symbol has been added as missing.
    pub(crate) fn has_missing(&self, symbol: &str) -> bool {
        let what = missing(symbol);
        self.all.iter().any(|it| it.what == what)
    }

    /// Adds unknown kinds of maps and variables of the configuration that the preprocessed source declares. The compiler has
    /// made no object from which they could be read.
    pub(crate) fn add_declared(&mut self, preprocessed: &str) {
        let mut place = (String::new(), 0);
        for line in preprocessed.lines() {
            if let Some(marker) = line.strip_prefix("# ") {
                let (number, file) = marker.split_once(' ').unwrap_or((marker, ""));
                place = (unquote(file), number.parse().unwrap_or(0));
                continue;
            }
            if !self.is_ours(&place.0) {
                let here = format!("{}:{}", place.0, place.1);
                for what in declared(line) {
                    self.add(Some(&here), what);
                }
            }
            place.1 += 1;
        }
    }

    /// Returns whether a place is in the headers that come with the program.
    fn is_ours(&self, place: &str) -> bool {
        let place = place.trim_start_matches("./");
        place.starts_with(&*self.headers.to_string_lossy()) || place.starts_with("include/native/")
    }

    /// Adds the errors of gcc, clang and the linker. `anyway` is their output for headers that let policies write all of
    /// the kernel's structures: an error that is missing there is a write that the verifier refuses.
    pub(crate) fn add_errors(&mut self, text: &str, anyway: &str) {
        self.add_missing_headers(text);
        let mut function = None;
        let mut misused = Vec::new();
        // Lines of the policy whose headers have errors: one error each is told.
        let mut headers = Vec::new();
        // The place where the policy includes the header with the error.
        let mut included = None;
        let said: Vec<&str> = text.lines().collect();
        let mut rest = Vec::new();
        for (index, &line) in said.iter().enumerate() {
            if missing_header(line).is_some() {
                continue;
            }
            if let Some((place, begins)) = included_from(line) {
                if !self.is_ours(place) && (begins || included.is_none()) {
                    included = Some(place);
                } else if begins && self.is_ours(place) && line.ends_with(',') {
                    // The next line of gcc names the file that includes this header.
                    included = None;
                }
                continue;
            }
            if let Some(inside) = function_of(line) {
                function = inside;
                continue;
            }
            if let Some((place, symbol)) = undefined(line) {
                if !kconfig::is_known(&symbol) {
                    self.add(place.as_deref(), missing(&symbol));
                }
                continue;
            }
            let Some((place, what)) = line.split_once(": error: ") else {
                if !line.trim().is_empty() {
                    rest.push(line.replace(&format!("{}/", self.headers.display()), ""));
                }
                continue;
            };
            // This line only says that the linker failed.
            if place == "collect2" || what.starts_with("linker command failed") {
                rest.push(line.to_owned());
                continue;
            }
            let notes = notes(&said[index + 1..]);
            if let Some((place, what)) = self.of_included(place, what, &notes, included) {
                let place = as_asked(&place, self.path);
                if !headers.contains(&place) {
                    self.push(Kind::Cause, place.clone(), "", what);
                    headers.push(place);
                }
                continue;
            }
            if let Some((place, what)) = self.of_our_names(place, what, &notes, included) {
                self.push(Kind::Cause, as_asked(&place, self.path), "", what);
                continue;
            }
            let used = self.use_of_macro(place, &notes);
            let place = used.as_ref().map_or(without_column(place), |used| used.0);
            let is_kernels = is_read_only(what) && !anyway.lines().any(|other| other == line);
            let words = match is_kernels {
                true => Some(format!(
                    "{what}: of a task, the kernel's verifier lets policies write scx.slice, scx.dsq_vtime and scx.disallow alone"
                )),
                false => in_words(what, &notes, &mut misused),
            };
            let Some(words) = words else { continue };
            let kind = match words == what {
                true => Kind::Plain,
                false => Kind::Ours,
            };
            let what = match used {
                Some((_, name)) if words == what => format!("{name}(): {words}"),
                _ => words,
            };
            let inside = match &function {
                Some(function) if !function.starts_with("lab_") => format!("in {function}(): "),
                _ => String::new(),
            };
            self.push(kind, as_asked(place, self.path), &inside, what);
        }
        if self.all.is_empty() {
            self.rest = rest;
        }
    }

    /// Explains an error in our headers, or about one of their names: returns the place in the policy that causes it, and
    /// what to do there.
    fn of_our_names<'s>(
        &self,
        place: &'s str,
        what: &str,
        notes: &[(&'s str, &'s str)],
        included: Option<&'s str>,
    ) -> Option<(String, String)> {
        let ours = self.is_ours(place);
        let again = |what: &str| {
            format!("{what}: the virtual kernel's headers have it, too: leave this one out")
        };
        // The policy declares or defines a name of our headers again.
        let previous = notes.iter().find(|(_, note)| {
            ["previous ", "originally defined here", "previously "]
                .iter()
                .any(|start| note.starts_with(start))
        });
        if let Some((other, _)) = previous
            && self.is_ours(other) != ours
        {
            let theirs = if ours { other } else { place };
            return Some((without_column(theirs).to_owned(), again(what)));
        }
        // The policy declares a function that has the name of our macro.
        if let Some((place, name)) = self.use_of_macro(place, notes).or_else(|| {
            let name = misused_macro(what, notes)?;
            (!ours).then(|| (without_column(place), name))
        }) && self.declares(place, &name)
        {
            return Some((
                place.to_owned(),
                format!("{name}() is in the virtual kernel's headers: leave this declaration out"),
            ));
        }
        // The policy gives something the name of our macro without arguments.
        if let Some((place, name)) = self.use_of_macro(place, notes)
            && what.starts_with("expected identifier")
        {
            return Some((place.to_owned(), again(&name)));
        }
        // A macro of the policy is expanded in our headers.
        let expanded = notes
            .iter()
            .find_map(|(at, note)| Some((*at, expanded(note)?)));
        if let Some((at, name)) = expanded
            && self.is_ours(at) != ours
        {
            let theirs = match (ours, note_is_of_gcc(notes)) {
                (true, false) => Some(at),
                (false, true) => Some(place),
                _ => None,
            };
            if let Some(theirs) = theirs {
                return Some((
                    without_column(theirs).to_owned(),
                    format!(
                        "the macro {name} changes a name in the virtual kernel's headers: give it another name, or define it below them"
                    ),
                ));
            }
        }
        if !ours || self.use_of_macro(place, notes).is_some() {
            return None;
        }
        if let Some(told) = self.first_foreign_include(what) {
            return Some(told);
        }
        let at = included.map_or_else(
            || self.path.display().to_string(),
            |at| without_column(at).to_owned(),
        );
        Some((
            at,
            "the virtual kernel's headers do not compile below what stands above this line: begin the file with #include <scx/common.bpf.h>"
                .to_owned(),
        ))
    }

    /// Returns the place where the policy uses our macro that has the error, and the macro's name. Compilers name both in
    /// the notes below the error.
    fn use_of_macro<'s>(
        &self,
        place: &'s str,
        notes: &[(&'s str, &'s str)],
    ) -> Option<(&'s str, String)> {
        if !self.is_ours(place) {
            let (at, name) = notes
                .iter()
                .find_map(|(at, note)| Some((at, note.strip_prefix("expanded from macro ")?)))?;
            return self
                .is_ours(at)
                .then(|| (without_column(place), unquote(name)));
        }
        notes
            .iter()
            .filter_map(|(at, note)| Some((*at, note.strip_prefix("in expansion of macro ")?)))
            .filter(|(at, _)| !self.is_ours(at))
            .map(|(at, name)| (without_column(at), unquote(name)))
            .next_back()
    }

    /// Returns whether a line of the policy declares or defines a function of that name.
    fn declares(&self, place: &str, name: &str) -> bool {
        let Some((file, number)) = place.split_once(':') else {
            return false;
        };
        let file = match self.path.ends_with(file.trim_start_matches("./")) {
            true => self.path.to_owned(),
            false => self.path.with_file_name(file),
        };
        let number: usize = number.parse().unwrap_or(0);
        let source = std::fs::read_to_string(file).unwrap_or_default();
        let Some(line) = source.lines().nth(number.wrapping_sub(1)) else {
            return false;
        };
        line.split_once(name).is_some_and(|(before, _)| {
            // A macro before a definition also begins its line.
            let is_function = name.starts_with(|c: char| c.is_lowercase());
            let is_outside = !line.starts_with([' ', '\t', '#']);
            is_function && is_outside && !before.contains(['(', '=', ';', '{'])
        })
    }

    /// Returns whether an error is in the source or its headers, in the compiler's words or ours: not that the compiler cannot be
    /// started or has not got to its end.
    pub(crate) fn are_of_source(&self) -> bool {
        !self.all.is_empty()
    }

    /// Renders the complaints as lines. Leaves out errors that may follow from a cause.
    pub(crate) fn told(self) -> Diagnostics {
        let causes: Vec<String> = self
            .all
            .iter()
            .filter(|it| it.kind == Kind::Cause)
            .map(|it| it.place.clone())
            .collect();
        let mut plain = 0;
        let mut hidden = 0;
        let mut lines = Vec::new();
        for it in self.all {
            if it.kind == Kind::Plain && !causes.is_empty()
                || it.kind != Kind::Cause && causes.contains(&it.place)
            {
                continue;
            }
            plain += usize::from(it.kind == Kind::Plain);
            if it.kind == Kind::Plain && plain > LINES_MAX || lines.len() >= MISSING_MAX {
                hidden += 1;
                continue;
            }
            // Linkers do not report all of them.
            let others = match it.others.is_empty() {
                true => "",
                false => " (and in other places)",
            };
            lines.push(format!("{}: {}{}{others}", it.place, it.inside, it.what));
        }
        if hidden > 0 {
            lines.push(format!("and {hidden} more of this kind"));
        }
        if lines.is_empty() {
            lines = few(self.rest);
        }
        Diagnostics { lines }
    }
}

/// Mark the messages about missing things, which are merged.
const NOT_THERE: &str = " is not in the virtual kernel";
const NO_VALUE: &str = " has no value in the virtual kernel";

/// Returns place and text of the notes below an error.
fn notes<'s>(below: &[&'s str]) -> Vec<(&'s str, &'s str)> {
    let own = below
        .iter()
        .take_while(|line| !line.contains(": error: ") && !line.contains(": warning: "));
    own.filter_map(|line| line.split_once(": note: ")).collect()
}

/// Returns the macro whose expansion a note reports.
fn expanded(note: &str) -> Option<String> {
    let name = note
        .strip_prefix("in expansion of macro ")
        .or_else(|| note.strip_prefix("expanded from macro "))?;
    Some(unquote(name))
}

fn note_is_of_gcc(notes: &[(&str, &str)]) -> bool {
    notes
        .iter()
        .any(|(_, note)| note.starts_with("in expansion of macro "))
}

/// Returns the place that includes a header, and whether the line begins a chain of such places.
fn included_from(line: &str) -> Option<(&str, bool)> {
    let (place, begins) = match line.strip_prefix("In file included from ") {
        Some(place) => (place, true),
        None => (line.trim_start().strip_prefix("from ")?, false),
    };
    let place = place.trim_end_matches([':', ',']);
    place.contains(':').then_some((place, begins))
}

/// Returns the undefined symbol that a line of the linker names, and the place of its use.
fn undefined(line: &str) -> Option<(Option<String>, String)> {
    // Compilers show lines of the source behind their numbers and a bar, and quote the text of #warning.
    let is_source = line.split_once('|').is_some_and(|(number, _)| {
        let number = number.trim();
        number.is_empty() || is_number(number)
    });
    if is_source || line.contains(": warning: #warning ") || line.contains(": warning: \"") {
        return None;
    }
    let said = line
        .split_once("undefined reference to ")
        .or_else(|| line.split_once("undefined symbol: "));
    let (before, symbol) = said?;
    let place = before.trim_end_matches([':', ' ']);
    let place = place.strip_suffix("warning").unwrap_or(place);
    let place = place.trim_end_matches([':', ' ']);
    let place = place.rsplit_once(": ").map_or(place, |(_, place)| place);
    // The line names the object before the source.
    let place = place.rsplit_once(".o:").map_or(place, |(_, place)| place);
    let known = has_line(place) && !place.starts_with("include/");
    Some((known.then(|| place.to_owned()), unquote(symbol)))
}

/// Explains the unknown kinds of maps and variables of the configuration that a preprocessed line declares.
fn declared(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for behind in line.split("(*type)[BPF_MAP_TYPE_").skip(1) {
        let kind = behind.split(']').next().unwrap_or_default();
        if !is_known_kind(kind) {
            found.push(unknown_kind(kind));
        }
    }
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if line.trim_start().starts_with("extern ") && !line.contains("weak") {
        let words = line.split(|c| !is_word(c));
        let unknown = |word: &&str| kconfig::is_variable(word) && !kconfig::is_known(word);
        found.extend(words.filter(unknown).map(kconfig::unknown));
    }
    found
}

/// Lists the warnings of gcc and clang about functions that are named as in the C library. BPF has no such library.
const OF_THE_LIBRARY: [&str; 2] = [
    "[-Wbuiltin-declaration-mismatch]",
    "[-Wincompatible-library-redeclaration]",
];

/// Returns the warnings in the policy's own files, without those in our headers.
pub(crate) fn warnings(text: &str, path: &Path, headers: &Path) -> Vec<String> {
    let mut function = None;
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        if let Some(inside) = function_of(line) {
            function = inside;
            continue;
        }
        let Some((place, what)) = line.split_once(": warning: ") else {
            continue;
        };
        let place = without_column(place);
        let in_header = place.starts_with(&*headers.to_string_lossy());
        // Warnings of the linker have no line, or are about variables that the loader fills in.
        if in_header
            || !place.contains(':')
            || undefined(line).is_some()
            || OF_THE_LIBRARY.iter().any(|it| what.ends_with(it))
        {
            continue;
        }
        let inside = function.iter().map(|name| format!("in {name}(): "));
        let line = format!(
            "{}: warning: {}{what}",
            as_asked(place, path),
            inside.collect::<String>()
        );
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    few(lines)
}

/// Returns the function that gcc's following lines are about (`Some(None)`: none), if this line says so.
fn function_of(line: &str) -> Option<Option<String>> {
    if line.ends_with(": At top level:") {
        return Some(None);
    }
    let (_, name) = line.split_once(": In function ")?;
    Some(Some(unquote(name.trim_end_matches(':'))))
}

/// Keeps the first lines and counts the others.
fn few(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > LINES_MAX {
        let more = lines.len() - LINES_MAX;
        lines.truncate(LINES_MAX);
        lines.push(format!("and {more} more of this kind"));
    }
    lines
}

const NO_FLOATING_POINT: &str = "floating point is not in BPF: calculate in integers";

/// Lists gcc's errors about floating point: for x86-64 (two kinds of registers), and for aarch64.
const NO_FLOATS: [&str; 4] = [
    "with SSE disabled",
    "with SSE2 disabled",
    "with x87 disabled",
    "-mgeneral-regs-only",
];

/// Returns whether compilers call this function to calculate in floating point: `__muldf3`, `__floatsisf`.
fn is_soft_float(function: &str) -> bool {
    let name = function.strip_prefix("__").unwrap_or_default();
    let has_type = ["sf", "df", "tf", "xf"].iter().any(|of| name.contains(of));
    has_type && !name.contains('_')
}

/// Explains an error about the virtual kernel, and returns others as they are. Returns nothing for errors that follow
/// from an earlier one, the wrong call of a macro in `misused`.
fn in_words(what: &str, notes: &[(&str, &str)], misused: &mut Vec<String>) -> Option<String> {
    if let Some(name) = misused_macro(what, notes) {
        let told = wrong_arguments(&name, what);
        misused.push(name);
        return Some(told);
    }
    let undeclared = what
        .strip_prefix("use of undeclared identifier ")
        .or_else(|| what.split_once(" undeclared (").map(|(name, _)| name));
    if let Some(name) = undeclared.map(unquote) {
        return match misused.contains(&name) {
            true => None,
            false if name.starts_with("SCX_") || name.starts_with("BPF_") => {
                Some(format!("{name}{NOT_THERE}"))
            }
            false => Some(what.to_owned()),
        };
    }
    let implicit = [
        "implicit declaration of function ",
        "call to undeclared function ",
        "call to undeclared library function ",
    ];
    let called = implicit.iter().find_map(|text| what.split_once(text));
    if let Some((_, name)) = called {
        return Some(missing(&unquote(name)));
    }
    if NO_FLOATS.iter().any(|text| what.contains(text)) {
        return Some(NO_FLOATING_POINT.to_owned());
    }
    let unknown = unknown_type(what).or_else(|| unknown_member(what));
    Some(unknown.unwrap_or_else(|| what.to_owned()))
}

/// Returns the macro that has too few or too many arguments, if that is the error. gcc names it in the error, clang in
/// a note.
fn misused_macro(what: &str, notes: &[(&str, &str)]) -> Option<String> {
    if let Some(name) = what.strip_prefix("macro ") {
        return Some(unquote(name));
    }
    if !what.ends_with(" arguments provided to function-like macro invocation") {
        return None;
    }
    let mut names = notes
        .iter()
        .filter_map(|(_, note)| note.strip_prefix("macro "));
    names.next().map(unquote)
}

/// Explains the call of a kfunc's macro with a wrong number of arguments.
fn wrong_arguments(name: &str, what: &str) -> String {
    const MOVE: &str = "scx_bpf_dsq_move_to_local";
    let too_few = ["only 1 given", "too few"];
    if name == MOVE && too_few.iter().any(|text| what.contains(text)) {
        return format!(
            "{MOVE}() has enq_flags since Linux 7.1: write {MOVE}(dsq_id, 0), which the kernel tree's compat.bpf.h takes for older kernels, too"
        );
    }
    match what.contains(name) {
        true => what.to_owned(),
        false => format!("{name}(): {what}"),
    }
}

/// Explains the use of a type that is not defined, if that is the error.
fn unknown_type(what: &str) -> Option<String> {
    let starts = [
        "invalid use of undefined type ",
        "invalid application of ‘sizeof’ to incomplete type ",
        "invalid application of 'sizeof' to an incomplete type ",
        "incomplete definition of type ",
        "variable has incomplete type ",
    ];
    let name = starts.iter().find_map(|start| what.strip_prefix(start))?;
    let name = unquote(name);
    let is_type = ["struct ", "union ", "enum "]
        .iter()
        .any(|of| name.starts_with(of));
    is_type.then(|| format!("{name}{NOT_THERE}"))
}

/// Explains the use of a member that a structure of the kernel does not have here, if that is the error.
fn unknown_member(what: &str) -> Option<String> {
    let (owner, member) = match what.strip_prefix("no member named ") {
        Some(clang) => clang.split_once(" in ").map(|(member, of)| (of, member))?,
        None => what.split_once(" has no member named ")?,
    };
    // The compiler's guess at another spelling.
    let hint = what.find("; did you mean ").map_or("", |at| &what[at..]);
    let (owner, member) = (unquote(owner), unquote(member));
    let name = owner.rsplit(' ').next().unwrap_or(&owner);
    let definition = format!("struct {name} {{");
    let ours = crate::headers()
        .iter()
        .any(|(header, text)| header.starts_with("native/") && text.contains(&definition));
    ours.then(|| format!("struct {name} has no member {member} in the virtual kernel{hint}"))
}

/// Returns whether an error may be a write to a member that the kernel's verifier protects, which is const here.
pub(crate) fn is_read_only(what: &str) -> bool {
    let starts = [
        " of read-only member ",
        " of member ",
        " of read-only location ",
        "cannot assign to non-static data member ",
    ];
    let after = |start: &&str| what.split_once(*start).map(|(_, name)| unquote(name));
    let Some(place) = starts.iter().find_map(after) else {
        return false;
    };
    let member = place.rsplit(['>', '.']).next().unwrap_or_default();
    let member = member.split('[').next();
    let definition = |line: &&str| {
        let (declared, _) = line.split_once(';').unwrap_or_default();
        let name = declared.rsplit([' ', '*']).next().unwrap_or_default();
        line.starts_with("\t")
            && line.contains("LAB_OF_KERNEL ")
            && name.split('[').next() == member
    };
    types().is_some_and(|(_, types)| types.lines().any(|line| definition(&line)))
}

/// Returns place and name of a missing header, if that is the error.
fn missing_header(line: &str) -> Option<(&str, String)> {
    let (place, what) = line.split_once(": fatal error: ")?;
    let gcc = what.split_once(": No such file").map(|(header, _)| header);
    let header = gcc.or_else(|| what.strip_suffix(" file not found"))?;
    Some((without_column(place), unquote(header)))
}

/// Suggests the full name of a header that the virtual kernel has in `scx/`.
fn other_place(header: &str) -> String {
    let ours = format!("native/scx/{header}");
    match crate::headers().iter().any(|(name, _)| *name == ours) {
        true => format!(": include <scx/{header}>"),
        false => String::new(),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn has_line(place: &str) -> bool {
    place
        .rsplit_once(':')
        .is_some_and(|(_, line)| is_number(line))
}

/// Returns the `file:line` of `file:line:column`, and `file:line` as it is.
fn without_column(place: &str) -> &str {
    match place.rsplit_once(':') {
        Some((before, column)) if is_number(column) && has_line(before) => before,
        _ => place,
    }
}

/// Returns a place, `file:line`, with the policy's file as the user named it, and with the folder of headers beside it.
/// The compiler runs in that folder.
pub(crate) fn as_asked(place: &str, path: &Path) -> String {
    let Some((file, number)) = place.split_once(':') else {
        return place.to_owned();
    };
    let file = file.trim_start_matches("./");
    if path.ends_with(file) {
        return format!("{}:{number}", path.display());
    }
    // For example `<command-line>`.
    if file.starts_with('<') {
        return place.to_owned();
    }
    format!("{}:{number}", path.with_file_name(file).display())
}

fn missing(function: &str) -> String {
    if is_soft_float(function) {
        return NO_FLOATING_POINT.to_owned();
    }
    if kconfig::is_variable(function) {
        return kconfig::unknown(function);
    }
    format!("{function}(){NOT_THERE}")
}

/// Returns the first quoted word, of any kind of quotes.
fn unquote(text: &str) -> String {
    let quotes = ['‘', '’', '\'', '`', '"', '«', '»'];
    let text = text.trim_start_matches(quotes);
    text.split(quotes).next().unwrap_or(text).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        let mut complaints = Complaints::new(Path::new("a/b.bpf.c"), Path::new("/tmp/h"));
        complaints.add_errors(text, "");
        complaints.told().lines
    }

    #[test]
    fn an_unknown_kfunc_is_named_with_its_place() {
        let gcc = "b.bpf.c: In function ‘my_enqueue’:\n\
                   b.bpf.c:12:9: error: implicit declaration of function ‘scx_bpf_foo’; did you mean ‘scx_bpf_now’? [-Werror=implicit-function-declaration]";
        assert_eq!(
            lines(gcc),
            ["a/b.bpf.c:12: in my_enqueue(): scx_bpf_foo() is not in the virtual kernel"]
        );
        let clang = "b.bpf.c:12:9: error: call to undeclared function 'scx_bpf_foo'; ISO C99 and later do not support implicit function declarations [-Wimplicit-function-declaration]";
        assert_eq!(
            lines(clang),
            ["a/b.bpf.c:12: scx_bpf_foo() is not in the virtual kernel"]
        );
    }

    #[test]
    fn floating_point_is_told_as_such() {
        let gcc = "b.bpf.c: In function ‘my_enqueue’:\n\
                   b.bpf.c:6:27: error: SSE register return with SSE disabled";
        let clang = "/usr/bin/ld: b.bpf.c:6: undefined reference to `__muldf3'\n\
                     /usr/bin/ld: b.bpf.c:6: undefined reference to `__fixdfsi'";
        for (said, place) in [
            (gcc, "a/b.bpf.c:6: in my_enqueue()"),
            (clang, "a/b.bpf.c:6"),
        ] {
            let told = format!("{place}: floating point is not in BPF: calculate in integers");
            assert_eq!(lines(said), [told]);
        }
        assert!(!is_soft_float("__scx_bpf_dsq_insert_vtime"));
    }

    #[test]
    fn types_and_members_of_the_kernel_are_told_as_such() {
        for (said, told) in [
            (
                "‘struct task_struct’ has no member named ‘se’",
                "struct task_struct has no member se in the virtual kernel",
            ),
            (
                "‘const struct task_struct’ has no member named ‘__state’; did you mean ‘static_prio’?",
                "struct task_struct has no member __state in the virtual kernel; did you mean ‘static_prio’?",
            ),
            (
                "no member named 'se' in 'struct task_struct'",
                "struct task_struct has no member se in the virtual kernel",
            ),
            (
                "no member named 'slce' in 'struct sched_ext_entity'; did you mean 'slice'?",
                "struct sched_ext_entity has no member slce in the virtual kernel; did you mean 'slice'?",
            ),
            (
                "invalid use of undefined type ‘struct cgroup’",
                "struct cgroup is not in the virtual kernel",
            ),
            (
                "incomplete definition of type 'struct cgroup'",
                "struct cgroup is not in the virtual kernel",
            ),
            (
                "‘SCX_TASK_IMMED’ undeclared (first use in this function)",
                "SCX_TASK_IMMED is not in the virtual kernel",
            ),
            (
                "use of undeclared identifier 'SCX_TASK_IMMED'",
                "SCX_TASK_IMMED is not in the virtual kernel",
            ),
            // The compiler's text about the policy's own types stays as it is.
            (
                "‘struct mine’ has no member named ‘se’",
                "‘struct mine’ has no member named ‘se’",
            ),
            (
                "no member named 'se' in 'struct mine'",
                "no member named 'se' in 'struct mine'",
            ),
            (
                "‘depht’ undeclared (first use in this function)",
                "‘depht’ undeclared (first use in this function)",
            ),
        ] {
            let line = format!("b.bpf.c:12:9: error: {said}");
            assert_eq!(lines(&line), [format!("a/b.bpf.c:12: {told}")]);
        }
    }

    #[test]
    fn warnings_are_the_authors_own() {
        let told = |text: &str| warnings(text, Path::new("a/b.bpf.c"), Path::new("/tmp/h"));
        let gcc = "b.bpf.c: In function ‘my_enqueue’:\n\
                   b.bpf.c:12:9: warning: suggest parentheses [-Wparentheses]\n\
                   \u{20}  12 |  if (a = 3)\n\
                   /tmp/h/native/scx/bpf.h:9:1: warning: ours [-Wx]\n\
                   b.bpf.c:13:5: warning: conflicting types for built-in function ‘ffs’ [-Wbuiltin-declaration-mismatch]\n\
                   /usr/bin/ld: warning: b.o: missing section";
        let line = "a/b.bpf.c:12: warning: in my_enqueue(): suggest parentheses [-Wparentheses]";
        assert_eq!(told(gcc), [line]);
        let clang = "b.bpf.c:12:9: warning: using the result [-Wparentheses]\n1 warning generated.";
        let line = "a/b.bpf.c:12: warning: using the result [-Wparentheses]";
        assert_eq!(told(clang), [line]);
        let many: String = (0..9)
            .map(|n| format!("b.bpf.c:{n}:1: warning: x\n"))
            .collect();
        assert_eq!(told(&many)[LINES_MAX], "and 5 more of this kind");
    }

    #[test]
    fn headers_beside_a_policy_are_named_with_its_folder() {
        let told = |text: &str| warnings(text, Path::new("a/b.bpf.c"), Path::new("/tmp/h"));
        for (file, named) in [
            ("mine.h", "a/mine.h"),
            ("./mine.h", "a/mine.h"),
            ("../mine.h", "a/../mine.h"),
            ("/c/mine.h", "/c/mine.h"),
            ("<command-line>", "<command-line>"),
        ] {
            let warning = format!("{file}:2:9: warning: x [-Wx]");
            assert_eq!(told(&warning), [format!("{named}:2: warning: x [-Wx]")]);
            let error = format!("{file}:2:9: error: x");
            assert_eq!(lines(&error), [format!("{named}:2: x")]);
        }
    }

    #[test]
    fn an_undefined_symbol_is_one_line() {
        let ld = "/usr/bin/ld: /tmp/ccX.o: in function `my_init':\n./b.bpf.c:9: undefined reference to `bpf_foo'\ncollect2: error: ld returned 1 exit status";
        assert_eq!(
            lines(ld),
            ["a/b.bpf.c:9: bpf_foo() is not in the virtual kernel"]
        );
        let failed = "collect2: error: ld returned 1 exit status";
        assert_eq!(lines(failed), [failed], "all that is known");
    }
}
