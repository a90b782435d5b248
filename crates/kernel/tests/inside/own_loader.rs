//! Schedulers by their own loaders (`exec:`) in the kernel: the loader is `tests/loader/load.rs`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use schedlab_kernel::error::Error;
use schedlab_kernel::run::{self, Job, Outcome};
use schedlab_kernel::scx::{self, State};
use schedlab_report::Exit;
use schedlab_trace::Scheduler;

use super::{Inside, ensure, job, text};

const LOADER: &str = env!("CARGO_BIN_EXE_test-loader");

/// Runs `sleep` under a scheduler that a shell's script loads: `$0` is the loader, `$1` the object.
fn slept(script: &str, object: &Path, seconds: &str) -> schedlab_kernel::Result<Outcome> {
    let object = object.display();
    let scheduler = Scheduler::plain(format!("exec:sh -c '{script}' {LOADER} {object}"));
    let job = Job {
        command: ["sleep", seconds].map(OsString::from).into(),
        ..job(&[])
    };
    run::run(&scheduler, &job)
}

fn nothing_is_left() -> Result<(), String> {
    let state = scx::state();
    ensure(state == State::Disabled, || format!("{state:?} is left"))
}

fn refused(outcome: schedlab_kernel::Result<Outcome>, expected: &str) -> Result<(), String> {
    match outcome {
        Err(error @ Error::Loader { .. }) => {
            let told = error.to_string();
            ensure(told.contains(expected), || told.clone())?;
            nothing_is_left()
        }
        Err(error) => Err(format!("another error: {error}")),
        Ok(outcome) => Err(format!("it ran: {outcome:?}")),
    }
}

/// The scheduler runs for the time of the run, and the result says which version it is.
pub fn a_scheduler_runs_by_its_own_loader(inside: &Inside<'_>) -> Result<String, String> {
    let object = inside.objects.join("knobs");
    let wrapper = Path::new("/tmp/versioned-loader");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo versioned 1.2; exit; }}\nexec {LOADER} \"$@\"\n"
    );
    let made = fs::write(wrapper, script)
        .and_then(|()| fs::set_permissions(wrapper, fs::Permissions::from_mode(0o755)));
    made.map_err(|error| error.to_string())?;
    let command = format!("exec:{} {}", wrapper.display(), object.display());
    for _ in 0..2 {
        let before = scx::enable_seq();
        let outcome = text(run::run(
            &Scheduler::plain(&command),
            &job(&["pingpong", "50"]),
        ))?;
        ensure(outcome.exit == Exit::Done, || format!("{outcome:?}"))?;
        let version = outcome.loader.clone();
        ensure(version.as_deref() == Some("versioned 1.2"), || {
            format!("{version:?}")
        })?;
        nothing_is_left()?;
        // Enabled once.
        ensure(scx::enable_seq() == before.map(|seq| seq + 1), || {
            format!("{before:?} {:?}", scx::enable_seq())
        })?;
    }
    Ok(String::new())
}

pub fn a_loader_that_does_not_attach_is_told(inside: &Inside<'_>) -> Result<String, String> {
    let object = inside.objects.join("knobs");
    let outcome = slept("echo Error: no luck; echo bye; exit 3", &object, "1");
    refused(
        outcome,
        "ended (exit status: 3) before it attached a scheduler; it printed: Error: no luck",
    )?;
    let partial = inside.objects.join("partial");
    let outcome = slept("exec \"$0\" \"$1\"", &partial, "1");
    refused(
        outcome,
        "has attached the scheduler 'partial', and the kernel has called none of its ops",
    )?;
    Ok(String::new())
}

/// It ends during the run, or makes room for another one of the same name.
pub fn a_scheduler_that_its_loader_lost_is_no_done_run(
    inside: &Inside<'_>,
) -> Result<String, String> {
    let object = inside.objects.join("knobs");
    let dies = "\"$0\" \"$1\" & sleep 4; kill $!; wait $!; exit 5";
    let again = "\"$0\" \"$1\" & sleep 4; kill $!; wait $!; exec \"$0\" \"$1\"";
    let tells = "echo \"EXIT: runnable task stall (x[1] failed to run for 5.001s)\"; \"$0\" \"$1\" & sleep 4; kill $!";
    let mut told = Vec::new();
    for (script, exit, expected) in [
        (dies, Exit::Ejected, "its loader has ended (exit status: 5)"),
        (
            again,
            Exit::Ejected,
            "the scheduler 'knobs' has ended: its loader goes on",
        ),
        (tells, Exit::ErrorStall, "failed to run for 5.001s"),
    ] {
        let outcome = text(slept(script, &object, "12"))?;
        let message = outcome.message.clone().unwrap_or_default();
        ensure(outcome.exit == exit && message.contains(expected), || {
            format!("{script}: {:?} {message}", outcome.exit)
        })?;
        nothing_is_left()?;
        told.push(message);
    }
    Ok(told.join("; "))
}
