//! Checks that run in another place than their harness: in a virtual machine, which is booted once for all of them.
//!
//! There, [`judge_each`] runs them and prints three kinds of lines: `begin NAME`, `ok NAME …` and `FAILED NAME …`. Here,
//! [`Verdicts::hear`] reads these lines, and each check is a test of libtest-mimic that waits for its verdict. So a check
//! is listed, chosen and counted like any other test. A long check is ignored unless `--include-ignored`
//! is given; `make test-all` gives it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// The verdicts of checks as they become known.
#[derive(Default)]
pub struct Verdicts {
    known: Mutex<Known>,
    changed: Condvar,
}

/// A check that has not failed.
#[derive(Clone)]
enum Done {
    Passed,
    /// It cannot be judged here, for this reason.
    Skipped(String),
}

#[derive(Default)]
struct Known {
    verdicts: BTreeMap<String, Result<Done, String>>,
    begun: Vec<String>,
    /// Why what has no verdict yet will have none.
    end: Option<Result<(), String>>,
    /// An output whose last line is not complete.
    rest: Vec<u8>,
}

impl Verdicts {
    /// Tells the verdict of a check. One that has failed stays failed.
    pub fn tell(&self, name: &str, verdict: Result<(), String>) {
        self.note(name, verdict.map(|()| Done::Passed));
    }

    /// Tells that a check cannot be judged here. Tell the reason by [`crate::skipped`], too.
    pub fn skip(&self, name: &str, why: &str) {
        self.note(name, Ok(Done::Skipped(why.to_owned())));
    }

    fn note(&self, name: &str, verdict: Result<Done, String>) {
        let mut known = self.known();
        let before = known.verdicts.get(name);
        if !before.is_some_and(Result::is_err) {
            known.verdicts.insert(name.to_owned(), verdict);
        }
        self.changed.notify_all();
    }

    /// Prints output of [`judge_each`] and takes the verdicts from it. `of` makes the name of a check out of its name there.
    pub fn hear(&self, bytes: &[u8], of: impl Fn(&str) -> String) {
        // The output has no reader: the verdicts count.
        let _ = std::io::stdout().write_all(bytes);
        let mut known = self.known();
        known.rest.extend_from_slice(bytes);
        let Some(end) = known.rest.iter().rposition(|&byte| byte == b'\n') else {
            return;
        };
        let lines: Vec<u8> = known.rest.drain(..=end).collect();
        drop(known);
        for line in String::from_utf8_lossy(&lines).lines() {
            let mut words = line.splitn(3, ' ');
            let (Some(mark), Some(name)) = (words.next(), words.next()) else {
                continue;
            };
            let more = words.next().unwrap_or_default();
            match mark {
                "begin" => self.known().begun.push(of(name)),
                "ok" => self.tell(&of(name), Ok(())),
                "FAILED" => self.tell(&of(name.trim_end_matches(':')), Err(more.to_owned())),
                _ => {}
            }
        }
    }

    /// Returns the check that has begun and has no verdict, and forgets it.
    pub fn take_unjudged(&self) -> Option<String> {
        let mut known = self.known();
        known.rest.clear();
        let begun = std::mem::take(&mut known.begun);
        let judged = |name: &String| known.verdicts.contains_key(name);
        begun.into_iter().rev().find(|name| !judged(name))
    }

    /// Returns the names of the checks whose verdicts are known.
    pub fn judged(&self) -> BTreeSet<String> {
        self.known().verdicts.keys().cloned().collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, end: Result<(), String>) {
        self.known().end = Some(end);
        self.changed.notify_all();
    }

    fn wait(&self, name: &str) -> Result<Completion, Failed> {
        let mut known = self.known();
        loop {
            let told = match (known.verdicts.get(name), &known.end) {
                (Some(verdict), _) => Some(verdict.clone()),
                (None, Some(Ok(()))) => Some(Err("there is no verdict on it".to_owned())),
                (None, Some(Err(why))) => Some(Err(why.clone())),
                (None, None) => None,
            };
            match told {
                Some(Ok(Done::Passed)) => return Ok(Completion::Completed),
                Some(Ok(Done::Skipped(why))) => return Ok(Completion::ignored_with(why)),
                Some(Err(why)) => return Err(why.into()),
                None => {}
            }
            known = self
                .changed
                .wait(known)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The end of the place where checks are judged.
pub enum Ended {
    /// All have been judged, and nothing else was wrong; with the reason if something was.
    Judged(Result<(), String>),
    /// There is no such place here, for this reason; nothing was tested.
    Missing(String),
}

/// The name of a check, and which suite runs it.
pub struct Check {
    name: String,
    is_long: bool,
}

impl Check {
    /// Makes a check that `make test` runs.
    pub fn short(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            is_long: false,
        }
    }

    /// Makes a check that `make test-all` alone runs.
    pub fn long(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            is_long: true,
        }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Runs the chosen ones of `all`: `place` has them judged, once for all.
///
/// The command line is that of cargo's own harness (`--list`, a part of a name, `--exact`, `--include-ignored` …).
pub fn run(
    all: impl IntoIterator<Item = Check>,
    place: impl FnOnce(&[String], &Verdicts) -> Ended + Send,
) -> ExitCode {
    run_with(Arguments::from_args(), all, place)
}

fn run_with(
    mut arguments: Arguments,
    all: impl IntoIterator<Item = Check>,
    place: impl FnOnce(&[String], &Verdicts) -> Ended + Send,
) -> ExitCode {
    let all: Vec<Check> = all.into_iter().collect();
    let chosen: Vec<String> = all
        .iter()
        .filter(|check| is_chosen(&arguments, check))
        .map(|check| check.name.clone())
        .collect();
    // Each waits for its verdict, in their order.
    arguments.test_threads = Some(1);
    let verdicts: &'static Verdicts = Box::leak(Box::default());
    let trial = |check: Check| {
        let of = check.name.clone();
        let trial = Trial::ignorable_test(check.name, move || verdicts.wait(&of));
        trial.with_ignored_flag(check.is_long)
    };
    let trials: Vec<Trial> = all.into_iter().map(trial).collect();
    let nothing_to_do = arguments.list || chosen.is_empty();
    let (conclusion, end) = std::thread::scope(|scope| {
        let place = scope.spawn(|| {
            if nothing_to_do {
                return Ok(());
            }
            let place = std::panic::AssertUnwindSafe(|| place(&chosen, verdicts));
            let end = match std::panic::catch_unwind(place) {
                Ok(Ended::Judged(end)) => end,
                Ok(Ended::Missing(why)) => {
                    crate::skipped(&why);
                    chosen.iter().for_each(|name| verdicts.skip(name, &why));
                    Ok(())
                }
                Err(_) => Err("the checks ended in a panic".to_owned()),
            };
            verdicts.end(end.clone());
            end
        });
        let conclusion = libtest_mimic::run(&arguments, trials);
        (conclusion, place.join())
    });
    let end = end.unwrap_or_else(|_| Err("the checks ended in a panic".to_owned()));
    if let Err(why) = &end {
        println!("FAILED {why}");
    }
    ExitCode::from(u8::from(conclusion.has_failed() || end.is_err()))
}

/// Returns whether libtest-mimic runs a test of this name.
fn is_chosen(arguments: &Arguments, check: &Check) -> bool {
    let matches = |word: &String| match arguments.exact {
        true => check.name == *word,
        false => check.name.contains(word.as_str()),
    };
    let is_of_the_suite = match check.is_long {
        true => arguments.ignored || arguments.include_ignored,
        false => !arguments.ignored,
    };
    is_of_the_suite
        && arguments.filter.as_ref().is_none_or(matches)
        && !arguments.skip.iter().any(matches)
}

/// Runs checks where they are judged, one after another, and prints their verdicts. One that fails keeps none from running.
pub fn judge_each<'a>(
    checks: impl Iterator<Item = &'a str>,
    check: impl Fn(&str) -> Result<String, String>,
) -> ExitCode {
    let (mut judged, mut failed) = (0, 0);
    for name in checks {
        println!("begin {name}");
        judged += 1;
        let start = Instant::now();
        let verdict = check(name);
        let seconds = start.elapsed().as_secs_f64();
        match verdict {
            Ok(detail) => println!("ok {name} ({seconds:.1} s) {detail}"),
            Err(why) => {
                println!("FAILED {name} ({seconds:.1} s): {why}");
                failed += 1;
            }
        }
    }
    println!("{judged} checks, {failed} failed");
    ExitCode::from(u8::from(failed > 0 || judged == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(line: &str, place: impl FnOnce(&[String], &Verdicts) -> Ended + Send) -> bool {
        let words = line.split(' ').filter(|word| !word.is_empty());
        let arguments = Arguments::from_iter(["test"].into_iter().chain(words));
        let all = ["one", "two", "three"].map(Check::short);
        let all = all.into_iter().chain([Check::long("long")]);
        run_with(arguments, all, place) == ExitCode::SUCCESS
    }

    fn said(text: &'static str) -> impl FnOnce(&[String], &Verdicts) -> Ended + Send {
        |_, verdicts| {
            // In pieces that end in the midst of lines.
            for piece in text.as_bytes().chunks(7) {
                verdicts.hear(piece, str::to_owned);
            }
            Ended::Judged(Ok(()))
        }
    }

    #[test]
    fn each_check_needs_its_verdict() {
        assert!(with("", said("ok one\nok two (0.1 s) fine\nok three\n")));
        assert!(!with("", said("ok one\nok two\n")));
        assert!(!with("", said("ok one\nFAILED two: why\nok three\n")));
        assert!(!with(
            "",
            said("FAILED one (0.1 s): why\nok one\nok two\nok three\n")
        ));
        assert!(with("--ignored", said("ok long\n")));
        assert!(!with(
            "--include-ignored",
            said("ok one\nok two\nok three\n")
        ));
        assert!(with("thr", said("ok three\n")));
        assert!(!with("thr", said("ok one\n")));
    }

    #[test]
    fn the_place_is_told_the_chosen_checks() {
        let chosen = |line: &str| {
            let mut seen = Vec::new();
            with(line, |chosen, _| {
                seen = chosen.to_vec();
                Ended::Judged(Ok(()))
            });
            seen.join(" ")
        };
        assert_eq!(chosen(""), "one two three");
        assert_eq!(chosen("o --skip two"), "one");
        assert_eq!(chosen("one --exact"), "one");
        assert_eq!(chosen("--include-ignored"), "one two three long");
        assert_eq!(chosen("--ignored"), "long");
        assert_eq!(chosen("nothing"), "");
        assert_eq!(chosen("--list"), "");
    }

    #[test]
    fn what_is_wrong_with_the_place_fails_the_test() {
        let all = |end: fn() -> Ended| {
            with("", move |chosen, verdicts| {
                chosen.iter().for_each(|name| verdicts.tell(name, Ok(())));
                end()
            })
        };
        assert!(all(|| Ended::Judged(Ok(()))));
        assert!(!all(|| Ended::Judged(Err(
            "the kernel complains".to_owned()
        ))));
        assert!(!all(|| panic!("of a place")));
        assert!(with("", |_, _| Ended::Missing(
            "(a unit test of this list)".to_owned()
        )));
    }

    #[test]
    fn the_check_at_which_a_machine_died_is_known() {
        let verdicts = Verdicts::default();
        verdicts.hear(b"begin one\nok one\nbegin two\n", str::to_owned);
        assert_eq!(verdicts.take_unjudged().as_deref(), Some("two"));
        assert_eq!(verdicts.take_unjudged(), None);
        assert_eq!(verdicts.judged().into_iter().collect::<Vec<_>>(), ["one"]);
    }
}
