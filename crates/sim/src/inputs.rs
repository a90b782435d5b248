//! Reads the inputs that specifications name, once: a file that is edited meanwhile changes no run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use schedlab_abi::Watch;
use schedlab_engine::KernelVersion;
use schedlab_machine::Machine;
use schedlab_policies::Selection;
use schedlab_trace::{CpuSet, Duration, Scheduler, counted};
use schedlab_workload::{Part, ScoreRule, Workload};

use crate::scheduler::{self, ReadyScheduler, SchedulerError};
use crate::{SimError, SimSpec};

/// Inputs that were read for some runs, for further ones: each file is read, and each scheduler's source compiled,
/// for the first run that names it.
pub struct Inputs {
    profiles: BTreeMap<String, (Arc<Machine>, Option<u32>)>,
    rtapp: BTreeMap<String, (Arc<str>, u32)>,
    /// Those that are sources, by whether they are watched, too; the others come with the program.
    schedulers: BTreeMap<(String, bool), Selection>,
    /// Schedulers by their own loaders, by command, machine and kernel.
    loaders: BTreeMap<String, Selection>,
    /// Where transcripts of loaders are kept, if they are.
    kept: Option<PathBuf>,
    nr_kept: usize,
}

impl Default for Inputs {
    fn default() -> Inputs {
        Inputs::keeping(schedlab_policies::kept::folder())
    }
}

/// A run that nothing can change any more.
#[derive(Clone)]
pub struct Prepared {
    pub(crate) spec: SimSpec,
    profile: Arc<Machine>,
    pub(crate) version: KernelVersion,
    /// Texts of the rt-app files of the workload. It is built from them for each run, which uses up its behaviours.
    rtapp: Vec<(String, Arc<str>)>,
    scheduler: Option<Selection>,
    /// The analysis of its code, or the reason for which a requested one is missing.
    watch: Result<Option<Watch>, String>,
    files: Vec<(String, String)>,
    pub(crate) passed: Passed,
}

/// How far a run is, for other threads.
#[derive(Clone, Default)]
pub(crate) struct Passed {
    pub(crate) now_ns: Arc<AtomicU64>,
    /// Where it ends at the latest; 0 if that is not known or it is not under way.
    end_ns: Arc<AtomicU64>,
}

impl Passed {
    pub(crate) fn begin(&self, duration: Option<Duration>) {
        self.now_ns.store(0, Ordering::Relaxed);
        self.end_ns
            .store(duration.map_or(0, Duration::ns), Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.end_ns.store(0, Ordering::Relaxed);
    }
}

impl Inputs {
    /// None were read yet. Transcripts of loaders are kept in a folder, or not at all.
    pub fn keeping(kept: Option<PathBuf>) -> Inputs {
        Inputs {
            profiles: BTreeMap::new(),
            rtapp: BTreeMap::new(),
            schedulers: BTreeMap::new(),
            loaders: BTreeMap::new(),
            kept,
            nr_kept: 0,
        }
    }

    /// Returns how many loaders did not run, as their transcripts were kept.
    pub fn nr_kept(&self) -> usize {
        self.nr_kept
    }

    /// Reads what a run needs. Whether that can be used is known after [`Prepared::check`].
    ///
    /// # Errors
    /// If the machine or the kernel is not there, a file cannot be read, or the scheduler cannot be used.
    pub fn read(&mut self, spec: &SimSpec) -> Result<Prepared, SimError> {
        let (profile, profile_sum) = self.profile(&spec.machine)?;
        let version = spec.kernel.parse()?;
        let mut files = Vec::new();
        let mut add =
            |path: &str, sum: u32| files.push((path.to_owned(), format!("crc32 {sum:08x}")));
        let mut rtapp = Vec::new();
        for path in Workload::files(&spec.workload) {
            let (text, sum) = self.rtapp(&path)?;
            add(&path, sum);
            rtapp.push((path, text));
        }
        if let Some(sum) = profile_sum {
            add(&spec.machine, sum);
        }
        let watch = watch(spec);
        let is_watched = matches!(watch, Ok(Some(_)));
        let scheduler = match spec.scheduler.exec() {
            Some(command) => {
                let machine = spec_machine(spec, &profile)?;
                Some(self.exec(command, spec, &machine, version)?)
            }
            None => self.scheduler(&spec.scheduler, is_watched)?,
        };
        if let Some(sum) = scheduler.as_ref().and_then(|found| found.sum) {
            add(&spec.scheduler.name, sum);
        }
        Ok(Prepared {
            spec: spec.clone(),
            profile,
            version,
            rtapp,
            scheduler,
            watch,
            files,
            passed: Passed::default(),
        })
    }

    fn profile(&mut self, name: &str) -> Result<(Arc<Machine>, Option<u32>), SimError> {
        if let Some(known) = self.profiles.get(name) {
            return Ok(known.clone());
        }
        let (machine, text) = Machine::find_with_text(name)?;
        let sum = text.map(|text| crc32fast::hash(text.as_bytes()));
        let read = (Arc::new(machine), sum);
        self.profiles.insert(name.to_owned(), read.clone());
        Ok(read)
    }

    fn rtapp(&mut self, path: &str) -> Result<(Arc<str>, u32), SimError> {
        if let Some(known) = self.rtapp.get(path) {
            return Ok(known.clone());
        }
        let text = schedlab_workload::rtapp::read_file(path)?;
        let sum = crc32fast::hash(text.as_bytes());
        let read = (text, sum);
        self.rtapp.insert(path.to_owned(), read.clone());
        Ok(read)
    }

    /// Runs a scheduler's own loader, once for each machine and kernel.
    fn exec(
        &mut self,
        command: &str,
        spec: &SimSpec,
        machine: &Machine,
        version: KernelVersion,
    ) -> Result<Selection, SchedulerError> {
        if spec.audit {
            return Err(SchedulerError::Exec {
                what: "--audit needs a source",
            });
        }
        let key = format!("{command} {machine:?} {version:?}");
        if let Some(known) = self.loaders.get(&key) {
            return Ok(known.clone());
        }
        let kept = self.kept.as_deref();
        let found = schedlab_policies::exec::select(command, machine, version, kept)?;
        self.nr_kept += usize::from(found.is_kept);
        self.loaders.insert(key, found.selection.clone());
        Ok(found.selection)
    }

    fn scheduler(
        &mut self,
        scheduler: &Scheduler,
        watched: bool,
    ) -> Result<Option<Selection>, SchedulerError> {
        let key = (scheduler.name.clone(), watched);
        if let Some(known) = self.schedulers.get(&key) {
            return Ok(Some(known.with_options(&scheduler.options)?));
        }
        let found = scheduler::find(scheduler, watched)?;
        if let (Some(found), true) = (&found, scheduler.is_path()) {
            self.schedulers.insert(key, found.clone());
        }
        Ok(found)
    }
}

/// Returns the analysis of the policy's code that a specification asks for. An impossible audit is refused where the
/// policy is compiled; checks go on without the checker of races and say so. Policies that come with the program look
/// at much without a lock, as their originals do, and do not mark where (docs/races.md).
fn watch(spec: &SimSpec) -> Result<Option<Watch>, String> {
    let watch = Watch {
        payment: spec.audit,
        races: spec.check && spec.scheduler.is_path() && !spec.scheduler.is_object(),
    };
    match (watch.payment, watch.races) {
        (true, _) => Ok(Some(watch)),
        (false, false) => Ok(None),
        (false, true) => match schedlab_policies::compile::audit_compiler() {
            Ok(_) => Ok(Some(watch)),
            Err(why) => Err(why.to_string()),
        },
    }
}

/// Returns the machine of a specification.
fn spec_machine(spec: &SimSpec, profile: &Machine) -> Result<Machine, SimError> {
    let mut machine = Machine::clone(profile);
    if let Some(layout) = spec.task_layout {
        machine = machine.with_layout(layout)?;
    }
    if let Some(cpus) = spec.cpus {
        machine = machine.with_cpus(cpus)?;
    }
    Ok(machine)
}

impl Prepared {
    /// Returns the inputs that determine it.
    pub fn spec(&self) -> &SimSpec {
        &self.spec
    }

    /// Returns the files that were read for it, by their paths as they were asked for, with check sums of their
    /// contents; a policy's includes the headers. Runs of one specification are the same as long as these are.
    pub fn files(&self) -> &[(String, String)] {
        &self.files
    }

    /// While it is run by some thread: which part of its simulated time has passed, from 0 to 1, if it is known when it
    /// ends.
    pub fn share_passed(&self) -> Option<f64> {
        let of = |ns: &AtomicU64| ns.load(Ordering::Relaxed);
        match of(&self.passed.end_ns) {
            0 => None,
            end_ns => Some((of(&self.passed.now_ns) as f64 / end_ns as f64).min(1.0)),
        }
    }

    /// Returns the number of CPUs that it will have.
    ///
    /// # Errors
    /// If the machine cannot be used.
    pub fn nr_cpus(&self) -> Result<usize, SimError> {
        Ok(self.machine()?.topology.nr_cpus())
    }

    /// Makes sure that it can be begun, without running it. Answers with what its user should know.
    ///
    /// # Errors
    /// As [`Prepared::run`].
    pub fn check(&self) -> Result<Vec<String>, SimError> {
        let machine = self.machine()?;
        let workload = self.workload(&machine)?;
        let mut notes = workload.notes;
        if let Some(taskset) = &self.spec.taskset {
            let cpus = counted(machine.topology.nr_cpus() as u64, "CPU");
            notes.push(format!(
                "tasks may run on CPU {taskset} of {cpus}, unless they choose others themselves"
            ));
        }
        let scheduler = self.load(&machine)?;
        notes.extend(scheduler.notes());
        let ignored = scheduler.ignored_of_cgroups(&workload.cgroups, self.version);
        let name = &self.spec.scheduler.name;
        notes.extend(ignored.iter().map(|what| format!("{name}: {what}")));
        if let Err(why) = &self.watch {
            notes.push(format!("--check looks for no data races: {why}"));
        }
        if self.spec.audit && scheduler.is_baseline() {
            notes.push(
                "the kernel's own scheduler is not audited: no policy's code runs".to_owned(),
            );
        }
        Ok(notes)
    }

    /// The parts of its workload, if that is composed of several.
    ///
    /// # Errors
    /// If the workload or the machine is wrong.
    pub fn parts(&self) -> Result<Vec<Part>, SimError> {
        Ok(self.workload(&self.machine()?)?.parts)
    }

    /// How its score is computed from the time of the run; `None` where it is not, as of a count, or of a workload of several.
    ///
    /// # Errors
    /// If the workload or the machine is wrong.
    pub fn time_rule(&self) -> Result<Option<ScoreRule>, SimError> {
        let workload = self.workload(&self.machine()?)?;
        let rule = Some(workload.score.rule).filter(|_| workload.parts.is_empty());
        Ok(rule.filter(|rule| !matches!(rule, ScoreRule::Counter(_))))
    }

    pub(crate) fn machine(&self) -> Result<Machine, SimError> {
        spec_machine(&self.spec, &self.profile)
    }

    pub(crate) fn workload(&self, machine: &Machine) -> Result<Workload, SimError> {
        let nr_cpus = machine.topology.nr_cpus();
        let allowed = self.allowed(nr_cpus)?;
        let allowed = allowed.unwrap_or_else(|| CpuSet::all(nr_cpus));
        Ok(Workload::parse_reading(
            &self.spec.workload,
            &allowed,
            &|path| {
                let read = self.rtapp.iter().find(|(known, _)| known == path);
                let (_, contents) = read.expect("all files of the workload were read");
                Ok(Arc::clone(contents))
            },
        )?)
    }

    /// Returns the CPUs that tasks are kept to, if they are, of a machine with `nr_cpus`.
    pub(crate) fn allowed(&self, nr_cpus: usize) -> Result<Option<CpuSet>, SimError> {
        let Some(taskset) = &self.spec.taskset else {
            return Ok(None);
        };
        let allowed = taskset.resized(nr_cpus);
        if allowed.is_empty() || allowed.len() != taskset.len() {
            return Err(SimError::Taskset {
                taskset: taskset.clone(),
                last: nr_cpus - 1,
            });
        }
        Ok(Some(allowed))
    }

    pub(crate) fn load(&self, machine: &Machine) -> Result<ReadyScheduler, SchedulerError> {
        Ok(scheduler::load(
            self.scheduler.as_ref(),
            machine,
            self.version,
            self.watch.clone().unwrap_or_default(),
        )?)
    }

    pub(crate) fn time_limit(&self) -> Duration {
        self.spec.time_limit
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const SOURCE: &str = "#include <scx/common.bpf.h>\n#include \"slice.h\"\nchar _license[] SEC(\"license\") = \"GPL\";\n\
        const volatile u32 times = 1;\n\
        void BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{\n\
        \tscx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SLICE * times, enq_flags);\n}\n\
        SCX_OPS_DEFINE(mine_ops, .enqueue = (void *)mine_enqueue, .name = \"mine\");\n";

    /// Runs of one command are runs of one thing, whatever is edited meanwhile.
    #[test]
    fn what_was_read_is_what_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let put = |name: &str, text: &str| fs::write(path(name), text).unwrap();
        let before = [
            ("mine.bpf.c", SOURCE.to_owned()),
            ("slice.h", "#define SLICE 10000000\n".to_owned()),
            (
                "two.json",
                r#"{"tasks": {"a": {"instance": 2, "loop": 9, "run": 4000}}}"#.to_owned(),
            ),
            (
                "mine.toml",
                include_str!("../../../machines/laptop.toml").to_owned(),
            ),
        ];
        let after = [
            ("mine.bpf.c", "no C at all".to_owned()),
            ("slice.h", "#define SLICE 100000\n".to_owned()),
            ("two.json", before[2].1.replace("4000", "8000")),
            (
                "mine.toml",
                before[3]
                    .1
                    .replace("hz = { value = 250", "hz = { value = 1000"),
            ),
        ];
        before.iter().for_each(|(name, text)| put(name, text));
        let spec = |options: &str| SimSpec {
            cpus: Some(1),
            ..SimSpec::new(
                path("two.json") + ":duration=1",
                Scheduler::parse(&(path("mine.bpf.c") + options)),
                path("mine.toml"),
            )
        };
        let mut inputs = Inputs::default();
        let prepared = inputs.read(&spec("")).unwrap();
        assert_eq!(prepared.files().len(), 3);
        let result = prepared.run(None).unwrap();
        for (name, text) in &after {
            put(name, text);
            assert_eq!(prepared.run(None).unwrap(), result, "{name}");
            // Further runs of the same files, too.
            assert_eq!(inputs.read(&spec("")).unwrap().run(None).unwrap(), result);
            assert_eq!(inputs.read(&spec("")).unwrap().files(), prepared.files());
        }
        let other = inputs.read(&spec(":times=2")).unwrap();
        assert_eq!(other.files(), prepared.files());
        assert_ne!(other.run(None).unwrap().measures, result.measures);
        assert!(inputs.read(&spec(":times=x")).is_err());
        put("mine.bpf.c", SOURCE);
        let anew = Inputs::default().read(&spec("")).unwrap();
        for (old, new) in prepared.files().iter().zip(anew.files()) {
            assert_eq!(old.0, new.0);
            assert_ne!(old.1, new.1);
        }
        assert_ne!(anew.run(None).unwrap().measures, result.measures);
    }

    #[test]
    fn others_see_how_far_a_run_is() {
        struct Looks(Prepared, Vec<Option<f64>>);
        impl schedlab_trace::Listener for Looks {
            fn record(
                &mut self,
                _: schedlab_trace::Instant,
                _: schedlab_trace::CpuId,
                _: schedlab_trace::Event,
            ) {
                self.1.push(self.0.share_passed());
            }
        }
        let shares = |workload: &str| {
            let spec = SimSpec::new(workload, Scheduler::parse("fifo"), "laptop");
            let prepared = Inputs::default().read(&spec).unwrap();
            assert_eq!(prepared.share_passed(), None);
            let mut looks = Looks(prepared.clone(), Vec::new());
            let watched = prepared.run(Some(&mut looks)).unwrap();
            assert_eq!(prepared.share_passed(), None);
            assert_eq!(prepared.run(None).unwrap(), watched);
            looks.1
        };
        let lasting = shares("cpu:duration=100ms");
        assert_eq!(lasting[0], Some(0.0));
        // Ticks are 4 ms apart.
        let last = lasting.last().unwrap().unwrap();
        assert!((0.95..=1.0).contains(&last), "{last}");
        // The end of one without a duration is unknown.
        let endless = shares("cpu:duration=0,loops=3");
        assert!(endless.iter().all(Option::is_none));
    }

    #[test]
    fn a_run_that_there_is_none_of_says_what_it_would_have_been() {
        let spec = SimSpec {
            cpus: Some(3),
            seed: 7,
            ..SimSpec::new("cpu:tasks=2", Scheduler::parse("fifo"), "laptop")
        };
        let prepared = Inputs::default().read(&spec).unwrap();
        let run = prepared.run(None).unwrap();
        let none = prepared.not_run("no more memory");
        assert_eq!(none.exit, schedlab_report::Exit::NotRun);
        assert_eq!(none.message.as_deref(), Some("no more memory"));
        assert_eq!(none.measures, schedlab_report::Measures::default());
        let none = schedlab_report::RunResult {
            exit: run.exit,
            message: run.message.clone(),
            measures: run.measures.clone(),
            histograms: run.histograms.clone(),
            series: run.series.clone(),
            ..none
        };
        assert_eq!(none, run);
    }
}
