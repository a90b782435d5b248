//! From the JSON tree of a file to what it says.
//!
//! Unlike rt-app, which passes over what it does not know, every key is either used, named in a note to the
//! user, or an error with its place and the nearest known key.

use schedlab_trace::Duration;

use super::grammar::{
    Cpus, EVENTS, Event, File, GLOBAL_OWN, GLOBAL_USED, Global, MemKind, MemRun, PHASE_PROPERTIES,
    Phase, Policy, RESOURCE_TYPES, TASK_PROPERTIES, Task, Timer, class, event_of,
};
use super::json::{Member, Node, Value};
use super::values::{
    INT_MAX, Place, Result, flag, integer, loops, numbers, object, string, unknown, unsigned,
};
use crate::{Reservation, SchedClass};

/// Most instances of a task: as many as the largest models have.
const INSTANCES_MAX: i64 = 10_000_000;

const MEM_BUFFER_BYTES: u64 = 4 * 1024 * 1024;

/// Understands a whole file.
pub(super) fn read(root: &Node) -> Result<File> {
    let place = Place {
        path: String::new(),
        line: root.line,
    };
    let members = object(root, &place)?;
    let known = ["tasks", "resources", "global"];
    let mut reader = Reader { notes: Vec::new() };
    let (mut tasks, mut global) = (None, None);
    for member in members {
        let here = place.at(&member.key, member.line);
        let twice = match member.key.as_str() {
            "tasks" => tasks.replace((&member.node, here.clone())).is_some(),
            "global" => global.replace((&member.node, here.clone())).is_some(),
            "resources" => {
                reader.resources(&member.node, &here)?;
                false
            }
            key => return Err(here.error(unknown("object", key, &known))),
        };
        if twice {
            return Err(here.error("is there twice"));
        }
    }
    let global = reader.global(global)?;
    let Some((node, here)) = tasks else {
        return Err(place.error(
            "has no `tasks` object, so there is nothing to run; rt-app refuses it too (a fragment for merge.py?)",
        ));
    };
    let tasks = reader.tasks(node, &here, &global)?;
    Ok(File {
        tasks,
        global,
        notes: reader.notes,
    })
}

/// Scheduling keys of a task or phase.
#[derive(Default)]
struct Sched {
    policy: Option<Policy>,
    priority: Option<(i32, Place)>,
    dl_runtime: Option<(u64, Place)>,
    dl_period: Option<u64>,
    dl_deadline: Option<u64>,
    /// The older names of a task's keys, which count where the others come to 0.
    old_runtime: Option<(u64, Place)>,
    old_period: Option<u64>,
    old_deadline: Option<u64>,
}

impl Sched {
    /// Takes `member` if it is a scheduling key.
    fn take(&mut self, member: &Member, here: &Place) -> Result<bool> {
        let us = || unsigned(&member.node, here);
        match member.key.as_str() {
            "policy" => self.policy = Some(policy(&member.node, here)?),
            "priority" => {
                let priority = integer(&member.node, here, -20, 99)? as i32;
                self.priority = Some((priority, here.clone()));
            }
            "dl-runtime" => self.dl_runtime = Some((us()?, here.clone())),
            "dl-period" => self.dl_period = Some(us()?),
            "dl-deadline" => self.dl_deadline = Some(us()?),
            "period" => self.old_period = Some(us()?),
            "deadline" => self.old_deadline = Some(us()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Runtime, deadline and period in us, as `parse_sched_data()` fills in what is missing.
    fn times(&self) -> (u64, u64, u64) {
        let runtime = self.dl_runtime.as_ref().map_or(0, |&(us, _)| us);
        let period = self.dl_period.unwrap_or(runtime);
        let deadline = self.dl_deadline.unwrap_or(period);
        let or = |us: u64, old: u64| if us == 0 { old } else { us };
        let old_runtime = self.old_runtime.as_ref().map_or(0, |&(us, _)| us);
        let runtime = or(runtime, old_runtime);
        let period = or(period, self.old_period.unwrap_or(runtime));
        let deadline = or(deadline, self.old_deadline.unwrap_or(period));
        (runtime, deadline, period)
    }

    /// Whether a key of a reservation is there.
    fn reserves(&self) -> bool {
        self.times() != (0, 0, 0)
    }

    /// The reservation of SCHED_DEADLINE, refused where the kernel refuses it, with which rt-app fails.
    fn reservation(&self, place: &Place) -> Result<Reservation> {
        let (runtime, deadline, period) = self.times();
        let runtime_key = self.dl_runtime.as_ref().or(self.old_runtime.as_ref());
        let place = runtime_key.map_or(place, |(_, here)| here);
        if runtime == 0 {
            return Err(
                place.error("SCHED_DEADLINE needs `dl-runtime`; the kernel refuses a runtime of 0")
            );
        }
        let reservation = Reservation {
            runtime: Duration::from_us(runtime),
            deadline: Duration::from_us(deadline),
            period: Duration::from_us(if period == 0 { deadline } else { period }),
        };
        reservation.check().map_err(|why| {
            place.error(format!(
                "is no reservation that the kernel grants: {why} (dl-runtime {runtime}, dl-deadline {deadline}, dl-period {period}, in us)"
            ))
        })?;
        Ok(reservation)
    }
}

/// What a phase takes over from those before it.
struct Before {
    policy: Policy,
    /// Where the task's group is named, if it has one.
    group: Option<Place>,
}

impl Before {
    /// Refuses what rt-app does (`check_taskgroup_policy_dep()`).
    fn check(&self, phase: &Place) -> Result<()> {
        match &self.group {
            Some(here) if !matches!(self.policy, Policy::Other | Policy::Batch | Policy::Idle) => {
                Err(here.error(format!(
                    "cannot go with {}, under which `{}` runs; rt-app refuses it too: remove one of them",
                    name(self.policy),
                    phase.path
                )))
            }
            _ => Ok(()),
        }
    }
}

struct Reader {
    notes: Vec<String>,
}

impl Reader {
    fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Older files declare their resources; now they come into being where they are used.
    fn resources(&mut self, node: &Node, place: &Place) -> Result<()> {
        for member in object(node, place)? {
            let here = place.at(&member.key, member.line);
            for field in object(&member.node, &here)? {
                let inner = here.at(&field.key, field.line);
                match field.key.as_str() {
                    "type" => {
                        let kind = string(&field.node, &inner)?;
                        if !RESOURCE_TYPES.contains(&kind.as_str()) {
                            return Err(inner.error(unknown("type", &kind, RESOURCE_TYPES)));
                        }
                    }
                    "target" => drop(string(&field.node, &inner)?),
                    key => return Err(inner.error(unknown("key", key, &["type", "target"]))),
                }
            }
        }
        self.note("`resources` has no effect: resources come into being where events name them, as in rt-app");
        Ok(())
    }

    fn global(&mut self, found: Option<(&Node, Place)>) -> Result<Global> {
        let mut global = Global {
            duration_s: None,
            mem_buffer_bytes: MEM_BUFFER_BYTES,
            cumulative_slack: false,
            pi_enabled: false,
            default_class: Policy::Other,
        };
        let Some((node, place)) = found else {
            return Ok(global);
        };
        let mut seen: Vec<&str> = Vec::new();
        for member in object(node, &place)? {
            let here = place.at(&member.key, member.line);
            if seen.contains(&member.key.as_str()) {
                return Err(here.error("is there twice"));
            }
            seen.push(&member.key);
            let node = &member.node;
            match member.key.as_str() {
                "duration" => {
                    let seconds = integer(node, &here, -1, INT_MAX as i64)?;
                    // As -1, 0 is no limit.
                    global.duration_s = u64::try_from(seconds).ok().filter(|&seconds| seconds > 0);
                }
                "default_policy" => global.default_class = policy(node, &here)?,
                "cumulative_slack" => global.cumulative_slack = flag(node, &here)?,
                "mem_buffer_size" => {
                    let bytes = integer(node, &here, 1, INT_MAX as i64)?;
                    global.mem_buffer_bytes = bytes.unsigned_abs();
                }
                "pi_enabled" => global.pi_enabled = flag(node, &here)?,
                "io_device" => {
                    let device = string(node, &here)?;
                    if device != "/dev/null" {
                        return Err(here.error(format!(
                            "not supported: `{device}`; no device but /dev/null is modelled"
                        )));
                    }
                }
                "frag" => {
                    self.note("`global.frag` has no effect: today's rt-app does not know it either")
                }
                key if GLOBAL_OWN.contains(&key) => self.own_setting(key, node, &here)?,
                key => {
                    let known: Vec<&str> = GLOBAL_USED.iter().chain(GLOBAL_OWN).copied().collect();
                    return Err(here.error(unknown("key", key, &known)));
                }
            }
        }
        Ok(global)
    }

    /// Settings of rt-app's own files, calibration and memory: right or wrong, but nothing to model.
    fn own_setting(&mut self, key: &str, node: &Node, here: &Place) -> Result<()> {
        match (key, &node.value) {
            // 0 is the default: rt-app calibrates itself.
            ("calibration" | "log_size", Value::Int(_)) => {
                integer(node, here, 0, INT_MAX as i64).map(drop)
            }
            ("calibration", Value::String(text)) => {
                let cpu = text.strip_prefix("CPU").and_then(|n| n.parse::<u32>().ok());
                cpu.map(drop).ok_or_else(|| {
                    here.error("must be a CPU, as \"CPU0\", or the ns of a loop as a number")
                })
            }
            ("calibration", other) => Err(here.error(format!(
                "must be a CPU, as \"CPU0\", or the ns of a loop, not {}",
                other.kind()
            ))),
            ("log_size", Value::String(text)) => {
                let known = ["file", "disable", "auto"];
                if known.contains(&text.to_ascii_lowercase().as_str()) {
                    Ok(())
                } else {
                    Err(here.error(unknown("size", text, &known)))
                }
            }
            ("log_size", other) => Err(here.error(format!(
                "must be MB or one of file, disable, auto, not {}",
                other.kind()
            ))),
            ("ftrace", Value::Bool(_)) => Ok(()),
            ("ftrace", Value::String(text)) => {
                // "event" and "attrs" are in the shipped examples and the source, not in the documentation.
                let known = [
                    "none", "main", "task", "run", "loop", "event", "stats", "attrs",
                ];
                let categories = text
                    .split(',')
                    .map(str::trim)
                    .filter(|name| !name.is_empty());
                for name in categories {
                    if !known.contains(&name.to_ascii_lowercase().as_str()) {
                        return Err(here.error(unknown("category", name, &known)));
                    }
                }
                Ok(())
            }
            ("ftrace", other) => Err(here.error(format!(
                "must be a list of categories in a string, not {}",
                other.kind()
            ))),
            ("gnuplot" | "lock_pages", _) => flag(node, here).map(drop),
            _ => string(node, here).map(drop),
        }
    }

    fn tasks(&mut self, node: &Node, place: &Place, global: &Global) -> Result<Vec<Task>> {
        let members = object(node, place)?;
        if members.is_empty() {
            return Err(place.error("has no task, so there is nothing to run"));
        }
        let mut tasks: Vec<Task> = Vec::with_capacity(members.len());
        for member in members {
            let here = place.at(&member.key, member.line);
            if tasks.iter().any(|task| task.name == member.key) {
                return Err(here.error(
                    "is there twice: rt-app would run the second one only, and with workgen both; give each task a name of its own",
                ));
            }
            tasks.push(self.task(member, here, global)?);
        }
        Ok(tasks)
    }

    fn task(&mut self, member: &Member, place: Place, global: &Global) -> Result<Task> {
        let members = object(&member.node, &place)?;
        let mut sched = Sched::default();
        let mut task = Task {
            name: member.key.clone(),
            instances: 1,
            delay_us: 0,
            loops: None,
            class: SchedClass::Normal,
            nice: 0,
            cpus: None,
            phases: Vec::new(),
            place: place.clone(),
        };
        let phases = members.iter().find(|member| member.key == "phases");
        let mut own = Vec::new();
        let mut group = None;
        let mut seen: Vec<&str> = Vec::new();
        for member in members {
            let key = member.key.as_str();
            let here = place.at(key, member.line);
            if event_of(key).is_none() && seen.contains(&key) {
                return Err(here.error("is there twice"));
            }
            seen.push(key);
            match key {
                "instance" => {
                    task.instances = integer(&member.node, &here, 0, INSTANCES_MAX)? as u32;
                }
                "delay" => task.delay_us = unsigned(&member.node, &here)?,
                "phases" => {}
                "cpus" => task.cpus = Some(self.cpus(&member.node, &here)?),
                "loop" if phases.is_some() => task.loops = loops(&member.node, &here, 0)?,
                // The older name of dl-runtime; without `phases` it is the event.
                "runtime" if phases.is_some() => {
                    sched.old_runtime = Some((unsigned(&member.node, &here)?, here));
                }
                _ if sched.take(member, &here)?
                    || self.without_effect(member, &here, &mut group)? => {}
                _ if phases.is_none() => own.push(member),
                _ if event_of(key).is_some() => {
                    return Err(here.error(
                        "is an event beside `phases`; rt-app would pass over it: move it into a phase",
                    ));
                }
                _ => {
                    let known: Vec<&str> = TASK_PROPERTIES
                        .iter()
                        .chain(PHASE_PROPERTIES)
                        .copied()
                        .collect();
                    return Err(here.error(unknown("key", key, &known)));
                }
            }
        }
        self.task_sched(&mut task, &sched, global)?;
        let mut before = Before {
            policy: sched.policy.unwrap_or(global.default_class),
            group,
        };
        if let Some(phases) = phases {
            let place = place.at("phases", phases.line);
            for phase in object(&phases.node, &place)? {
                let here = place.at(&phase.key, phase.line);
                let members: Vec<&Member> = object(&phase.node, &here)?.iter().collect();
                task.phases.push(self.phase(&members, &here, &mut before)?);
            }
            if task.phases.is_empty() {
                return Err(place.error("has no phase, so the task would do nothing"));
            }
        } else {
            // One phase whose `loop` is the task's: rt-app runs it once, or for ever without a `loop`.
            let phase = self.phase(&own, &place, &mut before)?;
            task.loops = own.iter().any(|member| member.key == "loop").then_some(1);
            task.phases.push(phase);
        }
        Ok(task)
    }

    /// Class, nice level and the deadline keys of a task.
    fn task_sched(&mut self, task: &mut Task, sched: &Sched, global: &Global) -> Result<()> {
        let policy = sched.policy.unwrap_or(global.default_class);
        let priority = sched.priority.as_ref();
        (task.class, task.nice) = self.class(policy, priority, sched, &task.place)?;
        Ok(())
    }

    /// Class and nice level that `policy` means, with a priority or the keys of SCHED_DEADLINE.
    fn class(
        &mut self,
        policy: Policy,
        priority: Option<&(i32, Place)>,
        sched: &Sched,
        place: &Place,
    ) -> Result<(SchedClass, i8)> {
        if policy == Policy::Deadline {
            // Its priority is not looked at.
            return Ok((SchedClass::Deadline(sched.reservation(place)?), 0));
        }
        if sched.reserves() {
            self.note("dl-runtime, dl-period and dl-deadline have no effect on normal tasks here: a requested slice is read by the kernel's own fair class only, no sched_ext policy sees it");
        }
        class(policy, priority.map(|(n, _)| *n)).map_err(|message| {
            let place = priority.map_or(place, |(_, place)| place);
            place.error(message)
        })
    }

    fn cpus(&mut self, node: &Node, here: &Place) -> Result<Cpus> {
        let list = numbers(node, here)?;
        if list.is_empty() {
            return Err(here.error("names no CPU, so the task could never run"));
        }
        let place = here.clone();
        Ok(Cpus { list, place })
    }

    /// Takes keys that are checked and have no effect here; each is told to the user.
    fn without_effect(
        &mut self,
        member: &Member,
        here: &Place,
        group: &mut Option<Place>,
    ) -> Result<bool> {
        match member.key.as_str() {
            "util_min" | "util_max" => {
                integer(&member.node, here, -1, 1024)?;
                self.note("util_min and util_max have no effect: CPU frequencies are not modelled");
            }
            "taskgroup" => {
                let name = string(&member.node, here)?;
                if !name.is_empty() && !name.starts_with('/') {
                    return Err(here.error(format!("must start with `/`, not `{name}`")));
                }
                if !name.is_empty() {
                    *group = Some(here.clone());
                }
                self.note("taskgroup has no effect: control groups are not modelled; every task belongs to the root group");
            }
            "nodes_membind" => {
                numbers(&member.node, here)?;
                return Err(
                    here.error("not supported: where memory lies is not modelled; remove it")
                );
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `before` is that of the phase before, and then that of this one.
    fn phase(&mut self, members: &[&Member], place: &Place, before: &mut Before) -> Result<Phase> {
        let mut phase = Phase {
            loops: Some(1),
            sched: None,
            cpus: None,
            events: Vec::new(),
        };
        let mut sched = Sched::default();
        let mut seen: Vec<&str> = Vec::new();
        for member in members {
            let key = member.key.as_str();
            let here = place.at(key, member.line);
            if let Some(event) = event_of(key) {
                phase
                    .events
                    .push((self.event(event, &member.node, &here)?, here));
                continue;
            }
            if seen.contains(&key) {
                return Err(here.error("is there twice"));
            }
            seen.push(key);
            match key {
                "loop" => phase.loops = loops(&member.node, &here, 1)?,
                "cpus" => phase.cpus = Some(self.cpus(&member.node, &here)?),
                _ if self.without_effect(member, &here, &mut before.group)? => {}
                _ if PHASE_PROPERTIES.contains(&key) && sched.take(member, &here)? => {}
                _ => {
                    let known: Vec<&str> = EVENTS.iter().chain(PHASE_PROPERTIES).copied().collect();
                    return Err(here.error(unknown("event or property", key, &known)));
                }
            }
        }
        if phase.events.is_empty() {
            return Err(place.error("has no event, so it would do nothing; rt-app refuses it too"));
        }
        phase.sched = self.phase_sched(&sched, place, &mut before.policy)?;
        before.check(place)?;
        Ok(phase)
    }

    /// Class and nice level of a phase that changes them.
    fn phase_sched(
        &mut self,
        sched: &Sched,
        place: &Place,
        policy: &mut Policy,
    ) -> Result<Option<(SchedClass, i8)>> {
        let priority = sched.priority.as_ref();
        match (sched.policy, priority) {
            (Some(given), _) => *policy = given,
            // Who keeps SCHED_DEADLINE gets another reservation.
            (None, None) if *policy == Policy::Deadline && sched.reserves() => {}
            (None, Some((_, here))) if *policy == Policy::Deadline && !sched.reserves() => {
                return Err(here.error(
                    "cannot change under SCHED_DEADLINE: rt-app would ask for that policy again without a runtime, and fail; give the phase a `policy`",
                ));
            }
            (None, Some(_)) => {}
            (None, None) => {
                if sched.reserves() {
                    self.note("dl-runtime, dl-period and dl-deadline of a phase have no effect without its `policy` or `priority`, as in rt-app");
                }
                return Ok(None);
            }
        }
        self.class(*policy, priority, sched, place).map(Some)
    }

    fn event(&mut self, event: &str, node: &Node, here: &Place) -> Result<Event> {
        let name = || string(node, here);
        let number = || unsigned(node, here);
        Ok(match event {
            "run" => Event::Run { us: number()? },
            "runtime" => Event::Runtime { us: number()? },
            "sleep" => Event::Sleep { us: number()? },
            "mem" => Event::Mem { bytes: number()? },
            "iorun" => Event::IoRun { bytes: number()? },
            "resume" => Event::Resume(name()?),
            "lock" => Event::Lock(name()?),
            "unlock" => Event::Unlock(name()?),
            "signal" => Event::Signal(name()?),
            "broad" | "broadcast" => Event::Broadcast(name()?),
            "barrier" => Event::Barrier(name()?),
            "sem_post" => Event::SemPost(name()?),
            "sem_wait" => Event::SemWait(name()?),
            "fork" => Event::Fork(name()?),
            "suspend" => match &node.value {
                Value::Null => Event::Suspend(None),
                _ => Event::Suspend(Some(name()?).filter(|name| !name.is_empty())),
            },
            "yield" => match &node.value {
                Value::Null | Value::String(_) => Event::Yield,
                other => {
                    return Err(here.error(format!(
                        "must be a string, which may be empty, not {}",
                        other.kind()
                    )));
                }
            },
            "wait" | "sync" => {
                let [condition, mutex] = self.pair(node, here)?;
                if event == "wait" {
                    Event::Wait { condition, mutex }
                } else {
                    Event::Sync { condition, mutex }
                }
            }
            "timer" => Event::Timer(self.timer(node, here)?),
            "memrun" => Event::MemRun(self.memrun(node, here)?),
            other => unreachable!("`{other}` is in EVENTS"),
        })
    }

    /// `ref` and `mutex`. rt-app takes the name "unknown" where one is missing; here it is an error.
    fn pair(&mut self, node: &Node, place: &Place) -> Result<[String; 2]> {
        let (mut condition, mut mutex) = (None, None);
        for member in object(node, place)? {
            let here = place.at(&member.key, member.line);
            let slot = match member.key.as_str() {
                "ref" => &mut condition,
                "mutex" => &mut mutex,
                key => return Err(here.error(unknown("key", key, &["ref", "mutex"]))),
            };
            if slot.replace(string(&member.node, &here)?).is_some() {
                return Err(here.error("is there twice"));
            }
        }
        match (condition, mutex) {
            (Some(condition), Some(mutex)) => Ok([condition, mutex]),
            (None, _) => Err(place.error("needs `ref`, the name of what it waits for")),
            (_, None) => Err(place.error("needs `mutex`, the name of the mutex that is held")),
        }
    }

    fn timer(&mut self, node: &Node, place: &Place) -> Result<Timer> {
        let (mut name, mut period, mut mode) = (None, None, None);
        for member in object(node, place)? {
            let here = place.at(&member.key, member.line);
            let twice = match member.key.as_str() {
                "ref" => name.replace(string(&member.node, &here)?).is_some(),
                "period" => period.replace(unsigned(&member.node, &here)?).is_some(),
                "mode" => {
                    let text = string(&member.node, &here)?;
                    let known = ["relative", "absolute"];
                    if !known.contains(&text.as_str()) {
                        return Err(here.error(unknown("mode", &text, &known)));
                    }
                    mode.replace(text == "absolute").is_some()
                }
                key => return Err(here.error(unknown("key", key, &["ref", "period", "mode"]))),
            };
            if twice {
                return Err(here.error("is there twice"));
            }
        }
        Ok(Timer {
            name: name.ok_or_else(|| place.error("needs `ref`, the timer's name"))?,
            period_us: period.ok_or_else(|| place.error("needs `period`, in microseconds"))?,
            absolute: mode.unwrap_or(false),
        })
    }

    fn memrun(&mut self, node: &Node, place: &Place) -> Result<MemRun> {
        let known = ["type", "size", "count", "stride", "pattern", "ref"];
        let (mut kind, mut size, mut count, mut shared) = (None, None, None, None);
        let (mut stride, mut random) = (None, None);
        for member in object(node, place)? {
            let here = place.at(&member.key, member.line);
            let node = &member.node;
            let twice = match member.key.as_str() {
                "type" => {
                    let text = string(node, &here)?;
                    let known = ["read", "write", "chase"];
                    if !known.contains(&text.as_str()) {
                        return Err(here.error(unknown("type", &text, &known)));
                    }
                    kind.replace(text).is_some()
                }
                "size" => size.replace(unsigned(node, &here)?).is_some(),
                "count" => count.replace(unsigned(node, &here)?).is_some(),
                "stride" => {
                    let bytes = integer(node, &here, 8, INT_MAX as i64)?.unsigned_abs();
                    stride.replace((bytes, here.clone())).is_some()
                }
                "pattern" => {
                    let text = string(node, &here)?;
                    let known = ["random", "sequential"];
                    if !known.contains(&text.as_str()) {
                        return Err(here.error(unknown("pattern", &text, &known)));
                    }
                    random.replace((text == "random", here.clone())).is_some()
                }
                "ref" => shared.replace(string(node, &here)?).is_some(),
                key => return Err(here.error(unknown("key", key, &known))),
            };
            if twice {
                return Err(here.error("is there twice"));
            }
        }
        let kind = kind.ok_or_else(|| place.error("needs `type`: read, write or chase"))?;
        let size_bytes = size.ok_or_else(|| place.error("needs `size`, in bytes"))?;
        let count = count.ok_or_else(|| place.error("needs `count`"))?;
        let kind = match kind.as_str() {
            "chase" => MemKind::Chase {
                stride_bytes: stride.map_or(64, |(bytes, _)| bytes),
                random: random.is_none_or(|(flag, _)| flag),
            },
            other => {
                if let Some(here) = stride.map(|(_, h)| h).or(random.map(|(_, h)| h)) {
                    return Err(here.error("goes with type \"chase\" only"));
                }
                if other == "read" {
                    MemKind::Read
                } else {
                    MemKind::Write
                }
            }
        };
        let size_min = match kind {
            MemKind::Chase { stride_bytes, .. } => 2 * stride_bytes,
            _ => 1,
        };
        if size_bytes < size_min {
            return Err(place.error(format!("needs a `size` of at least {size_min} bytes")));
        }
        Ok(MemRun {
            kind,
            size_bytes,
            count,
            shared,
        })
    }
}

const POLICIES: [Policy; 6] = [
    Policy::Other,
    Policy::Batch,
    Policy::Idle,
    Policy::Fifo,
    Policy::RoundRobin,
    Policy::Deadline,
];

fn name(policy: Policy) -> &'static str {
    match policy {
        Policy::Other => "SCHED_OTHER",
        Policy::Batch => "SCHED_BATCH",
        Policy::Idle => "SCHED_IDLE",
        Policy::Fifo => "SCHED_FIFO",
        Policy::RoundRobin => "SCHED_RR",
        Policy::Deadline => "SCHED_DEADLINE",
    }
}

fn policy(node: &Node, place: &Place) -> Result<Policy> {
    let text = string(node, place)?;
    let found = POLICIES.into_iter().find(|&policy| name(policy) == text);
    found.ok_or_else(|| {
        let names = POLICIES.map(name);
        place.error(unknown("policy", &text, &names))
    })
}
