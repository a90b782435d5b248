//! `doctor`: what this machine and its kernel can do, and what is missing.

#[cfg(feature = "kernel")]
use schedlab_kernel::doctor::{self, Status as Found};
use schedlab_report::export::lines::fill;

use crate::output::{print, width};
#[cfg(not(feature = "kernel"))]
use crate::real::REMEDY;
use crate::status::Status;

/// Returns the features of this machine, and the command that adds each missing one.
#[cfg(feature = "kernel")]
pub fn run() -> anyhow::Result<Status> {
    use std::fmt::Write as _;

    let report = doctor::examine();
    let mut text = String::new();
    let yes = |can: bool| {
        if can {
            "ready"
        } else {
            "not possible, see below"
        }
    };
    let _ = writeln!(text, "{:<22} ready", "simulation");
    let _ = writeln!(
        text,
        "{:<22} {}",
        "this kernel (run)",
        yes(report.can_run_here)
    );
    let _ = writeln!(
        text,
        "{:<22} {}",
        "virtual (run --vm)",
        yes(report.can_run_in_vm)
    );
    let _ = writeln!(text);
    let mut told = |mark: &str, subject: &str, detail: &str, remedy: &str| {
        let start = format!("{mark:<8}{subject:<20} ");
        fill(&mut text, &start, detail, 29, width());
        if !remedy.is_empty() {
            fill(&mut text, &format!("{:29}-> ", ""), remedy, 32, width());
        }
    };
    for finding in &report.findings {
        let mark = match finding.status {
            Found::Ok => "ok",
            Found::Missing => "MISSING",
            Found::Note => "note",
        };
        told(mark, finding.subject, &finding.detail, &finding.remedy);
    }
    for (program, remedy) in schedlab_programs::original::missing() {
        let detail = format!("{program} is not there");
        told("note", "for load --original", &detail, remedy);
    }
    print(text)?;
    // A machine that cannot is no failure of the command, as long as one way is open.
    Ok(if report.can_run_here || report.can_run_in_vm {
        Status::Done
    } else {
        Status::Failed
    })
}

/// Simulation needs nothing of the kernel, so its absence is a note, not an error.
#[cfg(not(feature = "kernel"))]
pub fn run() -> anyhow::Result<Status> {
    let mut text = "simulation    ready\n".to_owned();
    fill(&mut text, "real kernel   ", REMEDY, 14, width());
    for (program, remedy) in schedlab_programs::original::missing() {
        let told = format!("{program}, for `load --original`: {remedy}");
        fill(&mut text, "not there     ", &told, 14, width());
    }
    print(text)?;
    Ok(Status::Done)
}
