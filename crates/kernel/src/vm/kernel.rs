//! Kernels for the virtual machine: from Debian's archive, kept in the cache, nothing installed.
//!
//! A pinned version with its checksums comes first. If the archive no longer has it, another version is chosen by its
//! configuration and its BTF, and a note says so.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::acceleration::{self, Acceleration};
use super::boot::{Stream, Vm};
use super::image::KernelImage;
use super::tools::{Notes, Tools, run};
use crate::btf;
use crate::cache;
use crate::error::{At as _, Error, Result};

/// A version that is known to work, with its packages.
struct Pinned {
    version: &'static str,
    /// Path below the mirror (as apt writes it) and SHA-256.
    packages: &'static [(&'static str, &'static str)],
}

const PINNED: &[Pinned] = &[
    Pinned {
        version: "7.2.13+deb14-amd64",
        packages: &[
            (
                "pool/main/l/linux-signed-amd64/linux-binary-7.2.13%2bdeb14-amd64_7.2.13-1_amd64.deb",
                "fb8cd0ade4ef82d9dde1dcf183d4bf4033db1b549b0acc9973855ad9cc48c4f5",
            ),
            (
                "pool/main/l/linux/linux-modules-7.2.13%2bdeb14-amd64_7.2.13-1_amd64.deb",
                "a37a3d200915c4cf524e90c81bbb2a8b683d292cd00873e89c23b2ef32b1bf11",
            ),
            (
                "pool/main/l/linux/linux-base-7.2.13%2bdeb14-amd64_7.2.13-1_amd64.deb",
                "2b2d3c6e224358c60974d0bc87461da99a85733eb1fec035b5167582c3bede2b",
            ),
        ],
    },
    Pinned {
        version: "6.18.15+deb13-amd64",
        packages: &[(
            "pool/main/l/linux-signed-amd64/linux-image-6.18.15%2bdeb13-amd64_6.18.15-1%7ebpo13%2b1_amd64.deb",
            "d38a7af6260782a47cd615ad717347a528b45f076245b4deabb3f1ecf8459186",
        )],
    },
];

/// Where kernels are searched when no pinned one is there any more.
const SUITES: &[&str] = &["sid", "trixie-backports"];

/// How many kernels are downloaded and tried at most.
const TRIES: usize = 4;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Written into a kernel's directory once it has proved fit.
const CHECKED: &str = "schedlab-checked";

/// Versions in the cache that have been found fit, the default one first.
pub fn cached() -> Vec<String> {
    let Ok(dir) = kernels() else {
        return Vec::new();
    };
    let mut versions: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join(CHECKED).is_file())
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    let rank = |version: &String| PINNED.iter().position(|p| p.version == *version);
    versions.sort_by_key(|v| (rank(v).unwrap_or(PINNED.len()), v.clone()));
    versions
}

/// Versions that are pinned, the default one first.
pub fn pinned() -> impl Iterator<Item = &'static str> {
    PINNED.iter().map(|p| p.version)
}

fn kernels() -> Result<PathBuf> {
    Ok(cache::dir()?.join("kernels"))
}

/// Returns a kernel, from the cache or fetched.
///
/// # Errors
/// None can be had; says what was tried.
pub fn provide(version: Option<&str>, tools: &Tools, notes: Notes<'_>) -> Result<KernelImage> {
    if let Some(kernel) = from_cache(version) {
        return Ok(kernel);
    }
    let _lock = cache::lock("kernels")?;
    if let Some(kernel) = from_cache(version) {
        return Ok(kernel); // Another process fetched it while this one waited.
    }
    let wanted = match version {
        None => &PINNED[0],
        Some(version) => match PINNED.iter().find(|p| p.version == version) {
            Some(pinned) => pinned,
            None => return search(Some(version), tools, notes),
        },
    };
    let why = match fetch_pinned(wanted, tools, notes) {
        Ok(kernel) => return Ok(kernel),
        Err(error) => error,
    };
    if version.is_some() {
        return Err(why);
    }
    notes(&format!("kernel {} cannot be had: {why}", wanted.version));
    if let Some(other) = cached().first() {
        notes(&format!("taking kernel {other}, which is in the cache"));
        return from_cache(Some(other)).ok_or(why);
    }
    search(None, tools, notes)
}

fn from_cache(version: Option<&str>) -> Option<KernelImage> {
    let version = version.unwrap_or(PINNED[0].version);
    let root = kernels().ok()?.join(version);
    if !root.join(CHECKED).is_file() {
        return None;
    }
    KernelImage::at(version, &root)
}

fn fetch_pinned(pinned: &Pinned, tools: &Tools, notes: Notes<'_>) -> Result<KernelImage> {
    let helper = Path::new("/usr/lib/apt/apt-helper");
    if !helper.is_file() {
        return Err(no_apt());
    }
    notes(&format!(
        "fetching kernel {} for the virtual machine (once)",
        pinned.version
    ));
    let mirror = mirror(notes);
    let staging = staging()?;
    let mut packages = Vec::new();
    for (path, sha256) in pinned.packages {
        let to = staging.path().join(format!("{}.deb", packages.len()));
        // apt's own downloader: it knows this machine's proxies and checks the sum.
        run(Command::new(helper)
            .arg("download-file")
            .arg(format!("{mirror}/{path}"))
            .arg(&to)
            .arg(format!("SHA256:{sha256}"))
            .current_dir(staging.path()))
        .map_err(Error::NoKernel)?;
        packages.push(to);
    }
    unpack_and_check(pinned.version, &packages, staging, tools, notes)
}

/// Goes through the archive's kernels from the likeliest on and takes the first that is fit.
fn search(version: Option<&str>, tools: &Tools, notes: Notes<'_>) -> Result<KernelImage> {
    let apt = Apt::new(notes)?;
    let mut candidates = apt.kernels()?;
    match version {
        Some(version) => candidates.retain(|v| v == version),
        None => sort_by_likeness(&mut candidates, PINNED[0].version),
    }
    if candidates.is_empty() {
        return Err(Error::NoKernel(match version {
            Some(version) => format!("{} has no {version}", SUITES.join(" and ")),
            None => format!("{} has none", SUITES.join(" and ")),
        }));
    }
    let mut reasons = Vec::new();
    for candidate in candidates.iter().take(TRIES) {
        notes(&format!(
            "trying kernel {candidate} for the virtual machine"
        ));
        match apt.fetch(candidate, tools, notes) {
            Ok(kernel) => {
                if version.is_none() {
                    notes(&format!(
                        "chose kernel {candidate} by its configuration and BTF; it is not a pinned one"
                    ));
                }
                return Ok(kernel);
            }
            Err(error) => {
                let why = match error {
                    Error::NoKernel(why) => why,
                    other => format!("{candidate}: {other}"),
                };
                notes(&format!("kernel {candidate} does not fit: {why}"));
                reasons.push(why);
            }
        }
    }
    Err(Error::NoKernel(reasons.join("; ")))
}

/// The same series first, then newer ones from old to new, then older ones from new to old.
fn sort_by_likeness(versions: &mut [String], model: &str) {
    let (major, minor, _) = numbers(model);
    versions.sort_by_key(|version| {
        let (a, b, c) = numbers(version);
        if (a, b) == (major, minor) {
            (0, 0, -c, version.clone())
        } else if (a, b) > (major, minor) {
            (1, a * 1000 + b, -c, version.clone())
        } else {
            (2, -(a * 1000 + b), -c, version.clone())
        }
    });
}

fn numbers(version: &str) -> (i64, i64, i64) {
    let mut parts = version
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next())
}

fn staging() -> Result<tempfile::TempDir> {
    let dir = kernels()?;
    fs::create_dir_all(&dir).at(&dir)?;
    tempfile::Builder::new()
        .prefix(".new-")
        .tempdir_in(&dir)
        .at(&dir)
}

/// Unpacks packages, makes sure that the kernel is fit, and only then gives it its name.
fn unpack_and_check(
    version: &str,
    packages: &[PathBuf],
    staging: tempfile::TempDir,
    tools: &Tools,
    notes: Notes<'_>,
) -> Result<KernelImage> {
    let root = staging.path().join("root");
    for package in packages {
        run(Command::new("dpkg-deb").arg("-x").arg(package).arg(&root)).map_err(Error::NoKernel)?;
    }
    let kernel = KernelImage::at(version, &root).ok_or_else(|| {
        Error::NoKernel(format!(
            "the packages of {version} lack the image, the modules or the configuration"
        ))
    })?;
    let config = fs::read_to_string(&kernel.config).at(&kernel.config)?;
    for option in [
        "CONFIG_SCHED_CLASS_EXT",
        "CONFIG_DEBUG_INFO_BTF",
        "CONFIG_BPF_JIT",
    ] {
        if !config.lines().any(|line| line == format!("{option}=y")) {
            return Err(Error::NoKernel(format!(
                "{version} is built without {option}"
            )));
        }
    }
    run(Command::new(&tools.depmod)
        .arg("-b")
        .arg(kernel.modules_base())
        .arg(version))
    .map_err(Error::NoKernel)?;

    notes(&format!(
        "checking that kernel {version} boots and knows its own types"
    ));
    let acceleration = acceleration::remembered().unwrap_or(Acceleration::Emulation);
    let mut types = Vec::new();
    let vm = Vm {
        cpus: 1,
        memory_mib: 1024,
        ..Vm::default()
    };
    let (code, _) = vm.boot(
        tools,
        &kernel,
        acceleration,
        &[
            OsString::from("cat"),
            OsString::from("/sys/kernel/btf/vmlinux"),
        ],
        notes,
        &mut |stream, bytes| {
            if stream == Stream::Stdout {
                types.extend_from_slice(bytes);
            }
        },
    )?;
    if code != 0 {
        return Err(Error::NoKernel(format!(
            "{version} has no /sys/kernel/btf/vmlinux"
        )));
    }
    let file = root.join("btf");
    fs::write(&file, &types).at(&file)?;
    btf::check_kfuncs(&file).map_err(|why| Error::NoKernel(format!("{version}: {why}")))?;
    fs::write(root.join(CHECKED), "").at(&root)?;

    let home = kernels()?.join(version);
    // A leftover without the mark would be in the way.
    if home.exists() {
        fs::remove_dir_all(&home).at(&home)?;
    }
    fs::rename(&root, &home).at(&home)?;
    KernelImage::at(version, &home)
        .ok_or_else(|| Error::NoKernel(format!("{version} vanished from the cache")))
}

fn no_apt() -> Error {
    Error::NoKernel(
        "kernels are fetched with apt, which is not here: run on Debian or Ubuntu, or put an unpacked kernel package into the cache".to_owned(),
    )
}

/// Returns the Debian mirror that this machine's apt uses.
fn mirror(notes: Notes<'_>) -> String {
    const FALLBACK: &str = "http://deb.debian.org/debian";
    let output = Command::new("apt-get")
        .args([
            "indextargets",
            "--format",
            "$(REPO_URI)",
            "Created-By: Packages",
        ])
        .output();
    let text = output
        .map(|o| String::from_utf8_lossy(&o.stdout).into_owned())
        .unwrap_or_default();
    let found = text
        .lines()
        .map(|line| line.trim_end_matches('/'))
        .find(|uri| uri.ends_with("/debian"));
    match found {
        Some(uri) => uri.to_owned(),
        None => {
            notes(&format!(
                "no Debian mirror in apt's sources, taking {FALLBACK}"
            ));
            FALLBACK.to_owned()
        }
    }
}

/// A private apt: its own sources, lists and cache, none of the machine's.
struct Apt {
    dir: PathBuf,
}

impl Apt {
    fn new(notes: Notes<'_>) -> Result<Apt> {
        if !Path::new("/usr/lib/apt/apt-helper").is_file() {
            return Err(no_apt());
        }
        let dir = cache::dir()?.join("apt");
        for sub in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(dir.join(sub)).at(&dir)?;
        }
        if !Path::new(KEYRING).is_file() {
            return Err(Error::Missing {
                what: "Debian's archive keys".to_owned(),
                remedy: "sudo apt-get install debian-archive-keyring".to_owned(),
            });
        }
        let mirror = mirror(notes);
        let sources: String = SUITES
            .iter()
            .map(|suite| format!("deb [arch=amd64 signed-by={KEYRING}] {mirror} {suite} main\n"))
            .collect();
        let file = dir.join("sources.list");
        fs::write(&file, sources).at(&file)?;
        let apt = Apt { dir };
        notes("reading the package lists of Debian sid and backports");
        run(apt.command("apt-get").arg("update")).map_err(Error::NoKernel)?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let at = |name: &str| self.dir.join(name).display().to_string();
        for (key, value) in [
            ("Dir::Etc::sourcelist", at("sources.list")),
            ("Dir::Etc::sourceparts", "/dev/null".to_owned()),
            ("Dir::Etc::preferences", "/dev/null".to_owned()),
            ("Dir::Etc::preferencesparts", "/dev/null".to_owned()),
            ("Dir::State::lists", at("lists")),
            ("Dir::State::status", "/dev/null".to_owned()),
            ("Dir::Cache", at("")),
            ("Dir::Cache::archives", at("archives")),
            ("APT::Architecture", "amd64".to_owned()),
            ("APT::Architectures", "amd64".to_owned()),
            ("Acquire::Languages", "none".to_owned()),
            // The lists are ours alone: the sandbox user could not write them in a home directory.
            ("APT::Sandbox::User", String::new()),
        ] {
            command.arg("-o").arg(format!("{key}={value}"));
        }
        command
    }

    fn names(&self) -> Result<Vec<String>> {
        let output = self
            .command("apt-cache")
            .args(["pkgnames", "linux-"])
            .output()
            .at("apt-cache")?;
        Ok(String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(str::to_owned)
            .collect())
    }

    /// Versions of ordinary kernels. The cloud flavour lacks the modules to mount the host's files.
    fn kernels(&self) -> Result<Vec<String>> {
        let mut versions: Vec<String> = self
            .names()?
            .iter()
            .filter_map(|name| {
                let version = name
                    .strip_prefix("linux-binary-")
                    .or_else(|| name.strip_prefix("linux-image-"))?;
                let flavour = version.split_once('-')?.1;
                let numbered = version.starts_with(|c: char| c.is_ascii_digit());
                (numbered && flavour == "amd64" && numbers(version) >= (6, 12, 0))
                    .then(|| version.to_owned())
            })
            .collect();
        versions.sort();
        versions.dedup();
        Ok(versions)
    }

    fn fetch(&self, version: &str, tools: &Tools, notes: Notes<'_>) -> Result<KernelImage> {
        let names = self.names()?;
        let wanted: Vec<String> = ["binary", "modules", "base", "image"]
            .iter()
            .map(|part| format!("linux-{part}-{version}"))
            .filter(|name| names.contains(name))
            .collect();
        let staging = staging()?;
        run(self
            .command("apt-get")
            .arg("download")
            .args(&wanted)
            .current_dir(staging.path()))
        .map_err(Error::NoKernel)?;
        let mut packages: Vec<PathBuf> = fs::read_dir(staging.path())
            .at(staging.path())?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|e| e == "deb"))
            .collect();
        packages.sort();
        unpack_and_check(version, &packages, staging, tools, notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likest_kernel_is_tried_first() {
        let mut versions: Vec<String> = [
            "6.18.15+deb13-amd64",
            "7.3.4+deb13-amd64",
            "7.2.9+deb13-amd64",
            "7.2.12+deb13-amd64",
            "7.1.3+deb13-amd64",
            "8.0.1+deb14-amd64",
        ]
        .map(str::to_owned)
        .into();
        sort_by_likeness(&mut versions, "7.2.13+deb14-amd64");
        let order: Vec<(i64, i64, i64)> = versions.iter().map(|v| numbers(v)).collect();
        assert_eq!(
            order,
            [
                (7, 2, 12),
                (7, 2, 9),
                (7, 3, 4),
                (8, 0, 1),
                (7, 1, 3),
                (6, 18, 15)
            ]
        );
    }
}
