//! Finds the compiler for BPF. Shared by the build script and by the program, which compiles
//! policies that users bring.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The oldest clang that knows the BPF instructions and address spaces that policies use.
pub const OLDEST: u32 = 19;

/// The clang from which arena memory is compiled correctly (scx_cargo's documentation).
pub const PREFERRED: u32 = 22;

/// A clang that can compile policies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clang {
    /// Command name or path.
    pub command: String,
    /// Major version.
    pub version: u32,
}

impl Clang {
    /// Compiles C for BPF, with the headers of these folders. Answers how that ended, and what clang said.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn compile<'f>(
        &self,
        flags: impl IntoIterator<Item = &'f str>,
        include: &[PathBuf],
        source: &Path,
        object: &Path,
    ) -> io::Result<Output> {
        Command::new(&self.command)
            .args(flags)
            .args(["--target=bpf", "-fno-stack-protector"])
            .args(include.iter().map(|dir| format!("-I{}", dir.display())))
            .arg("-c")
            .arg(source)
            .arg("-o")
            .arg(object)
            .output()
    }
}

/// `BPF_CLANG` if it is set, else clang 22, else the newest of at least [`OLDEST`].
///
/// # Errors
/// Says what to install.
pub fn find() -> Result<Clang, String> {
    if let Ok(command) = std::env::var("BPF_CLANG") {
        return match version(&command) {
            Some(version) if version >= OLDEST => Ok(Clang { command, version }),
            Some(version) => Err(format!(
                "BPF_CLANG={command} is clang {version}, but at least {OLDEST} is needed: sudo apt-get install clang-{PREFERRED}"
            )),
            None => Err(format!(
                "BPF_CLANG={command} does not run: sudo apt-get install clang-{PREFERRED}, or unset BPF_CLANG"
            )),
        };
    }
    let preferred = format!("clang-{PREFERRED}");
    if let Some(version) = version(&preferred) {
        return Ok(Clang {
            command: preferred,
            version,
        });
    }
    let names = (OLDEST..PREFERRED + 10)
        .map(|v| format!("clang-{v}"))
        .chain(["clang".to_owned()]);
    names
        .filter_map(|command| version(&command).map(|version| Clang { command, version }))
        .filter(|clang| clang.version >= OLDEST)
        .max_by_key(|clang| clang.version)
        .ok_or_else(|| {
            format!("no clang of version {OLDEST} or later: sudo apt-get install clang-{PREFERRED}")
        })
}

/// The major version of a clang command, `None` if it is not a clang that runs.
fn version(command: &str) -> Option<u32> {
    let output = Command::new(command).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let rest = text.split("clang version ").nth(1)?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}
