//! Resolves schedulers: a policy by name or path, or the virtual kernel's own baseline.

use std::sync::Arc;

use schedlab_abi::{
    LoadError, NativeObject, NativePolicy, OptionKind, PolicyOption, Watch, options,
};
use schedlab_engine::consts::ops;
use schedlab_engine::policy::{OpKind, OpsFlags, Policy, Probes};
use schedlab_engine::{ExitInfo, HostFailure, KernelVersion, RunEnd, Scenario, WorkloadFailure};
use schedlab_machine::{CacheModel, Machine};
use schedlab_policies::exec::ExecError;
use schedlab_policies::{PolicyDoc, SelectError, Selection};
use schedlab_trace::{Instant, Recorder, Scheduler, TaskId};
use schedlab_workload::{CgroupSettings, Cgroups, Counters};

use crate::baseline::NoPolicy;

/// A scheduler that can be asked for by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchedulerInfo {
    /// Name.
    pub name: String,
    /// One line for people.
    pub summary: String,
    /// The other sections of its source's head: (section, text). Only schedulers in a file have them.
    pub about: Vec<(&'static str, String)>,
    /// Its options.
    pub options: Vec<OptionInfo>,
}

/// An option of a scheduler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionInfo {
    /// Name.
    pub name: String,
    /// Its value when it is not given.
    pub default: String,
    /// The values that it takes.
    pub values: String,
    /// All of its values, where they can be listed.
    pub choices: Vec<String>,
    /// Its effect.
    pub doc: Option<String>,
}

/// Stands for every scheduler that has a name.
const ALL: &str = "all";

/// Returns a list of different schedulers, as [`Scheduler::parse_list`] reads it, or `all`: results of one that is
/// named twice would be taken for repetitions.
///
/// # Errors
/// One line that says what is wrong and what to write.
pub fn parse_schedulers(text: &str) -> Result<Vec<Scheduler>, String> {
    let schedulers: Vec<Scheduler> = match text.trim() {
        ALL => {
            let all = schedulers();
            // A point of a policy's options has a name, too, and is one of its schedulers.
            all.iter()
                .map(|known| Scheduler::plain(&known.name))
                .collect()
        }
        text => Scheduler::parse_list(text)?,
    };
    for pair in schedulers.windows(2) {
        // A part of an argument behind a comma reads as a scheduler.
        let is_unknown = pair[1].exec().is_none()
            && !pair[1].is_path()
            && matches!(find(&pair[1], false), Err(SchedulerError::Unknown { .. }));
        if pair[0].exec().is_some() && is_unknown {
            return Err(pair[0].comma_of_argument(&pair[1].to_string()));
        }
    }
    let spelled_out: Vec<Scheduler> = schedulers
        .iter()
        .map(schedlab_policies::spelled_out)
        .collect();
    for (index, scheduler) in schedulers.iter().enumerate() {
        if spelled_out[..index].contains(&spelled_out[index]) {
            return Err(format!(
                "`{scheduler}` is named twice; --repeat runs each several times"
            ));
        }
    }
    Ok(schedulers)
}

/// Returns the options of a scheduler, in the order of its source.
///
/// # Errors
/// If there is no such scheduler or its source cannot be used.
pub fn options(scheduler: &Scheduler) -> Result<Vec<OptionInfo>, SchedulerError> {
    let found = find(scheduler, false)?;
    let policy = found.iter();
    Ok(policy
        .flat_map(|selection| selection.object.options().iter().map(option))
        .collect())
}

/// Options of a scheduler that change nothing while others have certain values: (option, `key=value,…`), as
/// the head of its source says.
///
/// # Errors
/// If its source cannot be read.
pub fn mute(scheduler: &Scheduler) -> Result<Vec<(String, String)>, SchedulerError> {
    Ok(schedlab_policies::doc(&schedlab_policies::spelled_out(scheduler).name)?.mute)
}

/// Every scheduler that has a name, in alphabetical order.
pub fn schedulers() -> Vec<SchedulerInfo> {
    let baseline = SchedulerInfo {
        name: Scheduler::KERNELS_OWN.to_owned(),
        summary:
            "The virtual kernel's own scheduler, a plain EEVDF: the baseline of decisions, its queues cost nothing"
                .to_owned(),
        about: Vec::new(),
        options: Vec::new(),
    };
    let policies = schedlab_policies::builtin()
        .iter()
        .map(|file| info(file.name, file.doc(), &file.object()));
    let points = schedlab_policies::builtin().iter().flat_map(|file| {
        let points = file.doc().points.into_iter();
        points.map(|(name, options)| SchedulerInfo {
            name,
            summary: format!("{}:{options}", file.name),
            about: Vec::new(),
            options: Vec::new(),
        })
    });
    let mut all: Vec<_> = policies.chain(points).chain([baseline]).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Describes the scheduler at a path, as [`schedulers`] describes those that have a name.
///
/// # Errors
/// If its source cannot be used.
pub fn scheduler_at(path: &str) -> Result<SchedulerInfo, SchedulerError> {
    let selection = schedlab_policies::select(&Scheduler::plain(path))?;
    Ok(info(path, schedlab_policies::doc(path)?, &selection.object))
}

fn info(name: &str, doc: PolicyDoc, object: &NativeObject) -> SchedulerInfo {
    SchedulerInfo {
        name: name.to_owned(),
        summary: doc.summary.lines().next().unwrap_or_default().to_owned(),
        about: about(doc),
        options: object.options().iter().map(option).collect(),
    }
}

fn about(doc: PolicyDoc) -> Vec<(&'static str, String)> {
    let texts = [
        doc.idea,
        doc.good_for,
        doc.bad_for,
        doc.source,
        doc.simplifications,
    ];
    PolicyDoc::SECTIONS.into_iter().zip(texts).collect()
}

fn option(option: &PolicyOption) -> OptionInfo {
    OptionInfo {
        name: option.name.clone(),
        default: option.default_text(),
        values: match (&option.kind, &option.doc) {
            (OptionKind::Integer { .. }, Some(doc)) if options::range(doc).is_some() => {
                "a whole number".to_owned()
            }
            (kind, _) => kind.to_string(),
        },
        choices: match &option.kind {
            OptionKind::Bool => vec!["false".to_owned(), "true".to_owned()],
            OptionKind::Choice(words) => words.iter().map(|(word, _)| word.clone()).collect(),
            OptionKind::Integer { .. } => Vec::new(),
        },
        doc: option.doc.clone(),
    }
}

/// Why a scheduler cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulerError {
    /// No scheduler has this name.
    #[error("{told}")]
    Unknown {
        /// The known names, or the way to use a file of that name.
        told: String,
    },
    /// It takes no options.
    #[error("scheduler `{name}` takes no options")]
    NoOptions {
        /// Its name.
        name: String,
    },
    /// Something is asked that a scheduler's own loader does not give.
    #[error("exec: {what}; a scheduler of its own loader has none")]
    Exec {
        /// The rule.
        what: &'static str,
    },
    /// Its own loader leads to no scheduler.
    #[error(transparent)]
    Loader(#[from] ExecError),
    /// Its source or its options are wrong.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// It cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// A scheduler that is ready to run.
pub(crate) enum ReadyScheduler {
    Baseline,
    Native {
        policy: Box<NativePolicy>,
        warnings: Arc<[String]>,
    },
    Watched {
        policy: Box<NativePolicy<true>>,
        warnings: Arc<[String]>,
    },
}

/// Flags that do not do in a simulation what they do in a kernel (docs/sched_ext.md).
const FLAGS: [(OpsFlags, &str, &str); 3] = [
    (
        ops::SWITCH_PARTIAL,
        "SCX_OPS_SWITCH_PARTIAL",
        "leaves it no task in a simulation: none asks for SCHED_EXT",
    ),
    (
        ops::ENQ_MIGRATION_DISABLED,
        "SCX_OPS_ENQ_MIGRATION_DISABLED",
        "changes nothing in a simulation: no task ever has its migration disabled",
    ),
    (
        ops::ALLOW_QUEUED_WAKEUP,
        "SCX_OPS_ALLOW_QUEUED_WAKEUP",
        "changes nothing in a simulation: the waker always enqueues the task itself",
    ),
];

/// The messages that a run left behind, under any policy.
pub(crate) struct Ended {
    pub(crate) exit: ExitInfo,
    /// The output of the policy's `bpf_printk()`.
    pub(crate) printed: Vec<String>,
    /// Its output in the dump.
    pub(crate) dump: String,
    /// The data races that were found in it.
    pub(crate) races: Vec<String>,
    pub(crate) failure: Option<WorkloadFailure>,
    pub(crate) stuck: Option<WorkloadFailure>,
    pub(crate) end: Instant,
    pub(crate) begun: Instant,
    pub(crate) makespan: Option<Instant>,
    pub(crate) work: u64,
    pub(crate) counters: Counters,
    pub(crate) probes: Vec<Probes>,
    pub(crate) cache: CacheModel,
    pub(crate) unfinished: Vec<TaskId>,
    pub(crate) to_come: u32,
    pub(crate) cpuperf_requests: u64,
}

/// Finds a scheduler, without loading it; `None` is the virtual kernel's own.
pub(crate) fn find(
    scheduler: &Scheduler,
    watched: bool,
) -> Result<Option<Selection>, SchedulerError> {
    let Scheduler { name, options } = scheduler;
    if is_baseline(scheduler) {
        return if options.is_empty() {
            Ok(None)
        } else {
            Err(SchedulerError::NoOptions { name: name.clone() })
        };
    }
    let selection = match watched {
        true => schedlab_policies::select_watched(scheduler),
        false => schedlab_policies::select(scheduler),
    };
    let selection = selection.map_err(|error| match error {
        // The policies alone are not all there is.
        SelectError::Unknown { name, .. } => {
            let all = schedulers();
            let known: Vec<&str> = all.iter().map(|known| known.name.as_str()).collect();
            SchedulerError::Unknown {
                told: Scheduler::unknown(&name, &known),
            }
        }
        error => error.into(),
    })?;
    Ok(Some(selection))
}

/// Returns whether it is the virtual kernel's own, whose queues cost nothing.
pub fn is_baseline(scheduler: &Scheduler) -> bool {
    scheduler.is_kernels_own()
}

/// Loads a private copy for one run of what [`find`] has found.
pub(crate) fn load(
    found: Option<&Selection>,
    machine: &Machine,
    version: schedlab_engine::KernelVersion,
    watch: Option<Watch>,
) -> Result<ReadyScheduler, LoadError> {
    let Some(selection) = found else {
        return Ok(ReadyScheduler::Baseline);
    };
    let warnings = Arc::clone(&selection.warnings);
    Ok(match watch {
        Some(watch) => ReadyScheduler::Watched {
            policy: Box::new(selection.load_watched(machine, version, watch)?),
            warnings,
        },
        None => ReadyScheduler::Native {
            policy: Box::new(selection.load(machine, version)?),
            warnings,
        },
    })
}

impl ReadyScheduler {
    pub(crate) fn is_baseline(&self) -> bool {
        matches!(self, ReadyScheduler::Baseline)
    }

    /// Returns the settings of a workload's cgroups that have no effect, in words: a policy learns of a change by its op alone. The
    /// engine's own class keeps all of them.
    pub(crate) fn ignored_of_cgroups(
        &self,
        cgroups: &Cgroups,
        version: KernelVersion,
    ) -> Vec<String> {
        let ops = match self {
            ReadyScheduler::Baseline => return Vec::new(),
            ReadyScheduler::Native { policy, .. } => policy.info().present,
            ReadyScheduler::Watched { policy, .. } => policy.info().present,
        };
        let of_cgroups = [
            OpKind::CgroupInit,
            OpKind::CgroupExit,
            OpKind::CgroupPrepMove,
            OpKind::CgroupMove,
            OpKind::CgroupCancelMove,
            OpKind::CgroupSetWeight,
            OpKind::CgroupSetBandwidth,
            OpKind::CgroupSetIdle,
        ];
        if cgroups.is_empty() {
            return Vec::new();
        }
        if !of_cgroups.into_iter().any(|op| ops.has(op)) {
            let what = "weights and limits of cgroups have no effect: it has no op for cgroups";
            return vec![what.to_owned()];
        }
        let default = CgroupSettings::default();
        let has = |differs: &dyn Fn(CgroupSettings) -> bool| {
            let mut all = cgroups.below_root();
            all.any(|cgroup| differs(cgroups.settings(cgroup)))
        };
        let settings = [
            (
                "cpu.weight",
                has(&|it| it.weight != default.weight),
                OpKind::CgroupSetWeight,
            ),
            (
                "cpu.max",
                has(&|it| it.bandwidth != default.bandwidth),
                OpKind::CgroupSetBandwidth,
            ),
            ("cpu.idle", has(&|it| it.idle), OpKind::CgroupSetIdle),
        ];
        let ignored = settings.into_iter().filter_map(|(setting, is_given, op)| {
            let is_there = op != OpKind::CgroupSetIdle || version.has_cgroup_set_idle();
            let who = match is_there {
                true => "it".to_owned(),
                false => format!("Linux {}", version.name()),
            };
            let is_ignored = is_given && !(ops.has(op) && is_there);
            is_ignored.then(|| {
                format!(
                    "`{setting}` has no effect: {who} has no ops.{}()",
                    op.name()
                )
            })
        });
        ignored.collect()
    }

    /// Returns its notes for the user.
    pub(crate) fn notes(&self) -> Vec<String> {
        match self {
            ReadyScheduler::Baseline => Vec::new(),
            ReadyScheduler::Native { policy, warnings } => notes(policy, warnings),
            ReadyScheduler::Watched { policy, warnings } => notes(policy, warnings),
        }
    }

    /// Returns the watchdog's time-out in ms; 0 for the kernel's default.
    pub(crate) fn timeout_ms(&self) -> u32 {
        match self {
            ReadyScheduler::Baseline => 0,
            ReadyScheduler::Native { policy, .. } => policy.info().timeout_ms,
            ReadyScheduler::Watched { policy, .. } => policy.info().timeout_ms,
        }
    }

    /// Runs to the scenario's end, and gives the recorder back.
    ///
    /// # Errors
    /// If the host does not give what a run needs.
    pub(crate) fn run<R: Recorder>(
        self,
        scenario: Scenario,
        recorder: R,
    ) -> Result<(Ended, R), HostFailure> {
        match self {
            ReadyScheduler::Baseline => {
                let (ended, _, recorder) = run(scenario, NoPolicy::new(), recorder)?;
                Ok((ended, recorder))
            }
            ReadyScheduler::Native { policy, .. } => run_native(scenario, *policy, recorder),
            ReadyScheduler::Watched { policy, .. } => run_native(scenario, *policy, recorder),
        }
    }
}

fn notes<const AUDITED: bool>(policy: &NativePolicy<AUDITED>, warnings: &[String]) -> Vec<String> {
    let mut notes = warnings.to_vec();
    let name = policy.object().name();
    let never = policy.never_called();
    if !never.is_empty() {
        notes.push(format!(
            "{name}: ops.{} is never called in a simulation",
            never.join(", ops.")
        ));
    }
    let flags = policy.info().flags;
    for (_, flag, what) in FLAGS.into_iter().filter(|(bit, ..)| flags & bit != 0) {
        notes.push(format!("{name}: {flag} {what}"));
    }
    notes
}

fn run_native<const AUDITED: bool, R: Recorder>(
    scenario: Scenario,
    policy: NativePolicy<AUDITED>,
    recorder: R,
) -> Result<(Ended, R), HostFailure> {
    let (mut ended, policy, recorder) = run(scenario, policy, recorder)?;
    ended.printed = policy.log().map(str::to_owned).collect();
    policy.dump().clone_into(&mut ended.dump);
    ended.races = policy.races().to_vec();
    Ok((ended, recorder))
}

fn run<P: Policy, R: Recorder>(
    scenario: Scenario,
    policy: P,
    recorder: R,
) -> Result<(Ended, P, R), HostFailure> {
    let RunEnd {
        exit,
        failure,
        host_failure,
        stuck,
        end,
        begun,
        makespan,
        work,
        counters,
        probes,
        cache,
        unfinished,
        to_come,
        cpuperf_requests,
        policy,
        recorder,
        ..
    } = schedlab_engine::run_recorded(scenario, policy, recorder);
    if let Some(failure) = host_failure {
        return Err(failure);
    }
    let ended = Ended {
        exit,
        printed: Vec::new(),
        dump: String::new(),
        races: Vec::new(),
        failure,
        stuck,
        end,
        begun,
        makespan,
        work,
        counters,
        probes,
        cache,
        unfinished,
        to_come,
        cpuperf_requests,
    };
    Ok((ended, policy, recorder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_named_twice_is_refused() {
        let point = schedlab_policies::spelled_out(&Scheduler::plain("cfs-like"));
        for text in [
            "kernel,a,kernel",
            "a:x=1,a:x=1",
            "a:x,a:x=true",
            &format!("cfs-like,{point}"),
        ] {
            let error = parse_schedulers(text).unwrap_err();
            assert!(error.contains("` is named twice"), "{text}: {error}");
        }
        assert!(parse_schedulers("a,a:x=1,a:x=2").is_ok());
        assert!(parse_schedulers("exec:x -v,fifo,exec:y").is_ok());
        let told = parse_schedulers("fifo,exec:x a,b").unwrap_err();
        let expected = r"`b` is no scheduler; if the comma before it belongs to an argument of `exec:x a`, it needs a backslash: write 'exec:x a\,b'";
        assert_eq!(told, expected);
        let list = parse_schedulers(r"exec:x a\,b").unwrap();
        assert_eq!(list[0].name, "exec:x a,b");
    }

    #[test]
    fn points_are_schedulers_with_options_of_their_own() {
        let known = schedulers();
        let mut points = 0;
        for file in schedlab_policies::builtin() {
            for (name, options) in file.doc().points {
                let whole = find(
                    &Scheduler::parse(&format!("{}:{options}", file.name)),
                    false,
                )
                .unwrap();
                let point = find(&Scheduler::parse(&name), false).unwrap();
                assert_eq!(
                    point.as_ref().unwrap().settings,
                    whole.as_ref().unwrap().settings
                );
                assert!(known.iter().any(|scheduler| scheduler.name == name));
                // One of them changed; the rest stays.
                let mut options = Scheduler::parse_options(&options);
                let (key, _) = options.remove(0);
                options.push((key, "x".to_owned()));
                let changed = schedlab_policies::spelled_out(&Scheduler {
                    name,
                    options: options[options.len() - 1..].to_vec(),
                });
                assert_eq!(
                    (changed.name.as_str(), changed.options),
                    (file.name, options)
                );
                points += 1;
            }
        }
        assert!(points > 0);
    }

    #[test]
    fn an_option_has_the_range_that_its_comment_says() {
        let values = |scheduler: &str, option: &str| {
            let known = schedulers().into_iter();
            let scheduler = known.filter(|known| known.name == scheduler);
            let mut options = scheduler.flat_map(|known| known.options);
            options.find(|known| known.name == option).unwrap().values
        };
        // "(0 to 3600000000)", "(0 to 120, which all are below)".
        assert_eq!(values("fifo", "slice_us"), "a whole number");
        assert_eq!(values("ule", "interact_threshold"), "a whole number");
        assert_eq!(
            values("feature", "fixed_us"),
            "a whole number from 0 to 4294967295"
        );
        assert_eq!(
            options::range("Ticks (which see), up to 9 (to be sure)."),
            None
        );
    }

    #[test]
    fn defaults_are_values_that_options_take() {
        let all = schedulers();
        assert!(all.len() > 1 && all.is_sorted_by(|a, b| a.name < b.name));
        for scheduler in all {
            assert!(!scheduler.summary.is_empty(), "{}", scheduler.name);
            for option in scheduler.options {
                let text = format!("{}:{}={}", scheduler.name, option.name, option.default);
                assert!(find(&Scheduler::parse(&text), false).is_ok(), "{text}");
                // Choices are listed; a default that is not among them was read from the wrong place.
                let choices = option.values.contains(", ");
                let known = option
                    .values
                    .split(", ")
                    .any(|value| value == option.default);
                assert!(!choices || known, "{text}: {}", option.values);
            }
        }
    }
}
