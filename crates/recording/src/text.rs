//! Text of ftrace (`trace`, `trace-cmd report`), systrace and `perf script` (`perf sched script`).
//!
//! ```text
//!           <idle>-0     [001] d.h3.  1234.567890: sched_waking: comm=foo pid=12 prio=120 target_cpu=001
//!  foo-12 (   10) [000] d..3  1234.567891: sched_switch: prev_comm=foo prev_pid=12 … ==> next_comm=bar next_pid=3 …
//!      foo    12 [000]  1234.567891:  sched:sched_switch: foo:12 [120] S ==> bar:3 [120]
//! ```

use std::io::BufRead;

use crate::order::Order;
use crate::{About, Comm, Context, Event, Left, RecordingError, Tid, What};

/// A line in its parts.
struct Line<'a> {
    /// Name and id of the current task.
    who: &'a str,
    cpu: u32,
    /// ftrace's flags, where there are any.
    flags: Option<&'a str>,
    at_ns: u64,
    name: &'a str,
    rest: &'a str,
}

/// Splits a line of an event; `None` if it is none.
fn split(line: &str) -> Option<Line<'_>> {
    // A task's name may hold brackets, too: the first that fits is the CPU.
    let mut from = 0;
    while let Some(open) = line[from..].find('[').map(|at| from + at) {
        from = open + 1;
        let Some(close) = line[open..].find(']').map(|at| open + at) else {
            break;
        };
        let Ok(cpu) = line[open + 1..close].parse() else {
            continue;
        };
        let Some(parts) = after_cpu(&line[close + 1..]) else {
            continue;
        };
        let (flags, at_ns, name, rest) = parts;
        return Some(Line {
            who: line[..open].trim(),
            cpu,
            flags,
            at_ns,
            name,
            rest,
        });
    }
    None
}

/// Flags, time, name and the rest.
fn after_cpu(text: &str) -> Option<(Option<&str>, u64, &str, &str)> {
    let text = text.trim_start();
    let (first, mut rest) = text.split_once(char::is_whitespace)?;
    let (flags, stamp) = match stamp(first) {
        Some(at_ns) => (None, at_ns),
        None => {
            let (second, after) = rest.trim_start().split_once(char::is_whitespace)?;
            rest = after;
            (Some(first), stamp(second)?)
        }
    };
    let rest = rest.trim_start();
    // Names of `perf script` have their subsystem before them.
    let (name, rest) = rest
        .split_once(": ")
        .or_else(|| Some((rest.strip_suffix(':')?, "")))?;
    let name = name.rsplit(':').next()?;
    let is_name = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some((flags, stamp, name, rest.trim()))
}

/// `1234.567890:` in ns.
fn stamp(word: &str) -> Option<u64> {
    let (seconds, part) = word.strip_suffix(':')?.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds) || !digits(part) || part.len() > 9 {
        return None;
    }
    let ns = part.parse::<u64>().ok()? * 10u64.pow(9 - part.len() as u32);
    seconds
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(ns)
}

/// Whether some line of the text is an event.
pub(crate) fn is_trace(text: &str) -> bool {
    text.starts_with("# tracer:") || text.lines().any(|line| split(line).is_some())
}

/// Tells the events of the text.
///
/// # Errors
/// If a line of a known event is damaged, or the clocks disagree.
pub(crate) fn read(
    path: &str,
    mut lines: impl BufRead,
    sink: &mut dyn FnMut(&Event),
) -> Result<About, RecordingError> {
    let mut order = Order::new(path, "text of ftrace or perf script", sink);
    let mut bytes = Vec::new();
    let mut number = 0u64;
    let mut switches = 0u64;
    let mut has_waking = false;
    let mut html_ended = false;
    loop {
        bytes.clear();
        // A line has an end: a binary file without any must not be read whole.
        let read = std::io::Read::take(&mut lines, LINE_MAX).read_until(b'\n', &mut bytes);
        let read = read.map_err(|cause| RecordingError::Unreadable {
            path: path.to_owned(),
            cause,
        })?;
        if read == 0 {
            break;
        }
        number += 1;
        let line = String::from_utf8_lossy(&bytes);
        let line = line.trim_end();
        // Pages of older systraces have the text as a string of a script.
        let line = line.strip_suffix("\\n\\").unwrap_or(line);
        html_ended |= line.starts_with("</script>") && order.about.events > 0;
        if html_ended {
            continue;
        }
        let nowhere = |at_ns, lost| Event {
            at_ns,
            cpu: 0,
            current: None,
            context: Context::Unknown,
            what: What::Lost(lost),
        };
        if let Some(lost) = lost(line) {
            let at_ns = order.about.last_ns;
            order.event(nowhere(at_ns, lost))?;
            continue;
        }
        let Some(parts) = split(line) else {
            continue;
        };
        let damaged = || RecordingError::Corrupted {
            path: path.to_owned(),
            place: format!("line {number}"),
            message: format!("the fields of {} are not whole", parts.name),
        };
        let what = match parts.name {
            "sched_switch" => {
                switches += 1;
                switch(parts.rest).ok_or_else(damaged)?
            }
            "sched_waking" => {
                has_waking = true;
                waking(parts.rest).ok_or_else(damaged)?
            }
            "sched_wakeup_new" => match waking(parts.rest).ok_or_else(damaged)? {
                What::Waking { task, .. } => What::New { task },
                _ => return Err(damaged()),
            },
            // It says the same later, and not always on the waker's CPU.
            "sched_wakeup" if !has_waking => waking(parts.rest).ok_or_else(damaged)?,
            "sched_process_fork" => What::Fork {
                parent: value(parts.rest, "pid=")
                    .and_then(tid)
                    .ok_or_else(damaged)?,
                child: value(parts.rest, "child_pid=")
                    .and_then(tid)
                    .ok_or_else(damaged)?,
            },
            "sched_process_exec" => What::Exec {
                task: value(parts.rest, "pid=")
                    .and_then(tid)
                    .ok_or_else(damaged)?,
            },
            "sched_migrate_task" => What::Migrate {
                task: value(parts.rest, "pid=")
                    .and_then(tid)
                    .ok_or_else(damaged)?,
            },
            _ => {
                order.about.passed_over += 1;
                continue;
            }
        };
        order.event(Event {
            at_ns: parts.at_ns,
            cpu: parts.cpu,
            current: current(parts.who),
            context: context(parts.flags),
            what,
        })?;
    }
    let about = order.about;
    if switches == 0 {
        return Err(RecordingError::Lacking {
            path: path.to_owned(),
            event: "sched_switch",
            remedy: "`trace-cmd record -e sched` or `perf sched record`",
        });
    }
    Ok(about)
}

/// No line of a tracer is longer.
const LINE_MAX: u64 = 65_536;

/// Events that the tracer says are missing: `CPU:1 [LOST 12 EVENTS]`, and of ftrace's head what the buffer has overwritten.
fn lost(line: &str) -> Option<u64> {
    if let Some((_, rest)) = line.split_once("[LOST ") {
        return rest.split_once(' ')?.0.parse().ok();
    }
    let (_, rest) = line.split_once("entries-in-buffer/entries-written: ")?;
    let (kept, written) = rest.split_whitespace().next()?.split_once('/')?;
    let lost = written
        .parse::<u64>()
        .ok()?
        .checked_sub(kept.parse().ok()?)?;
    (lost > 0).then_some(lost)
}

/// ftrace's flags: the third says in which context.
fn context(flags: Option<&str>) -> Context {
    match flags.map(|flags| flags.as_bytes().get(2)) {
        Some(Some(b'h' | b'H' | b'z' | b'Z')) => Context::Hard,
        Some(Some(b's')) => Context::Soft,
        Some(Some(b'.')) => Context::Task,
        _ => Context::Unknown,
    }
}

/// The id in `comm-12`, `comm-12 (  10)`, `comm 12` or `comm 10/12`.
fn current(who: &str) -> Option<Tid> {
    let who = match who.rfind('(') {
        Some(at) if who.ends_with(')') => who[..at].trim_end(),
        _ => who,
    };
    let digits = who.rsplit(|c: char| !c.is_ascii_digit()).next()?;
    tid(digits)
}

fn tid(text: &str) -> Option<Tid> {
    text.parse().ok()
}

/// The word after the last `key` that begins a word.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let found = text
        .rmatch_indices(key)
        .find(|(at, _)| *at == 0 || text.as_bytes()[at - 1] == b' ');
    text[found?.0 + key.len()..].split_whitespace().next()
}

/// Returns the text between two keys: names may hold spaces.
fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let begin = text.find(from)? + from.len();
    let end = begin + text[begin..].find(to)?;
    Some(&text[begin..end])
}

fn waking(text: &str) -> Option<What> {
    if text.starts_with("comm=") {
        return Some(What::Waking {
            task: value(text, "pid=").and_then(tid)?,
            comm: Comm::new(between(text, "comm=", " pid=")?.as_bytes()),
        });
    }
    // libtraceevent: `foo:12 [120] success=1 CPU:001`.
    let (who, _) = text.split_once(" [")?;
    let (comm, task) = who.rsplit_once(':')?;
    Some(What::Waking {
        task: tid(task)?,
        comm: Comm::new(comm.as_bytes()),
    })
}

fn switch(text: &str) -> Option<What> {
    // Raw output of trace-cmd has no arrow.
    let arrow = text.split_once(" ==> ");
    let (prev, next) = arrow.or_else(|| {
        let at = text.find(" next_comm=")?;
        Some((&text[..at], &text[at + 1..]))
    })?;
    if prev.starts_with("prev_comm=") {
        return Some(What::Switch {
            prev: value(prev, "prev_pid=").and_then(tid)?,
            prev_comm: Comm::new(between(prev, "prev_comm=", " prev_pid=")?.as_bytes()),
            prev_prio: value(prev, "prev_prio=")?.parse().ok()?,
            left: left(value(prev, "prev_state=")?)?,
            next: value(next, "next_pid=").and_then(tid)?,
            next_comm: Comm::new(between(next, "next_comm=", " next_pid=")?.as_bytes()),
            next_prio: value(next, "next_prio=")?.parse().ok()?,
        });
    }
    let side = |text: &str| {
        let (who, rest) = text.rsplit_once(" [")?;
        let (comm, task) = who.rsplit_once(':')?;
        let (prio, state) = rest.split_once(']')?;
        Some((
            Comm::new(comm.as_bytes()),
            tid(task)?,
            prio.parse::<i32>().ok()?,
            state.trim().to_owned(),
        ))
    };
    let (prev_comm, prev, prev_prio, state) = side(prev)?;
    let (next_comm, next, next_prio, _) = side(next)?;
    Some(What::Switch {
        prev,
        prev_comm,
        prev_prio,
        left: left(&state)?,
        next,
        next_comm,
        next_prio,
    })
}

/// The letters of `prev_state`, old kernels' included; a `+` says preempted.
fn left(state: &str) -> Option<Left> {
    if let Ok(bits) = state.parse::<u32>() {
        // Raw output again; kernels before 4.14 have 64 for a dead task.
        return Some(match bits & 0xff {
            0 => Left::Runnable,
            bits if bits & 0x70 != 0 => Left::Dead,
            bits if bits & 0x0c != 0 => Left::Stopped,
            bits if bits & 0x02 != 0 => Left::Uninterruptible,
            _ => Left::Sleeps,
        });
    }
    Some(match state.chars().next()? {
        'R' => Left::Runnable,
        'S' | 'I' | 'P' | 'K' | 'W' | 'N' => Left::Sleeps,
        'D' => Left::Uninterruptible,
        'T' | 't' => Left::Stopped,
        'X' | 'Z' | 'x' => Left::Dead,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &str) -> (Vec<Event>, About) {
        let mut all = Vec::new();
        let about = read("t", text.as_bytes(), &mut |event| all.push(*event)).unwrap();
        (all, about)
    }

    const FTRACE: &str = "# tracer: nop\n# entries-in-buffer/entries-written: 10/15   #P:2\n\
        \x20         <idle>-0       [001] dNh3.  1234.567890: sched_waking: comm=my prog [0] pid=12 prio=120 target_cpu=001\n\
        \x20         <idle>-0       [001] d..2.  1234.567891: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=my prog [0] next_pid=12 next_prio=100\n\
        CPU:1 [LOST 7 EVENTS]\n\
        \x20    my prog [0]-12    (   10) [001] d.s3.  1234.567899: sched_waking: comm=a pid=3 prio=120 target_cpu=000\n";

    #[test]
    fn ftrace_text_has_contexts_and_losses() {
        let (events, about) = events(FTRACE);
        assert_eq!(about.lost, 12);
        let of = |index: usize| {
            (
                events[index].at_ns,
                events[index].cpu,
                events[index].current,
                events[index].context,
            )
        };
        assert_eq!(of(0), (1_234_567_890_000, 1, Some(0), Context::Hard));
        assert_eq!(of(1), (1_234_567_891_000, 1, Some(0), Context::Task));
        assert_eq!(of(2), (1_234_567_899_000, 1, Some(12), Context::Soft));
        let What::Switch {
            next,
            next_comm,
            next_prio,
            left,
            ..
        } = events[1].what
        else {
            panic!("{:?}", events[1]);
        };
        assert_eq!(
            (next, next_comm.text().as_str(), next_prio, left),
            (12, "my prog [0]", 100, Left::Runnable)
        );
    }

    #[test]
    fn perf_script_has_two_notations() {
        let one = "  my prog   10/12 [000]  5.000000001:  sched:sched_switch: prev_comm=my prog prev_pid=12 prev_prio=120 prev_state=R+ ==> next_comm=b next_pid=3 next_prio=120\n";
        let other = "  my prog   12 [000]  5.000000001:  sched:sched_switch: my prog:12 [120] R+ ==> b:3 [120]\n";
        let (one, other) = (events(one).0, events(other).0);
        assert_eq!(one, other);
        assert_eq!(
            (one[0].current, one[0].context),
            (Some(12), Context::Unknown)
        );
    }

    #[test]
    fn raw_output_and_pages_are_read() {
        let raw = "  <...>-17  [001]    76.211513: sched_switch:          prev_comm=a b prev_pid=17 prev_prio=120 prev_state=64 next_comm=swapper/1 next_pid=0 next_prio=120\n";
        let page = "  a b-17 [001] 76.211513: sched_switch: prev_comm=a b prev_pid=17 prev_prio=120 prev_state=X ==> next_comm=swapper/1 next_pid=0 next_prio=120\\n\\\n";
        assert_eq!(events(raw).0, events(page).0);
    }

    #[test]
    fn damage_and_skew_are_told_with_their_place() {
        let told = |text: &str| {
            read("t", text.as_bytes(), &mut |_| ())
                .unwrap_err()
                .to_string()
        };
        let cut = &FTRACE[..FTRACE.find(" next_prio").unwrap()];
        assert!(
            told(cut).contains("line 4: the fields of sched_switch are not whole"),
            "{}",
            told(cut)
        );
        let skewed =
            "  a-3 [000] d..2. 1234.500000: sched_waking: comm=a pid=3 prio=120 target_cpu=000\n";
        // A few may be late.
        let few = format!("{FTRACE}{}", skewed.repeat(16));
        assert!(read("t", few.as_bytes(), &mut |_| ()).is_ok());
        let skewed = format!("{FTRACE}{}", skewed.repeat(17));
        assert!(
            told(&skewed).contains("the clock of CPU 0 is 68 ms behind at 1234.500000000 s"),
            "{}",
            told(&skewed)
        );
        assert!(told("# tracer: nop\n").contains("has no sched_switch events"));
    }

    #[test]
    fn wakeups_count_only_where_nothing_better_is_there() {
        let switch = "a-3 [000] d..2. 1.0: sched_switch: prev_comm=a prev_pid=3 prev_prio=120 prev_state=S ==> next_comm=b next_pid=4 next_prio=120\n";
        let wakeup = "b-4 [000] d..2. 2.0: sched_wakeup: comm=a pid=3 prio=120 target_cpu=000\n";
        assert_eq!(events(&format!("{switch}{wakeup}")).0.len(), 2);
        assert_eq!(
            events(&format!(
                "{switch}{}{wakeup}",
                wakeup.replace("wakeup", "waking")
            ))
            .0
            .len(),
            2
        );
    }
}
