//! The checks that run inside the virtual machine. Each is a function; the first that fails does
//! not keep the others from running.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use schedlab_kernel::load::{self, Loaded};
use schedlab_kernel::policy::{self, POLICIES};
use schedlab_kernel::scx;

/// First argument of this program inside.
pub const MARK: &str = "inside-the-virtual-machine";

type Check = fn() -> Result<String, String>;

const CHECKS: &[(&str, Check)] = &[("every_policy_schedules", every_policy_schedules)];

pub fn run(filter: &[String]) -> ExitCode {
    let mut failed = 0;
    for (name, check) in CHECKS {
        if filter.iter().any(|f| !name.contains(f.as_str())) {
            continue;
        }
        let start = Instant::now();
        let state = scx::state();
        if state != scx::State::Disabled {
            println!("FAILED {name}: found sched_ext as {state:?} from the check before");
            failed += 1;
            continue;
        }
        match check() {
            Ok(detail) => println!(
                "ok {name} ({:.1} s) {detail}",
                start.elapsed().as_secs_f64()
            ),
            Err(why) => {
                println!("FAILED {name}: {why}");
                failed += 1;
            }
        }
    }
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// More threads than CPUs that compute and sleep.
fn work() -> u64 {
    let threads: Vec<_> = (0..16)
        .map(|_| {
            thread::spawn(|| {
                let mut rounds = 0_u64;
                let end = Instant::now() + Duration::from_millis(400);
                while Instant::now() < end {
                    for _ in 0..20_000 {
                        rounds = std::hint::black_box(rounds + 1);
                    }
                    thread::sleep(Duration::from_micros(200));
                }
                rounds
            })
        })
        .collect();
    threads.into_iter().map(|t| t.join().unwrap_or(0)).sum()
}

fn every_policy_schedules() -> Result<String, String> {
    let mut told = Vec::new();
    for embedded in POLICIES {
        let object = policy::resolve(embedded.name).map_err(|e| e.to_string())?;
        let options = load::options(&object).map_err(|e| e.to_string())?;
        let loaded = Loaded::load(&object, &[]).map_err(|e| e.to_string())?;
        let rounds = work();
        if !loaded.is_running() {
            return Err(format!("{}: ejected: {:?}", embedded.name, loaded.exit()));
        }
        let exit = loaded.unload().map_err(|e| e.to_string())?;
        if !exit.is_normal() {
            return Err(format!("{}: ended by {exit:?}", embedded.name));
        }
        if scx::state() != scx::State::Disabled {
            return Err(format!("{}: not unloaded", embedded.name));
        }
        let options: Vec<&str> = options.iter().map(|o| o.name.as_str()).collect();
        told.push(format!(
            "{} ({rounds} rounds, options {options:?}, exit '{}')",
            embedded.name, exit.reason
        ));
    }
    if told.is_empty() {
        return Err("no policies are built in".to_owned());
    }
    Ok(told.join(", "))
}
