//! Finds the compiler for BPF. The simulator's side and the real kernel's, and its build script, have this one file, so that a
//! scheduler has the same compiler in both worlds.

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

/// `BPF_CLANG` if it is set, else clang 22, else the newest of at least [`OLDEST`]. `tools/kernel-side-builds` chooses
/// alike.
///
/// # Errors
/// Says what to install.
pub fn find() -> Result<Clang, String> {
    choose(std::env::var("BPF_CLANG").ok(), version)
}

fn choose(named: Option<String>, version: impl Fn(&str) -> Option<u32>) -> Result<Clang, String> {
    if let Some(command) = named.filter(|command| !command.is_empty()) {
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

/// Returns the major version of a clang command, `None` if it is not a clang that runs.
fn version(command: &str) -> Option<u32> {
    let output = Command::new(command).arg("--version").output().ok()?;
    version_in(&String::from_utf8(output.stdout).ok()?)
}

fn version_in(text: &str) -> Option<u32> {
    let rest = text.split("clang version ").nth(1)?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Returns the script's choice where these programs exist and no others.
    fn script(named: Option<&str>, programs: &[(&str, &str)]) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, says) in programs {
            let path = folder.path().join(name);
            fs::write(&path, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tools/kernel-side-builds"
        );
        let mut command = Command::new("/bin/bash");
        command.args([script, "--clang"]).env("PATH", folder.path());
        match named {
            Some(named) => command.env("BPF_CLANG", named),
            None => command.env_remove("BPF_CLANG"),
        };
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        let chosen = String::from_utf8(output.stdout).unwrap();
        output.status.success().then(|| chosen.trim().to_owned())
    }

    #[test]
    fn the_script_chooses_the_same_clang() {
        let of = |version: u32| format!("Debian clang version {version}.1.8 (1)");
        let check = |named: Option<&str>, versions: &[(&str, u32)], expected: Option<&str>| {
            let mut programs: Vec<(&str, String)> = versions
                .iter()
                .map(|&(name, version)| (name, of(version)))
                .collect();
            programs.push(("true", String::new()));
            programs.push(("gcc", "gcc (Debian) 23.2.0".to_owned()));
            let programs: Vec<(&str, &str)> = programs
                .iter()
                .map(|(name, says)| (*name, says.as_str()))
                .collect();
            let version = |command: &str| {
                let found = programs.iter().find(|(name, _)| *name == command);
                found.and_then(|(_, says)| version_in(says))
            };
            let chosen = choose(named.map(str::to_owned), version).map(|clang| clang.command);
            assert_eq!(chosen.ok().as_deref(), expected, "{named:?} {versions:?}");
            assert_eq!(
                script(named, &programs).as_deref(),
                expected,
                "{named:?} {versions:?}"
            );
        };
        check(None, &[("clang-22", 22), ("clang", 25)], Some("clang-22"));
        check(
            None,
            &[("clang-19", 19), ("clang-21", 21), ("clang", 20)],
            Some("clang-21"),
        );
        check(None, &[("clang-21", 21), ("clang", 23)], Some("clang"));
        check(None, &[("clang-23", 23), ("clang", 23)], Some("clang"));
        check(None, &[("clang-18", 18), ("clang", 14)], None);
        check(None, &[], None);
        check(Some(""), &[("clang-22", 22)], Some("clang-22"));
        check(
            Some("clang-19"),
            &[("clang-19", 19), ("clang-22", 22)],
            Some("clang-19"),
        );
        // A named program that is no such clang is not replaced by another.
        check(
            Some("clang-18"),
            &[("clang-18", 18), ("clang-22", 22)],
            None,
        );
        for named in ["true", "gcc", "missing"] {
            check(Some(named), &[("clang-22", 22)], None);
        }
    }
}
