//! Results that are kept while more are being computed, so that a killed command goes on where it was.
//!
//! One JSON document a line. The first names the program that computes: another build may compute something
//! else, so its results are refused. A last line that was not finished is forgotten.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context as _, bail};
use schedlab_report::RunResult;
use schedlab_sim::SimSpec;

use crate::output::tell;

/// The open file.
struct Lines {
    file: File,
    /// A line could not be written: whatever came behind what there is of it could not be read.
    is_torn: bool,
}

pub struct Journal {
    path: PathBuf,
    file: Mutex<Lines>,
    /// By the command that repeats the run.
    known: BTreeMap<String, RunResult>,
}

impl Journal {
    /// Opens or begins the file.
    ///
    /// # Errors
    /// If it cannot be written, or is not one that this build of the program has begun.
    pub fn open(path: &Path) -> anyhow::Result<Journal> {
        let name = path.display();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(|| format!("cannot write {name}"))?;
        // Some file systems have no locks: there no process is kept off.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            bail!("{name} is in use by another schedlab: name another with --html");
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text)
            .with_context(|| format!("cannot read {name}"))?;
        // Without what a kill has left unfinished.
        let whole = text.iter().rposition(|&byte| byte == b'\n');
        text.truncate(whole.map_or(0, |end| end + 1));
        let text = String::from_utf8_lossy(&text);
        let program = program();
        let mut lines = text.lines();
        match lines.next() {
            None => {
                let begun = file
                    .set_len(0)
                    .and_then(|()| file.rewind())
                    .and_then(|()| writeln!(file, "{program}"));
                if let Err(error) = begun {
                    // It holds nothing that anybody could go on with.
                    let _ = std::fs::remove_file(path);
                    return Err(error).with_context(|| format!("cannot write {name}"));
                }
            }
            Some(first) if first == program => {
                file.set_len(text.len() as u64)?;
                file.seek(SeekFrom::End(0))?;
            }
            Some(_) => bail!(
                "{name} holds runs of another build of schedlab, or something else: remove it, or name another with --html"
            ),
        }
        let mut known = BTreeMap::new();
        for (index, line) in lines.enumerate() {
            let result: RunResult = serde_json::from_str(line).map_err(|error| {
                anyhow::anyhow!(
                    "{name}:{}: no result of a run ({error}): remove the file",
                    index + 2
                )
            })?;
            known.insert(result.replay.clone(), result);
        }
        Ok(Journal {
            path: path.to_owned(),
            file: Mutex::new(Lines {
                file,
                is_torn: false,
            }),
            known,
        })
    }

    /// Returns the result of a run that was finished before.
    pub fn find(&self, spec: &SimSpec) -> Option<RunResult> {
        let mut result = self.known.get(&spec.replay_command())?.clone();
        result.asked.clone_from(&spec.workload);
        Some(result)
    }

    /// Returns the result of a real run that was finished before, by the command that repeats it.
    pub fn find_real(&self, command: &str, workload: &str) -> Option<RunResult> {
        let mut result = self.known.get(command)?.clone();
        result.asked = workload.to_owned();
        Some(result)
    }

    /// Keeps a result. A failure to do so is reported: nothing is lost unless the command is killed.
    pub fn keep(&self, result: &RunResult) {
        let mut line = serde_json::to_string(result).expect("plain data");
        line.push('\n');
        let mut lines = self.file.lock().expect("no panic while it is held");
        if lines.is_torn {
            return;
        }
        if let Err(error) = lines.file.write_all(line.as_bytes()) {
            lines.is_torn = true;
            tell(format_args!(
                "cannot write {}: {error}; if this command is killed, runs from here on are made again",
                self.path.display()
            ));
        }
    }

    /// Everything is done: the file is not needed any more.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn finish(self) -> anyhow::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
        .with_context(|| format!("cannot remove {}", self.path.display()))
    }
}

/// Returns a line that stands for this build of the program.
fn program() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "{{\"schedlab\":\"{version}\",\"build\":\"{}\"}}",
        schedlab_sweep::BUILD
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_report::Measures;
    use schedlab_sim::Scheduler;

    fn spec(seed: u64) -> SimSpec {
        SimSpec {
            seed,
            ..SimSpec::new("cpu:tasks=2", Scheduler::parse("fifo"), "laptop")
        }
    }

    fn result(seed: u64) -> RunResult {
        let mut measures = Measures::default();
        measures.float("score", 0.1 + seed as f64 / 3.0);
        RunResult {
            workload: "cpu".into(),
            asked: spec(seed).workload,
            scheduler: "fifo".into(),
            machine: "laptop".into(),
            cpus: 8,
            seed,
            exit: schedlab_report::Exit::Done,
            replay: spec(seed).replay_command(),
            measures,
            ..RunResult::default()
        }
    }

    #[test]
    fn what_was_finished_is_found_again_and_a_torn_line_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let journal = Journal::open(&path).unwrap();
        journal.keep(&result(1));
        journal.keep(&result(2));
        drop(journal);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 10]).unwrap();

        let journal = Journal::open(&path).unwrap();
        assert_eq!(journal.find(&spec(1)), Some(result(1)));
        assert_eq!(journal.find(&spec(2)), None);
        journal.keep(&result(2));
        drop(journal);
        let journal = Journal::open(&path).unwrap();
        assert_eq!(journal.find(&spec(2)), Some(result(2)));
        journal.finish().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_line_torn_in_a_character_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        drop(Journal::open(&path).unwrap());
        let begun = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&begun[..], b"{\"workload\":\"\xc3"].concat()).unwrap();
        drop(Journal::open(&path).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), begun);
    }

    #[test]
    fn one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let journal = Journal::open(&path).unwrap();
        let error = Journal::open(&path).err().unwrap().to_string();
        assert!(error.contains("in use by another schedlab"), "{error}");
        journal.keep(&result(1));
        drop(journal);
        assert_eq!(
            Journal::open(&path).unwrap().find(&spec(1)),
            Some(result(1))
        );
    }

    #[test]
    fn foreign_files_are_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        std::fs::write(&path, "something\nelse\n").unwrap();
        let error = Journal::open(&path).err().unwrap().to_string();
        assert!(error.contains("another build"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "something\nelse\n");
        std::fs::write(&path, format!("{}\n{{}}\n", program())).unwrap();
        let error = Journal::open(&path).err().unwrap().to_string();
        assert!(error.contains("j:2: no result"), "{error}");
    }
}
