//! Several workloads beside each other on one machine: `service:rate=2000/s + kbuild:jobs=8`.
//!
//! The parts' tasks form one workload. Parts share nothing but the machine: each has its own objects, address spaces,
//! counts and score. The score of the whole is the first part's.
//!
//! The run lasts until all parts have ended that end by themselves. Parts with a duration go on until then, however long
//! that is, so that what ends has company to the end. If every part has a duration, the run ends at the shortest of them:
//! none is measured without the others.

use std::borrow::Cow;

use schedlab_trace::{Duration, Instant};

use crate::action::{Action, Behaviour, Context, ObjectId, TaskSpec};
use crate::cgroup::{CgroupId, Cgroups};
use crate::part::{BEGUN, ENDED, LEFT, Part, WORK};
use crate::{Counters, Workload, WorkloadError};

/// The separator of parts, outside of quotation marks: a path may have a `+` or, in quotation marks, this.
const SEPARATOR: &str = " + ";

/// Returns the parts of `text`; one if it asks for one workload.
///
/// # Errors
/// If a part is missing.
pub(crate) fn split(text: &str) -> Result<Vec<Cow<'_, str>>, WorkloadError> {
    if !text.contains('"')
        && (!text.contains(SEPARATOR.trim()) || std::path::Path::new(text).is_file())
    {
        return Ok(vec![text.into()]);
    }
    let mut parts = Vec::new();
    let mut quoted = false;
    let mut begin = 0;
    for (at, c) in text.char_indices() {
        quoted ^= c == '"';
        if !quoted && at >= begin && text[at..].starts_with(SEPARATOR) {
            parts.push(&text[begin..at]);
            begin = at + SEPARATOR.len();
        }
    }
    parts.push(&text[begin..]);
    let wrong = |message: &str| WorkloadError::Composition {
        text: text.to_owned(),
        message: message.to_owned(),
    };
    if quoted {
        return Err(wrong("a quotation mark is not closed"));
    }
    if parts.len() > 1 && parts.iter().any(|part| part.trim().is_empty()) {
        return Err(wrong("a workload is missing beside a `+`"));
    }
    if let [only] = parts[..]
        && (only.trim_end().ends_with(" +") || only.trim_start().starts_with("+ "))
    {
        return Err(wrong("a workload is missing beside a `+`"));
    }
    let unquoted = |part: &str| part.trim().replace('"', "");
    Ok(match parts[..] {
        [only] if !only.contains('"') => vec![only.into()],
        _ => parts
            .into_iter()
            .map(|part| unquoted(part).into())
            .collect(),
    })
}

/// Returns the prefix of a workload's measures if it is a part: the name of its model, or of its file without folders
/// and
/// ending.
fn name_of(text: &str) -> String {
    let stem = match crate::rtapp::split(text) {
        Some((crate::rtapp::STDIN, _)) => "stdin",
        Some((path, _)) => std::path::Path::new(path)
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or("file"),
        None => text.split(':').next().unwrap_or(text),
    };
    stem.replace(char::is_whitespace, "-")
}

/// Returns the names of parts, by the texts with which they were asked for.
pub(crate) fn names(asked: &[Cow<'_, str>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for text in asked {
        let name = name_of(text);
        let free = (1..).map(|n| {
            if n == 1 {
                name.clone()
            } else {
                format!("{name}{n}")
            }
        });
        let free = free.into_iter().find(|name| !names.contains(name));
        names.push(free.expect("some number is free"));
    }
    names
}

/// One workload of several: the texts with which they were asked for, and what those came to.
///
/// # Errors
/// If two parts give one cgroup different settings.
pub(crate) fn together(
    asked: &[Cow<'_, str>],
    workloads: Vec<Workload>,
) -> Result<Workload, WorkloadError> {
    let names = names(asked);
    let durations: Vec<Option<Duration>> = workloads.iter().map(|part| part.duration).collect();
    let some_end = durations.contains(&None);
    let mut whole = Workload {
        name: names.join("+"),
        params: Vec::new(),
        objects: Vec::new(),
        tasks: Vec::new(),
        cgroups: Cgroups::default(),
        duration: match some_end {
            true => None,
            false => durations.iter().copied().flatten().min(),
        },
        score: workloads[0].score.clone(),
        notes: Vec::new(),
        parts: Vec::new(),
        start: workloads[0].start,
    };
    let mut spaces = 0;
    for ((name, text), workload) in names.into_iter().zip(asked).zip(workloads) {
        let cgroups = whole.cgroups.merge(&workload.cgroups).map_err(|conflict| {
            WorkloadError::Contradiction {
                workload: asked.join(SEPARATOR),
                message: format!(
                    "two parts give the cgroup `{}` different settings; give them in one part",
                    conflict.path
                ),
            }
        })?;
        let part = Part {
            name,
            model: match crate::rtapp::split(text) {
                Some(_) => String::new(),
                None => workload.name,
            },
            score: workload.score,
            tasks: workload.tasks.len(),
        };
        let place = Place {
            is_first: whole.parts.is_empty(),
            background: some_end && workload.duration.is_some(),
            objects: whole.objects.len() as u32,
            spaces,
            cgroups: cgroups.into(),
            part: std::sync::Arc::new(part.clone()),
        };
        let params = workload.params.into_iter();
        whole
            .params
            .extend(params.map(|(option, value)| (part.own(&option), value)));
        let notes = workload.notes.into_iter();
        whole
            .notes
            .extend(notes.map(|note| format!("{}: {note}", part.name)));
        whole.objects.extend(workload.objects);
        // A part's numbers of address spaces are below the number of its tasks.
        let highest = workload
            .tasks
            .iter()
            .filter_map(|task| task.address_space)
            .max();
        spaces += highest
            .map_or(0, |highest| highest + 1)
            .max(part.tasks as u32)
            + FORKED;
        whole
            .tasks
            .extend(workload.tasks.into_iter().map(|task| place.task(task)));
        whole.parts.push(part);
    }
    Ok(whole)
}

/// Address spaces that a part may have besides its first tasks'.
const FORKED: u32 = 1 << 24;

/// The places of a part's objects in the whole.
#[derive(Clone)]
struct Place {
    part: std::sync::Arc<Part>,
    is_first: bool,
    /// The run does not wait for its tasks.
    background: bool,
    objects: u32,
    spaces: u32,
    /// The place of each of its cgroups in the whole.
    cgroups: std::sync::Arc<[CgroupId]>,
}

impl Place {
    fn task(&self, task: TaskSpec) -> TaskSpec {
        TaskSpec {
            address_space: task.address_space.map(|space| space + self.spaces),
            behaviour: Box::new(Placed {
                place: self.clone(),
                inner: task.behaviour,
                work: 0,
                begun: None,
                ended: None,
            }),
            ..task
        }
    }

    fn action(&self, mut action: Action) -> Action {
        if let Action::Fork(spec) = action {
            return Action::Fork(Box::new(self.task(*spec)));
        }
        let moved = |object: &mut ObjectId| object.0 += self.objects;
        match &mut action {
            Action::Write { to: object, .. }
            | Action::Read { from: object, .. }
            | Action::Lock(object)
            | Action::Unlock(object)
            | Action::TryUserLock(object)
            | Action::UserUnlock(object)
            | Action::Signal(object)
            | Action::Broadcast(object)
            | Action::Barrier(object)
            | Action::Post(object)
            | Action::Acquire(object)
            | Action::Suspend(object)
            | Action::Notify(object) => moved(object),
            Action::JoinCgroup(cgroup) => *cgroup = self.cgroups[cgroup.index()],
            Action::Wait { condition, mutex } => {
                moved(condition);
                moved(mutex);
            }
            Action::Compute(_)
            | Action::Yield
            | Action::Sleep(_)
            | Action::SleepUntil(_)
            | Action::Io(_)
            | Action::Fork(_)
            | Action::SetNice(_)
            | Action::SetAffinity(_)
            | Action::SetClass(_)
            | Action::Touch(_)
            | Action::Exec
            | Action::Fault(_)
            | Action::Syscall
            | Action::Work(_)
            | Action::Begin
            | Action::Exit => {}
        }
        action
    }
}

/// A task of a part.
struct Placed {
    place: Place,
    inner: Box<dyn Behaviour>,
    work: u64,
    begun: Option<Instant>,
    ended: Option<Instant>,
}

impl Behaviour for Placed {
    fn next(&mut self, context: &mut Context<'_>) -> Action {
        loop {
            match self.inner.next(context) {
                Action::Begin => {
                    self.begun = Some(context.now);
                    if self.place.is_first {
                        return Action::Begin;
                    }
                }
                Action::Work(n) => {
                    self.work += u64::from(n);
                    return Action::Work(n);
                }
                Action::Exit => {
                    self.ended = Some(context.now);
                    return Action::Exit;
                }
                action => return self.place.action(action),
            }
        }
    }

    fn forks_processes(&self) -> bool {
        self.inner.forks_processes()
    }

    fn is_background(&self) -> bool {
        self.place.background
    }

    fn report(&self, counters: &mut Counters) {
        let part = &*self.place.part;
        let mut own = Counters::default();
        self.inner.report(&mut own);
        let values = own.values().map(|(name, n)| (part.rename(name), n));
        counters.merge(&values.collect::<Vec<_>>());
        for (name, dividend, divisor) in own.ratios() {
            counters.ratio(
                part.rename(name),
                part.rename(dividend),
                part.rename(divisor),
            );
        }
        counters.add(part.own(WORK), self.work);
        if let Some(begun) = self.begun {
            counters.max(part.own(BEGUN), begun.ns() as i64);
        }
        match self.ended {
            Some(ended) => counters.max(part.own(ENDED), ended.ns() as i64),
            None => counters.add(part.own(LEFT), 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PartEnd;
    use crate::testing::{Order, run_in};

    fn parsed(text: &str) -> Workload {
        Workload::parse(text, 2).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn parts_are_separated_by_a_plus_between_spaces() {
        let parts = |text| split(text).unwrap();
        assert_eq!(parts("cpu:tasks=2"), ["cpu:tasks=2"]);
        assert_eq!(parts("cpu +  chat:rooms=1"), ["cpu", "chat:rooms=1"]);
        assert_eq!(
            parts("a+b.json:duration=1 + cpu + cpu"),
            ["a+b.json:duration=1", "cpu", "cpu"]
        );
        assert_eq!(
            parts(r#""x/a + b.json":duration=1 + cpu"#),
            ["x/a + b.json:duration=1", "cpu"]
        );
        assert_eq!(parts(r#""x/a + b.json""#), ["x/a + b.json"]);
        for text in [
            "cpu + ",
            " + cpu",
            "cpu +  + cpu",
            "cpu +",
            "+ cpu",
            "\"cpu + cpu",
        ] {
            let error = Workload::parse(text, 2).err().unwrap();
            assert!(
                matches!(error, WorkloadError::Composition { .. }),
                "{text}: {error}"
            );
        }
        let glued = Workload::parse("cpu+chat", 2).err().unwrap().to_string();
        assert!(glued.contains("with a space on either side"), "{glued}");
    }

    #[test]
    fn each_part_has_its_own_score_and_counts() {
        let text =
            "pipe:loops=50 + chat:rooms=1,users=2,messages=3 + chat:rooms=1,users=3,messages=2";
        for order in [Order::RoundRobin, Order::Random(4)] {
            let workload = parsed(text);
            let names: Vec<_> = workload
                .parts
                .iter()
                .map(|part| part.name.clone())
                .collect();
            assert_eq!(names, ["pipe", "chat", "chat2"]);
            assert_eq!(workload.name, "pipe+chat+chat2");
            assert_eq!(workload.score, parsed("pipe").score);
            assert!(
                workload
                    .params
                    .contains(&("chat2.users".to_owned(), "3".to_owned()))
            );
            let parts = workload.parts.clone();
            let mut end = run_in(workload, order);
            let (now, counters) = (end.now, &mut end.counters);
            let ends: Vec<PartEnd> = parts.iter().map(|part| part.end(counters, now)).collect();
            assert_eq!(ends.iter().map(|part| part.work).sum::<u64>(), end.work);
            for (i, alone) in text.split(" + ").enumerate() {
                let alone = run_in(parsed(alone), order);
                assert_eq!(ends[i].work, alone.work, "{i}");
                for (name, n) in alone.counters.values() {
                    if name.contains("delivered") {
                        assert_eq!(end.counters.get(&parts[i].rename(name)), n, "{name}");
                    }
                }
            }
            assert_eq!(end.counters.number("chat.left"), None);
            assert_eq!(
                ends.iter().map(|part| part.makespan.ns()).max(),
                Some(now.ns())
            );
        }
    }

    /// Work by then, and when the measured part of each began.
    #[test]
    fn scores_are_those_of_the_part() {
        let text =
            "cpu:tasks=1,run=10ms,loops=4,duration=0 + cpu:tasks=1,run=1ms,loops=5,duration=0";
        let workload = parsed(text);
        let parts = workload.parts.clone();
        let mut end = run_in(workload, Order::RoundRobin);
        let ends: Vec<PartEnd> = parts
            .iter()
            .map(|part| part.end(&mut end.counters, end.now))
            .collect();
        // By turns: 10, 1, 10, 1, 10, 1, 10 ms. Then the second one has two left.
        assert_eq!(
            (ends[0].makespan.ns(), ends[1].makespan.ns()),
            (43_000_000, 45_000_000)
        );
        assert_eq!(ends[0].score, Some(4.0 * 1e9 / 43e6));
        assert_eq!(ends[1].score, Some(5.0 * 1e9 / 45e6));
    }

    #[test]
    fn the_run_waits_for_those_that_end() {
        let duration = |text: &str| parsed(text).duration;
        assert_eq!(
            duration("cpu:duration=3 + cpu:duration=2"),
            Some(Duration::from_secs(2))
        );
        assert_eq!(duration("cpu:duration=3 + pipe:loops=9"), None);
        let workload = parsed("cpu:tasks=2,duration=3 + pipe:loops=9");
        let waited: Vec<bool> = workload
            .tasks
            .iter()
            .map(|task| !task.behaviour.is_background())
            .collect();
        assert_eq!(waited, [false, false, true, true]);
        let end = run_in(workload, Order::RoundRobin);
        assert_eq!(end.counters.get("cpu.left"), 2);
        assert_eq!(end.counters.get("pipe.left"), 0);
    }

    #[test]
    fn files_are_parts_under_their_names() {
        let folder = format!("{}/../../workloads/rt-app", env!("CARGO_MANIFEST_DIR"));
        let text = format!(
            "{folder}/periodic.json:duration=1 + {folder}/periodic.json + {folder}/locks.json"
        );
        let workload = parsed(&text);
        let names: Vec<_> = workload
            .parts
            .iter()
            .map(|part| part.name.as_str())
            .collect();
        assert_eq!(names, ["periodic", "periodic2", "locks"]);
        let end = run_in(workload, Order::RoundRobin);
        assert!(end.counters.get("periodic2.rtapp.light-0.iterations") > 0);
        assert_eq!(end.counters.get("locks.rtapp.producer-0.iterations"), 5);
    }
}
