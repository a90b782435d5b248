//! Reads a kernel's type information about sched_ext, without running anything.

use std::collections::BTreeMap;
use std::path::Path;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{DataSec, DeclTag, Func, FuncProto};
use libbpf_rs::btf::{BtfKind, BtfType, ReferencesType as _};

use crate::bpf_policy::POLICIES;

/// Kfuncs without which no policy of ours works.
const NEEDED: &[&str] = &[
    "scx_bpf_create_dsq",
    "scx_bpf_dsq_insert",
    "scx_bpf_dsq_nr_queued",
    "scx_bpf_kick_cpu",
    "scx_bpf_error_bstr",
    "scx_bpf_select_cpu_dfl",
    "bpf_task_from_pid",
    "bpf_task_release",
    "bpf_cpumask_test_cpu",
];

/// Number of parameters of each function that is marked as a kfunc.
pub fn kfuncs(btf: &Btf<'_>) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for tag in btf.type_by_kind::<DeclTag<'_>>() {
        if tag.name().is_none_or(|name| name != "bpf_kfunc") {
            continue;
        }
        let func = Func::try_from(tag.referenced_type());
        let Ok(func) = func else { continue };
        if let Some((name, parameters)) = signature(&func) {
            found.insert(name, parameters);
        }
    }
    found
}

fn signature(func: &Func<'_>) -> Option<(String, usize)> {
    let proto = FuncProto::try_from(func.referenced_type()).ok()?;
    let name = func.name()?.to_string_lossy().into_owned();
    Some((name, proto.len()))
}

/// Returns the kernel functions that a BPF object calls, with their numbers of parameters.
fn called(btf: &Btf<'_>) -> Vec<(String, usize)> {
    let Some(section) = btf.type_by_name::<DataSec<'_>>(".ksyms") else {
        return Vec::new();
    };
    section
        .iter()
        .filter_map(|info| {
            let ty: BtfType<'_> = btf.type_by_id(info.ty)?;
            if ty.kind() != BtfKind::Func {
                return None;
            }
            signature(&Func::try_from(ty).ok()?)
        })
        .collect()
}

/// Returns whether a kernel's BTF file describes the kfuncs that policies call as they call them.
///
/// # Errors
/// Says which kfunc is missing or has other parameters.
pub fn check_kfuncs(file: &Path) -> Result<(), String> {
    let kernel =
        Btf::from_path(file).map_err(|error| format!("its BTF cannot be read: {error}"))?;
    let kfuncs = kfuncs(&kernel);
    if kfuncs.is_empty() {
        return Err("its BTF marks no function as a kfunc".to_owned());
    }
    if let Some(missing) = NEEDED.iter().find(|name| !kfuncs.contains_key(**name)) {
        return Err(format!("its BTF lacks the kfunc {missing}"));
    }
    for policy in POLICIES {
        let object = policy.object();
        let Ok(Some(btf)) = Btf::from_raw("policy", &object) else {
            continue;
        };
        for (name, parameters) in called(&btf) {
            // The headers give different generations of a kfunc different names after "___".
            let plain = name.split("___").next().unwrap_or(&name);
            match kfuncs.get(plain) {
                Some(kernels) if plain == name && *kernels != parameters => {
                    return Err(format!(
                        "its BTF gives the kfunc {name} {kernels} parameters instead of {parameters}"
                    ));
                }
                // The headers test at load time for functions that one kernel lacks.
                _ => {}
            }
        }
    }
    Ok(())
}
