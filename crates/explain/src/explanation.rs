//! From an ejection to words.

use serde::Serialize;

use crate::culprit::Culprit;
use crate::dump::{Ejection, Kind};
use crate::finding::{Certainty, Finding, lockups};
use crate::messages::{MESSAGES, OF_FAULTS, OF_LOCKS, Row};
use crate::pattern::pattern;
use crate::stall;

/// Why one scheduler was ejected.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Explanation {
    /// The answer in one sentence.
    pub sentence: String,
    pub culprit: Culprit,
    pub certainty: Certainty,
    /// Its name, where the text has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    pub kind: Option<Kind>,
    /// The kernel's text for the kind, and its message.
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// The op in which it happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// The scheduler's function in which it happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The line of its source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    pub evidence: Vec<String>,
    /// The kernel's rule, and the function of kernel/sched/ext that keeps it.
    pub rule: String,
    pub rule_function: String,
    pub cure: String,
}

/// Explains one ejection.
pub fn explain(ejection: &Ejection) -> Explanation {
    let finding = find(ejection);
    let (op, line) = place(ejection);
    let mut evidence = finding.evidence;
    evidence.extend(trail(ejection, finding.culprit));
    let reason = match (ejection.kind, ejection.message.as_str()) {
        (Some(kind), "") => kind.reason().to_owned(),
        (Some(kind), message) => format!("{} ({message})", kind.reason()),
        (None, message) => message.to_owned(),
    };
    Explanation {
        sentence: finding.sentence,
        culprit: finding.culprit,
        certainty: finding.certainty,
        scheduler: ejection.scheduler.clone(),
        kind: ejection.kind,
        reason,
        exit_code: ejection.exit_code,
        op,
        function: ejection.function().map(str::to_owned),
        line,
        evidence,
        rule: finding.rule,
        rule_function: finding.function.to_owned(),
        cure: finding.cure,
    }
}

fn find(ejection: &Ejection) -> Finding {
    match ejection.kind {
        Some(Kind::ErrorStall) => return stall::explain(ejection),
        Some(Kind::ErrorBpf) => return policy_error(ejection),
        Some(Kind::UnregBpf) => return policy_exit(ejection),
        Some(Kind::Asked) => return asked(ejection),
        Some(Kind::Sysrq) => {
            return plain(
                Culprit::Sysrq,
                "Somebody pressed SysRq-S, which takes any sched_ext scheduler out.",
                "sysrq_handle_sched_ext_reset()",
                "SysRq-S is the user's way back to the kernel's own scheduler.",
                "Nothing to cure in the scheduler, unless it was pressed because the machine hung: then look at the dump that SysRq-D gives before.",
            );
        }
        Some(Kind::Parent) => {
            return plain(
                Culprit::ParentExit,
                "The parent scheduler ended, and its sub-schedulers end with it.",
                "scx_sub_disable()",
                "A sub-scheduler lives at most as long as its parent.",
                "Explain the parent's exit.",
            );
        }
        Some(Kind::Unreg) => {
            return plain(
                Culprit::Unregistered,
                "Nobody ejected the scheduler: its own loader, or the process that closed the link, took it out.",
                "bpf_scx_unreg()",
                "A scheduler is unloaded when the link that holds it is closed, also when its loader is killed.",
                "If this was not meant, see why the loader ended (its own output, journalctl -u scx).",
            );
        }
        _ => {}
    }
    if ejection.kind.is_none() && ejection.message.is_empty() && !ejection.cpus.is_empty() {
        return stall::of_fragment(ejection);
    }
    let faults = OF_FAULTS.find(&ejection.message);
    let faults = faults.filter(|_| ejection.kind == Some(Kind::Fault));
    if let Some((row, says)) = faults.or_else(|| MESSAGES.find(&ejection.message)) {
        return of_row(ejection, row, says);
    }
    // A message without its kind, from a log that was cut.
    if ejection.message.contains("failed to run for")
        || ejection.message.contains("watchdog failed to check in")
    {
        return stall::explain(ejection);
    }
    match ejection.kind {
        Some(Kind::Fault) => Finding {
            sentence: format!(
                "The scheduler's code did what no kernel lets it do: {}.",
                told(ejection)
            ),
            ..plain(
                Culprit::PolicyFault,
                "",
                "bpf_check()",
                "The verifier refuses such a program before it is loaded.",
                "Correct the line that the message names.",
            )
        },
        Some(Kind::UnregKern) => Finding {
            sentence: format!("The kernel took the scheduler out: {}.", told(ejection)),
            certainty: Certainty::Open,
            ..plain(
                Culprit::UnknownError,
                "",
                "scx_exit()",
                "The kernel unregisters a scheduler for reasons of its own.",
                "Look for the message in kernel/sched/ext.c.",
            )
        },
        _ => Finding {
            sentence: format!(
                "The scheduler broke a rule of sched_ext: {}.",
                told(ejection)
            ),
            certainty: Certainty::Open,
            ..plain(
                Culprit::UnknownError,
                "",
                "scx_error()",
                "The kernel checks what a scheduler asks for, and ejects it at the first error.",
                "Look for the message in the kernel's source: kernel/sched/ext.c, in newer ones kernel/sched/ext/.",
            )
        },
    }
}

fn told(ejection: &Ejection) -> &str {
    match ejection.message.trim() {
        "" => "the text has no message",
        message => message,
    }
}

fn plain(
    culprit: Culprit,
    sentence: &str,
    function: &'static str,
    rule: &str,
    cure: &str,
) -> Finding {
    Finding {
        culprit,
        certainty: Certainty::Shown,
        sentence: sentence.to_owned(),
        evidence: Vec::new(),
        function,
        rule: rule.to_owned(),
        cure: cure.to_owned(),
    }
}

fn of_row(ejection: &Ejection, row: &Row, says: String) -> Finding {
    let mut evidence = Vec::new();
    match row.culprit {
        Culprit::CpuNotAllowed | Culprit::MigrationDisabled => evidence.extend(mask(ejection)),
        Culprit::Lockup | Culprit::RcuStall => evidence.extend(lockups(ejection)),
        _ => {}
    }
    let line = if ejection.kind == Some(Kind::Fault) {
        Some(format!("the simulator says: {}", ejection.message))
    } else {
        None
    };
    evidence.extend(line);
    Finding {
        culprit: row.culprit,
        certainty: Certainty::Shown,
        sentence: says,
        evidence,
        function: row.function,
        rule: row.rule.to_owned(),
        cure: row.cure.to_owned(),
    }
}

/// Returns the mask of the task that was sent where it may not run.
fn mask(ejection: &Ejection) -> Option<String> {
    let named = |label: &str| ejection.message.contains(label);
    let (_, task) = ejection
        .tasks()
        .find(|(_, task)| named(&task.label().to_string()))?;
    let cpus = task.cpus.as_ref()?;
    let label = task.label();
    Some(match task.migration_disabled {
        true => format!(
            "{label} has its migration disabled; its mask has {}",
            cpus.words()
        ),
        false => format!(
            "when the dump was made, {label} was allowed on {}",
            cpus.words()
        ),
    })
}

fn policy_error(ejection: &Ejection) -> Finding {
    // A text of the structures that schedlab's schedulers share, not of the scheduler itself.
    if let Some((row, says)) = OF_LOCKS.find(&ejection.message) {
        return of_row(ejection, row, says);
    }
    Finding {
        sentence: match ejection.message.as_str() {
            "" => "The scheduler ended itself by scx_bpf_error(), without a message.".to_owned(),
            message => format!("The scheduler ended itself by scx_bpf_error(): \"{message}\"."),
        },
        ..plain(
            Culprit::PolicyError,
            "",
            "scx_bpf_error_bstr()",
            "scx_bpf_error() is how a scheduler gives up over a state that it cannot go on from; the kernel only passes the text on.",
            "Look for the text in the scheduler's source: the condition around that call is what did not hold.",
        )
    }
}

const ACT_RESTART: i64 = 1 << 48;
const RSN_HOTPLUG: i64 = 1 << 32;

fn policy_exit(ejection: &Ejection) -> Finding {
    let code = ejection.exit_code.unwrap_or(0);
    let with = match code {
        0 => String::new(),
        code if code & ACT_RESTART != 0 && code & RSN_HOTPLUG != 0 => {
            format!(
                " with code {code:#x}, which asks its loader for a restart over a CPU that came or went"
            )
        }
        code if code & ACT_RESTART != 0 => {
            format!(" with code {code:#x}, which asks its loader for a restart")
        }
        code => format!(" with code {code}"),
    };
    let text = match ejection.message.as_str() {
        "" => String::new(),
        message => format!(": \"{message}\""),
    };
    plain(
        Culprit::PolicyExit,
        &format!("The scheduler ended itself by scx_bpf_exit(){with}{text}."),
        "scx_bpf_exit_bstr()",
        "scx_bpf_exit() ends a scheduler without an error; code and text are its own.",
        "Look for the text, or the code, in the scheduler's source.",
    )
}

fn asked(ejection: &Ejection) -> Finding {
    Finding {
        evidence: stall::waiting(ejection),
        ..plain(
            Culprit::NoEjection,
            &format!(
                "Nobody was ejected: {} asked for this dump, and the scheduler went on.",
                ejection.message
            ),
            "sysrq_handle_sched_ext_dump()",
            "SysRq-D prints the state of CPUs and tasks and changes nothing.",
            "Nothing to cure.",
        )
    }
}

/// Op and line, by the backtrace or the message.
fn place(ejection: &Ejection) -> (Option<String>, Option<String>) {
    use std::sync::LazyLock;

    use regex::Regex;
    static OP: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?:\bin|\):) ops\.(\w+)"));
    static LINE: LazyLock<Regex> = LazyLock::new(|| pattern(r"[\w./+-]+\.[ch]:\d+"));
    // Only here is it known where the path begins, whatever is in it.
    static PLACE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\bat (.+?\.[ch]:\d+)"));
    let told = ejection.place.as_ref().unwrap_or(&ejection.message);
    let op = OP.captures(told).map(|found| found[1].to_owned());
    let of_place = ejection
        .place
        .as_deref()
        .and_then(|place| PLACE.captures(place));
    let line = match of_place {
        Some(found) => Some(found[1].to_owned()),
        None => LINE.find(told).map(|found| found.as_str().to_owned()),
    };
    (ejection.op().or(op), line)
}

/// How the kernel came there, where that is the scheduler's doing.
fn trail(ejection: &Ejection, culprit: Culprit) -> Option<String> {
    if matches!(ejection.kind, Some(Kind::ErrorStall)) && culprit != Culprit::InTransit {
        return None;
    }
    let by = |name: String| format!("the backtrace goes through {name}");
    match (ejection.kfunc(), ejection.function()) {
        (Some(kfunc), Some(function)) => Some(by(format!("{kfunc}(), called by {function}()"))),
        (Some(kfunc), None) => Some(by(format!("{kfunc}()"))),
        (None, Some(function)) => Some(by(format!("{function}()"))),
        (None, None) => None,
    }
}

impl Explanation {
    /// Returns the evidence besides the answer, as rows of a name and a text.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        if let Some(scheduler) = &self.scheduler {
            rows.push(("Scheduler", scheduler.clone()));
        }
        if !self.reason.is_empty() {
            rows.push(("Exit", self.reason.clone()));
        }
        match (&self.op, &self.function) {
            (Some(op), Some(function)) => {
                rows.push(("Where", format!("ops.{op}, in {function}()")))
            }
            (Some(op), None) => rows.push(("Where", format!("ops.{op}"))),
            (None, Some(function)) => rows.push(("Where", format!("{function}()"))),
            (None, None) => {}
        }
        if let Some(line) = &self.line {
            rows.push(("Line", line.clone()));
        }
        for (index, evidence) in self.evidence.iter().enumerate() {
            rows.push((if index == 0 { "Evidence" } else { "" }, evidence.clone()));
        }
        rows.push(("How sure", self.certainty.words().to_owned()));
        let rule = &self.rule;
        rows.push(("Rule", format!("{rule} (Linux: {})", self.rule_function)));
        rows.push(("Cure", self.cure.clone()));
        rows
    }
}
