//! What libbpf and the verifier say about a load, and the one line of it that matters.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use libbpf_rs::PrintLevel;

use crate::cache;
use crate::error::{At as _, Error};

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
    let reason = explain(&log).unwrap_or_else(|| fallback.to_owned());
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

/// The line of libbpf's output that explains a failure: the verifier's last word with the source
/// line it is about, or else libbpf's first complaint. None: what the caller knows, the error number.
fn explain(log: &str) -> Option<String> {
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
        let mut source = None;
        let mut verdict = None;
        for line in body.lines().map(str::trim) {
            if let Some(code) = line.strip_prefix("; ") {
                source = Some(code);
            } else if line.starts_with("processed ") || line.starts_with("verification time") {
                break;
            } else if !line.is_empty() {
                verdict = Some(line);
            }
        }
        let verdict = verdict?;
        return Some(match source {
            Some(source) => format!("{program}: {verdict}, at: {source}"),
            None => format!("{program}: {verdict}"),
        });
    }
    // What newer headers have and this kernel has not is left out without harm.
    let harmless = |line: &str| line.starts_with("elf:") || line.contains("skipping it");
    log.lines()
        .filter_map(|line| line.strip_prefix("libbpf: "))
        .find(|line| !harmless(line))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::explain;

    #[test]
    fn the_verifiers_last_word_is_found() {
        let log = "libbpf: prog 'x_dispatch': BPF program load failed: -EACCES\n\
                   libbpf: prog 'x_dispatch': -- BEGIN PROG LOAD LOG --\n\
                   0: R1=ctx() R10=fp0\n\
                   ; return *p; @ x.bpf.c:12\n\
                   3: (79) r0 = *(u64 *)(r1 +8)\n\
                   R1 invalid mem access 'scalar'\n\
                   processed 4 insns (limit 1000000)\n\
                   -- END PROG LOAD LOG --\n\
                   libbpf: failed to load object 'x'\n";
        assert_eq!(
            explain(log).as_deref(),
            Some("x_dispatch: R1 invalid mem access 'scalar', at: return *p; @ x.bpf.c:12")
        );
    }

    #[test]
    fn without_a_verifier_log_the_first_complaint_counts() {
        let log = "libbpf: extern (func ksym) 'scx_bpf_nope': not found in kernel or module BTFs\n\
                   libbpf: failed to load object 'x'\n";
        assert!(explain(log).unwrap().contains("scx_bpf_nope"));
        assert_eq!(explain(""), None);
    }

    #[test]
    fn what_is_left_out_without_harm_explains_nothing() {
        let log = "libbpf: struct_ops x_ops: member sub_caps_updated not found in kernel, skipping it as it's set to zero\n";
        assert_eq!(explain(log), None);
    }
}
