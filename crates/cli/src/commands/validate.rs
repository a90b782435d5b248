//! `validate`: real runs under this machine's own kernel beside simulations on its profile.

use std::fmt::Write as _;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context as _, anyhow, bail};
use schedlab_calibrate::pin;
use schedlab_report::RunResult;
use schedlab_report::export::lines::fill;
use schedlab_report::export::validation::{render, summary};
use schedlab_report::export::view::View;
use schedlab_report::validation::{Row, compare};
use schedlab_sim::{Scheduler, SimSpec};
use schedlab_trace::{CpuId, CpuSet, counted};

use crate::args::{Rt, SimCommon, ValidateArgs, Where};
use crate::output::{one_file_each, tell, width};
use crate::progress::Progress;
use crate::real::{self, Spoils};
use crate::results::{Files, deliver_text};
use crate::signals;
use crate::simulation;
use crate::status::Status;

/// The workloads that are compared where none is named: each takes a second or two.
const DEFAULT: [&str; 10] = [
    "pipe:loops=200000",
    "lat_ctx:rounds=2000",
    "reflex:active_sets=16,computation=0",
    "hackbench:groups=4",
    "chat:rooms=2,messages=50",
    "schbench:workers=4,duration=5s",
    "cpu:tasks=8,duration=2s",
    "service:duration=2s",
    "httpd:workers=32,connections=32,duration=2s",
    "streamcluster:threads=4,iterations=200",
];

/// The largest share of the CPUs' time that other programs may take.
const BUSY_PCT: f64 = 5.0;
/// As many CPUs as the kernel's interface for masks has.
const CPUS_MAX: usize = 1024;
/// How long they are watched.
const WATCH: Duration = Duration::from_millis(500);

pub fn run(args: &ValidateArgs) -> anyhow::Result<Status> {
    let schedulers: Vec<Scheduler> =
        schedlab_sim::parse_schedulers(&args.schedulers).map_err(|error| anyhow!("-s: {error}"))?;
    let workloads: Vec<String> = match args.workloads.as_slice() {
        [] => DEFAULT.map(str::to_owned).into(),
        some => some.to_vec(),
    };
    let host = real::host()?;
    let found = real::not_stock()?;
    let places = places(args, &found)?;
    refuse_if_busy(args.anyway)?;
    signals::listen().context("cannot listen to signals")?;
    let calibrated = match &args.machine {
        Some(_) => None,
        None => Some(calibrate()?),
    };
    let machine = match (&args.machine, &calibrated) {
        (Some(machine), _) => machine.clone(),
        (None, Some(file)) => file.path().display().to_string(),
        (None, None) => bail!("there is no profile"),
    };
    one_file_each(
        &[("--json", args.json.as_deref())],
        std::iter::empty::<&std::path::Path>(),
    )?;
    // A wrong workload or profile is reported before anything runs.
    let mut cells = Vec::new();
    let mut all_specs = Vec::new();
    for &place in &places {
        for workload in &workloads {
            all_specs.extend(specs(args, workload, &schedulers, &machine, place)?);
            cells.push((place, workload.clone()));
        }
    }
    let checked = simulation::check(&all_specs)?;
    let size = checked.len() / cells.len();
    let plans: Vec<_> = cells.into_iter().zip(checked.chunks(size)).collect();
    let outputs = Files::json(args.json.as_deref())?;
    let measured = measure(args, &places, &workloads)?;
    let mut all: Vec<RunResult> = Vec::new();
    let mut text = head(&host.kernel, &machine, args, &found);
    for place in &places {
        let mut tables: Vec<(String, Vec<Row>)> = Vec::new();
        for ((_, workload), plan) in plans.iter().filter(|((at, _), _)| at == place) {
            let simulated = simulation::run(plan, &common(args))?;
            let of_each: Vec<Vec<RunResult>> = schedulers
                .iter()
                .map(|one| {
                    let name = schedlab_sim::spelled_out(one).to_string();
                    simulated
                        .iter()
                        .filter(|run| run.scheduler == name)
                        .cloned()
                        .collect()
                })
                .collect();
            let mine = measured
                .iter()
                .filter(|(at, of, _)| at == place && of == workload);
            let real: Vec<RunResult> = mine.map(|(_, _, run)| run.clone()).collect();
            for run in real.iter().chain(&simulated).filter(|run| !run.is_done()) {
                tell(format_args!(
                    "{workload} under {} on {}, seed {}: {}",
                    run.scheduler,
                    run.machine,
                    run.seed,
                    run.message.as_deref().unwrap_or("it failed")
                ));
            }
            tables.push((workload.clone(), compare(&real, &of_each)));
            all.extend(real);
            all.extend(simulated);
        }
        let names: Vec<String> = schedulers.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "\n{}", title(*place));
        text.push_str(&render(&names, &tables));
        text.push('\n');
        text.push_str(&summary(&names, &tables));
    }
    deliver_text(&all, &text, &View::of_width(width()), outputs)
}

/// A number of CPUs and, where it is one, which.
type Place = Option<usize>;

/// Where runs take place. Free placement is left out where this kernel's is its own.
fn places(args: &ValidateArgs, found: &[(String, Spoils)]) -> anyhow::Result<Vec<Place>> {
    let worst = |kind| found.iter().find(|(_, spoils)| *spoils == kind);
    if let Some((text, _)) = worst(Spoils::Everything)
        && !args.anyway
    {
        bail!("{text}: this is not the scheduler that is simulated. Restore it, or add --anyway");
    }
    let allowed: Vec<usize> = (0..CPUS_MAX).filter(|&cpu| pin::allowed(cpu)).collect();
    let last = *allowed.last().context("this process may use no CPU")?;
    let mut places = Vec::new();
    for place in &args.cpus {
        let place = match place {
            Where::One => Some(last),
            // One CPU leaves nothing to choose.
            Where::All if allowed.len() == 1 => Some(last),
            Where::All => None,
        };
        if let (None, Some((text, _)), false) = (place, worst(Spoils::Placement), args.anyway) {
            tell(format_args!(
                "{text}. Only one CPU is compared; --anyway compares all"
            ));
            continue;
        }
        if !places.contains(&place) {
            places.push(place);
        }
    }
    if places.is_empty() {
        bail!("nothing is left to compare: add -c 1, or --anyway");
    }
    Ok(places)
}

fn title(place: Place) -> String {
    match place {
        Some(cpu) => format!("One CPU: all threads are bound to CPU {cpu}"),
        None => "All CPUs, free placement".to_owned(),
    }
}

/// Refuses to measure beside other programs.
fn refuse_if_busy(anyway: bool) -> anyhow::Result<()> {
    if let Some(caveat) = of_busy(busy_pct(), anyway)? {
        tell(caveat);
    }
    Ok(())
}

/// Returns the caveat of runs beside programs that take this share of the CPUs' time, where it is known.
fn of_busy(busy: Option<f64>, anyway: bool) -> anyhow::Result<Option<String>> {
    let Some(busy) = busy.filter(|&busy| busy > BUSY_PCT) else {
        return Ok(None);
    };
    let told = format!("other programs take {busy:.1} % of this machine's CPU time");
    if !anyway {
        bail!(
            "{told}, and at most {BUSY_PCT:.0} % leaves the runs alone: stop them (`top` shows them), or add --anyway"
        );
    }
    Ok(Some(format!(
        "{told}: real times are too long, and their intervals wide"
    )))
}

/// The share of all CPUs' time that is not idle, over [`WATCH`]; `None` where /proc/stat does not say.
fn busy_pct() -> Option<f64> {
    let read = || times(&fs::read_to_string("/proc/stat").ok()?);
    let (idle, all) = read()?;
    thread::sleep(WATCH);
    let (idle_after, all_after) = read()?;
    let all = all_after.checked_sub(all).filter(|&all| all > 0)?;
    let idle = idle_after.saturating_sub(idle).min(all);
    Some(100.0 * (all - idle) as f64 / all as f64)
}

/// Idle and total time of all CPUs in jiffies, from the first line of /proc/stat (proc(5)): waiting for I/O is idle, and
/// guests are in user time already.
fn times(stat: &str) -> Option<(u64, u64)> {
    let words = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace();
    let fields: Vec<u64> = words
        .take(8)
        .map(|word| word.parse().ok())
        .collect::<Option<_>>()?;
    let idle = fields.get(3)? + fields.get(4)?;
    Some((idle, fields.iter().sum()))
}

/// A profile of this machine, in a file that lasts as long as the value.
fn calibrate() -> anyhow::Result<tempfile::NamedTempFile> {
    tell(
        "measuring this machine into a profile; `calibrate -o FILE` and `-m FILE` do it once for all",
    );
    let report = schedlab_calibrate::calibrate(Duration::ZERO, |_| {});
    let file = tempfile::Builder::new()
        .prefix("this-machine-")
        .suffix(".toml")
        .tempfile();
    let file = file.context("cannot make a temporary file")?;
    fs::write(file.path(), report.to_toml()).context("cannot write the profile of this machine")?;
    Ok(file)
}

fn common(args: &ValidateArgs) -> SimCommon {
    SimCommon {
        seed: args.seed,
        rt: Rt::Kernel,
        kernel: SimSpec::KERNEL.to_owned(),
        time_limit: args.time_limit,
        check: false,
        jobs: None,
    }
}

fn specs(
    args: &ValidateArgs,
    workload: &str,
    schedulers: &[Scheduler],
    machine: &str,
    place: Place,
) -> anyhow::Result<Vec<SimSpec>> {
    // The real threads are kept to the CPU in the same way, and the kernel's slices go by the CPUs that there are.
    let taskset = place.map(|cpu| CpuSet::single(cpu + 1, CpuId(cpu as u32)));
    let mut specs = Vec::new();
    for repetition in 0..u64::from(args.repeat) {
        let seed = simulation::seed_of(args.seed, repetition)?;
        for scheduler in schedulers {
            specs.push(SimSpec {
                taskset: taskset.clone(),
                ..simulation::spec(workload, scheduler, machine, None, seed, &common(args))
            });
        }
    }
    Ok(specs)
}

/// The real runs: each workload once in each place, then each a second time, so that what changes slowly on the machine
/// changes for all of them.
fn measure(
    args: &ValidateArgs,
    places: &[Place],
    workloads: &[String],
) -> anyhow::Result<Vec<(Place, String, RunResult)>> {
    let own = Scheduler::plain(Scheduler::KERNELS_OWN);
    let rounds = args.repeat as usize;
    let each = places.len() * workloads.len();
    let mut progress = Progress::new(each * (1 + rounds));
    let mut results = Vec::new();
    let mut done = 0;
    // A program's first run reads its files: it is not counted.
    for round in 0..=rounds {
        for &place in places {
            for workload in workloads {
                let started = Instant::now();
                let seed = simulation::seed_of(args.seed, (round as u64).saturating_sub(1))?;
                let once = || real::run_once(workload, &own, seed, args.time_limit);
                let result = match place {
                    None => once(),
                    Some(cpu) => pin::on_cpu(cpu, || Some(once()))
                        .with_context(|| format!("cannot bind threads to CPU {cpu}"))?,
                };
                let result = result.with_context(|| {
                    format!("{workload}, after {:.1} s", started.elapsed().as_secs_f64())
                })?;
                if round > 0 {
                    results.push((place, workload.clone(), result));
                }
                done += 1;
                progress.update(done);
            }
        }
    }
    Ok(results)
}

fn head(kernel: &str, machine: &str, args: &ValidateArgs, found: &[(String, Spoils)]) -> String {
    let profile = match args.machine {
        Some(_) => machine.to_owned(),
        None => "measured just now".to_owned(),
    };
    let mut text = format!(
        "Linux {kernel} and its simulation, {} of each; profile: {profile}\n",
        counted(args.repeat, "run")
    );
    for (finding, _) in found {
        fill(&mut text, "", finding, 2, width());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: idle 40 + iowait 10 of 100; steal counts as busy, guest time is part of user time.
    #[test]
    fn the_idle_share_of_proc_stat() {
        let stat = "cpu  20 5 10 40 10 5 5 5 99 99\ncpu0 1 1 1 1\n";
        assert_eq!(times(stat), Some((50, 100)));
        assert_eq!(times("intr 1 2"), None);
        assert_eq!(times("cpu  1 x"), None);
    }

    #[test]
    fn a_busy_machine_is_refused_or_told() {
        assert_eq!(of_busy(None, false).unwrap(), None);
        assert_eq!(of_busy(Some(BUSY_PCT), false).unwrap(), None);
        let told = "other programs take 5.3 % of this machine's CPU time";
        assert_eq!(
            of_busy(Some(5.3), false).unwrap_err().to_string(),
            format!(
                "{told}, and at most 5 % leaves the runs alone: stop them (`top` shows them), or add --anyway"
            )
        );
        assert_eq!(
            of_busy(Some(5.3), true).unwrap().unwrap(),
            format!("{told}: real times are too long, and their intervals wide")
        );
        assert_eq!(title(Some(3)), "One CPU: all threads are bound to CPU 3");
        assert_eq!(title(None), "All CPUs, free placement");
    }

    #[test]
    fn the_default_workloads_can_be_simulated_and_run() {
        for text in DEFAULT {
            let workload = schedlab_workload::Workload::parse(text, 2).unwrap();
            schedlab_programs::check(&workload).unwrap();
        }
    }
}
