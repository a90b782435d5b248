//! The programs that a virtual machine needs, and virtme-ng in a private environment.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache;
use crate::error::{At as _, Error, Result};

/// Says what takes a while (downloads, the first boot). One line each.
pub type Notes<'a> = &'a dyn Fn(&str);

/// The version that is known to work here.
const VIRTME_NG: &str = "1.42";

/// Programs and the Debian packages that bring them.
const NEEDS: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("modprobe", "kmod"),
    ("depmod", "kmod"),
    ("ip", "iproute2"),
    ("strings", "binutils"),
];

/// The requirements of a boot.
#[derive(Clone, Debug)]
pub struct Tools {
    /// virtme-ng's `virtme-run`.
    pub virtme_run: PathBuf,
    /// `modprobe` of kmod.
    pub modprobe: PathBuf,
    /// `depmod` of kmod.
    pub depmod: PathBuf,
}

/// Debian packages whose programs are missing for a virtual machine.
pub fn missing() -> Vec<&'static str> {
    let mut packages: Vec<&str> = NEEDS
        .iter()
        .filter(|(program, _)| which(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    packages.dedup();
    packages
}

impl Tools {
    /// Finds everything; installs virtme-ng into the cache if it is not there.
    ///
    /// # Errors
    /// Names the packages to install.
    pub fn find(notes: Notes<'_>) -> Result<Tools> {
        if std::env::consts::ARCH != "x86_64" {
            return Err(Error::Vm(format!(
                "only x86-64 machines are supported, this is {}",
                std::env::consts::ARCH
            )));
        }
        let packages = missing();
        let (Some(modprobe), Some(depmod), true) =
            (which("modprobe"), which("depmod"), packages.is_empty())
        else {
            return Err(Error::Missing {
                what: format!("what a virtual machine needs ({})", packages.join(", ")),
                remedy: format!("sudo apt-get install {}", packages.join(" ")),
            });
        };
        Ok(Tools {
            virtme_run: virtme_run(notes)?,
            modprobe,
            depmod,
        })
    }
}

/// Where virtme-ng is, if it is installed: in the cache, or on the path.
pub fn installed_virtme_run() -> Option<PathBuf> {
    let private = environment().ok()?.join("bin/virtme-run");
    if private.is_file() {
        return Some(private);
    }
    which("virtme-run")
}

fn environment() -> Result<PathBuf> {
    Ok(cache::dir()?.join(format!("virtme-ng-{VIRTME_NG}")))
}

fn virtme_run(notes: Notes<'_>) -> Result<PathBuf> {
    if let Some(found) = installed_virtme_run() {
        return Ok(found);
    }
    let dir = environment()?;
    let parent = cache::dir()?;
    fs::create_dir_all(&parent).at(&parent)?;
    let _lock = cache::lock("virtme-ng")?;
    if let Some(found) = installed_virtme_run() {
        return Ok(found); // Another process installed it while this one waited.
    }
    let remedy = || {
        format!(
            "sudo apt-get install python3-venv; or put virtme-run of virtme-ng {VIRTME_NG} on the PATH"
        )
    };
    notes(&format!(
        "installing virtme-ng {VIRTME_NG} into {}",
        dir.display()
    ));
    // Scripts of a venv name its directory, so it is made in place and removed if it fails.
    let made = run(Command::new("python3").args(["-m", "venv"]).arg(&dir)).and_then(|()| {
        run(Command::new(dir.join("bin/pip")).args([
            "install",
            "--quiet",
            "--disable-pip-version-check",
            &format!("virtme-ng=={VIRTME_NG}"),
        ]))
    });
    match made {
        Ok(()) => Ok(dir.join("bin/virtme-run")),
        Err(why) => {
            let _ = fs::remove_dir_all(&dir);
            Err(Error::Missing {
                what: format!("virtme-ng ({why})"),
                remedy: remedy(),
            })
        }
    }
}

/// Runs a command that should succeed; the last line of its complaint if it does not.
pub fn run(command: &mut Command) -> std::result::Result<(), String> {
    let name = Path::new(command.get_program()).display().to_string();
    let output = command
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|l| !l.trim().is_empty());
    Err(format!("{name}: {}", last.unwrap_or("failed")))
}

/// `PATH` with the directories that Debian keeps out of a user's.
pub fn path_with_sbin() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    path.push(":/usr/sbin:/sbin");
    path
}

/// Returns the full path of a program.
pub fn which(program: &str) -> Option<PathBuf> {
    which::which_in_global(program, Some(path_with_sbin()))
        .ok()?
        .next()
}
