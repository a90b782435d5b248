//! From what each task did to a workload file: numbers, barriers, jitter.

use std::collections::{BTreeMap, BTreeSet};

use schedlab_workload::recorded::{
    Barrier, File, Head, OTHER, Recorded, Step, TaskHead, VERSION, Waits,
};

use crate::channel::Channels;
use crate::tally::Tally;
use crate::task::{Of, Raw};
use crate::{About, Tid};

/// All that a file is made of.
pub(crate) struct Finish<'a> {
    pub tasks: Vec<Of>,
    pub posts: Vec<bool>,
    pub channels: Channels,
    pub tally: &'a Tally,
    pub about: &'a About,
    pub cpus: BTreeSet<u32>,
    pub others_ns: u64,
    pub recorder_ns: u64,
    pub paths_ns: u64,
    pub waits: Waits,
    pub autogroup: bool,
}

/// The file; `None` if no task of the program ran.
pub(crate) fn finish(mut from: Finish<'_>) -> Option<File> {
    from.channels.resolve(&mut from.tasks);
    let groups = barriers(&mut from);
    let mut numbers: BTreeMap<usize, u32> = BTreeMap::new();
    let mut kept: Vec<usize> = Vec::new();
    let is_kept = |of: &Of| of.is_member && !of.steps.is_empty();
    // A child that did nothing is there, too: its parent creates it.
    let forked: BTreeSet<usize> = from
        .tasks
        .iter()
        .filter(|of| of.is_member)
        .flat_map(|of| of.steps.iter())
        .filter_map(|step| match step {
            Raw::Fork(child) => Some(*child),
            _ => None,
        })
        .collect();
    for (slot, of) in from.tasks.iter().enumerate() {
        if is_kept(of) || forked.contains(&slot) {
            kept.push(slot);
        }
    }
    if kept.is_empty() || from.cpus.is_empty() {
        return None;
    }
    let members = kept.len();
    for (slot, of) in from.tasks.iter_mut().enumerate() {
        if !of.is_member && !of.is_recorder {
            beside(&mut of.steps, &from.cpus);
            if !of.steps.is_empty() {
                kept.push(slot);
            }
        }
    }
    for (number, slot) in (1..).zip(&kept) {
        numbers.insert(*slot, number);
    }
    let mut processes: BTreeMap<Tid, u32> = BTreeMap::new();
    let mut heads = Vec::new();
    let mut steps = Vec::new();
    for (index, slot) in kept.iter().enumerate() {
        let of = &from.tasks[*slot];
        let next = processes.len() as u32 + 1;
        let process = *processes.entry(of.process).or_insert(next);
        let counted = from.tally.of(*slot);
        heads.push(TaskHead {
            comm: match of.comm.strip_prefix(OTHER) {
                Some(rest) => format!("-{rest}"),
                None => of.comm.clone(),
            },
            process,
            nice: match from.autogroup && index >= members {
                true => 0,
                false => nice(of.prio),
            },
            // Events have the priority, but not which of the two real-time policies it is.
            policy: (of.prio < 100).then(|| format!("rr:{}", (99 - of.prio).clamp(1, 99))),
            cpus: None,
            threads: 1,
            work_percent: 100,
            jitter_percent: match index < members {
                true => jitter(&of.steps),
                false => 0,
            },
            background: index >= members,
            cpu_ns: counted.cpu_ns,
            switches: counted.switches,
            wait_ns: counted.wait_ns,
        });
        let of = of.steps.iter().filter_map(|step| {
            Some(match *step {
                Raw::Run(ns) | Raw::RunOn { ns, .. } => Step::Run(ns),
                Raw::Post { to, post, .. } if from.posts[post] => Step::Post(*numbers.get(&to)?),
                Raw::Post { .. } | Raw::Transfer(_) => return None,
                Raw::Token(to) => Step::Post(*numbers.get(&to)?),
                Raw::Take => Step::Wait,
                Raw::Wait { .. } => Step::Wait,
                Raw::Sleep(ns) => Step::Sleep(ns),
                Raw::Until(ns) => Step::Until(ns),
                Raw::Device(ns) => Step::Device(ns),
                Raw::Fork(child) => Step::Fork(*numbers.get(&child)?),
                Raw::Yield => Step::Yield,
                Raw::Meet(group) => Step::Meet(group as u32 + 1),
            })
        });
        steps.push(merged(of));
    }
    let barriers = groups.iter().map(|group| Barrier {
        tasks: group
            .iter()
            .filter_map(|slot| numbers.get(slot).copied())
            .collect(),
    });
    let about = from.about;
    Some(File {
        head: Head {
            schedlab_workload: VERSION,
            name: heads[0].comm.clone(),
            work_percent: 100,
            think_percent: 100,
            recorded: Some(Recorded {
                command: about.command.clone(),
                kernel: about.kernel.clone(),
                source: about.format.clone(),
                cpus: from.cpus.len() as u32,
                events: about.events,
                lost_events: about.lost,
                others_cpu_ns: from.others_ns,
                recorder_cpu_ns: from.recorder_ns,
                paths_ns: from.paths_ns,
                waits: from.waits,
                measured: from.tally.measured(),
            }),
            barriers: barriers.collect(),
            tasks: heads,
        },
        steps,
    })
}

/// Runs that follow each other are one.
fn merged(steps: impl Iterator<Item = Step>) -> Vec<Step> {
    let mut merged: Vec<Step> = Vec::new();
    for step in steps {
        match (merged.last_mut(), step) {
            (Some(Step::Run(before)), Step::Run(ns)) => *before += ns,
            _ => merged.push(step),
        }
    }
    merged
}

/// The nice level of a normal task's priority.
fn nice(prio: i32) -> i8 {
    match prio {
        100..=139 => (prio - 120) as i8,
        _ => 0,
    }
}

/// The time of a task beside the program on the program's CPUs; the rest of its time it was away.
fn beside(steps: &mut Vec<Raw>, cpus: &BTreeSet<u32>) {
    let mut kept = Vec::new();
    let mut away_ns = 0;
    for step in steps.iter() {
        match *step {
            Raw::RunOn { ns, cpu } if cpus.contains(&cpu) => {
                if away_ns > 0 {
                    kept.push(Raw::Device(std::mem::take(&mut away_ns)));
                }
                kept.push(Raw::RunOn { ns, cpu });
            }
            Raw::RunOn { ns, .. } | Raw::Device(ns) => away_ns += ns,
            _ => {}
        }
    }
    *steps = kept;
}

/// By how many percent a task's CPU times differ from one to the next, at the median: of two that end in the same kind of
/// step, half of their difference over their mean.
fn jitter(steps: &[Raw]) -> u64 {
    let mut before: BTreeMap<u8, u64> = BTreeMap::new();
    let mut differences = Vec::new();
    for pair in steps.windows(2) {
        let Raw::Run(ns) = pair[0] else {
            continue;
        };
        let kind = match pair[1] {
            Raw::Post { .. } | Raw::Token(_) => 0,
            Raw::Wait { .. } | Raw::Take => 1,
            Raw::Fork(_) => 2,
            Raw::Meet(_) => 3,
            _ => 4,
        };
        if let Some(last) = before.insert(kind, ns) {
            differences
                .push(last.abs_diff(ns).saturating_mul(100) / last.saturating_add(ns).max(1));
        }
    }
    differences.sort_unstable();
    // Of fewer nothing can be said.
    const PAIRS_MIN: usize = 8;
    match differences.len() {
        ..PAIRS_MIN => 0,
        len => differences[len / 2],
    }
}

/// Posts without a computation between them that is worth the name are of one moment.
const MOMENT_NS: u64 = 20_000;

/// Finds barriers: one task wakes at least two others at one moment, and at another time one of those wakes the same
/// group. The last to come is then not always the same one, so it is put down as a barrier: who comes last wakes the
/// others.
fn barriers(from: &mut Finish<'_>) -> Vec<Vec<usize>> {
    // A moment: who posts, from which step to which, and to whom.
    struct Moment {
        by: usize,
        first: usize,
        last: usize,
        to: BTreeSet<usize>,
        posts: Vec<usize>,
    }
    let mut moments: Vec<Moment> = Vec::new();
    for (by, of) in from.tasks.iter().enumerate() {
        let mut open: Option<(Moment, u64)> = None;
        for (at, step) in of.steps.iter().enumerate() {
            match *step {
                Raw::Post { to, post, .. } if from.posts[post] => match &mut open {
                    Some((moment, _)) if !moment.to.contains(&to) => {
                        moment.last = at;
                        moment.to.insert(to);
                        moment.posts.push(post);
                    }
                    _ => {
                        moments.extend(open.take().map(|(moment, _)| moment));
                        let moment = Moment {
                            by,
                            first: at,
                            last: at,
                            to: BTreeSet::from([to]),
                            posts: vec![post],
                        };
                        open = Some((moment, 0));
                    }
                },
                Raw::Post { .. } => {}
                Raw::Run(ns)
                    if open
                        .as_ref()
                        .is_some_and(|(_, passed)| passed + ns <= MOMENT_NS) =>
                {
                    if let Some((_, passed)) = &mut open {
                        *passed += ns;
                    }
                }
                _ => moments.extend(open.take().map(|(moment, _)| moment)),
            }
        }
        moments.extend(open.take().map(|(moment, _)| moment));
    }
    let mut groups: BTreeMap<BTreeSet<usize>, Vec<Moment>> = BTreeMap::new();
    for moment in moments.into_iter().filter(|moment| moment.to.len() >= 2) {
        let mut group = moment.to.clone();
        group.insert(moment.by);
        groups.entry(group).or_default().push(moment);
    }
    let mut found = Vec::new();
    for (group, moments) in groups {
        let wakers: BTreeSet<usize> = moments.iter().map(|moment| moment.by).collect();
        if wakers.len() < 2 {
            continue;
        }
        let number = found.len();
        let mut met: BTreeMap<usize, ()> = BTreeMap::new();
        for moment in &moments {
            for post in &moment.posts {
                met.insert(*post, ());
                from.posts[*post] = false;
            }
            // The first post becomes the barrier, the others of the moment are gone.
            let steps = &mut from.tasks[moment.by].steps;
            steps[moment.first] = Raw::Meet(number);
            debug_assert!(moment.last < steps.len());
        }
        for slot in &group {
            for step in &mut from.tasks[*slot].steps {
                if let Raw::Wait { post, ns, .. } = *step
                    && met.contains_key(&post)
                {
                    *step = Raw::Meet(number);
                    from.waits.task_ns = from.waits.task_ns.saturating_sub(ns);
                    from.waits.barrier_ns = from.waits.barrier_ns.saturating_add(ns);
                }
            }
        }
        found.push(group.into_iter().collect());
    }
    found
}
