//! Reduces the messages of libbpf and the verifier about a load to the one line that matters.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use libbpf_rs::PrintLevel;

use crate::cache;
use crate::error::{At as _, Error};
use crate::vars;

/// Everything libbpf says while something is loaded. libbpf has one callback for the process.
static LOG: Mutex<String> = Mutex::new(String::new());
static LOADING: Mutex<()> = Mutex::new(());

fn keep_message(_level: PrintLevel, message: String) {
    if let Ok(mut log) = LOG.lock() {
        log.push_str(&message);
    }
}

/// Keeps what libbpf says while `load` runs. One load at a time.
pub fn listen<T>(load: impl FnOnce() -> T) -> T {
    let _one_at_a_time = LOADING.lock().unwrap_or_else(|e| e.into_inner());
    if let Ok(mut log) = LOG.lock() {
        log.clear();
    }
    let previous = libbpf_rs::set_print(Some((PrintLevel::Info, keep_message)));
    let result = load();
    libbpf_rs::set_print(previous);
    result
}

/// Where logs are kept. A virtual machine writes them to the host's.
pub fn directory() -> PathBuf {
    cache::dir()
        .unwrap_or_else(|_| std::env::temp_dir())
        .join("log")
}

/// Writes what libbpf said to a file and picks the line that explains the refusal.
pub fn rejected(policy: &str, fallback: &str) -> Error {
    let log = LOG.lock().map(|log| log.clone()).unwrap_or_default();
    let path = directory().join(format!("{}.log", policy.replace(' ', "-")));
    let reason = explain(&log, &kernel_field).unwrap_or_else(|| fallback.to_owned());
    let written = path
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(&path, format!("{log}\n{fallback}\n")))
        .at(&path);
    match written {
        Ok(()) => Error::Rejected {
            policy: policy.to_owned(),
            reason,
            log: path,
        },
        // Rather the reason without a log than neither.
        Err(error) => Error::NotAttached {
            policy: policy.to_owned(),
            problem: format!(
                "the kernel rejects it: {reason} (its log could not be kept: {error})"
            ),
        },
    }
}

/// Returns the lines of libbpf's output that explain a failure, as one: the verifier's reason, where in the source it
/// is, and what to do; or else libbpf's first complaint. None: what the caller knows, the error number. `field` names
/// what lies at an offset of a structure of the kernel.
fn explain(log: &str, field: Field<'_>) -> Option<String> {
    const BEGIN: &str = "-- BEGIN PROG LOAD LOG --";
    const END: &str = "-- END PROG LOAD LOG --";
    if let Some(begin) = log.find(BEGIN) {
        let program = log[..begin]
            .rsplit("prog '")
            .next()
            .and_then(|rest| rest.split('\'').next())
            .unwrap_or("?");
        let body = &log[begin + BEGIN.len()..];
        let body = &body[..body.find(END).unwrap_or(body.len())];
        return Refusal::read(body).map(|refusal| refusal.told(program, field));
    }
    // A feature that newer headers have and this kernel lacks is left out without harm.
    let harmless = |line: &str| line.starts_with("elf:") || line.contains("skipping it");
    let line = log
        .lines()
        .filter_map(|line| line.strip_prefix("libbpf: "))
        .find(|line| !harmless(line))?;
    Some(match remedy(line) {
        Some(remedy) => format!("{line}: {remedy}"),
        None => line.to_owned(),
    })
}

/// Names what lies at an offset of a structure of the kernel.
type Field<'a> = &'a dyn Fn(&str, u64) -> Option<String>;

/// The verifier's message about a program that it refuses.
struct Refusal<'a> {
    lines: Vec<&'a str>,
    /// The line that is the reason.
    reason: usize,
}

impl<'a> Refusal<'a> {
    fn read(body: &'a str) -> Option<Refusal<'a>> {
        let lines: Vec<&str> = body
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !is_statistics(line))
            .collect();
        let found = |wanted: &dyn Fn(&str) -> bool| lines.iter().rposition(|line| wanted(line));
        // Behind the last instruction the first known sentence, or one before; or else the last one behind it that is
        // not a state of the verifier. If the verifier says nothing behind an instruction, it refuses that
        // instruction.
        let known = |line: &str| is_sentence(line) && remedy(line).is_some();
        let last = found(&is_instruction).map_or(0, |at| at + 1);
        let behind = lines[last..].iter().position(|line| known(line));
        let reason = behind
            .map(|at| last + at)
            .or_else(|| found(&known))
            .or_else(|| found(&is_sentence).filter(|at| *at >= last))
            .or_else(|| found(&is_instruction))
            .or_else(|| found(&is_sentence))?;
        Some(Refusal { lines, reason })
    }

    fn told(&self, program: &str, field: Field<'_>) -> String {
        let line = self.lines[self.reason];
        let (reason, remedy) = match self.kept_field(field) {
            Some((what, remedy)) => (what, Some(remedy)),
            None if is_instruction(line) => (
                format!("it refuses the instruction {line}"),
                Some("the states before it in the whole log show why"),
            ),
            None => (line.to_owned(), remedy(line)),
        };
        let mut text = match self.source() {
            Some((place, code)) => format!("{place}: {program}: {reason}, at `{code}`"),
            None => format!("{program}: {reason}"),
        };
        if let Some(remedy) = remedy {
            text = format!("{text}: {remedy}");
        }
        text
    }

    /// Returns the place and the text of the source that the reason is about; of the policy's own file, if the log
    /// has that.
    fn source(&self) -> Option<(String, &'a str)> {
        let reason = self.lines[self.reason];
        if TOO_MUCH.iter().any(|what| reason.contains(what)) {
            return self.busiest();
        }
        let from = allocation(reason)
            .and_then(|number| self.instruction(number))
            .or_else(|| self.last_call(entered(reason)?))
            .unwrap_or(self.reason);
        let before = self.lines[..=from].iter().rev();
        let sources: Vec<_> = before.filter_map(|line| source(line)).collect();
        let own = sources.iter().find(|(place, _)| is_own(place));
        own.or(sources.first())
            .map(|(place, code)| ((*place).to_owned(), *code))
    }

    /// Where the verifier was most often, when it gave up.
    fn busiest(&self) -> Option<(String, &'a str)> {
        let mut times: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let sources = self.lines.iter().filter_map(|line| source(line));
        for at in sources.filter(|(place, _)| is_own(place)) {
            *times.entry(at).or_default() += 1;
        }
        let ((place, code), _) = times.into_iter().max_by_key(|(_, times)| *times)?;
        Some((place.to_owned(), code))
    }

    /// Returns the line of an instruction, by its number.
    fn instruction(&self, number: &str) -> Option<usize> {
        let begin = format!("{number}: (");
        self.lines.iter().position(|line| line.starts_with(&begin))
    }

    /// Returns the last line that calls a function.
    fn last_call(&self, function: &str) -> Option<usize> {
        let call = format!("call {function}#");
        self.lines.iter().rposition(|line| line.contains(&call))
    }

    /// A store that the verifier refuses without a word is one to a field that is the kernel's own.
    fn kept_field(&self, field: Field<'_>) -> Option<(String, &'static str)> {
        let reason = self.lines[self.reason];
        // R1 cannot write into ptr_task_struct at off=108 size=4
        if let Some((_, into)) = reason.split_once(" cannot write into ptr_") {
            let (structure, rest) = into.split_once(" at off=")?;
            let offset = rest.split(' ').next()?.parse().ok()?;
            return Some(told_kept(reason, structure, offset, field));
        }
        let line = match is_instruction(reason) {
            true => reason,
            false if reason.contains("only read is supported") => {
                let before = &self.lines[..self.reason];
                before.iter().rev().find(|line| is_instruction(line))?
            }
            false => return None,
        };
        // 5: (63) *(u32 *)(r6 +136) = r1
        let (_, store) = line.split_once(") *(")?;
        let (_, at) = store.split_once(")(r")?;
        let (at, _) = at.split_once(") = ")?;
        let (register, offset) = at.split_once(" +")?;
        let offset: u64 = offset.parse().ok()?;
        let structure = self.points_to(register)?;
        let said = match is_instruction(reason) {
            true => "it refuses the store",
            false => reason,
        };
        Some(told_kept(said, structure, offset, field))
    }

    /// Returns the structure that a register pointed to last, by the states.
    fn points_to(&self, register: &str) -> Option<&'a str> {
        let begin = format!("R{register}=");
        self.lines[..=self.reason].iter().rev().find_map(|line| {
            let at = line.rfind(&begin)?;
            let state = line[at + begin.len()..].split(['(', ' ']).next()?;
            let (_, structure) = state.split_once("ptr_")?;
            Some(structure.trim_start_matches("or_null_"))
        })
    }
}

/// Returns a store to a field that is the kernel's own, by name.
fn told_kept(said: &str, structure: &str, offset: u64, field: Field<'_>) -> (String, &'static str) {
    let name = field(structure, offset).unwrap_or_else(|| format!("byte {offset}"));
    (
        format!("{said}: `{name}` of struct {structure} is the kernel's own"),
        "of a task a policy sets scx.slice (scx_bpf_task_set_slice()), scx.dsq_vtime (scx_bpf_task_set_dsq_vtime()) and scx.disallow; keep what else there is in task storage or a map",
    )
}

/// Returns the verifier's counts.
fn is_statistics(line: &str) -> bool {
    [
        "processed ",
        "verification time",
        "stack depth ",
        "max_states",
    ]
    .iter()
    .any(|begin| line.starts_with(begin))
        && !line.contains("Too large")
}

/// `5: (63) *(u32 *)(r6 +136) = r1`
fn is_instruction(line: &str) -> bool {
    line.split_once(": (")
        .is_some_and(|(number, _)| !number.is_empty() && is_number(number))
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether a line says something, and is no state, instruction, source, or note on the way.
fn is_sentence(line: &str) -> bool {
    const NOTES: [&str; 13] = [
        "; ",
        "from ",
        "cur state:",
        "old state:",
        "caller:",
        "callee:",
        "returning from callee",
        "to caller at",
        "mark_precise:",
        "propagating ",
        "Validating ",
        "func#",
        "frame",
    ];
    // R0=scalar() R10=fp0 fp-8=0
    let is_state = |line: &str| {
        let (name, _) = line.split_once('=').unwrap_or_default();
        name.starts_with("fp-")
            || name
                .strip_prefix('R')
                .is_some_and(|register| is_number(register.trim_end_matches("_w")))
    };
    let is_numbered_state = |line: &str| {
        line.split_once(": ")
            .is_some_and(|(number, rest)| is_number(number) && is_state(rest))
    };
    !NOTES.iter().any(|note| line.starts_with(note))
        && !is_instruction(line)
        && !is_state(line)
        && !is_numbered_state(line)
        && !line.ends_with("is safe for any args that match its prototype")
        && !line.contains("is global and assumed valid")
}

/// `; *counter += 1; @ mine.bpf.c:12`: the place and the code.
fn source(line: &str) -> Option<(&str, &str)> {
    let (code, place) = line.strip_prefix("; ")?.rsplit_once(" @ ")?;
    Some((place, code.trim()))
}

/// Returns whether a place is of a policy's own file.
fn is_own(place: &str) -> bool {
    place.contains(".bpf.c:")
}

/// Returns the instruction that took what is not released.
fn allocation(reason: &str) -> Option<&str> {
    let (_, rest) = reason.split_once("alloc_insn=")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()
}

/// Returns the function that begins what is not ended: `inside bpf_spin_lock-ed region`.
fn entered(reason: &str) -> Option<&str> {
    let (before, _) = reason.split_once("-ed region")?;
    before.rsplit(' ').next()
}

/// Where the verifier had too much to do.
const TOO_MUCH: [&str; 3] = [
    "BPF program is too large",
    "jumps is too complex",
    "too many states",
];

/// Messages of the verifier and libbpf, and their remedies. The first that fits counts.
const REMEDIES: &[(&str, &str)] = &[
    (
        "infinite loop detected",
        "this is a loop without end for it: bound it by bpf_for(), or leave it when can_loop is false",
    ),
    (
        "_or_null",
        "the pointer may be NULL: compare it with NULL before, and return or go on without it",
    ),
    (
        "Possibly NULL pointer passed",
        "the pointer may be NULL: compare it with NULL before",
    ),
    (
        "invalid mem access 'scalar'",
        "what it follows is a number for it and no pointer: take it from a kfunc or an argument, or read it by bpf_probe_read_kernel(); memory of the arena is declared __arena",
    ),
    (
        "unbounded memory access",
        "the index may be anything: compare it with the number of elements before, or mask it",
    ),
    (
        "invalid access to map value",
        "the access may lie outside of the variable or map value: check the bounds of the index before, or mask it",
    ),
    (
        "min value is negative",
        "the index may be negative: make it unsigned and check its bounds before",
    ),
    (
        "max value is outside of the allowed memory range",
        "the index may be too large: check its bounds before, or mask it",
    ),
    (
        "unbounded min value",
        "what is added to the pointer may be anything: check its bounds before",
    ),
    (
        "bpf_spin_lock-ed region",
        "a lock is still held there: call bpf_spin_unlock() on every path before",
    ),
    (
        "bpf_spin_unlock is missing",
        "a lock is still held there: call bpf_spin_unlock() on every path before",
    ),
    (
        "bpf_res_spin_lock-ed region",
        "a lock is still held there: call bpf_res_spin_unlock() on every path before",
    ),
    (
        "bpf_local_irq_save-ed region",
        "interrupts are still off there: call bpf_local_irq_restore() (lab_irq_restore(), lab_unlock_irqrestore()) on every path before",
    ),
    (
        "bpf_preempt_disable-ed region",
        "preemption is still off there: call bpf_preempt_enable() on every path before",
    ),
    (
        "bpf_rcu_read_lock-ed region",
        "call bpf_rcu_read_unlock() on every path before",
    ),
    (
        "while holding a lock",
        "nothing may be called under a bpf_spin_lock: move the call before the lock or behind the unlock, or use lab_lock()",
    ),
    (
        "must be sleepable to call sleepable kfunc",
        "the function may sleep: call it in an op that is defined with BPF_STRUCT_OPS_SLEEPABLE() (init, init_task, cpu_online, exit)",
    ),
    (
        "calling kernel function",
        "the kernel lets only some ops call that function: docs/sched_ext.md has which",
    ),
    (
        "cannot use helper",
        "that helper is not for programs of sched_ext: use a kfunc, or do without",
    ),
    (
        "unknown func",
        "that helper is not for programs of sched_ext in programs of sched_ext: use a kfunc, or do without",
    ),
    (
        "BPF program is too large",
        "it went through more than 1,000,000 instructions in all turns of the loops: bound loops by bpf_for(), which it goes through once, and put parts into functions of their own (__noinline with external linkage, LAB_PART)",
    ),
    (
        "jumps is too complex",
        "too many branches lie on one path: put parts into functions of their own (__noinline with external linkage, LAB_PART)",
    ),
    (
        "combined stack size",
        "a call chain has 512 bytes of stack in all: keep arrays in a map or the arena",
    ),
    (
        "call stack of",
        "calls nest at most 8 deep, and none may recur: make it a loop",
    ),
    (
        "recursive call",
        "no function may call itself: make it a loop",
    ),
    (
        "Unreleased reference",
        "what this call gives must be given back on every path (bpf_task_release(), bpf_iter_…_destroy(), scx_bpf_put_cpumask(), …)",
    ),
    (
        "reference leak",
        "what this call gives must be given back on every path",
    ),
    (
        "addr_space_cast insn can only be used",
        "the program follows a pointer into the arena and names no arena: call lab_use_arena() first in it",
    ),
    (
        "not found in kernel or module BTFs",
        "this kernel has no such function: look at the spelling, or declare it __weak and ask bpf_ksym_exists()",
    ),
    (
        "kfunc is not found",
        "this kernel has no such function: look at the spelling, or declare it __weak and ask bpf_ksym_exists()",
    ),
    (
        "must be referenced or trusted",
        "the function wants a pointer that an argument of the op or a kfunc gave: one that was read from memory counts only within bpf_rcu_read_lock() or as a __kptr",
    ),
    (
        "cannot write into ptr_",
        "the kernel's own structures are read only",
    ),
    (
        "must point to scalar, or struct with scalar",
        "the argument must be a pointer that the op was called with, or that a kfunc gave",
    ),
    (
        "expected pointer to",
        "the argument must be a pointer of that type",
    ),
    (
        "!read_ok",
        "it reads a variable that has no value on some path: set it before",
    ),
    (
        "invalid indirect access to stack",
        "the access lies outside of the variable on the stack: use its size",
    ),
    (
        "to stack",
        "the access lies outside of the variable on the stack: use its size",
    ),
    (
        "from stack",
        "the access lies outside of the variable on the stack, or that has no value yet",
    ),
    ("GPL", "say `char _license[] SEC(\"license\") = \"GPL\";`"),
    ("should have been in", "return a value in that range"),
    (
        "attach to unsupported member",
        "this kernel has no such op, or it may not be sleepable",
    ),
    (
        "only read is supported",
        "the kernel's own structures are read only",
    ),
];

fn remedy(line: &str) -> Option<&'static str> {
    let mut remedies = REMEDIES.iter();
    let (_, remedy) = remedies.find(|(said, _)| line.contains(said))?;
    Some(remedy)
}

/// Returns the field of a structure of the running kernel, from its own types.
fn kernel_field(structure: &str, offset: u64) -> Option<String> {
    let btf = libbpf_rs::btf::Btf::from_vmlinux().ok()?;
    vars::field_at(&btf, structure, usize::try_from(offset).ok()?)
}

#[cfg(test)]
#[path = "../tests/verifier/expect.rs"]
mod expect;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Returns the facts in a kernel's types.
    fn field(structure: &str, offset: u64) -> Option<String> {
        Some(format!("{structure}[{offset}]"))
    }

    fn told(log: &str) -> Option<String> {
        explain(log, &field)
    }

    #[test]
    fn the_reason_is_found_with_its_line_and_what_to_do() {
        let log = "libbpf: prog 'x_dispatch': BPF program load failed: -EACCES\n\
                   libbpf: prog 'x_dispatch': -- BEGIN PROG LOAD LOG --\n\
                   0: R1=ctx() R10=fp0\n\
                   ; return *p; @ x.bpf.c:12\n\
                   3: (79) r0 = *(u64 *)(r1 +8)\n\
                   R1 invalid mem access 'scalar'\n\
                   processed 4 insns (limit 1000000)\n\
                   -- END PROG LOAD LOG --\n\
                   libbpf: failed to load object 'x'\n";
        let told = told(log).unwrap();
        let begin = "x.bpf.c:12: x_dispatch: R1 invalid mem access 'scalar', at `return *p;`: ";
        assert!(told.starts_with(begin), "{told}");
    }

    #[test]
    fn of_what_nobody_knows_the_last_sentence_is_told() {
        let log = "libbpf: prog 'x': -- BEGIN PROG LOAD LOG --\n\
                   ; return *p; @ x.bpf.c:12\n\
                   3: (79) r0 = *(u64 *)(r1 +8)\n\
                   the moon is in the wrong phase\n\
                   from 3 to 5: R0=1 R10=fp0\n\
                   R0=1 R10=fp0\n\
                   5: R0=1 R10=fp0\n\
                   -- END PROG LOAD LOG --\n";
        let expected = "x.bpf.c:12: x: the moon is in the wrong phase, at `return *p;`";
        assert_eq!(told(log).as_deref(), Some(expected));
    }

    #[test]
    fn the_policys_own_line_is_told_and_not_that_of_a_header() {
        let log = "libbpf: prog 'x': -- BEGIN PROG LOAD LOG --\n\
                   ; use(p); @ x.bpf.c:12\n\
                   3: (79) r0 = *(u64 *)(r1 +8)\n\
                   ; *p = 1; @ helper.h:3\n\
                   R0 invalid mem access 'map_value_or_null'\n\
                   -- END PROG LOAD LOG --\n";
        let told = told(log).unwrap();
        assert!(told.starts_with("x.bpf.c:12: x: R0 invalid"), "{told}");
    }

    /// Logs of real kernels about the policies of `tests/verifier`.
    #[test]
    fn each_kind_of_refusal_is_told_with_its_line_and_what_to_do() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut wrong = Vec::new();
        let mut nr = 0;
        for kernel in fs::read_dir(package.join("src/verdict")).unwrap() {
            let kernel = kernel.unwrap().path();
            let version = kernel.file_name().unwrap().to_str().unwrap();
            for log in fs::read_dir(&kernel).unwrap() {
                let path = log.unwrap().path();
                let name = path.file_stem().unwrap().to_str().unwrap();
                let source = package.join(format!("tests/verifier/{name}.bpf.c"));
                let expected = expect::expected(&fs::read_to_string(source).unwrap(), version);
                let named = |structure: &str, offset: u64| {
                    let known = structure == "task_struct" && [108, 112].contains(&offset);
                    known.then(|| "static_prio".to_owned())
                };
                let log = fs::read_to_string(&path).unwrap();
                let told = explain(&log, &named).unwrap_or_default();
                wrong.extend(expected.judge(name, &told).err());
                nr += 1;
            }
        }
        assert!(
            nr > 15 && wrong.is_empty(),
            "{nr} logs:\n{}",
            wrong.join("\n")
        );
    }

    #[test]
    fn without_a_verifier_log_the_first_complaint_counts() {
        let log = "libbpf: extern (func ksym) 'scx_bpf_nope': not found in kernel or module BTFs\n\
                   libbpf: failed to load object 'x'\n";
        let reason = told(log).unwrap();
        assert!(
            reason.contains("scx_bpf_nope") && reason.contains("spelling"),
            "{reason}"
        );
        assert_eq!(told(""), None);
    }

    #[test]
    fn what_is_left_out_without_harm_explains_nothing() {
        let log = "libbpf: struct_ops x_ops: member sub_caps_updated not found in kernel, skipping it as it's set to zero\n";
        assert_eq!(told(log), None);
    }
}
