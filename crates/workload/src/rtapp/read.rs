//! From the JSON tree of a file to what it says.
//!
//! Unlike rt-app, which passes over what it does not know, every key is either used, named in a note to the
//! user, or an error with its place and the nearest known key.

use schedlab_trace::{Duration, nearest};

use super::grammar::{
    Cgroup, Cpus, EVENTS, Event, FTRACE_CATEGORIES, File, GLOBAL_OWN, GLOBAL_USED, Global, MemKind,
    MemRun, PHASE_PROPERTIES, Phase, Policy, RESOURCE_TYPES, SECTIONS, TASK_PROPERTIES, Task,
    Timer, class, event_of, is_doubtful,
};
use super::json::{Member, Node, Value};
use super::notes::Notes;
use super::values::{Place, Result, amount, flag, int, integer, numbers, object, string, unknown};
use crate::{Bandwidth, CgroupSettings, Reservation, SchedClass, cgroup};

/// Most instances of a task: as many as the largest models have.
const INSTANCES_MAX: i32 = 10_000_000;

const MEM_BUFFER_BYTES: i32 = 4 * 1024 * 1024;

/// Understands a whole file.
pub(super) fn read(root: &Node) -> Result<File> {
    let place = Place {
        path: String::new(),
        line: root.line,
    };
    let mut reader = Reader {
        notes: Notes::default(),
    };
    reader.repeated(root, &place);
    let (mut tasks, mut global, mut strange) = (None, None, None);
    let mut cgroups = Vec::new();
    for member in present(object(root, &place)?) {
        let here = place.at(&member.key, member.line);
        match member.key.as_str() {
            "tasks" => tasks = Some((&member.node, here)),
            "global" => global = Some((&member.node, here)),
            "cgroups" => cgroups = reader.cgroups(&member.node, &here)?,
            "resources" => reader.resources(&member.node, &here)?,
            key => {
                reader.ignored(&here, key, &[SECTIONS]);
                strange = strange.or(Some(here));
            }
        }
    }
    let global = reader.global(global)?;
    let Some((node, here)) = tasks else {
        let hint = strange.map_or_else(String::new, |here| {
            format!(
                "; there is `{}`, line {}{}",
                here.path,
                here.line,
                nearest(&here.path, SECTIONS)
            )
        });
        return Err(place.error(format!(
            "has no `tasks` object, so there is nothing to run; rt-app refuses it too (a fragment for merge.py?){hint}"
        )));
    };
    let tasks = reader.tasks(node, &here, &global)?;
    Ok(File {
        tasks,
        global,
        cgroups,
        notes: reader.notes.told(),
    })
}

/// Members with a value: null is as if the key were not there (json-c has no object for it).
fn present(members: &[Member]) -> impl Iterator<Item = &Member> {
    let is_there = |member: &&Member| member.node.value != Value::Null;
    members.iter().filter(is_there)
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
        let us = || amount(&member.node, here).map(Option::unwrap_or_default);
        match member.key.as_str() {
            "policy" => self.policy = Some(policy(&member.node, here)?),
            "priority" => self.priority = Some((int(&member.node, here)?, here.clone())),
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

    /// Returns whether a key of a reservation is there.
    fn reserves(&self) -> bool {
        self.times() != (0, 0, 0)
    }

    /// Returns the reservation of SCHED_DEADLINE, refused where the kernel refuses it, with which rt-app fails.
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

/// The values that a phase inherits from the phases before it.
struct Before {
    policy: Policy,
    /// The task's group, if it has one.
    group: Option<Cgroup>,
}

impl Before {
    /// Refuses what rt-app does (`check_taskgroup_policy_dep()`).
    fn check(&self, phase: &Place) -> Result<()> {
        match &self.group {
            Some(Cgroup { place: here, .. }) if !matches!(self.policy, Policy::Other | Policy::Batch | Policy::Idle) => {
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
    notes: Notes,
}

impl Reader {
    fn note(&mut self, text: impl Into<String>) {
        self.notes.add(text);
    }

    /// Tells of keys that are there more than once, and of those without a value.
    fn repeated(&mut self, node: &Node, place: &Place) {
        let Value::Object(members) = &node.value else {
            return;
        };
        for member in members {
            let here = place.at(&member.key, member.line);
            if member.times > 1 {
                let key = &member.key;
                let names = match event_of(key) {
                    Some(_) => format!(" (`{key}0`, `{key}1`, …, as workgen does)"),
                    None => String::new(),
                };
                let text = format!(
                    "is there {} times: the last value counts, where the first one stands, as in rt-app; to have each, give it a name of its own{names}",
                    member.times
                );
                self.notes.at(&here, text);
            }
            if !member.has_value {
                self.notes.at(
                    &here,
                    "has no value, and rt-app refuses such a file: write `\"\"` after a colon",
                );
            }
            self.repeated(&member.node, &here);
        }
    }

    /// Tells of a key that rt-app passes over.
    fn ignored(&mut self, here: &Place, key: &str, known: &[&[&str]]) {
        let known = known.concat();
        let text = format!(
            "has no effect: rt-app passes over it{}",
            nearest(key, &known)
        );
        self.notes.at(here, text);
    }

    /// Older files declare their resources; now they come into being where they are used.
    fn resources(&mut self, node: &Node, place: &Place) -> Result<()> {
        let Value::Object(members) = &node.value else {
            let text = format!(
                "has no effect: rt-app passes over it, since it is {}",
                node.value.kind()
            );
            self.notes.at(place, text);
            return Ok(());
        };
        for member in members {
            let here = place.at(&member.key, member.line);
            let fields = object(&member.node, &here)?;
            let mut kinds = present(fields).filter(|field| field.key == "type");
            let Some(kind) = kinds.next() else {
                return Err(here.error(format!(
                    "needs `type`: one of {}; rt-app refuses it too",
                    RESOURCE_TYPES.join(", ")
                )));
            };
            let inner = here.at("type", kind.line);
            let kind = string(&kind.node, &inner)?;
            if !RESOURCE_TYPES.contains(&kind.as_str()) {
                return Err(inner.error(unknown("type", &kind, RESOURCE_TYPES)));
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
            io_device: None,
        };
        let Some((node, place)) = found else {
            return Ok(global);
        };
        let Value::Object(members) = &node.value else {
            let text = format!(
                "has no effect, since it is {}: rt-app takes its defaults",
                node.value.kind()
            );
            self.notes.at(&place, text);
            return Ok(global);
        };
        for member in present(members) {
            let here = place.at(&member.key, member.line);
            let node = &member.node;
            match member.key.as_str() {
                "duration" => {
                    let seconds = int(node, &here)?;
                    // As those below it, 0 is no limit.
                    global.duration_s = u64::try_from(seconds).ok().filter(|&seconds| seconds > 0);
                }
                "default_policy" => global.default_class = policy(node, &here)?,
                "cumulative_slack" => global.cumulative_slack = flag(node, &here)?,
                "mem_buffer_size" => global.mem_buffer_bytes = int(node, &here)?,
                "pi_enabled" => global.pi_enabled = flag(node, &here)?,
                "io_device" => {
                    let device = string(node, &here)?;
                    global.io_device = (device != "/dev/null").then_some((device, here));
                }
                key if GLOBAL_OWN.contains(&key) => own_setting(key, node, &here)?,
                key => self.ignored(&here, key, &[GLOBAL_USED, GLOBAL_OWN]),
            }
        }
        Ok(global)
    }

    fn tasks(&mut self, node: &Node, place: &Place, global: &Global) -> Result<Vec<Task>> {
        let members = object(node, place)?;
        if members.is_empty() {
            return Err(place.error("has no task, so there is nothing to run"));
        }
        let task = |member: &Member| self.task(member, place.at(&member.key, member.line), global);
        members.iter().map(task).collect()
    }

    /// Returns a `loop`: below zero it is for ever, and so is 0 in a phase, whose iterations are counted before they
    /// are compared.
    fn loops(&mut self, node: &Node, place: &Place, of_phase: bool) -> Result<Option<u64>> {
        let n = int(node, place)?;
        if n < -1 || (of_phase && n == 0) {
            self.notes
                .at(place, format!("is {n}, which is for ever as -1 is"));
        }
        Ok(u64::try_from(n).ok().filter(|&n| n > 0 || !of_phase))
    }

    /// Returns an amount of time or work.
    fn amount(&mut self, node: &Node, place: &Place) -> Result<Option<u64>> {
        let amount = amount(node, place)?;
        if amount.is_none() {
            self.notes
                .at(place, "is below zero and so never ends, as in rt-app");
        }
        Ok(amount)
    }

    fn task(&mut self, member: &Member, place: Place, global: &Global) -> Result<Task> {
        let members = object(&member.node, &place)?;
        let mut sched = Sched::default();
        let mut task = Task {
            name: member.key.clone(),
            instances: 1,
            delay_us: Some(0),
            loops: None,
            class: SchedClass::Normal,
            nice: 0,
            cpus: None,
            cgroup: None,
            phases: Vec::new(),
            place: place.clone(),
        };
        let phases = present(members).find(|member| member.key == "phases");
        let mut own = Vec::new();
        for member in members {
            let key = member.key.as_str();
            let here = place.at(key, member.line);
            let is_null = member.node.value == Value::Null;
            match key {
                _ if phases.is_none() && event_of(key).is_some() => own.push(member),
                _ if is_null && event_of(key).is_none() => {}
                "instance" => {
                    task.instances = integer(&member.node, &here, 0, INSTANCES_MAX)? as u32;
                }
                "delay" => task.delay_us = self.amount(&member.node, &here)?,
                "phases" => {}
                "cpus" => task.cpus = Some(self.cpus(&member.node, &here)?),
                "loop" if phases.is_some() => {
                    task.loops = self.loops(&member.node, &here, false)?;
                }
                // The older name of dl-runtime; without `phases` it is the event.
                "runtime" if phases.is_some() && !is_null => {
                    let us = amount(&member.node, &here)?;
                    sched.old_runtime = Some((us.unwrap_or_default(), here));
                }
                "taskgroup" => task.cgroup = taskgroup(&member.node, here)?,
                _ if sched.take(member, &here)? || self.without_effect(member, &here)? => {}
                _ if phases.is_none() => own.push(member),
                _ if event_of(key).is_some() => {
                    let text = "has no effect: rt-app passes over an event beside `phases`; move it into a phase";
                    self.notes.at(&here, text);
                }
                _ => self.ignored(&here, key, &[TASK_PROPERTIES, PHASE_PROPERTIES]),
            }
        }
        self.task_sched(&mut task, &sched, global)?;
        let mut before = Before {
            policy: sched.policy.unwrap_or(global.default_class),
            group: task.cgroup.clone(),
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

    /// Returns the cgroups that a file gives settings. This object is schedlab's own; rt-app passes over it.
    fn cgroups(&mut self, node: &Node, place: &Place) -> Result<Vec<(Cgroup, CgroupSettings)>> {
        let mut all = Vec::new();
        for member in present(object(node, place)?) {
            let here = place.at(&member.key, member.line);
            let group = group_at(member.key.clone(), here.clone())?;
            let mut settings = CgroupSettings::default();
            // The last setting that has to do with the limit.
            let mut of_limit = here.clone();
            for member in present(object(&member.node, &here)?) {
                let here = here.at(&member.key, member.line);
                let node = &member.node;
                match member.key.as_str() {
                    "cpu.weight" => {
                        settings.weight =
                            integer(node, &here, 1, cgroup::WEIGHT_MAX as i32)? as u32;
                    }
                    "cpu.idle" => settings.idle = integer(node, &here, 0, 1)? == 1,
                    "cpu.max.burst" => {
                        let us = integer(node, &here, 0, i32::MAX)?;
                        settings.bandwidth.burst = Duration::from_us(us as u64);
                        of_limit = here;
                    }
                    "cpu.max" => {
                        let limit = cpu_max(&string(node, &here)?).ok_or_else(|| {
                            here.error("must be as in cgroup v2: `max`, or a quota and a period in us such as \"50000 100000\"")
                        })?;
                        settings.bandwidth.quota = limit.quota;
                        settings.bandwidth.period = limit.period;
                        of_limit = here;
                    }
                    key => {
                        let known = ["cpu.weight", "cpu.max", "cpu.max.burst", "cpu.idle"];
                        return Err(here.error(unknown("setting", key, &known)));
                    }
                }
            }
            let limit = settings.bandwidth.check();
            limit.map_err(|why| of_limit.error(why))?;
            all.push((group, settings));
        }
        Ok(all)
    }

    /// Takes keys that are checked and have no effect here; adds a note for each.
    fn without_effect(&mut self, member: &Member, here: &Place) -> Result<bool> {
        match member.key.as_str() {
            "util_min" | "util_max" => {
                integer(&member.node, here, -1, 1024)?;
                self.note("util_min and util_max have no effect: CPU frequencies are not modelled");
            }
            "nodes_membind" => {
                numbers(&member.node, here)?;
                self.note("nodes_membind has no effect: which node memory lies on is not modelled");
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `before` is the value of the phase before, and then of this one.
    fn phase(&mut self, members: &[&Member], place: &Place, before: &mut Before) -> Result<Phase> {
        let mut phase = Phase {
            loops: Some(1),
            sched: None,
            cpus: None,
            cgroup: None,
            events: Vec::new(),
        };
        let mut sched = Sched::default();
        let mut strange = None;
        for member in members {
            let key = member.key.as_str();
            let here = place.at(key, member.line);
            if let Some(event) = event_of(key) {
                if is_doubtful(key, event) && key != "broadcast" {
                    let others: Vec<&str> =
                        EVENTS.iter().copied().filter(|&one| one != event).collect();
                    let hint = nearest(key, &others);
                    let text = format!("counts as `{event}`, since it begins so{hint}");
                    self.notes.at(&here, text);
                }
                let event = self.event(event, &member.node, &here)?;
                phase.events.push((event, here));
                continue;
            }
            match key {
                _ if member.node.value == Value::Null => {}
                "loop" => phase.loops = self.loops(&member.node, &here, true)?,
                "cpus" => phase.cpus = Some(self.cpus(&member.node, &here)?),
                "taskgroup" => {
                    if let Some(group) = taskgroup(&member.node, here)? {
                        before.group = Some(group.clone());
                        phase.cgroup = Some(group);
                    }
                }
                _ if self.without_effect(member, &here)? => {}
                _ if PHASE_PROPERTIES.contains(&key) && sched.take(member, &here)? => {}
                _ => {
                    self.ignored(&here, key, &[EVENTS, PHASE_PROPERTIES]);
                    strange = strange.or(Some(here));
                }
            }
        }
        if phase.events.is_empty() {
            let (place, hint) = match &strange {
                Some(strange) => {
                    let key = strange.path.rsplit('.').next().unwrap_or_default();
                    (
                        strange,
                        format!(
                            "is no event{}, and `{}` has none",
                            nearest(key, EVENTS),
                            place.path
                        ),
                    )
                }
                None => (place, "has no event".to_owned()),
            };
            return Err(place.error(format!(
                "{hint}, so it would do nothing; rt-app refuses it too"
            )));
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
            // A thread that keeps SCHED_DEADLINE gets another reservation.
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
        Ok(match event {
            "run" => Event::Run {
                us: self.amount(node, here)?,
            },
            // Compared as an int with the time that has passed: below zero it is over at once.
            "runtime" => Event::Runtime {
                us: amount(node, here)?.unwrap_or(0),
            },
            "sleep" => Event::Sleep {
                us: self.amount(node, here)?,
            },
            "mem" => Event::Mem {
                bytes: self.amount(node, here)?,
            },
            "iorun" => Event::IoRun {
                bytes: self.amount(node, here)?,
            },
            "resume" => Event::Resume(name()?),
            "lock" => Event::Lock(name()?),
            "unlock" => Event::Unlock(name()?),
            "signal" => Event::Signal(name()?),
            "broad" | "broadcast" => Event::Broadcast(name()?),
            "barrier" => Event::Barrier(name()?),
            "sem_post" => Event::SemPost(name()?),
            "sem_wait" => Event::SemWait(name()?),
            "fork" => Event::Fork(name()?),
            // rt-app looks at no value.
            "suspend" => Event::Suspend(match &node.value {
                Value::String(name) if !name.is_empty() => Some(name.clone()),
                _ => None,
            }),
            "yield" => Event::Yield,
            "wait" | "sync" => {
                let condition = self.name_of(node, here, "ref")?;
                let mutex = self.name_of(node, here, "mutex")?;
                self.others(node, here, &["ref", "mutex"]);
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

    /// Tells of fields of an event that are not among the `known` ones.
    fn others(&mut self, node: &Node, place: &Place, known: &[&str]) {
        let Value::Object(members) = &node.value else {
            return;
        };
        for member in members {
            if !known.contains(&member.key.as_str()) {
                self.ignored(&place.at(&member.key, member.line), &member.key, &[known]);
            }
        }
    }

    /// Returns the name that an event gives. rt-app takes "unknown" if it gives no name, even in an event that is no
    /// object.
    fn name_of(&mut self, node: &Node, place: &Place, key: &str) -> Result<String> {
        match field(node, place, key) {
            Some((node, here)) => string(node, &here),
            None => {
                let text = format!("has no `{key}`: rt-app takes the name `unknown`");
                self.notes.at(place, text);
                Ok("unknown".to_owned())
            }
        }
    }

    fn timer(&mut self, node: &Node, place: &Place) -> Result<Timer> {
        let name = self.name_of(node, place, "ref")?;
        let period_us = match field(node, place, "period") {
            Some((node, here)) => self.amount(node, &here)?,
            None => {
                self.notes.at(place, "has no `period`: rt-app takes 0");
                Some(0)
            }
        };
        let absolute = match field(node, place, "mode") {
            Some((node, here)) => {
                let mode = string(node, &here)?;
                let known = ["relative", "absolute"];
                if !known.contains(&mode.as_str()) {
                    let text = format!(
                        "is `{mode}`{}: rt-app takes what does not begin with `absolute` as relative",
                        nearest(&mode, &known)
                    );
                    self.notes.at(&here, text);
                }
                mode.starts_with("absolute")
            }
            None => false,
        };
        self.others(node, place, &["ref", "period", "mode"]);
        Ok(Timer {
            name,
            period_us,
            absolute,
        })
    }

    fn memrun(&mut self, node: &Node, place: &Place) -> Result<MemRun> {
        object(node, place)?;
        let needed = |key: &str, what: &str| {
            let found = field(node, place, key);
            found.ok_or_else(|| place.error(format!("needs `{key}`{what}")))
        };
        let (kind, here) = needed("type", ": read, write or chase")?;
        let kind = string(kind, &here)?;
        let (size, size_place) = needed("size", ", in bytes")?;
        let size = int(size, &size_place)?;
        let (count, count_place) = needed("count", "")?;
        let mut count = self.amount(count, &count_place)?;
        let shared = field(node, place, "ref");
        let shared = shared.map(|(node, here)| string(node, &here)).transpose()?;
        let known: &[&str] = match kind.as_str() {
            "chase" => &["type", "size", "count", "ref", "stride", "pattern"],
            "read" | "write" => &["type", "size", "count", "ref"],
            other => return Err(here.error(unknown("type", other, &["read", "write", "chase"]))),
        };
        self.others(node, place, known);
        let kind = match kind.as_str() {
            "read" => MemKind::Read,
            "write" => MemKind::Write,
            _ => {
                let (stride, random) = self.chase(node, place)?;
                if size < 0 {
                    return Err(size_place.error(format!(
                        "must be at least 0, not {size}: rt-app does not get through it"
                    )));
                }
                if i64::from(size) < 2 * i64::from(stride) || stride < 0 {
                    self.notes.at(place, "does nothing: its `size` is not twice its `stride`, so rt-app has no buffer for it");
                    count = Some(0);
                }
                MemKind::Chase {
                    stride_bytes: i64::from(stride).unsigned_abs(),
                    random,
                }
            }
        };
        if size <= 0 && !matches!(kind, MemKind::Chase { .. }) {
            return Err(size_place.error(format!(
                "must be at least 1, not {size}: rt-app fails as it comes to it"
            )));
        }
        Ok(MemRun {
            kind,
            size_bytes: u64::from(size.unsigned_abs()),
            count,
            shared,
        })
    }

    /// Distance and order of the pointers of a chase.
    fn chase(&mut self, node: &Node, place: &Place) -> Result<(i32, bool)> {
        let stride = match field(node, place, "stride") {
            Some((node, here)) => match int(node, &here)? {
                n @ 0..8 => {
                    return Err(here.error(format!(
                        "must be at least 8, the size of a pointer, not {n}: rt-app fails with it"
                    )));
                }
                n => n,
            },
            None => 64,
        };
        let random = match field(node, place, "pattern") {
            Some((node, here)) => {
                let pattern = string(node, &here)?;
                let known = ["random", "sequential"];
                if !known.contains(&pattern.as_str()) {
                    let text = format!(
                        "is `{pattern}`{}: rt-app takes what is not `sequential` as random",
                        nearest(&pattern, &known)
                    );
                    self.notes.at(&here, text);
                }
                pattern != "sequential"
            }
            None => true,
        };
        Ok((stride, random))
    }
}

/// Returns the cgroup of a task or phase; the empty name is none.
fn taskgroup(node: &Node, place: Place) -> Result<Option<Cgroup>> {
    let path = string(node, &place)?;
    if path.is_empty() {
        return Ok(None);
    }
    if !path.starts_with('/') {
        return Err(place.error(format!("must start with `/`, not `{path}`")));
    }
    group_at(path, place).map(Some)
}

fn group_at(path: String, place: Place) -> Result<Cgroup> {
    match cgroup::names(&path) {
        Ok(_) => Ok(Cgroup { path, place }),
        Err(why) => Err(place.error(why)),
    }
}

/// Reads the contents of a file `cpu.max` (`cpu_period_quota_parse()`).
fn cpu_max(text: &str) -> Option<Bandwidth> {
    // A time that does not fit into ns is longer than any limit may be.
    let time = |us: &str| {
        let us = us.parse::<u64>().ok()?;
        Some(Duration::from_ns(us.saturating_mul(1_000)))
    };
    let mut words = text.split_ascii_whitespace();
    let quota = match words.next()? {
        "max" => None,
        us => Some(time(us)?),
    };
    let default = Bandwidth {
        quota,
        ..Bandwidth::default()
    };
    let limit = match words.next() {
        None => default,
        Some(us) => Bandwidth {
            period: time(us)?,
            ..default
        },
    };
    words.next().is_none().then_some(limit)
}

/// Returns a field of an event, if it is an object and has it.
fn field<'a>(node: &'a Node, place: &Place, key: &str) -> Option<(&'a Node, Place)> {
    let Value::Object(members) = &node.value else {
        return None;
    };
    let found = present(members).find(|member| member.key == key)?;
    Some((&found.node, place.at(key, found.line)))
}

/// Checks a setting of rt-app's own files, calibration or memory, which there is nothing to model of.
fn own_setting(key: &str, node: &Node, here: &Place) -> Result<()> {
    match (key, &node.value) {
        ("calibration" | "log_size", Value::Int(_)) => Ok(()),
        ("calibration", Value::String(text)) if is_cpu(text) => Ok(()),
        ("calibration", Value::String(_)) => {
            Err(here.error("must be a CPU, as \"CPU0\", or the ns of a loop as a number"))
        }
        ("calibration", other) => Err(here.error(format!(
            "must be a CPU, as \"CPU0\", or the ns of a loop, not {}",
            other.kind()
        ))),
        // A word that rt-app does not know turns the logs off.
        ("log_size", Value::String(_)) => Ok(()),
        ("log_size", other) => Err(here.error(format!(
            "must be MB or one of file, disable, auto, not {}",
            other.kind()
        ))),
        ("ftrace", Value::Bool(_)) => Ok(()),
        ("ftrace", Value::String(text)) => {
            for name in text.split(',').filter(|name| !name.is_empty()) {
                if !FTRACE_CATEGORIES.contains(&name.to_ascii_lowercase().as_str()) {
                    return Err(here.error(unknown("category", name, FTRACE_CATEGORIES)));
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

/// Returns whether sscanf() takes a text for `CPU%d`; it is content if the text ends before a number could begin.
fn is_cpu(text: &str) -> bool {
    let Some(number) = text.strip_prefix("CPU") else {
        return "CPU".starts_with(text);
    };
    let number = number.trim_start_matches([' ', '\t', '\n', '\r', '\u{b}', '\u{c}']);
    let digits = number.strip_prefix(['-', '+']).unwrap_or(number);
    number.is_empty() || digits.starts_with(|c: char| c.is_ascii_digit())
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
