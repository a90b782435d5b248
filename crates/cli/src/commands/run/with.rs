//! `run` where this program was built with the real kernel's side.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context as _, anyhow, bail};
use schedlab_compare::{Decomposer, Watched};
use schedlab_events::{About, FORMAT};
use schedlab_kernel::comparison::{Comparison, Load, Run};
use schedlab_kernel::run::stall_bound_ns;
use schedlab_kernel::{topology, vm};
use schedlab_report::export::perfetto::PerfettoWriter;
use schedlab_report::export::view::View;
use schedlab_report::{Measures, RunResult};
use schedlab_sim::Scheduler;
use schedlab_trace::{CpuId, Event, Instant, Listener, TaskId, TaskMeta};
use schedlab_workload::{Workload, rtapp};

use crate::args::RunArgs;
use crate::events;
use crate::output::{Output, binary_in_file, cannot_write, one_file_each, tell};
use crate::progress::{self, Progress};
use crate::real::{complain, forward, machine, release, timeout_of_runs};
use crate::results::{self, Files, WATCHED_MAX, deliver};
use crate::simulation::seed_of;
use crate::status::Status;

pub fn run(args: &RunArgs) -> anyhow::Result<Status> {
    if args.cpus.is_some() && !args.vm {
        bail!("-c sets the CPUs of a virtual machine: add --vm");
    }
    let schedulers: Vec<Scheduler> = schedlab_sim::parse_schedulers(&args.schedulers)
        .map_err(|error| anyhow!("-s: {error}"))?
        .iter()
        .map(schedlab_sim::spelled_out)
        .collect();
    // A wrong command line is reported before a machine is booted.
    for scheduler in &schedulers {
        schedlab_kernel::run::check(scheduler)?;
    }
    let kept = args.workload.as_deref().map(kept).transpose()?.flatten();
    let load = match &args.workload {
        Some(text) => {
            // A wrong workload is reported before a scheduler is loaded.
            let workload = progress::reading(|| schedlab_programs::parse(text))?;
            schedlab_programs::check(&workload)?;
            Load::Workload {
                text: kept.as_ref().map_or(text, |(text, _)| text).clone(),
                program: std::env::current_exe().context("cannot find this program's file")?,
            }
        }
        None => Load::Command(args.command.iter().map(OsString::from).collect()),
    };
    let files = [
        ("--trace", args.trace.as_deref()),
        ("--events", args.events.as_deref()),
    ];
    for (flag, path) in files {
        if path.is_some() && (schedulers.len() != 1 || args.repeat != 1) {
            bail!("{flag} records one run: choose one scheduler and no --repeat");
        }
        binary_in_file(flag, path)?;
    }
    seed_of(args.seed, u64::from(args.repeat) - 1)?;
    let policies = schedulers.iter().filter(|scheduler| scheduler.is_path());
    let policies = policies.map(|scheduler| scheduler.name.clone());
    let workload = args.workload.as_deref().map(Workload::files);
    let [json, csv] = results::outputs(&args.show);
    one_file_each(
        &[json, csv, files[0], files[1], results::page_of(&args.why)],
        policies.chain(workload.into_iter().flatten()),
    )?;
    results::check_why(&args.why, &args.show)?;
    let view = View {
        emulated_ratios: args.emulated_ratios,
        ..results::view(&args.show, args.workload.as_deref())?
    };
    if args.vm && !vm::inside() {
        let text = kept.as_ref().map(|(text, _)| text.as_str());
        return again_in_vm(args, schedulers.len(), text);
    }
    let comparison = Comparison {
        schedulers,
        load,
        repeat: args.repeat,
        seed: args.seed,
        time_limit: args.time_limit.to_std(),
        check: args.check,
    };
    let outputs = Files::begin(&args.show)?.with_page(&args.why)?;
    let begin = |path| Output::create(path).map(|output| (path, output));
    let trace = args.trace.as_deref().map(begin).transpose()?;
    let trace = trace.map(|(path, output)| {
        let writer = PerfettoWriter::new(output, topology::possible_cpus(), &release()?);
        anyhow::Ok((path, writer))
    });
    let mut trace = trace.transpose()?;
    let mut events = args.events.as_deref().map(events::begin).transpose()?;
    let runs = comparison.schedulers.len() * args.repeat as usize;
    let mut progress = Progress::new(args.warmup as usize + runs);
    let mut done = 0;
    while done < args.warmup as usize {
        comparison.warm_up()?;
        done += 1;
        progress.update(done);
    }
    let mut lost = 0;
    let mut about = None;
    // The first runs with the first seed, which is one of each scheduler.
    let nr_watched = match args.why.is_asked() {
        true => WATCHED_MAX.min(comparison.schedulers.len()),
        false => 0,
    };
    let next = |place: usize| (place < nr_watched).then(Decomposer::watching);
    let watch = Watch(Rc::new(RefCell::new(next(0))));
    let mut seen: Vec<(usize, Watched)> = Vec::new();
    let mut place = 0;
    let on_run = &mut |run: &Run| {
        if let Some(heard) = watch.0.replace(next(place + 1)) {
            seen.push((
                place,
                heard.watched(run.result.cpus as usize, run.result.is_done()),
            ));
        }
        place += 1;
        done += 1;
        progress.update(done);
        complain(run);
        lost = run.result.measures.number("lost_records").unwrap_or(0.0) as u64;
        about = Some(about_of(run, lost));
    };
    let mut listeners = (
        trace.as_mut().map(|(_, writer)| writer),
        (
            events.as_mut().map(|(_, writer)| writer),
            args.why.is_asked().then(|| watch.clone()),
        ),
    );
    let mut results = match listeners {
        (None, (None, None)) => comparison.run(on_run),
        _ => comparison.run_told(&mut listeners, on_run),
    }?;
    drop(progress);
    let traced = trace.map_or(Ok(()), |(path, writer)| {
        if lost > 0 {
            tell("the trace has gaps: events came faster than they could be read");
        }
        let finished = writer.finish().with_context(|| cannot_write(path));
        finished.and_then(Output::commit)
    });
    let kept = match (events, about.flatten()) {
        (Some(events), Some(about)) => events::finish(events, &about),
        (Some((path, _)), None) => Err(anyhow!(
            "{}: not written: the program ended before there were events",
            path.display()
        )),
        (None, _) => Ok(()),
    };
    results::explain(&mut results);
    let status = match args.why.is_asked() {
        true => {
            results::deliver_with_why(&results, &seen, (&args.why, Some(STREAMED)), &view, outputs)?
        }
        false => deliver(&results, &view, outputs)?,
    };
    traced.and(kept)?;
    Ok(status)
}

/// The caveat of a page on real runs.
const STREAMED: &str = "The events of all runs were streamed from the kernel, which costs them time. The kernel does not tell calls from \
     interrupts, so a sleep that an interrupt ended counts for the task that it interrupted. Other programs of the machine are not \
     seen: a wait behind them is a wait behind no other task.";

/// Passes the events of each run on to its decomposer; runs without one are not heard.
#[derive(Clone)]
struct Watch(Rc<RefCell<Option<Decomposer>>>);

impl Watch {
    fn tell(&self, what: impl FnOnce(&mut Decomposer)) {
        if let Some(watch) = self.0.borrow_mut().as_mut() {
            what(watch);
        }
    }
}

impl Listener for Watch {
    fn define_starter(&mut self, task: TaskId) {
        self.tell(|watch| watch.define_starter(task));
    }
    fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
        self.tell(|watch| watch.define_task(task, meta));
    }
    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        self.tell(|watch| watch.record(at, cpu, event));
    }
}

/// Returns the description of a run for a file of events; `None` if there were none.
fn about_of(run: &Run, lost: u64) -> Option<About> {
    if run.shown.is_none() && lost == 0 {
        return None;
    }
    let about = About {
        format: FORMAT,
        nr_cpus: topology::possible_cpus() as u32,
        clock_mhz: None,
        shows: run.shown.unwrap_or(schedlab_kernel::trace::SHOWN),
        starts_idle: false,
        stall_bound_ns: stall_bound_ns(run.result.scheduler != Scheduler::KERNELS_OWN),
        lost,
        result: RunResult::default(),
        beside: Measures::default(),
    };
    Some(about.of(&run.result, &run.of_events))
}

/// The same command line in a virtual machine: there it finds itself inside and runs.
fn again_in_vm(
    args: &RunArgs,
    nr_schedulers: usize,
    workload: Option<&str>,
) -> anyhow::Result<Status> {
    let runs = u64::from(args.warmup) + u64::from(args.repeat) * nr_schedulers as u64;
    let mut machine = machine(args.cpus);
    machine.timeout = timeout_of_runs(args.time_limit, runs);
    let [(_, json), (_, csv)] = results::outputs(&args.show);
    let html = args.why.html.as_deref();
    let files = [json, csv, html].into_iter().flatten();
    let files = files.filter(|path| path.as_os_str() != "-");
    let binary = [args.trace.as_deref(), args.events.as_deref()];
    for path in files.chain(binary.into_iter().flatten()) {
        // Checked here, and the guest may write into its folder.
        drop(Output::create(path)?);
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        machine
            .writable
            .push(folder.unwrap_or(Path::new(".")).to_owned());
    }
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let mut of_flag = false;
    let word = |word: OsString| {
        // `-` may be the results' file, too.
        let is_workload = !of_flag && args.workload.as_deref().is_some_and(|asked| word == asked);
        of_flag = word == "--json";
        workload
            .filter(|_| is_workload)
            .map_or(word, OsString::from)
    };
    let command: Vec<OsString> = std::iter::once(program.into_os_string())
        .chain(std::env::args_os().skip(1).map(word))
        .collect();
    forward(&machine, &command)
}

/// A workload whose file can be read only once, in a file that every program of the run can read, and that file's folder.
fn kept(text: &str) -> anyhow::Result<Option<(String, tempfile::TempDir)>> {
    let mut files = Workload::files(text).into_iter();
    let Some(path) = files.find(|path| rtapp::is_read_once(path)) else {
        return Ok(None);
    };
    if !text.starts_with(&path) || files.next().is_some() {
        bail!("{path}: can be read only once, and each part reads its own: put it into a file");
    }
    let read = progress::reading(|| rtapp::read_file(&path))?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let file = folder.path().join("stdin.json");
    std::fs::write(&file, read.as_bytes()).with_context(|| cannot_write(&file))?;
    let options = &text[path.len()..];
    Ok(Some((format!("{}{options}", file.display()), folder)))
}
