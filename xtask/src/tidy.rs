//! Rules of the repository that no compiler checks. Each rule is a function over one file.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::words::{self, Count};

/// A rule that a file breaks.
#[derive(Debug, PartialEq, Eq)]
pub struct Complaint {
    file: PathBuf,
    line: usize,
    what: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.what)
    }
}

/// No file of ours grows beyond this: a newcomer must find the way in it.
const LINES_MAX: usize = 1_200;

/// Checks every source file below `root`.
pub fn check(root: &Path) -> Vec<Complaint> {
    let policies = policy_names(root);
    let mut complaints = code_map(root);
    complaints.extend(plain_words(&phrases(root)));
    for (file, text) in texts(root) {
        complaints.extend(length(&file, &text));
        complaints.extend(unfinished(&file, &text));
        complaints.extend(policy_named(&file, &text, &policies));
        complaints.extend(policy_world(&file, &text));
        complaints.extend(kfunc_cites(&file, &text));
        complaints.extend(links(root, &file, &text));
    }
    complaints
}

/// Returns the sources below `root` with their texts.
fn texts(root: &Path) -> impl Iterator<Item = (PathBuf, String)> {
    sources(root).into_iter().filter_map(move |file| {
        let text = fs::read_to_string(root.join(&file)).ok()?;
        Some((file, text))
    })
}

/// Counts the phrases that make prose hard to read.
pub fn phrases(root: &Path) -> Vec<Count> {
    let texts: Vec<(PathBuf, String)> = texts(root).collect();
    words::count(
        texts
            .iter()
            .map(|(file, text)| (file.as_path(), text.as_str())),
    )
}

/// Prose gets plainer, never less plain.
fn plain_words(counts: &[Count]) -> Vec<Complaint> {
    counts
        .iter()
        .filter(|count| count.found.len() > count.lines_max)
        .map(|count| {
            complaint(
                Path::new("xtask/src/words.rs"),
                1,
                format!(
                    "{} lines have {}, at most {} may: {} (`cargo xtask words` lists them)",
                    count.found.len(),
                    count.name,
                    count.lines_max,
                    count.instead
                ),
            )
        })
        .collect()
}

fn policy_names(root: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(root.join("policies")) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            entry
                .ok()?
                .file_name()
                .to_str()?
                .strip_suffix(".bpf.c")
                .map(str::to_owned)
        })
        .collect();
    names.sort();
    names
}

fn sources(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(root.join(&folder)) else {
            continue;
        };
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name();
            let path = folder.join(&name);
            let name = name.to_string_lossy();
            if name.starts_with('.') || name == "target" || name == "out" {
                continue;
            }
            if entry.path().is_dir() {
                folders.push(path);
            } else if [".rs", ".c", ".h", ".md", ".toml"]
                .iter()
                .any(|ending| name.ends_with(ending))
            {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn complaint(file: &Path, line: usize, what: impl Into<String>) -> Complaint {
    Complaint {
        file: file.to_owned(),
        line,
        what: what.into(),
    }
}

fn length(file: &Path, text: &str) -> Option<Complaint> {
    let lines = text.lines().count();
    let code = file
        .extension()
        .is_some_and(|ending| ending == "rs" || ending == "c" || ending == "h");
    (code && lines > LINES_MAX).then(|| {
        complaint(
            file,
            lines,
            format!("{lines} lines, at most {LINES_MAX}: split it by purpose"),
        )
    })
}

/// The mark of a test that `make test-all` runs and `make test` does not.
const LONG_TEST: &str = "#[ignore = \"long: make test-all\"]";

/// Finds marks of unfinished work.
fn unfinished(file: &Path, text: &str) -> Vec<Complaint> {
    if file.starts_with("xtask") || file.extension().is_some_and(|ending| ending == "md") {
        return Vec::new();
    }
    let marks = [
        "TODO",
        "FIXME",
        "XXX",
        "todo!(",
        "unimplemented!(",
        "#[ignore",
    ];
    let is_long_test = |line: usize| text.lines().nth(line - 1).map(str::trim) == Some(LONG_TEST);
    lines_with(text, &marks)
        .filter(|(line, _)| !is_long_test(*line))
        .map(|(line, mark)| complaint(file, line, format!("`{mark}` is left in the code")))
        .collect()
}

fn lines_with<'a>(text: &'a str, marks: &'a [&'a str]) -> impl Iterator<Item = (usize, &'a str)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        marks
            .iter()
            .find(|mark| line.contains(**mark))
            .map(|mark| (index + 1, *mark))
    })
}

/// Invariant 3 of ARCHITECTURE.md: no crate knows a policy by name.
fn policy_named(file: &Path, text: &str, policies: &[String]) -> Vec<Complaint> {
    let mut parts = file.components().map(|part| part.as_os_str());
    let of_a_crate = parts.next().is_some_and(|part| part == "crates")
        && parts.nth(1).is_some_and(|part| part == "src");
    if !of_a_crate || file.extension().is_none_or(|ending| ending != "rs") {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    for (index, line) in without_tests(text) {
        // Policies may have the names of Linux's scheduling classes, too.
        if line.trim_start().starts_with("//") || line.contains("SchedClass::") {
            continue;
        }
        for name in policies {
            // The analysis calls the options of any scheduler features.
            if name == "feature" && file.starts_with("crates/analysis") {
                continue;
            }
            if line.contains(&format!("\"{name}\"")) || line.contains(&format!("\"{name}:")) {
                complaints.push(complaint(
                    file,
                    index + 1,
                    format!("names the policy `{name}`: only policies/, tests and docs may"),
                ));
            }
        }
    }
    complaints
}

/// Returns the lines of a source without its unit tests: without each item behind a `#[cfg(test)]`, whether it is one
/// line or ends with the brace that is indented as it is.
fn without_tests(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut end = None;
    let mut begins = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let code = line.trim_start();
        if let Some(brace) = &end {
            let one_line = begins && line.ends_with([';', '}']);
            begins &= code.starts_with("#[");
            if one_line || line == brace {
                end = None;
            }
            return false;
        }
        if code == "#[cfg(test)]" {
            end = Some(line.replace(code, "}"));
            begins = true;
        }
        end.is_none()
    })
}

/// Invariant 5 of ARCHITECTURE.md: each kfunc names the kernel's function that it mirrors, or the file of
/// `include/lab/` to which it belongs.
fn kfunc_cites(file: &Path, text: &str) -> Vec<Complaint> {
    if !file.starts_with("crates/abi/src/kfuncs") {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    let mut cited = false;
    for (index, line) in text.lines().enumerate() {
        if line.starts_with("///") {
            cited |=
                line.contains("bpf_") && line.contains("()`") || line.contains("`include/lab/");
        } else if line.starts_with("pub extern \"C\" fn") && !cited {
            complaints.push(complaint(
                file,
                index + 1,
                "cite the kernel's function in the comment before, as `scx_bpf_…()`",
            ));
        } else if !line.starts_with("//") && !line.starts_with("#[") {
            cited = false;
        }
    }
    complaints
}

/// The code map of ARCHITECTURE.md has every crate, and each below all that depend on it.
fn code_map(root: &Path) -> Vec<Complaint> {
    let file = Path::new("ARCHITECTURE.md");
    let (Ok(text), Ok(entries)) = (
        fs::read_to_string(root.join(file)),
        fs::read_dir(root.join("crates")),
    ) else {
        return vec![complaint(file, 1, "there is no code map")];
    };
    let mut manifests: Vec<(String, String)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let manifest = fs::read_to_string(entry.path().join("Cargo.toml")).ok()?;
            Some((entry.file_name().to_string_lossy().into_owned(), manifest))
        })
        .collect();
    manifests.sort();
    out_of_order(file, &text, &manifests)
}

/// `manifests`: names of crates with their `Cargo.toml`.
fn out_of_order(file: &Path, map: &str, manifests: &[(String, String)]) -> Vec<Complaint> {
    let row = |name: &str| {
        let cell = format!("`crates/{name}`");
        map.lines()
            .position(|line| line.starts_with('|') && line.contains(&cell))
    };
    let mut complaints = Vec::new();
    for (name, manifest) in manifests {
        let Some(at) = row(name) else {
            complaints.push(complaint(
                file,
                1,
                format!("crates/{name} is not in the code map"),
            ));
            continue;
        };
        for used in dependencies(manifest) {
            if row(used).is_some_and(|below| below <= at) {
                complaints.push(complaint(
                    file,
                    at + 1,
                    format!("crates/{name} depends on crates/{used}, which must stand below it"),
                ));
            }
        }
    }
    complaints
}

/// Returns the crates of ours that a manifest's crate needs; what only its tests need is not among them.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let mut needed = false;
    manifest.lines().filter_map(move |line| {
        if line.starts_with('[') {
            needed = line.ends_with("dependencies]") && !line.contains("dev-");
        }
        let name = line
            .strip_prefix("schedlab-")?
            .split(['.', ' ', '='])
            .next();
        name.filter(|_| needed)
    })
}

/// A policy is one source for both worlds.
fn policy_world(file: &Path, text: &str) -> Vec<Complaint> {
    if !file.starts_with("policies") {
        return Vec::new();
    }
    lines_with(text, &["#if", "__bpf__", "lab_host"])
        .map(|(line, mark)| {
            complaint(
                file,
                line,
                format!("`{mark}`: a policy must not know which world it is compiled for"),
            )
        })
        .collect()
}

/// Links between documents lead somewhere.
fn links(root: &Path, file: &Path, text: &str) -> Vec<Complaint> {
    if file.extension().is_none_or(|ending| ending != "md") {
        return Vec::new();
    }
    let folder = root.join(file);
    let folder = folder.parent().expect("a file has a folder");
    let mut complaints = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for target in line
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let path = target.split('#').next().unwrap_or_default();
            if !path.is_empty() && !path.contains("://") && !folder.join(path).exists() {
                complaints.push(complaint(
                    file,
                    index + 1,
                    format!("the link to {target} leads nowhere"),
                ));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let complaints: Vec<String> = check(root).iter().map(ToString::to_string).collect();
        assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    }

    #[test]
    fn each_rule_can_fail() {
        let policies = vec!["dss".to_owned()];
        let rust = Path::new("crates/engine/src/a.rs");
        assert!(length(rust, &"x\n".repeat(LINES_MAX + 1)).is_some());
        assert_eq!(unfinished(rust, "let a = 1; // TODO\n").len(), 1);
        let tests = format!("#[ignore = \"flaky\"]\n#[ignore]\n    {LONG_TEST}\n");
        assert_eq!(unfinished(rust, &tests).len(), 2);
        assert_eq!(
            policy_named(rust, "if name == \"dss\" {", &policies).len(),
            1
        );
        assert_eq!(
            policy_world(Path::new("policies/a.bpf.c"), "#ifdef __bpf__").len(),
            1
        );
        assert_eq!(
            links(Path::new("/"), Path::new("a.md"), "[a](no/such/file.md)").len(),
            1
        );
        let kfuncs = Path::new("crates/abi/src/kfuncs/a.rs");
        let kfunc = "pub extern \"C\" fn a() {\n}\n";
        let cited = format!("/// `scx_bpf_a()`.\n#[cold]\n{kfunc}");
        assert_eq!(
            kfunc_cites(kfuncs, &format!("{cited}\n/// A.\n{kfunc}")),
            [complaint(
                kfuncs,
                7,
                "cite the kernel's function in the comment before, as `scx_bpf_…()`"
            )]
        );
    }

    #[test]
    fn a_policy_may_be_named_in_unit_tests() {
        let policies = vec!["dss".to_owned()];
        let text = "\
#[cfg(test)]
mod tests;

fn a() {}

#[cfg(test)]
mod more_tests {
    const A: &str = r#\"
scheduler = \"dss\";
\"#;
}

const B: &str = \"dss\";
";
        for file in ["crates/sim/src/a.rs", "crates/sweep/src/b/c.rs"].map(Path::new) {
            let [complaint] = &policy_named(file, text, &policies)[..] else {
                panic!("{}: one line outside of tests names it", file.display());
            };
            assert_eq!(complaint.line, 13);
        }
        assert!(policy_named(Path::new("crates/sim/tests/a.rs"), text, &policies).is_empty());
    }

    #[test]
    fn the_code_map_must_have_every_crate_below_those_that_use_it() {
        let map = "| `crates/a`, `a/` | |\n| `crates/b` | |\n";
        let complaints = |a: &str, b: &str| {
            let manifests = [("a", a), ("b", b)].map(|(n, m)| (n.to_owned(), m.to_owned()));
            out_of_order(Path::new("map.md"), map, &manifests).len()
        };
        let uses = |what: &str, name: &str| format!("[{what}]\nschedlab-{name}.workspace = true\n");
        assert_eq!(complaints(&uses("dependencies", "b"), ""), 0);
        assert_eq!(complaints("", &uses("dependencies", "a")), 1);
        assert_eq!(complaints("", &uses("build-dependencies", "a")), 1);
        assert_eq!(complaints("", &uses("dev-dependencies", "a")), 0);
        let unknown = [("c".to_owned(), String::new())];
        assert_eq!(out_of_order(Path::new("map.md"), map, &unknown).len(), 1);
    }
}
