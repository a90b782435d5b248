//! The part of the soak inside the virtual machine.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use schedlab_kernel::bpf_policy;
use schedlab_kernel::load::Loaded;
use schedlab_kernel::measure::Want;
use schedlab_kernel::run::{self, Job};
use schedlab_kernel::scx::{self, State};
use schedlab_report::Exit;

use crate::{calls, programs};

/// First argument of this program inside; the policy, the seconds and the program `schedlab` follow.
pub const MARK: &str = "inside-the-soak";

/// First argument of this program where it loads a policy and waits to be killed.
pub const HOLD: &str = "hold-a-policy";

/// The beginning of lines that report the calls of `ops.dispatch()` during a program.
pub const CALLS: &str = "calls: ";

/// How long unloading may take in a machine whose CPUs take turns.
const UNLOAD: Duration = Duration::from_secs(60);

pub fn run(arguments: &[String]) -> Result<(), String> {
    let [name, seconds, schedlab] = arguments else {
        return Err("the policy is missing".to_owned());
    };
    let seconds: u64 = seconds
        .parse()
        .map_err(|_| format!("{seconds} is not a number"))?;
    calls::count()?;
    unloading(name, Duration::from_secs(seconds), schedlab)?;
    killing(name, schedlab)
}

/// The programs under the policy, then its end by unloading.
fn unloading(name: &str, time: Duration, schedlab: &str) -> Result<(), String> {
    let loaded = load(name)?;
    // The mix gets as much as two others.
    let share = time / (programs::NAMES.len() as u32 + 1);
    for program in programs::NAMES {
        let time = if program == programs::MIX {
            2 * share
        } else {
            share
        };
        under(&loaded, program, time, schedlab)?;
    }
    let exit = loaded.unload().map_err(|error| error.to_string())?;
    if !exit.is_normal() {
        return Err(format!("it ended by {exit:?}"));
    }
    until(|state| *state == State::Disabled, "unloading")?;
    alone("unloading", schedlab)
}

/// The policy's loader is killed under load.
fn killing(name: &str, schedlab: &str) -> Result<(), String> {
    let program = std::env::current_exe().expect("a running program has a path");
    let mut loader = Command::new(program)
        .args([HOLD, name])
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let enabled =
        |state: &State| matches!(state, State::Loaded { state, .. } if state == "enabled");
    let loaded = until(enabled, "loading by another process");
    let before = calls::of_dispatch();
    let load = programs::command("shuffle", Duration::from_secs(3), schedlab)
        .spawn()
        .map_err(|error| error.to_string());
    thread::sleep(Duration::from_secs(2));
    let during = calls::of_dispatch_since(&before);
    let killed = loader.kill().and_then(|()| loader.wait());
    loaded?;
    killed.map_err(|error| error.to_string())?;
    if during == 0 {
        return Err("the policy was not called before its loader was killed".to_owned());
    }
    println!("{CALLS}killed {during}");
    until(|state| *state == State::Disabled, "killing the loader")?;
    let status = load?.wait().map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(format!(
            "shuffle ended with {status} when the loader was killed"
        ));
    }
    alone("killing the loader", schedlab)
}

pub fn hold(arguments: &[String]) -> Result<(), String> {
    let [name] = arguments else {
        return Err("the policy is missing".to_owned());
    };
    let _loaded = load(name)?;
    loop {
        thread::sleep(Duration::from_secs(1));
    }
}

fn load(name: &str) -> Result<Loaded, String> {
    bpf_policy::resolve(name)
        .and_then(|object| Loaded::load(&object, &[]))
        .map_err(|error| error.to_string())
}

/// A program under the policy.
fn under(loaded: &Loaded, program: &str, time: Duration, schedlab: &str) -> Result<(), String> {
    let command = programs::command(program, time, schedlab);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let job = Job {
        command: words.map(ToOwned::to_owned).collect(),
        // The last command of a program may have begun just before its end, and the machine may be slow.
        timeout: 3 * time + Duration::from_secs(90),
        want: Want::default(),
    };
    let before = calls::of_dispatch();
    let outcome = run::run_under(loaded, &job).map_err(|error| format!("{program}: {error}"))?;
    let calls = calls::of_dispatch_since(&before);
    if outcome.exit != Exit::Done {
        let message = outcome.message.unwrap_or_default();
        eprintln!("{}", outcome.dump);
        return Err(format!("{program}: {}: {message}", outcome.exit));
    }
    if calls == 0 {
        return Err(format!("{program}: the policy was not called"));
    }
    println!("{CALLS}{program} {calls}");
    Ok(())
}

/// Whether the machine works without a policy.
fn alone(after: &str, schedlab: &str) -> Result<(), String> {
    let status = programs::command("storm", Duration::from_millis(500), schedlab)
        .status()
        .map_err(|error| error.to_string())?;
    if scx::state() != State::Disabled {
        return Err(format!("after {after} sched_ext is {:?}", scx::state()));
    }
    if status.success() {
        Ok(())
    } else {
        Err(format!("after {after} storm ended with {status}"))
    }
}

fn until(wanted: impl Fn(&State) -> bool, what: &str) -> Result<(), String> {
    let deadline = Instant::now() + UNLOAD;
    while !wanted(&scx::state()) {
        if Instant::now() > deadline {
            return Err(format!("{what}: sched_ext is {:?}", scx::state()));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
