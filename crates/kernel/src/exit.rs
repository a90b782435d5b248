//! Why a policy ended in the running kernel.

/// `SCX_EXIT_UNREG`: user space took the policy out.
pub const EXIT_UNREG: i32 = 64;

/// The reason for a policy's end, as the kernel reported it (`struct scx_exit_info`).
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct PolicyExit {
    /// `enum scx_exit_kind`; 0 while the policy runs.
    pub kind: i32,
    /// The policy's or the kernel's exit code.
    pub code: i64,
    /// The kernel's text for the kind.
    pub reason: String,
    /// Details.
    pub message: String,
    /// The kernel's debug dump of an ejection; empty without an ejection.
    pub dump: String,
    /// The line of the policy that was running, and its function, where the dump has the stack.
    #[serde(default)]
    pub place: Option<String>,
}

impl PolicyExit {
    /// Returns whether the policy was taken out by us and not ejected.
    pub fn is_normal(&self) -> bool {
        self.kind == EXIT_UNREG
    }

    /// Returns whether the kernel, or the policy itself, has ended it.
    pub fn is_ejection(&self) -> bool {
        self.kind != 0 && !self.is_normal()
    }

    /// Why the kernel ended it, in words.
    pub fn told(&self) -> String {
        if self.kind == 0 {
            // The kernel reported it only to the policy, which kept it for itself.
            "the kernel ended the policy; it records no reason (UEI_DEFINE, UEI_RECORD)".to_owned()
        } else if self.message.is_empty() {
            self.reason.clone()
        } else {
            let text = format!("{} ({})", self.reason, self.message);
            match (self.whereabouts(), &self.place) {
                (Some(place), _) => format!("{text}: {place}"),
                // The error's own text may begin with it.
                (None, Some(place)) if !self.message.contains(line_of(place)) => {
                    format!("{text}, called at {place}")
                }
                _ => text,
            }
        }
    }

    /// Where the task is that has waited for too long, by the kernel's dump.
    fn whereabouts(&self) -> Option<String> {
        let (task, _) = self.message.split_once(" failed to run for ")?;
        let (mut cpu, mut curr) = ("?", None);
        let mut lines = self.dump.lines();
        let entry = format!(" {task} ");
        lines.by_ref().find(|line| {
            let line = line.trim();
            if let Some(rest) = line.strip_prefix("CPU ") {
                (cpu, curr) = (rest.split([' ', ':']).next().unwrap_or("?"), None);
            } else if let Some(rest) = line.strip_prefix("curr=") {
                curr = rest.split_once(" class=");
            }
            // " *R name[12] -5000ms"
            format!(" {line} ").contains(&entry) && line.ends_with("ms")
        })?;
        let facts: Vec<&str> = lines.take(2).flat_map(str::split_whitespace).collect();
        let fact = |name: &str| facts.iter().find_map(|fact| fact.strip_prefix(name));
        let owner = fact("ops_state/qseq=")?.split('/').next()?;
        let runs = match curr {
            Some((task, class)) if class != "ext_sched_class" && !task.starts_with("swapper/") => {
                format!(", which runs {task} of {class}")
            }
            Some((task, _)) => format!(", which runs {task}"),
            None => String::new(),
        };
        Some(match (fact("dsq_id=")?, owner) {
            ("(n/a)", "2") => {
                "the policy has had it since ops.enqueue() and inserted it into no DSQ".to_owned()
            }
            ("(n/a)", "3") => "its dispatch is being carried out".to_owned(),
            ("(n/a)", _) => format!("it is in no DSQ, on CPU {cpu}{runs}"),
            ("0x8000000000000001", _) => "it is in the global DSQ".to_owned(),
            ("0x8000000000000002", _) => {
                format!("it is in the local DSQ of CPU {cpu}{runs}")
            }
            (dsq, _) => {
                format!("it is in DSQ {dsq}, from which no CPU that it may run on has taken it")
            }
        })
    }
}

/// `x.bpf.c:12` of `/home/me/x.bpf.c:12 (x_enqueue)`: a text of the policy may have another way to the file.
fn line_of(place: &str) -> &str {
    let line = place.rsplit_once(" (").map_or(place, |(line, _)| line);
    line.rsplit('/').next().unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(task: &str) -> String {
        let dump = "CPU states\n----------\n\n\
            CPU 0   : nr_run=1 flags=0x0 cpu_rel=0 ops_qseq=1 ksync=2\n\
            \x20         curr=hog[9] class=rt_sched_class\n\n\
            \x20 R first[11] -5000ms\n\
            \x20     scx_state/flags=3/0x1 dsq_flags=0x0 ops_state/qseq=0/5\n\
            \x20     sticky/holding_cpu=-1/-1 dsq_id=0x8000000000000002\n\
            \x20     dsq_vtime=0 slice=20000000 weight=100\n\n\
            CPU 3   : nr_run=2 flags=0x0 cpu_rel=0 ops_qseq=1 ksync=2\n\
            \x20         curr=swapper/3[0] class=idle_sched_class\n\n\
            \x20 R second[12] -5000ms\n\
            \x20     scx_state/flags=3/0x1 dsq_flags=0x0 ops_state/qseq=2/5\n\
            \x20     sticky/holding_cpu=-1/-1 dsq_id=(n/a)\n\n\
            \x20 R a third[13] -5000ms\n\
            \x20     scx_state/flags=3/0x1 dsq_flags=0x0 ops_state/qseq=0/5\n\
            \x20     sticky/holding_cpu=-1/-1 dsq_id=0x1\n";
        PolicyExit {
            kind: 1026,
            reason: "runnable task stall".to_owned(),
            message: format!("{task} failed to run for 5.000s"),
            dump: dump.to_owned(),
            ..PolicyExit::default()
        }
        .told()
    }

    #[test]
    fn an_error_says_which_line_it_came_from() {
        let exit = |message: &str| PolicyExit {
            kind: 1024,
            reason: "runtime error".to_owned(),
            message: message.to_owned(),
            place: Some("x.bpf.c:12 (x_enqueue)".to_owned()),
            ..PolicyExit::default()
        };
        assert_eq!(
            exit("invalid CPU -3").told(),
            "runtime error (invalid CPU -3), called at x.bpf.c:12 (x_enqueue)"
        );
        let elsewhere = PolicyExit {
            place: Some("/a b/./x.bpf.c:12 (x_enqueue)".to_owned()),
            ..exit("./x.bpf.c:12: given up")
        };
        assert_eq!(elsewhere.told(), "runtime error (./x.bpf.c:12: given up)");
        let named = exit("x.bpf.c:12: given up");
        assert_eq!(named.told(), "runtime error (x.bpf.c:12: given up)");
    }

    #[test]
    fn a_stall_says_where_the_task_is() {
        assert_eq!(
            told("first[11]"),
            "runnable task stall (first[11] failed to run for 5.000s): \
             it is in the local DSQ of CPU 0, which runs hog[9] of rt_sched_class"
        );
        assert_eq!(
            told("second[12]"),
            "runnable task stall (second[12] failed to run for 5.000s): \
             the policy has had it since ops.enqueue() and inserted it into no DSQ"
        );
        assert!(
            told("a third[13]")
                .ends_with(": it is in DSQ 0x1, from which no CPU that it may run on has taken it")
        );
        assert!(told("unknown[14]").ends_with("5.000s)"));
    }
}
