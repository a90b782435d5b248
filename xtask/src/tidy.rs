//! Rules of the repository that no compiler checks. Each rule is a function over one file.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

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
    let mut complaints = Vec::new();
    for file in sources(root) {
        let Ok(text) = fs::read_to_string(root.join(&file)) else {
            continue;
        };
        complaints.extend(length(&file, &text));
        complaints.extend(unfinished(&file, &text));
        complaints.extend(policy_named(&file, &text, &policies));
        complaints.extend(policy_world(&file, &text));
        complaints.extend(links(root, &file, &text));
    }
    complaints
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

/// What must not be left behind in finished code.
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
    lines_with(text, &marks)
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

/// Invariant 3 of ARCHITECTURE.md: the layers below the command line know no policy by name.
fn policy_named(file: &Path, text: &str, policies: &[String]) -> Vec<Complaint> {
    let layers = [
        "trace", "machine", "workload", "engine", "abi", "policies", "report", "sim", "kernel",
    ];
    let of_a_layer = layers
        .iter()
        .any(|layer| file.starts_with(format!("crates/{layer}/src")));
    if !of_a_layer || file.extension().is_none_or(|ending| ending != "rs") {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    for (index, line) in text.lines().enumerate() {
        // Unit tests may name policies; they stand last in a file.
        if line.trim() == "#[cfg(test)]" {
            break;
        }
        // Names of Linux's scheduling classes may be those of policies, too.
        if line.trim_start().starts_with("//") || line.contains("SchedClass::") {
            continue;
        }
        for name in policies {
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
    }

    #[test]
    fn a_policy_may_be_named_in_unit_tests() {
        let policies = vec!["dss".to_owned()];
        let text = "fn a() {}\n#[cfg(test)]\nmod tests { const A: &str = \"dss\"; }";
        assert!(policy_named(Path::new("crates/sim/src/a.rs"), text, &policies).is_empty());
    }
}
