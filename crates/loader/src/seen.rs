//! Notes a loader's questions to the host: with the same answers it does the same again, so its transcript can be kept.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A digest of an answer.
pub type Digest = [u8; 32];

/// A question to the host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Question {
    /// The bytes of a file, or the names in a folder.
    Contents(PathBuf),
    /// Kind, mode, owner, and a file's length and time; whether symbolic links are followed.
    Status(PathBuf, bool),
    /// Where a symbolic link leads.
    Link(PathBuf),
    /// How much memory the host has.
    Memory,
}

impl Question {
    /// Asks the host now.
    pub fn answer(&self) -> Digest {
        let mut sum = Sha256::new();
        let asked = match self {
            Question::Contents(path) => contents(path, &mut sum),
            Question::Status(path, follows) => status(path, *follows, &mut sum),
            Question::Link(path) => {
                fs::read_link(path).map(|to| sum.update(to.as_os_str().as_bytes()))
            }
            Question::Memory => fs::read_to_string("/proc/meminfo")
                .map(|text| sum.update(text.lines().next().unwrap_or_default())),
        };
        if let Err(error) = asked {
            sum.update(format!("{:?} {:?}", error.raw_os_error(), error.kind()));
        }
        sum.finalize().into()
    }
}

fn contents(path: &Path, sum: &mut Sha256) -> io::Result<()> {
    let kind = fs::metadata(path)?;
    if kind.is_dir() {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            names.push(entry?.file_name());
        }
        names.sort();
        for name in names {
            sum.update(name.as_bytes());
            sum.update(b"\0");
        }
    } else if kind.is_file() {
        sum.update(fs::read(path)?);
    }
    Ok(())
}

fn status(path: &Path, follows: bool, sum: &mut Sha256) -> io::Result<()> {
    let it = match follows {
        true => fs::metadata(path)?,
        false => fs::symlink_metadata(path)?,
    };
    sum.update(format!("{:o} {} {}", it.mode(), it.uid(), it.gid()));
    // A folder's time changes with each file that comes or goes.
    if it.is_file() {
        sum.update(format!(" {} {} {}", it.len(), it.mtime(), it.mtime_nsec()));
    }
    Ok(())
}

/// The answers that a loader has had.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Seen {
    pub answers: BTreeMap<Question, Digest>,
    /// Why it may do something else with the same answers.
    pub unsure: Option<String>,
}

impl Seen {
    /// Whether the host would answer the same now.
    pub fn is_still_so(&self) -> bool {
        self.unsure.is_none()
            && self
                .answers
                .iter()
                .all(|(question, answer)| question.answer() == *answer)
    }

    /// Notes a question about a path of the host.
    pub fn ask(&mut self, path: &Path, question: impl FnOnce(PathBuf) -> Question) {
        match sort(path) {
            Sort::Own => {}
            Sort::Lasting(path) => self.note(question(path)),
            Sort::Changing => self.doubt(format!("it reads {}, which changes", path.display())),
        }
    }

    /// Notes a question.
    pub fn note(&mut self, question: Question) {
        // It is asked only once.
        if let Entry::Vacant(vacant) = self.answers.entry(question) {
            let answer = vacant.key().answer();
            vacant.insert(answer);
        }
    }

    pub fn doubt(&mut self, why: String) {
        self.unsure.get_or_insert(why);
    }
}

/// The sorts of paths.
#[derive(PartialEq, Eq, Debug)]
enum Sort {
    /// About the process itself, or a device: no input.
    Own,
    /// Stays as it is until somebody changes it; a file about the process is asked for as our own.
    Lasting(PathBuf),
    Changing,
}

/// Files about a process that are no input: places of its memory, its descriptors and its numbers.
const OF_PROCESS: [&str; 14] = [
    "maps",
    "smaps",
    "fd",
    "fdinfo",
    "task",
    "stat",
    "statm",
    "status",
    "comm",
    "cmdline",
    "exe",
    "auxv",
    "limits",
    "oom_score_adj",
];

/// Files about a process that say in what surroundings it runs, which are ours, too.
const OF_SURROUNDINGS: [&str; 3] = ["cgroup", "mountinfo", "mounts"];

fn sort(path: &Path) -> Sort {
    let lasting = || Sort::Lasting(path.to_owned());
    if path.starts_with("/dev") {
        return Sort::Own;
    }
    let Ok(below) = path.strip_prefix("/proc") else {
        return lasting();
    };
    let mut parts = below.iter().filter_map(|part| part.to_str());
    match (parts.next(), parts.next()) {
        (Some("sys"), _) => lasting(),
        (Some(process), rest) if process.ends_with("self") || process.parse::<u32>().is_ok() => {
            match rest {
                None => Sort::Own,
                Some(file) if OF_PROCESS.contains(&file) => Sort::Own,
                Some(file) if OF_SURROUNDINGS.contains(&file) => {
                    Sort::Lasting(Path::new("/proc/self").join(file))
                }
                Some(_) => Sort::Changing,
            }
        }
        _ => Sort::Changing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_changes_with_what_it_is_about() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let link = folder.path().join("link");
        let questions = [
            Question::Contents(file.clone()),
            Question::Contents(folder.path().to_owned()),
            Question::Status(file.clone(), true),
            Question::Link(link.clone()),
        ];
        let mut seen = Seen::default();
        let mut known = Vec::new();
        let mut step = |expected: [bool; 4]| {
            let answers: Vec<Digest> = questions.iter().map(Question::answer).collect();
            if !known.is_empty() {
                let same: Vec<bool> = answers.iter().zip(&known).map(|(a, b)| a == b).collect();
                assert_eq!(same, expected);
            }
            known = answers;
        };
        step([true; 4]);
        fs::write(&file, "a").unwrap();
        step([false, false, false, true]);
        fs::write(&file, "bc").unwrap();
        step([false, true, false, true]);
        std::os::unix::fs::symlink(&file, &link).unwrap();
        step([true, false, true, false]);
        seen.ask(&file, Question::Contents);
        assert!(seen.is_still_so());
        fs::write(&file, "bd").unwrap();
        assert!(!seen.is_still_so());
    }

    #[test]
    fn what_changes_by_itself_is_not_kept() {
        let mut seen = Seen::default();
        for path in [
            "/proc/self/maps",
            "/proc/77/fd",
            "/dev/urandom",
            "/proc/self/cgroup",
            "/proc/sys/kernel/osrelease",
        ] {
            seen.ask(Path::new(path), Question::Contents);
            assert_eq!(seen.unsure, None, "{path}");
        }
        assert_eq!(seen.answers.len(), 2);
        for path in ["/proc/meminfo", "/proc/self/io", "/proc"] {
            let mut seen = Seen::default();
            seen.ask(Path::new(path), Question::Contents);
            assert!(seen.unsure.is_some(), "{path}");
        }
    }
}
