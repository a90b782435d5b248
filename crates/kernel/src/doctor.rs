//! Lists the features that work with this kernel and this machine, and for missing ones the command that adds them.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use libbpf_rs::btf::Btf;

use crate::bpf_policy::POLICIES;
use crate::btf;
use crate::clang;
use crate::scx::{self, State};
use crate::vm;

/// How a finding stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// There.
    Ok,
    /// Not there, and something that it would allow is not possible.
    Missing,
    /// Worth knowing; nothing to do.
    Note,
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The feature.
    pub subject: &'static str,
    /// How it stands.
    pub status: Status,
    /// The finding.
    pub detail: String,
    /// The remedy; empty if nothing is missing.
    pub remedy: String,
}

/// Possible uses of schedlab here, the most frequent first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Everything that was looked at.
    pub findings: Vec<Finding>,
    /// Policies can be loaded into this machine's own kernel.
    pub can_run_here: bool,
    /// Policies can be loaded in a virtual machine.
    pub can_run_in_vm: bool,
}

fn ok(subject: &'static str, detail: impl Into<String>) -> Finding {
    Finding {
        subject,
        status: Status::Ok,
        detail: detail.into(),
        remedy: String::new(),
    }
}

fn missing(subject: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding {
        subject,
        status: Status::Missing,
        detail: detail.into(),
        remedy: remedy.into(),
    }
}

fn note(subject: &'static str, detail: impl Into<String>) -> Finding {
    Finding {
        subject,
        status: Status::Note,
        detail: detail.into(),
        remedy: String::new(),
    }
}

/// Looks at everything. Nothing is installed, downloaded or booted.
pub fn examine() -> Report {
    let kernel = kernel();
    let tools = tools();
    let vm = virtual_machine();
    let can_run_here = kernel.iter().all(|f| f.status != Status::Missing);
    let can_run_in_vm = vm.iter().all(|f| f.status != Status::Missing);
    Report {
        findings: [kernel, tools, vm].concat(),
        can_run_here,
        can_run_in_vm,
    }
}

const VM_INSTEAD: &str = "use --vm, or boot a kernel with CONFIG_SCHED_CLASS_EXT=y (Debian: linux-image-amd64 from backports)";

fn kernel() -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    match config(&release) {
        Some(config) => {
            let has = |option: &str| config.lines().any(|l| l == format!("{option}=y"));
            findings.push(if has("CONFIG_SCHED_CLASS_EXT") {
                ok("kernel", format!("{release}, CONFIG_SCHED_CLASS_EXT=y"))
            } else {
                missing(
                    "kernel",
                    format!("{release} is built without CONFIG_SCHED_CLASS_EXT"),
                    VM_INSTEAD,
                )
            });
        }
        None => findings.push(note(
            "kernel",
            format!("{release}; its configuration is neither in /proc/config.gz nor in /boot"),
        )),
    }
    findings.push(match scx::state() {
        State::Absent => missing("sched_ext", "no /sys/kernel/sched_ext", VM_INSTEAD),
        State::Disabled => ok("sched_ext", "there, nothing loaded"),
        State::Loaded { state, name } => missing(
            "sched_ext",
            format!("the scheduler '{name}' is {state}; it is never replaced"),
            "stop the program that loaded it",
        ),
    });
    findings.push(types());
    findings.push(if rustix::process::geteuid().is_root() {
        ok("rights", "root")
    } else {
        missing("rights", "loading BPF programs needs root", "run with sudo")
    });
    findings
}

/// BTF with the kfuncs that policies call.
fn types() -> Finding {
    let file = Path::new("/sys/kernel/btf/vmlinux");
    if !file.exists() {
        return missing("types (BTF)", "no /sys/kernel/btf/vmlinux", VM_INSTEAD);
    }
    let Ok(kernel) = Btf::from_path(file) else {
        return missing(
            "types (BTF)",
            "/sys/kernel/btf/vmlinux cannot be read",
            VM_INSTEAD,
        );
    };
    let kfuncs = btf::kfuncs(&kernel);
    let scx = kfuncs.keys().filter(|k| k.starts_with("scx_bpf_")).count();
    if let Err(why) = btf::check_kfuncs(file) {
        return missing("types (BTF)", why, VM_INSTEAD);
    }
    ok(
        "types (BTF)",
        format!("{} kfuncs, {scx} of sched_ext", kfuncs.len()),
    )
}

/// Returns the kernel's configuration, where it can be found.
fn config(release: &str) -> Option<String> {
    if let Ok(packed) = fs::File::open("/proc/config.gz") {
        let mut text = String::new();
        if flate2::read::GzDecoder::new(packed)
            .read_to_string(&mut text)
            .is_ok()
        {
            return Some(text);
        }
    }
    [
        format!("/boot/config-{release}"),
        format!("/lib/modules/{release}/config"),
    ]
    .iter()
    .find_map(|path| fs::read_to_string(path).ok())
}

fn tools() -> Vec<Finding> {
    let policies = format!("{} built in", POLICIES.len());
    let mut findings = vec![ok("policies for BPF", policies)];
    findings.push(match clang::find() {
        Ok(found) if found.version >= clang::PREFERRED => {
            ok("clang", format!("{} ({})", found.command, found.version))
        }
        Ok(found) => Finding {
            subject: "clang",
            status: Status::Note,
            detail: format!(
                "{} ({}): versions before {} compile arena memory wrongly",
                found.command,
                found.version,
                clang::PREFERRED
            ),
            remedy: format!("sudo apt-get install clang-{}", clang::PREFERRED),
        },
        Err(remedy) => Finding {
            subject: "clang",
            status: Status::Note,
            detail: "none: .bpf.c files cannot be compiled, built-in policies can be run"
                .to_owned(),
            remedy,
        },
    });
    findings.push(match vm::which("perf") {
        Some(path) => ok("perf", path.display().to_string()),
        None => Finding {
            subject: "perf",
            status: Status::Note,
            detail: "not there; only perf bench as a workload needs it".to_owned(),
            remedy: "sudo apt-get install linux-perf".to_owned(),
        },
    });
    findings
}

fn virtual_machine() -> Vec<Finding> {
    let mut findings = Vec::new();
    let packages = vm::missing();
    findings.push(if packages.is_empty() {
        ok("QEMU and its tools", "there")
    } else {
        missing(
            "QEMU and its tools",
            format!("missing: {}", packages.join(", ")),
            format!("sudo apt-get install {}", packages.join(" ")),
        )
    });
    findings.push(match vm::installed_virtme_run() {
        Some(path) => ok("virtme-ng", path.display().to_string()),
        None if vm::which("python3").is_some() => note(
            "virtme-ng",
            "not there yet; the first use installs it into the cache (network)",
        ),
        None => missing(
            "virtme-ng",
            "not there, and no python3 to install it with",
            "sudo apt-get install python3-venv",
        ),
    });
    let cached = vm::kernel::cached();
    findings.push(if cached.is_empty() {
        note(
            "kernels for it",
            format!(
                "none yet; the first use fetches {} with apt (network)",
                vm::kernel::pinned().next().unwrap_or("one")
            ),
        )
    } else {
        ok("kernels for it", cached.join(", "))
    });
    findings.push(match vm::remembered_acceleration() {
        Some(vm::Acceleration::Kvm) => ok("KVM", "boots a kernel here"),
        Some(vm::Acceleration::Emulation) => Finding {
            // Without the file it is tried again.
            remedy: vm::acceleration_file().map_or(String::new(), |file| {
                format!("rm {}", schedlab_trace::shell_word(&file.to_string_lossy()))
            }),
            ..note(
                "KVM",
                "/dev/kvm is there but booted no kernel; machines are emulated, about ten times slower. To have it tried again:",
            )
        },
        None if Path::new("/dev/kvm").exists() => {
            note("KVM", "not tried yet; the first virtual machine does")
        }
        None => note(
            "KVM",
            "no /dev/kvm; machines are emulated, about ten times slower",
        ),
    });
    findings
}
