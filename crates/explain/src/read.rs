//! Reads texts: lines from `dmesg`, the journal, a loader or `trace_pipe`, whatever stands before them.
//!
//! Nothing depends on where in a line the kernel's words begin, nor on blank lines and indents, since logs keep neither.
//! Lines that are not the kernel's are ignored, so lines of others may stand between.

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memmem;
use regex::{Captures, Regex};

use crate::dump::{Class, CpuState, Dsq, Ejection, Kind, Label, Mask, OpsState, TaskState};
use crate::pattern::pattern;

/// The parts of a line that patterns examine.
const LINE_BYTES_MAX: usize = 2048;
/// How many lines of states are kept; the kernel's own bound is 32 KB unless a scheduler asks for more.
const LINES_MAX: usize = 500_000;
/// How far before a dump's first line its scheduler is named: lines of others may come between.
const NAME_LINES_MAX: usize = 3;
const FRAMES_MAX: usize = 64;
const LOCKUPS_MAX: usize = 64;

macro_rules! regex {
    ($name:ident, $pattern:expr) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| pattern($pattern));
    };
}

regex!(ANSI, r"\x1b\[[0-9;?]*[A-Za-z]");
regex!(TRACE, r"^.*?: sched_ext_dump: ?");
regex!(STAMP, r" \[ *\d+\.\d+\] ");
regex!(
    TRIGGERED,
    r"(\S.*?)\[(\d+)\] triggered exit kind (\d+)(?: on CPU (\d+))?:"
);
regex!(ASKED, r"Debug dump triggered by (.+)$");
regex!(ROOT, r"(?:^|\s)([\w.+-]+): (?:root|sub\d+-\d+ .*)$");
regex!(
    DISABLED,
    r#"sched_ext: BPF (?:scheduler|sub-scheduler) "(.+?)" disabled \(([^()]+)\)"#
);
regex!(DETAIL, r"sched_ext: ([\w.+-]+): (.+)$");
regex!(
    REASON,
    r"(unregistered from user space|unregistered from BPF|unregistered from the main kernel|disabled by sysrq-S|parent exiting|runtime error|scx_bpf_error|runnable task stall)(?: \((.*)\)|\s*)$"
);
regex!(EXIT, r"EXIT: ");
regex!(
    CPU,
    r"CPU (\d+)\s*: nr_run=(\d+) flags=0x[0-9a-f]+(?: cpu_rel=(\d))?"
);
regex!(CURR, r"curr=(.*?)\[(\d+)\] class=(\w+)");
regex!(
    TASK,
    r"(^|[ *])([RSDTtXZPIKWN?]) (.+?)\[(\d+)\](?: \*?(?:root|sub\d+-\d+))? ([+-]\d+)ms\s*$"
);
regex!(
    FLAGS,
    r"scx_state/flags=\d+/0x([0-9a-f]+) dsq_flags=0x[0-9a-f]+ ops_state/qseq=(\d)/\d+"
);
regex!(
    PLACE,
    r"sticky/holding_cpu=(-?\d+)/(-?\d+) dsq_id=(\(n/a\)|0x[0-9a-f]+)"
);
regex!(SLICE, r"\bslice=(\d+)");
regex!(CPUS, r"(?:^|\s)cpus=([0-9a-f,]+)(?: no_mig=(\d+))?\s*$");
regex!(
    FRAME,
    r"(?:^|\s)([A-Za-z_][\w.$]*)\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[\w+\])?\s*$"
);
regex!(EVENT, r"(SCX_EV_\w+): +(\d+)");
regex!(STATES, r"(?:^|\s)CPU states$");
regex!(
    SOFT_LOCKUP,
    r"(?:BUG: soft lockup - CPU#|Soft lockup - CPU ?|soft lockup - CPU[ #])(\d+) stuck for (\d+)s"
);
regex!(
    RCU_STALL,
    r"rcu: INFO: rcu\w* (?:self-)?detected (?:expedited )?stalls?"
);
regex!(
    VERIFIER,
    r"processed \d+ insns .*max_states_per_insn|-- BEGIN PROG LOAD LOG --|BPF program load failed|the verifier refuses"
);

/// Returns the match of a pattern in a line that has its `word`. Other lines, most of a log, are not tried.
fn find<'a>(pattern: &Regex, word: &str, line: &'a str) -> Option<Captures<'a>> {
    line.contains(word).then(|| pattern.captures(line))?
}

/// Returns a line without what terminals and tracers put around it.
pub fn clean(line: &[u8]) -> Cow<'_, str> {
    let line = &line[..line.len().min(LINE_BYTES_MAX)];
    let mut text = String::from_utf8_lossy(line);
    if text.contains('\x1b') {
        text = Cow::Owned(ANSI.replace_all(&text, "").into_owned());
    }
    if text.contains("sched_ext_dump: ") {
        text = Cow::Owned(TRACE.replace(&text, "").into_owned());
    }
    text
}

/// The facts of a text, in its order.
pub struct Told {
    pub ejections: Vec<Ejection>,
    /// It has a refusal of the verifier.
    pub has_refusal: bool,
}

/// Reads lines of a text.
pub fn read(bytes: &[u8]) -> Told {
    let mut reader = Reader::default();
    let lines = bytes.split(|byte| *byte == b'\n');
    if newest_first(bytes) {
        lines.rev().for_each(|line| reader.line(line));
    } else {
        lines.for_each(|line| reader.line(line));
    }
    reader.end()
}

/// `journalctl --reverse`: a CPU's heading comes after its tasks, and a dump's first line after all of them. Without a
/// dump, the message comes before the line that it belongs to.
fn newest_first(bytes: &[u8]) -> bool {
    let find = |word: &str| memmem::find(bytes, word.as_bytes());
    match (find("nr_run="), find(" curr=")) {
        (Some(heading), Some(curr)) => curr < heading,
        _ => messages_come_first(bytes),
    }
}

/// Whether more of the log's messages stand before a `disabled` line of their scheduler than behind one. Two ejections
/// that follow each other have both, and one more of the right kind.
fn messages_come_first(bytes: &[u8]) -> bool {
    let (mut before, mut behind) = (0_usize, 0_usize);
    // The line before, of either kind: the scheduler, and whether it is a message.
    let mut last: Option<(String, bool)> = None;
    for at in memmem::find_iter(bytes, b"sched_ext: ") {
        let line = bytes[at..].split(|byte| *byte == b'\n').next();
        let text = clean(line.unwrap_or_default());
        let begins = |found: &Captures<'_>| found.get(0).is_some_and(|all| all.start() == 0);
        let now = if let Some(found) = DISABLED.captures(&text).filter(begins) {
            // Only an error has a message.
            match Kind::of_reason(&found[2]) {
                Some(Kind::Error | Kind::ErrorBpf | Kind::ErrorStall) => {
                    (found[1].to_owned(), false)
                }
                _ => continue,
            }
        } else if let Some(found) = DETAIL.captures(&text).filter(begins) {
            (found[1].to_owned(), true)
        } else {
            continue;
        };
        match &last {
            Some((scheduler, true)) if *scheduler == now.0 && !now.1 => before += 1,
            Some((scheduler, false)) if *scheduler == now.0 && now.1 => behind += 1,
            _ => {}
        }
        last = Some(now);
    }
    before > behind
}

#[derive(Default)]
struct Reader {
    done: Vec<Ejection>,
    now: Option<Ejection>,
    has_refusal: bool,
    /// Lines so far, …
    number: usize,
    /// … and of states those that are kept.
    kept: usize,
    /// The line that named the scheduler whose dump begins next, and the name.
    named: Option<(usize, String)>,
    /// Watchdogs of the kernel spoke before anything else did.
    lockups: Vec<(u32, u64)>,
    rcu_stall: bool,
}

impl Reader {
    fn line(&mut self, line: &[u8]) {
        let text = clean(line);
        let text = text.trim_end();
        // Forms and mails join lines: each of the kernel's has its time before it.
        if text.matches("sched_ext: ").nth(1).is_some() {
            STAMP.split(text).for_each(|record| self.record(record));
        } else {
            self.record(text);
        }
    }

    fn record(&mut self, text: &str) {
        self.number += 1;
        if self.kept >= LINES_MAX {
            if let Some(now) = &mut self.now {
                now.is_cut = true;
            }
        } else if self.state(text) {
            self.kept += 1;
            return;
        }
        self.heading(text);
    }

    /// A line that begins or ends something.
    fn heading(&mut self, text: &str) {
        if let Some(found) = find(&TRIGGERED, "triggered exit kind", text) {
            let scheduler = self.name();
            self.begin(Ejection {
                scheduler,
                kind: number(&found, 3).and_then(Kind::of_number),
                triggered_by: label(&found, 1, 2),
                exit_cpu: number(&found, 4),
                ..Ejection::default()
            });
        } else if let Some(found) = find(&ASKED, "Debug dump triggered", text) {
            let scheduler = self.name();
            self.begin(Ejection {
                scheduler,
                kind: Some(Kind::Asked),
                message: found[1].to_owned(),
                ..Ejection::default()
            });
        } else if let Some(found) = find(&DISABLED, " disabled (", text) {
            let before = found.get(0).map_or("", |line| &text[..line.start()]);
            self.begin(Ejection {
                scheduler: Some(found[1].to_owned()),
                kind: Kind::of_reason(&found[2]),
                logged: Some(before.trim_end().to_owned()),
                ..Ejection::default()
            });
        } else if let Some(found) = REASON.captures(text) {
            self.reason(text, &found);
        } else if let Some(found) = find(&DETAIL, "sched_ext: ", text) {
            self.detail(&found[1], &found[2]);
        } else if STATES.is_match(text) {
            if let Some(now) = &mut self.now {
                now.has_states = true;
            }
        } else if text.contains("~~~~ TRUNCATED ~~~~") {
            if let Some(now) = &mut self.now {
                now.is_cut = true;
            }
        } else if text.ends_with("Event counters") || text.ends_with(&"=".repeat(40)) {
            if let Some(now) = self.now.as_mut().filter(|now| now.has_states) {
                now.has_end = true;
            }
        } else if let Some(found) = find(&ROOT, ": ", text) {
            self.named = Some((self.number, found[1].to_owned()));
        } else if let Some(found) = find(&SOFT_LOCKUP, "oft lockup", text) {
            if let (Some(cpu), Some(seconds)) = (number(&found, 1), number(&found, 2))
                && self.lockups.len() < LOCKUPS_MAX
            {
                self.lockups.push((cpu, seconds));
            }
        } else if find(&RCU_STALL, "rcu: INFO", text).is_some() {
            self.rcu_stall = true;
        } else if VERIFIER.is_match(text) {
            self.has_refusal = true;
        }
    }

    /// Returns the scheduler that the line before has named (`simple: root`).
    fn name(&mut self) -> Option<String> {
        let (line, name) = self.named.take()?;
        (self.number - line <= NAME_LINES_MAX).then_some(name)
    }

    /// `reason (message)`: in a dump, or as a loader ends.
    fn reason(&mut self, text: &str, found: &Captures<'_>) {
        let kind = Kind::of_reason(&found[1]);
        let message = found.get(2).map_or("", |message| message.as_str());
        let is_exit = EXIT.is_match(text);
        match &mut self.now {
            // The dump's second line.
            Some(now)
                if now.message.is_empty() && now.kind.is_none_or(|known| Some(known) == kind) =>
            {
                now.kind = kind;
                message.clone_into(&mut now.message);
            }
            // The last word on the same one.
            Some(now) if now.kind == kind && same_message(&now.message, message) => {}
            // A sentence of another program's log that happens to end so.
            _ if !is_exit && message.is_empty() => return,
            _ => self.begin(Ejection {
                kind,
                message: message.to_owned(),
                ..Ejection::default()
            }),
        }
        if let Some(now) = self.now.as_mut().filter(|now| is_exit && now.has_states) {
            now.has_end = true;
        }
    }

    /// The kernel's log names the scheduler and its message one line after the reason.
    fn detail(&mut self, scheduler: &str, message: &str) {
        if let Some(now) = &mut self.now
            && now.scheduler.as_deref() == Some(scheduler)
            && now.message.is_empty()
        {
            message.clone_into(&mut now.message);
        }
    }

    /// Reads a line of the CPUs' states; `false` if it is not one.
    fn state(&mut self, text: &str) -> bool {
        if let Some(found) = find(&FRAME, "+0x", text) {
            let Some(now) = &mut self.now else {
                return false;
            };
            let task = now.cpus.last_mut().and_then(|cpu| cpu.tasks.last_mut());
            let frames = match task {
                Some(task) => &mut task.backtrace,
                None => &mut now.backtrace,
            };
            if frames.len() < FRAMES_MAX {
                frames.push(found[1].to_owned());
            }
            return true;
        }
        if let Some(found) = find(&CPU, "nr_run=", text) {
            let now = self.now.get_or_insert_default();
            now.has_states = true;
            now.cpus.push(CpuState {
                cpu: number(&found, 1).unwrap_or(0),
                nr_running: number(&found, 2).unwrap_or(0),
                released: found.get(3).is_some_and(|rel| rel.as_str() != "0"),
                curr: None,
                class: Class::Unknown,
                tasks: Vec::new(),
            });
            return true;
        }
        let Some(now) = &mut self.now else {
            return false;
        };
        if let Some(found) = find(&EVENT, "SCX_EV_", text) {
            now.has_end = now.has_states;
            if let Some(count) = number(&found, 2) {
                now.events.insert(found[1].to_owned(), count);
            }
            return true;
        }
        let Some(cpu) = now.cpus.last_mut() else {
            return false;
        };
        if let Some(found) = find(&CURR, "curr=", text) {
            cpu.curr = label(&found, 1, 2);
            cpu.class = Class::parse(&found[3]);
            return true;
        }
        if let Some(found) = find(&TASK, "ms", text) {
            cpu.tasks.push(TaskState {
                is_curr: &found[1] == "*",
                comm: found[3].to_owned(),
                pid: number(&found, 4).unwrap_or(0),
                // jiffies_delta_msecs() is negative for what lies in the past.
                waited_ms: -number(&found, 5).unwrap_or(0_i64),
                sticky_cpu: -1,
                holding_cpu: -1,
                ..TaskState::default()
            });
            return true;
        }
        let Some(task) = cpu.tasks.last_mut() else {
            return false;
        };
        let mut is_state = false;
        if let Some(found) = find(&FLAGS, "scx_state/flags=", text) {
            task.flags = u32::from_str_radix(&found[1], 16).ok();
            task.ops_state = number(&found, 2).and_then(OpsState::of_number);
            is_state = true;
        }
        if let Some(found) = find(&PLACE, "dsq_id=", text) {
            task.sticky_cpu = number(&found, 1).unwrap_or(-1);
            task.holding_cpu = number(&found, 2).unwrap_or(-1);
            let id = found[3].strip_prefix("0x");
            task.dsq = match id.map(|id| u64::from_str_radix(id, 16)) {
                Some(Ok(id)) => Some(Dsq::of_id(id)),
                _ => Some(Dsq::None),
            };
            is_state = true;
        }
        if let Some(found) = find(&SLICE, "dsq_vtime=", text) {
            task.slice = number(&found, 1);
            is_state = true;
        }
        if let Some(found) = find(&CPUS, "cpus=", text) {
            task.cpus = Mask::parse(&found[1]);
            task.migration_disabled = number(&found, 2).is_some_and(|no_mig: u32| no_mig != 0);
            is_state = true;
        }
        is_state
    }

    /// Another ejection begins, or the same is reported once more in other words: the kernel's log and the loader's
    /// output stand together in a journal.
    fn begin(&mut self, mut next: Ejection) {
        if let Some(before) = self.now.take() {
            if continues(&before, &next) {
                next.scheduler = next.scheduler.or(before.scheduler);
                next.kind = next.kind.or(before.kind);
                next.logged = next.logged.or(before.logged);
                if next.message.is_empty() {
                    next.message = before.message;
                }
                if next.backtrace.is_empty() {
                    next.backtrace = before.backtrace;
                }
            } else if before.kind.is_some() || !before.cpus.is_empty() {
                self.push(before);
            }
        }
        self.now = Some(next);
    }

    /// Two tellings of one ejection are one: the log's, then the loader's.
    fn push(&mut self, ejection: Ejection) {
        if let Some(last) = self.done.last_mut()
            && last.kind == ejection.kind
            && same_message(&last.message, &ejection.message)
            && (last.cpus.is_empty() || ejection.cpus.is_empty())
            && !are_two(last, &ejection)
        {
            let scheduler = last.scheduler.take().or(ejection.scheduler.clone());
            let logged = last.logged.take().or(ejection.logged.clone());
            if last.cpus.is_empty() {
                *last = ejection;
            }
            last.scheduler = scheduler;
            last.logged = logged;
            return;
        }
        self.done.push(ejection);
    }

    fn end(mut self) -> Told {
        if let Some(last) = self.now.take()
            && (last.kind.is_some() || !last.cpus.is_empty())
        {
            self.push(last);
        }
        if let Some(last) = self.done.last_mut() {
            last.lockups = self.lockups;
            last.rcu_stall = self.rcu_stall;
        }
        Told {
            ejections: self.done,
            has_refusal: self.has_refusal,
        }
    }
}

/// Returns whether `next` reports the same ejection as `before`, whose dump is not there yet.
fn continues(before: &Ejection, next: &Ejection) -> bool {
    before.cpus.is_empty()
        && before.triggered_by.is_none()
        // Its message comes one line later: `push()` compares the two when both are known.
        && next.logged.is_none()
        && (before.kind.is_none() || next.kind.is_none() || before.kind == next.kind)
        && same_message(&before.message, &next.message)
        && (before.scheduler.is_none()
            || next.scheduler.is_none()
            || before.scheduler == next.scheduler)
}

/// Returns whether the kernel's log told two ejections. It tells each once, also where a service restarts its scheduler and
/// that fails in the same way, but a text may hold the log twice, or in two forms (`dmesg` and `journalctl`).
fn are_two(a: &Ejection, b: &Ejection) -> bool {
    let (Some(first), Some(second)) = (&a.logged, &b.logged) else {
        return a.scheduler.is_some() && b.scheduler.is_some() && a.scheduler != b.scheduler;
    };
    let form = |before: &str| before.replace(char::is_alphanumeric, "").replace(' ', "");
    let is_timed = first.contains(|c: char| c.is_ascii_digit());
    let is_told_again = (first == second && is_timed) || form(first) != form(second);
    !(is_told_again && a.scheduler == b.scheduler && a.message == b.message)
}

/// Returns whether two messages are one, of which one may be missing or cut.
fn same_message(a: &str, b: &str) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

fn number<T: std::str::FromStr>(found: &Captures<'_>, group: usize) -> Option<T> {
    found.get(group)?.as_str().parse().ok()
}

fn label(found: &Captures<'_>, comm: usize, pid: usize) -> Option<Label> {
    Some(Label {
        // Before it may be what a log puts there.
        comm: {
            let text = found.get(comm)?.as_str();
            let comm = text.rsplit_once(": ").map_or(text, |(_, comm)| comm);
            comm.trim_start().to_owned()
        },
        pid: number(found, pid)?,
    })
}

/// Returns a message of the kernel's that stands alone, as people quote it.
pub fn lone_message(bytes: &[u8]) -> Option<Ejection> {
    regex!(
        STALL,
        r"[^\s:](?:[^:]|:\S)*?\[\d+\] failed to run for \d+\.\d{3}s|watchdog failed to check in for \d+\.\d{3}s"
    );
    let words = [
        "failed to",
        "DSQ",
        "dsq",
        "direct-dispatch",
        "SCX_",
        "ops.",
        "lockup",
        "idle tracking",
    ];
    for line in bytes.split(|byte| *byte == b'\n') {
        let text = clean(line);
        if !words.iter().any(|word| text.contains(word)) {
            continue;
        }
        let (kind, message) = match STALL.find(&text) {
            Some(found) => (Kind::ErrorStall, found.as_str()),
            None if crate::messages::MESSAGES.find(&text).is_some() => (Kind::Error, text.trim()),
            None => continue,
        };
        return Some(Ejection {
            kind: Some(kind),
            message: message.to_owned(),
            ..Ejection::default()
        });
    }
    None
}
