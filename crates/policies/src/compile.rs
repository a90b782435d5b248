//! Compiling a policy's source at run time, with diagnostics that say what is not supported.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use schedlab_abi::{LeftOut, NativeObject, ObjectError, ObjectErrors, compiler};

use crate::diagnostics::Diagnostics;
use crate::objects::{self, NoObject};
use crate::prerequisites;
use crate::said::{self, Complaints, as_asked};

/// Why a source did not become native code.
pub(crate) struct Refused {
    pub(crate) told: Diagnostics,
    /// The compiler has read the source and refuses it or one of its headers: not that there is no compiler or no room, or that
    /// the source cannot be read.
    pub(crate) is_of_source: bool,
}

impl From<Diagnostics> for Refused {
    fn from(told: Diagnostics) -> Refused {
        Refused {
            told,
            is_of_source: false,
        }
    }
}

/// A compiled policy, and what it was made of.
pub(crate) struct Compiled {
    /// The policy.
    pub(crate) object: Arc<NativeObject>,
    /// The compiler's warnings outside of our headers: lines as in [`Diagnostics`].
    pub(crate) warnings: Arc<[String]>,
    /// Its source and all headers but the system's and those that come with the program.
    files: Vec<PathBuf>,
    /// Check sum of their contents, the same wherever they lie and whatever compiles them.
    pub(crate) sum: u32,
    /// Of one that was to be watched and cannot be, as it is an object: the reason, lines for people.
    pub(crate) unwatched: Option<Arc<[String]>>,
}

impl Compiled {
    /// Reads an object that was compiled elsewhere. To be watched needs native code.
    pub(crate) fn of_object(path: &Path, watched: bool) -> Result<Compiled, Diagnostics> {
        let objects::Read {
            object,
            mut notes,
            files,
        } = objects::read(path)?;
        let sum = sum(&files).map_err(|error| one(format!("{}: {error}", path.display())))?;
        let unwatched = watched.then(|| {
            let text = "an object cannot be audited: give the path of its source, a .bpf.c file";
            Arc::from([format!("{}: {text}", path.display())])
        });
        if watched {
            let text = format!("{}: simulated as an object: {NO_RACES}", path.display());
            notes.push(text);
        }
        Ok(Compiled {
            object,
            warnings: notes.into(),
            files,
            sum,
            unwatched,
        })
    }

    /// Compiles a source for BPF that the native compiler refuses: BPF has other rules, and a source may have headers and
    /// prototypes of its own. `refused` is what that compiler said.
    ///
    /// # Errors
    /// `refused`, if it is about no source, or the source cannot be compiled for BPF and simulated either.
    pub(crate) fn for_bpf(
        path: &Path,
        refused: Refused,
        watched: bool,
    ) -> Result<Compiled, Diagnostics> {
        let Refused { told, is_of_source } = refused;
        if !is_of_source {
            return Err(told);
        }
        match Compiled::instead(path, &told, watched) {
            Ok(compiled) => Ok(compiled),
            // BPF takes the source: what the virtual kernel lacks is the reason, not what native code lacks.
            Err(NoObject::Lacks(lines)) => Err(lines),
            Err(NoObject::Refused(errors)) => Err(with_clang(told, &errors, path)),
        }
    }

    /// Compiles a source for BPF because native code lacks a function that it calls: the first line of the notes says so. If BPF does
    /// not take it, `native` stays, with a warning that names the reason.
    pub(crate) fn for_bpf_or(
        native: Compiled,
        path: &Path,
        told: String,
        watched: bool,
    ) -> Compiled {
        let told = one(told);
        let lines = match Compiled::instead(path, &told, watched) {
            Ok(compiled) => return compiled,
            Err(NoObject::Lacks(lines)) => lines.lines,
            Err(NoObject::Refused(errors)) => errors,
        };
        let first = lines.first().map_or("", String::as_str);
        let own = format!("{}: ", path.display());
        let warning = format!(
            "{}, and it cannot be compiled for BPF: {}",
            told.lines[0],
            first.strip_prefix(&own).unwrap_or(first)
        );
        let others = native.warnings.iter().cloned();
        Compiled {
            warnings: std::iter::once(warning).chain(others).collect(),
            ..native
        }
    }

    /// Compiles a source for BPF instead of natively, and adds the reason to its notes.
    fn instead(path: &Path, told: &Diagnostics, watched: bool) -> Result<Compiled, NoObject> {
        let objects::Read {
            object,
            notes,
            files,
        } = objects::of_source(path)?;
        let source = format!("{}:", path.display());
        let names_a_line = |line: &&String| {
            let rest = line.strip_prefix(&source);
            rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        // One of the source itself, unless all are of its headers.
        let first = told.lines.iter().find(names_a_line);
        let first = first.or(told.lines.first()).map_or("", String::as_str);
        let races = match watched {
            true => format!(": {NO_RACES}"),
            false => String::new(),
        };
        let note = format!("{first}; compiled for BPF instead, and simulated as an object{races}");
        let sum = sum(&files)
            .map_err(|error| NoObject::Lacks(one(format!("{}: {error}", path.display()))))?;
        Ok(Compiled {
            object,
            warnings: std::iter::once(note).chain(notes).collect(),
            files,
            sum,
            unwatched: watched.then(|| told.lines.clone().into()),
        })
    }

    /// Returns whether its files are still what it was made of.
    pub(crate) fn is_current(&self) -> bool {
        sum(&self.files).is_ok_and(|sum| sum == self.sum)
    }
}

/// Adds the first error of clang for BPF, if it is in a line of the source that the native compiler has not named.
fn with_clang(mut told: Diagnostics, errors: &[String], path: &Path) -> Diagnostics {
    let source = format!("{}:", path.display());
    let first = errors.iter().find_map(|line| {
        let (place, what) = line.strip_prefix(&source)?.split_once("error: ")?;
        Some((place.split(':').next()?.to_owned(), what))
    });
    if let Some((number, what)) = first {
        let place = format!("{source}{number}:");
        if !told.lines.iter().any(|line| line.starts_with(&place)) {
            // Without the name of a flag.
            let what = what.split(" [-W").next().unwrap_or(what);
            told.lines.push(format!("{place} clang for BPF: {what}"));
        }
    }
    told
}

/// The end of a note about an object.
const NO_RACES: &str = "--check looks for no data races in it";

fn sum(files: &[PathBuf]) -> std::io::Result<u32> {
    let mut sum = crc32fast::Hasher::new();
    for file in files {
        sum.update(&fs::read(file)?);
        // A change of what moves from one file to the next is a change, too.
        sum.update(&[0]);
    }
    Ok(sum.finalize())
}

/// Compiles a `.bpf.c` file for the virtual kernel with `SCHEDLAB_CC` or `cc`.
///
/// # Errors
/// If it cannot be read or compiled, uses what the virtual kernel does not have, or is no policy.
pub fn compile(path: &Path) -> Result<Arc<NativeObject>, Diagnostics> {
    compile_with(path, &compiler::default_compiler())
}

/// Compiles with a compiler of one's choice.
///
/// # Errors
/// As [`compile`].
pub fn compile_with(path: &Path, cc: &str) -> Result<Arc<NativeObject>, Diagnostics> {
    let compiled = compiled(path, cc, false).map_err(|refused| refused.told)?;
    Ok(compiled.object)
}

/// Compiles for an audit ([`schedlab_abi::NativePolicy::load_watched`]) with a clang ([`audit_compiler`]).
///
/// # Errors
/// As [`compile`].
pub fn compile_audited(path: &Path, cc: &str) -> Result<Arc<NativeObject>, Diagnostics> {
    let compiled = compiled(path, cc, true).map_err(|refused| refused.told)?;
    Ok(compiled.object)
}

/// Compiles a policy that comes with the program for an audit.
pub(crate) fn builtin_audited(
    name: &str,
    source: &str,
    cc: &str,
) -> Result<Arc<NativeObject>, Diagnostics> {
    let folder = private_folder()?;
    let folder = folder.path();
    let headers = folder.join("include");
    put_headers(&headers).map_err(no_place)?;
    // Lines are reported with the path that they have in the repository.
    let path = Path::new("policies").join(format!("{name}.bpf.c"));
    fs::create_dir(folder.join("policies")).map_err(no_place)?;
    fs::write(folder.join(&path), source).map_err(no_place)?;
    let output = folder.join("policy.so");
    let job = compiler::Compilation {
        compiler: cc,
        arch: std::env::consts::ARCH,
        folder,
        source: &path,
        include: &[headers.join("native"), headers.clone()],
        output: &output,
        audit: true,
    };
    let built = build(&job, &path, &headers, name, source);
    Ok(built.map_err(|refused| refused.told)?.0)
}

/// Puts the headers that come with the program into a folder.
fn put_headers(folder: &Path) -> std::io::Result<()> {
    for (header, text) in crate::headers() {
        let target = folder.join(header);
        fs::create_dir_all(target.parent().expect("a header is in a folder"))?;
        fs::write(target, text)?;
    }
    Ok(())
}

fn no_output(error: &std::io::Error, cc: &str) -> Diagnostics {
    one(format!(
        "the C compiler `{cc}` has not written what it should: {}: name another in SCHEDLAB_CC",
        error.kind()
    ))
}

/// Where `SCHEDLAB_CC` names none.
const CLANGS: [&str; 5] = ["clang", "clang-22", "clang-21", "clang-20", "clang-19"];

/// Returns the compiler of an audit and of the checker of races, which clang alone can be: `SCHEDLAB_CC`, or else the
/// first that is here.
///
/// # Errors
/// If the file is no policy, or does not exist.
pub fn audit_compiler() -> Result<String, Diagnostics> {
    let is_clang = |cc: &str| {
        let version = Command::new(cc).arg("--version").output();
        version.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("clang version"))
    };
    match std::env::var("SCHEDLAB_CC") {
        Ok(named) if is_clang(&named) => Ok(named),
        Ok(named) => Err(one(format!(
            "the audit and the checker of data races need clang, which `{named}` is not: name a clang in SCHEDLAB_CC"
        ))),
        Err(_) => match CLANGS.into_iter().find(|cc| is_clang(cc)) {
            Some(found) => Ok(found.to_owned()),
            None => Err(one(format!(
                "the audit and the checker of data races need clang, and none of {} is installed: install one, or name it in SCHEDLAB_CC",
                CLANGS.join(", ")
            ))),
        },
    }
}

fn one(line: String) -> Diagnostics {
    Diagnostics { lines: vec![line] }
}

/// Without the random name of what could not be made there.
fn no_place(error: std::io::Error) -> Diagnostics {
    let folder = std::env::temp_dir();
    one(format!(
        "cannot write in {}, the folder for temporary files: {}: name another in TMPDIR",
        folder.display(),
        error.kind()
    ))
}

/// Folders for temporary files that are there now.
static FOLDERS: AtomicUsize = AtomicUsize::new(0);
/// Whether the program is about to end.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Waits until no compiler or loader is at work in a folder for temporary files, which would stay otherwise, and lets none
/// begin any more: for a program that is about to end. A thread that compiles or supervises a loader does not come back: it parks
/// where it drops its folder.
pub fn finish() {
    ENDING.store(true, Ordering::SeqCst);
    while FOLDERS.load(Ordering::SeqCst) > 0 {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the program is about to end: what takes long gives up then.
pub(crate) fn is_ending() -> bool {
    ENDING.load(Ordering::SeqCst)
}

fn stay_if_ending() {
    while is_ending() {
        thread::park();
    }
}

/// A folder for temporary files, for this process alone.
pub(crate) struct PrivateFolder {
    // Removed before it is no longer counted: fields are dropped in this order.
    folder: tempfile::TempDir,
    _counted: Counted,
}

struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        FOLDERS.fetch_sub(1, Ordering::SeqCst);
        stay_if_ending();
    }
}

impl PrivateFolder {
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

pub(crate) fn private_folder() -> Result<PrivateFolder, Diagnostics> {
    stay_if_ending();
    FOLDERS.fetch_add(1, Ordering::SeqCst);
    let counted = Counted;
    let folder = tempfile::Builder::new()
        .prefix("schedlab-")
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir()
        .map_err(no_place)?;
    Ok(PrivateFolder {
        folder,
        _counted: counted,
    })
}

/// Says that a source calls a function that native code lacks, although it compiles: a call ends the run.
pub(crate) fn objects_alone(path: &Path) -> Option<String> {
    let source = fs::read_to_string(path).ok()?;
    let (line, name) = call_of_objects_alone(&source)?;
    Some(format!(
        "{}:{line}: {name}() is in the virtual kernel for objects alone",
        path.display()
    ))
}

/// Returns the first call of a function that native code lacks, by its line and name. A function may be missing if the source asks
/// whether it is there.
fn call_of_objects_alone(source: &str) -> Option<(usize, &'static str)> {
    let source = code_of(source);
    let missing: Vec<&str> = crate::headers()
        .iter()
        .filter(|(header, _)| header.starts_with("native/"))
        .flat_map(|(_, text)| text.lines())
        .filter_map(|line| {
            let name = match line.strip_prefix("LAB_MISSING_VOID(") {
                Some(rest) => rest.split(',').next(),
                None => line.strip_prefix("LAB_MISSING(")?.split(',').nth(1),
            };
            name.map(|name| name.trim().trim_end_matches(')'))
        })
        .filter(|name| !source.contains(&format!("bpf_ksym_exists({name}")))
        .collect();
    let calls = |line: &str, name: &str| {
        let mut ends = line
            .match_indices(name)
            .map(|(at, _)| (at, at + name.len()));
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        ends.any(|(at, end)| {
            !line[..at].ends_with(is_name) && line[end..].trim_start().starts_with('(')
        })
    };
    source.lines().enumerate().find_map(|(index, line)| {
        let name = missing.iter().find(|name| calls(line, name))?;
        Some((index + 1, *name))
    })
}

/// Returns C code with a blank in place of each character of a comment, a string or a character constant; lines stay.
fn code_of(source: &str) -> String {
    /// The kind of text around a character.
    enum In {
        Code,
        Line,
        Block,
        /// A string or a character constant, as far as this quote.
        Quotes(char),
    }
    let mut code = String::with_capacity(source.len());
    let mut at = In::Code;
    let mut rest = source.chars().peekable();
    while let Some(c) = rest.next() {
        let next = rest.peek().copied();
        // A character that the one before it gives a meaning.
        let mut takes_next = false;
        let mut is_code = false;
        match at {
            In::Code => match (c, next) {
                ('/', Some('/')) => at = In::Line,
                ('/', Some('*')) => (at, takes_next) = (In::Block, true),
                ('"' | '\'', _) => at = In::Quotes(c),
                _ => is_code = true,
            },
            In::Line if c == '\n' => at = In::Code,
            In::Line => takes_next = c == '\\',
            In::Block if (c, next) == ('*', Some('/')) => (at, takes_next) = (In::Code, true),
            In::Block => {}
            In::Quotes(_) if c == '\\' => takes_next = true,
            // One without an end is a mistake of its line.
            In::Quotes(quote) if c == quote || c == '\n' => at = In::Code,
            In::Quotes(_) => {}
        }
        let blank = |c: char| if c == '\n' { c } else { ' ' };
        code.push(if is_code { c } else { blank(c) });
        if takes_next {
            code.extend(rest.next().map(blank));
        }
    }
    code
}

/// Returns the same, with what it was made of.
pub(crate) fn compiled(path: &Path, cc: &str, audit: bool) -> Result<Compiled, Refused> {
    let unreadable = |error: std::io::Error| one(format!("{}: {error}", path.display()));
    // No line of a message or of a rule of make has room for it.
    if path.to_string_lossy().contains(char::is_control) {
        return Err(Refused::from(one(format!(
            "{path:?}: a scheduler's path has no control characters: rename it"
        ))));
    }
    let is_c = path.extension().is_some_and(|ending| ending == "c");
    if !is_c && !path.exists() {
        return Err(Refused::from(one(format!(
            "{}: there is no such file; `,` separates schedulers and `:` options: rename a file that has them in its path",
            path.display()
        ))));
    }
    if !is_c {
        return Err(Refused::from(one(format!(
            "{}: not a C file: a scheduler's path ends in .bpf.c",
            path.display()
        ))));
    }
    // The compiler and the check sum read it, too.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(Refused::from(one(format!(
            "{}: not a regular file, and a scheduler's source is read several times: put it into a file",
            path.display()
        ))));
    }
    let source = fs::read_to_string(path).map_err(unreadable)?;
    let cid_form = source
        .lines()
        .position(|line| line.starts_with("SCX_OPS_CID_DEFINE("));
    if let Some(index) = cid_form {
        let told = one(format!(
            "{}:{}: SCX_OPS_CID_DEFINE() is not in the virtual kernel's headers for native code: objects alone have the cid form",
            path.display(),
            index + 1
        ));
        return Err(Refused {
            told,
            is_of_source: true,
        });
    }
    let folder = private_folder()?;
    let headers = folder.path();
    put_headers(headers).map_err(no_place)?;
    let full = path.canonicalize().map_err(unreadable)?;
    let parent = full.parent().expect("a file is in a folder");
    let file = full.file_name().expect("a file has a name");
    let output = headers.join("policy.so");
    let job = compiler::Compilation {
        compiler: cc,
        arch: std::env::consts::ARCH,
        folder: parent,
        // A name may begin as an option does.
        source: &Path::new(".").join(file),
        include: &[headers.join("native"), headers.to_owned()],
        output: &output,
        audit,
    };
    let name = file.to_string_lossy();
    let name = name.strip_suffix(".bpf.c").unwrap_or(&name);
    let (object, said) = build(&job, path, headers, name, &source)?;
    let mut warnings = said::warnings(&said, path, headers);
    warnings.extend(object.left_out().iter().map(|it| left_out(it, path)));
    let rule =
        fs::read_to_string(output.with_extension("d")).map_err(|error| no_output(&error, cc))?;
    let files: Vec<PathBuf> = prerequisites::of(&rule)
        .iter()
        .map(|file| parent.join(file))
        .filter(|file| !file.starts_with(headers))
        .collect();
    let sum = sum(&files).map_err(unreadable)?;
    Ok(Compiled {
        object,
        warnings: warnings.into(),
        files,
        sum,
        unwatched: None,
    })
}

/// Limits the number of missing headers that are found.
const HEADERS_MAX: usize = 16;

/// Compiles a policy. Returns its object and the output of the compiler, which has the warnings.
///
/// The error lists all faults that one call can find. An empty header replaces each missing one, and undeclared functions
/// are left to the linker.
fn build(
    job: &compiler::Compilation<'_>,
    path: &Path,
    headers: &Path,
    name: &str,
    source: &str,
) -> Result<(Arc<NativeObject>, String), Refused> {
    let mut complaints = Complaints::new(path, headers);
    let mut further = Vec::new();
    let mut has_headers = true;
    let mut outcome = compiler::run(job);
    for _ in 0..HEADERS_MAX {
        let Err(text) = &outcome else { break };
        let missing = complaints.add_missing_headers(text);
        has_headers &= missing.is_empty();
        let empty = headers.join("missing");
        let put = missing.iter().filter(|header| put_empty(&empty, header));
        if put.count() == 0 {
            break;
        }
        further = vec!["-idirafter".to_owned(), empty.display().to_string()];
        outcome = compiler::run_with(job, &further);
    }
    if let Err(text) = &outcome {
        refused(job, text, &further, headers, &mut complaints);
        if text.contains("implicit-function-declaration]") {
            further.push("-Wno-error=implicit-function-declaration".to_owned());
            outcome = compiler::run_with(job, &further);
        }
    }
    let Ok(said) = outcome else {
        // Without an object only the preprocessed source shows what else is missing.
        further.push("-E".to_owned());
        let preprocessed = compiler::run_with(job, &further);
        if let Some(text) = preprocessed.ok().and(fs::read_to_string(job.output).ok()) {
            complaints.add_declared(&text);
        }
        return Err(refusal(complaints));
    };
    complaints.add_undefined(&said);
    let elf = fs::read(job.output).map_err(|error| no_output(&error, job.compiler))?;
    let errors = match NativeObject::from_elf(name, source, elf) {
        Ok(object) if complaints.is_empty() => return Ok((object, said)),
        Ok(_) => Vec::new(),
        Err(ObjectErrors(errors)) => errors,
    };
    for error in errors {
        // A missing header may define the ops table, the licence or this symbol.
        let follows = matches!(error, ObjectError::Ops { .. } | ObjectError::License { .. });
        let told = error.symbol().is_some_and(|it| complaints.has_missing(it));
        if told || follows && !has_headers {
            continue;
        }
        // The message begins with the file and needs no name of the policy.
        let text = error.to_string();
        let mut what = text.strip_prefix(&format!("{name}: ")).unwrap_or(&text);
        if let Some(place) = error.place() {
            what = what.strip_prefix(&format!("{place}: ")).unwrap_or(what);
        }
        complaints.add(error.place(), what.to_owned());
    }
    Err(refusal(complaints))
}

fn refusal(complaints: Complaints<'_>) -> Refused {
    Refused {
        is_of_source: complaints.are_of_source(),
        told: complaints.told(),
    }
}

/// Puts an empty header into a folder. Returns false for names that lead out of the folder.
fn put_empty(folder: &Path, header: &str) -> bool {
    let is_below = |part: Component<'_>| matches!(part, Component::Normal(_));
    if !Path::new(header).components().all(is_below) {
        return false;
    }
    let target = folder.join(header);
    let put = || {
        fs::create_dir_all(target.parent()?).ok()?;
        fs::write(&target, "").ok()
    };
    put().is_some()
}

/// Explains that a simulation leaves a program out.
fn left_out(it: &LeftOut, path: &Path) -> String {
    let place = match it.place.is_empty() {
        true => path.display().to_string(),
        false => as_asked(&it.place, path),
    };
    format!(
        "{place}: {}() is left out: it is a program of SEC(\"{}\"), and a simulation calls ops alone",
        it.program, it.section
    )
}

/// Adds the errors of a refused source. Changes the headers: afterwards they let policies write all members of a task.
fn refused(
    job: &compiler::Compilation<'_>,
    text: &str,
    further: &[String],
    headers: &Path,
    complaints: &mut Complaints<'_>,
) {
    let read_only = |line: &str| {
        line.split_once(": error: ")
            .is_some_and(|(_, what)| said::is_read_only(what))
    };
    let anyway = match text.lines().any(read_only) {
        // The policy's own structures may have members of these names, and compilers do not say whose member it is.
        true => without_read_only(job, further, headers).unwrap_or_else(|| text.to_owned()),
        false => String::new(),
    };
    complaints.add_errors(text, &anyway);
}

/// Compiles with headers that let policies write all of the kernel's structures, and returns the compiler's output.
fn without_read_only(
    job: &compiler::Compilation<'_>,
    further: &[String],
    headers: &Path,
) -> Option<String> {
    const READ_ONLY: &str = "#define LAB_OF_KERNEL\tconst\n";
    let (header, types) = said::types()?;
    let header = headers.join(header);
    fs::write(header, types.replace(READ_ONLY, "#define LAB_OF_KERNEL\n")).ok()?;
    Some(compiler::run_with(job, further).err().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_no_code() {
        for (source, code) in [
            ("a /* b */ c", "a         c"),
            ("a // b\nc", "a     \nc"),
            ("/* a\n   b\n*/ c", "    \n    \n   c"),
            ("a(\"b\\\"/*\") c", "a(       ) c"),
            ("'\"' a '\\'' b", "    a      b"),
            ("a \"b\nc", "a   \nc"),
            ("a // b \\\nc\nd", "a       \n \nd"),
            ("a / b * c", "a / b * c"),
            ("a /*/ b */ c", "a          c"),
        ] {
            assert_eq!(code_of(source), code, "{source:?}");
        }
    }

    #[test]
    fn calls_of_what_objects_alone_have_are_found_in_code() {
        let call = call_of_objects_alone;
        assert_eq!(
            call("f();\nu64 now = bpf_jiffies64();\n"),
            Some((2, "bpf_jiffies64"))
        );
        assert_eq!(
            call("/* a\n */ x = scx_bpf_task_cgroup (p);"),
            Some((2, "scx_bpf_task_cgroup"))
        );
        for without in [
            "x(); /* unlike bpf_jiffies64() */",
            "/*\n   as bpf_jiffies64() has it\n*/",
            "x(); // bpf_jiffies64()",
            "x(\"bpf_jiffies64()\");",
            "my_bpf_jiffies64();",
            "x = bpf_jiffies64_of(y);",
            "if (bpf_ksym_exists(bpf_jiffies64)) x = bpf_jiffies64();",
        ] {
            assert_eq!(call(without), None, "{without}");
        }
    }
}
