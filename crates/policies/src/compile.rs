//! Compiling a policy's source at run time, with diagnostics that say what is not supported.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use schedlab_abi::{Object, ObjectError, compiler};

/// Why a source is no policy that can be simulated: one or more lines for people.
#[derive(Debug, PartialEq, Eq)]
pub struct Diagnostics {
    /// Each `file:line: in function(): what`, as far as that is known.
    pub lines: Vec<String>,
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("\n"))
    }
}

impl std::error::Error for Diagnostics {}

/// A compiled policy, and what it was made of.
pub(crate) struct Compiled {
    /// The policy.
    pub(crate) object: Arc<Object>,
    /// What the compiler warns of, outside of our headers: lines as those of [`Diagnostics`].
    pub(crate) warnings: Arc<[String]>,
    /// Its source and all headers but the system's and those that come with the program.
    files: Vec<PathBuf>,
    /// Check sum of their contents, the same wherever they lie and whatever compiles them.
    pub(crate) sum: u32,
}

impl Compiled {
    /// Whether its files are still what it was made of.
    pub(crate) fn is_current(&self) -> bool {
        sum(&self.files).is_ok_and(|sum| sum == self.sum)
    }
}

fn sum(files: &[PathBuf]) -> std::io::Result<u32> {
    let mut sum = crc32fast::Hasher::new();
    for file in files {
        sum.update(&fs::read(file)?);
        // What moves from one file to the next is a change, too.
        sum.update(&[0]);
    }
    Ok(sum.finalize())
}

/// Compiles a `.bpf.c` file for the virtual kernel with `SCHEDLAB_CC` or `cc`.
///
/// # Errors
/// If it cannot be read or compiled, uses what the virtual kernel does not have, or is no policy.
pub fn compile(path: &Path) -> Result<Arc<Object>, Diagnostics> {
    compile_with(path, &compiler::default_compiler())
}

/// Compiles with a compiler of one's choice.
///
/// # Errors
/// As [`compile`].
pub fn compile_with(path: &Path, cc: &str) -> Result<Arc<Object>, Diagnostics> {
    Ok(compiled(path, cc, false)?.object)
}

/// Compiles for an audit ([`schedlab_abi::NativePolicy::load_watched`]) with a clang ([`audit_compiler`]).
///
/// # Errors
/// As [`compile`].
pub fn compile_audited(path: &Path, cc: &str) -> Result<Arc<Object>, Diagnostics> {
    Ok(compiled(path, cc, true)?.object)
}

/// Compiles a policy that comes with the program for an audit.
pub(crate) fn builtin_audited(
    name: &str,
    source: &str,
    cc: &str,
) -> Result<Arc<Object>, Diagnostics> {
    let folder = private_folder()?;
    let folder = folder.path();
    let headers = folder.join("include");
    put_headers(&headers).map_err(no_place)?;
    // Lines are told with the path that it has in the repository.
    let path = Path::new("policies").join(format!("{name}.bpf.c"));
    fs::create_dir(folder.join("policies")).map_err(no_place)?;
    fs::write(folder.join(&path), source).map_err(no_place)?;
    let output = folder.join("policy.so");
    let job = compiler::Job {
        compiler: cc,
        arch: std::env::consts::ARCH,
        folder,
        source: &path,
        include: &[headers.join("native"), headers.clone()],
        output: &output,
        audit: true,
    };
    compiler::run(&job).map_err(|text| refused(&job, &text, &path, &headers))?;
    let elf = fs::read(&output).map_err(|error| no_output(&error, cc))?;
    Object::from_elf(name, source, elf).map_err(|error| one(error.to_string()))
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

/// The compiler of an audit and of the checker of races, which clang alone can be: `SCHEDLAB_CC`, or else the first that is here.
///
/// # Errors
/// If it is none, or there is none.
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
                "the audit and the checker of data races need clang, and there is none of {}: install one, or name it in SCHEDLAB_CC",
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

/// Waits until no compiler is at work in a folder for temporary files, which nobody would remove otherwise, and lets none
/// begin any more: for a program that is about to end. Threads that compile do not come back.
pub fn finish() {
    ENDING.store(true, Ordering::SeqCst);
    while FOLDERS.load(Ordering::SeqCst) > 0 {
        thread::sleep(Duration::from_millis(5));
    }
}

fn stay_if_ending() {
    while ENDING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// A folder for temporary files; nobody else may put files there.
struct PrivateFolder {
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
    fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn private_folder() -> Result<PrivateFolder, Diagnostics> {
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

/// The same, with what it was made of.
pub(crate) fn compiled(path: &Path, cc: &str, audit: bool) -> Result<Compiled, Diagnostics> {
    let unreadable = |error: std::io::Error| one(format!("{}: {error}", path.display()));
    // No line of a message or of a rule of make has room for it.
    if path.to_string_lossy().contains(char::is_control) {
        return Err(one(format!(
            "{path:?}: a scheduler's path has no control characters: rename it"
        )));
    }
    let is_c = path.extension().is_some_and(|ending| ending == "c");
    if !is_c && !path.exists() {
        return Err(one(format!(
            "{}: there is no such file; `,` separates schedulers and `:` options: rename a file that has them in its path",
            path.display()
        )));
    }
    if !is_c {
        return Err(one(format!(
            "{}: not a C file: a scheduler's path ends in .bpf.c",
            path.display()
        )));
    }
    // The compiler and the check sum read it, too.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(one(format!(
            "{}: not a regular file, and a scheduler's source is read several times: put it into a file",
            path.display()
        )));
    }
    let source = fs::read_to_string(path).map_err(unreadable)?;
    let cid_form = source
        .lines()
        .position(|line| line.starts_with("SCX_OPS_CID_DEFINE("));
    if let Some(index) = cid_form {
        return Err(one(format!(
            "{}:{}: SCX_OPS_CID_DEFINE() is not in the virtual kernel: it has struct sched_ext_ops, not sched_ext_ops_cid",
            path.display(),
            index + 1
        )));
    }
    let folder = private_folder()?;
    let headers = folder.path();
    put_headers(headers).map_err(no_place)?;
    let full = path.canonicalize().map_err(unreadable)?;
    let parent = full.parent().expect("a file is in a folder");
    let file = full.file_name().expect("a file has a name");
    let output = headers.join("policy.so");
    let job = compiler::Job {
        compiler: cc,
        arch: std::env::consts::ARCH,
        folder: parent,
        // A name may begin as an option does.
        source: &Path::new(".").join(file),
        include: &[headers.join("native"), headers.to_owned()],
        output: &output,
        audit,
    };
    let said = compiler::run(&job).map_err(|text| refused(&job, &text, path, headers))?;
    let elf = fs::read(&output).map_err(|error| no_output(&error, cc))?;
    let name = file.to_string_lossy();
    let name = name.strip_suffix(".bpf.c").unwrap_or(&name);
    let object = Object::from_elf(name, &source, elf).map_err(|error| {
        if let ObjectError::Op { place, what, .. } = &error {
            return one(format!("{}: {what}", as_asked(place, path)));
        }
        // The file says more than its name.
        let text = error.to_string();
        let what = text.strip_prefix(&format!("{name}: ")).unwrap_or(&text);
        one(format!("{}: {what}", path.display()))
    })?;
    let rule =
        fs::read_to_string(output.with_extension("d")).map_err(|error| no_output(&error, cc))?;
    let files: Vec<PathBuf> = prerequisites(&rule)
        .iter()
        .map(|file| parent.join(file))
        .filter(|file| !file.starts_with(headers))
        .collect();
    let sum = sum(&files).map_err(unreadable)?;
    Ok(Compiled {
        object,
        warnings: warnings(&said, path, headers).into(),
        files,
        sum,
    })
}

/// The files behind the colon of a rule of make, as compilers write them.
fn prerequisites(rule: &str) -> Vec<String> {
    let rule = rule.replace("\\\n", " ");
    let files = rule.split_once(": ").map_or("", |(_, files)| files);
    // A blank that does not separate has a backslash before it.
    let files = files.replace("\\ ", "\0").replace("$$", "$");
    files
        .split_whitespace()
        .map(|file| {
            file.replace('\0', " ")
                .replace("\\#", "#")
                .replace("\\:", ":")
        })
        .collect()
}

/// More complaints than this tell nobody more.
const LINES_MAX: usize = 4;

/// Why it was not compiled. The headers that it was compiled with are of no more use.
fn refused(job: &compiler::Job<'_>, text: &str, path: &Path, headers: &Path) -> Diagnostics {
    let read_only = |line: &str| {
        line.split_once(": error: ")
            .is_some_and(|(_, what)| is_read_only(what))
    };
    let anyway = match text.lines().any(read_only) {
        // Structures of its own may have members of these names, and compilers do not say whose one is.
        true => without_read_only(job, headers).unwrap_or_else(|| text.to_owned()),
        false => String::new(),
    };
    explain(text, &anyway, path, headers)
}

/// What the compiler says where policies may write all of the kernel's structures; `None` if that cannot be known.
fn without_read_only(job: &compiler::Job<'_>, headers: &Path) -> Option<String> {
    const READ_ONLY: &str = "#define LAB_OF_KERNEL\tconst\n";
    let (header, types) = types()?;
    let header = headers.join(header);
    fs::write(header, types.replace(READ_ONLY, "#define LAB_OF_KERNEL\n")).ok()?;
    Some(compiler::run(job).err().unwrap_or_default())
}

/// The header that has the kernel's structures: name and text.
fn types() -> Option<(&'static str, &'static str)> {
    let mut headers = crate::headers().iter().copied();
    headers.find(|(name, _)| *name == "native/scx/types.h")
}

/// Turns what gcc, clang and the linker say into lines that name file, line, function and remedy. Some of it they would say
/// `anyway`, if policies could write all of the kernel's structures.
fn explain(text: &str, anyway: &str, path: &Path, headers: &Path) -> Diagnostics {
    let mut function = None;
    let mut lines: Vec<String> = Vec::new();
    let mut push = |line: String| {
        if !lines.contains(&line) {
            lines.push(line);
        }
    };
    let mut rest = Vec::new();
    let mut misused = Vec::new();
    let said: Vec<&str> = text.lines().collect();
    for (index, &line) in said.iter().enumerate() {
        if let Some((place, header)) = missing_header(line) {
            push(format!(
                "{}: {header} is neither beside it nor in the virtual kernel{}",
                as_asked(place, path),
                other_place(&header)
            ));
            continue;
        }
        if let Some(inside) = function_of(line) {
            function = inside;
            continue;
        }
        let symbol = line
            .split_once("undefined reference to ")
            .or_else(|| line.split_once("undefined symbol: "));
        if let Some((before, symbol)) = symbol {
            let symbol = unquote(symbol);
            let place = before.trim_end_matches([':', ' ']);
            let place = place.rsplit_once(": ").map_or(place, |(_, place)| place);
            let place = if place.contains(".c:") && !place.contains("(.text") {
                as_asked(place, path)
            } else {
                path.display().to_string()
            };
            push(format!("{place}: {}", missing(&symbol)));
            continue;
        }
        // The compiler says of the linker only that it failed.
        if line.starts_with("collect2: ") || line.contains("linker command failed") {
            rest.push(line.to_owned());
            continue;
        }
        let Some((place, what)) = line.split_once(": error: ") else {
            if !line.trim().is_empty() {
                rest.push(line.to_owned());
            }
            continue;
        };
        let below = &said[index + 1..];
        let (place, used) = match place_of_use(below, path) {
            Some((place, name)) if place_of(line).starts_with(&*headers.to_string_lossy()) => {
                (place, Some(name))
            }
            _ => (without_column(place), None),
        };
        let words = match is_read_only(what) && !anyway.lines().any(|other| other == line) {
            true => Some(format!(
                "{what}: of a task, the kernel's verifier lets policies write scx.slice, scx.dsq_vtime and scx.disallow alone"
            )),
            false => in_words(what, below, &mut misused),
        };
        let what = match (words, used) {
            (None, _) => continue,
            (Some(words), Some(name)) if words == what => format!("{name}(): {words}"),
            (Some(words), _) => words,
        };
        let place = as_asked(place, path).replace(&format!("{}/", headers.display()), "");
        let inside = match &function {
            Some(function) => format!("in {function}(): "),
            None => String::new(),
        };
        push(format!("{place}: {inside}{what}"));
    }
    if lines.is_empty() {
        lines = rest;
    }
    Diagnostics { lines: few(lines) }
}

/// Warnings, of gcc and of clang, that a function is called as one of the C library, which BPF has not.
const OF_THE_LIBRARY: [&str; 2] = [
    "[-Wbuiltin-declaration-mismatch]",
    "[-Wincompatible-library-redeclaration]",
];

/// The warnings of a policy that compiles; those in our headers are none of its author's.
fn warnings(text: &str, path: &Path, headers: &Path) -> Vec<String> {
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
        // The linker has no line to warn of.
        if in_header || !place.contains(':') || OF_THE_LIBRARY.iter().any(|it| what.ends_with(it)) {
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

/// The function that the lines below are about, or that they are about none: gcc says it on a line of its own.
fn function_of(line: &str) -> Option<Option<String>> {
    if line.ends_with(": At top level:") {
        return Some(None);
    }
    let (_, name) = line.split_once(": In function ")?;
    Some(Some(unquote(name.trim_end_matches(':'))))
}

/// The first of them.
fn few(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > LINES_MAX {
        let more = lines.len() - LINES_MAX;
        lines.truncate(LINES_MAX);
        lines.push(format!("and {more} more of this kind"));
    }
    lines
}

const NO_FLOATING_POINT: &str = "floating point is not in BPF: calculate in integers";

/// What gcc says of floating point that it may not compile: for x86-64 (two kinds of registers), and for aarch64.
const NO_FLOATS: [&str; 4] = [
    "with SSE disabled",
    "with SSE2 disabled",
    "with x87 disabled",
    "-mgeneral-regs-only",
];

/// Whether a function is one that compilers call for floating point instead of the processor: `__muldf3`, `__floatsisf`.
fn is_soft_float(function: &str) -> bool {
    let name = function.strip_prefix("__").unwrap_or_default();
    let has_type = ["sf", "df", "tf", "xf"].iter().any(|of| name.contains(of));
    has_type && !name.contains('_')
}

/// What an error is about, where that is the virtual kernel's; nothing if it only follows from one before, the calls of
/// macros that were `misused`.
fn in_words(what: &str, below: &[&str], misused: &mut Vec<String>) -> Option<String> {
    if let Some(name) = misused_macro(what, below) {
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
            false if name.starts_with("SCX_") => {
                Some(format!("{name} is not in the virtual kernel"))
            }
            false => Some(what.to_owned()),
        };
    }
    let implicit = [
        "implicit declaration of function ",
        "call to undeclared function ",
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

/// Which macro has too few or too many arguments, if that is the error: gcc says it there, clang below.
fn misused_macro(what: &str, below: &[&str]) -> Option<String> {
    if let Some(name) = what.strip_prefix("macro ") {
        return Some(unquote(name));
    }
    if !what.ends_with(" arguments provided to function-like macro invocation") {
        return None;
    }
    let notes = below.iter().take_while(|line| !line.contains(": error: "));
    let mut names = notes.filter_map(|line| line.split_once(": note: macro "));
    names.next().map(|(_, name)| unquote(name))
}

/// A macro of a function was called with other arguments than it has.
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

/// A type without a definition, if that is the error.
fn unknown_type(what: &str) -> Option<String> {
    let starts = [
        "invalid use of undefined type ",
        "invalid application of ‘sizeof’ to incomplete type ",
        "invalid application of 'sizeof' to an incomplete type ",
        "incomplete definition of type ",
        "variable has incomplete type ",
    ];
    let name = starts.iter().find_map(|start| what.strip_prefix(start))?;
    Some(format!("{} is not in the virtual kernel", unquote(name)))
}

/// A member that a structure of the kernel has not here, if that is the error.
fn unknown_member(what: &str) -> Option<String> {
    let (owner, member) = match what.strip_prefix("no member named ") {
        Some(clang) => clang.split_once(" in ").map(|(member, of)| (of, member))?,
        None => what.split_once(" has no member named ")?,
    };
    // Spelled nearly so it may be another one.
    let hint = what.find("; did you mean ").map_or("", |at| &what[at..]);
    let (owner, member) = (unquote(owner), unquote(member));
    let name = owner.rsplit(' ').next().unwrap_or(&owner);
    let definition = format!("struct {name} {{");
    let ours = crate::headers()
        .iter()
        .any(|(header, text)| header.starts_with("native/") && text.contains(&definition));
    ours.then(|| format!("struct {name} has no member {member} in the virtual kernel{hint}"))
}

/// Whether an error may be that something is const here because no verifier lets policies write it.
fn is_read_only(what: &str) -> bool {
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

/// Where which header was included that is not there, if that is what the compiler says.
fn missing_header(line: &str) -> Option<(&str, String)> {
    let (place, what) = line.split_once(": fatal error: ")?;
    let gcc = what.split_once(": No such file").map(|(header, _)| header);
    let header = gcc.or_else(|| what.strip_suffix(" file not found"))?;
    Some((without_column(place), unquote(header)))
}

/// Where the virtual kernel has a header that was asked for by its name alone.
fn other_place(header: &str) -> String {
    let ours = format!("native/scx/{header}");
    match crate::headers().iter().any(|(name, _)| *name == ours) {
        true => format!(": include <scx/{header}>"),
        false => String::new(),
    }
}

/// Where the policy uses the macro of ours that an error is in, and the macro: gcc tells below the error.
fn place_of_use<'a>(below: &[&'a str], path: &Path) -> Option<(&'a str, String)> {
    let notes = below.iter().take_while(|line| !line.contains(": error: "));
    notes
        .filter_map(|line| line.split_once(": note: in expansion of macro "))
        .map(|(place, name)| (without_column(place), unquote(name)))
        .filter(|(place, _)| path.ends_with(place_of(place).trim_start_matches("./")))
        .last()
}

/// The file of `file:line…`.
fn place_of(line: &str) -> &str {
    line.split_once(':').map_or(line, |(file, _)| file)
}

/// `file:line` of `file:line:column`.
fn without_column(place: &str) -> &str {
    match place.rsplit_once(':') {
        Some((before, column)) if column.bytes().all(|c| c.is_ascii_digit()) => before,
        _ => place,
    }
}

/// A place, `file:line`, with the policy's file as it was asked for, and headers beside it: the compiler runs in its
/// folder.
fn as_asked(place: &str, path: &Path) -> String {
    let Some((file, number)) = place.split_once(':') else {
        return place.to_owned();
    };
    let file = file.trim_start_matches("./");
    if path.ends_with(file) {
        return format!("{}:{number}", path.display());
    }
    // Such as `<command-line>`.
    if file.starts_with('<') {
        return place.to_owned();
    }
    format!("{}:{number}", path.with_file_name(file).display())
}

fn missing(function: &str) -> String {
    if is_soft_float(function) {
        return NO_FLOATING_POINT.to_owned();
    }
    if function.starts_with("CONFIG_") {
        return format!("{function}: the virtual kernel has no variables of __kconfig");
    }
    format!("{function}() is not in the virtual kernel")
}

/// The first quoted word, whatever the quotes.
fn unquote(text: &str) -> String {
    let quotes = ['‘', '’', '\'', '`', '"', '«', '»'];
    let text = text.trim_start_matches(quotes);
    text.split(quotes).next().unwrap_or(text).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        explain(text, "", Path::new("a/b.bpf.c"), Path::new("/tmp/h")).lines
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
            // Of one's own the compiler says it best.
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
    fn rules_of_make_are_read() {
        let rule = "/tmp/x/p.so: a\\ b.bpf.c \\\n  ../c\\#.h /d/$$e.h\n";
        assert_eq!(prerequisites(rule), ["a b.bpf.c", "../c#.h", "/d/$e.h"]);
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
