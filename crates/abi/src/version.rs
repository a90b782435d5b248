//! The simulated kernel's features, for a policy that asks (`bpf_ksym_exists()`, CO-RE) and for one that calls
//! without asking.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use schedlab_engine::KernelVersion;

/// Functions that came after 6.18, by the kernel's own names (tools/sched_ext/include/scx/compat.bpf.h of Linux 7.2 says
/// when).
const FUNCTIONS_OF_7_2: &[&str] = &[
    "scx_bpf_dsq_peek",
    "__scx_bpf_select_cpu_and",
    "__scx_bpf_dsq_insert_vtime",
    "scx_bpf_dsq_insert___v2",
    "scx_bpf_dsq_move_to_local___v2",
    "scx_bpf_task_set_slice",
    "scx_bpf_task_set_dsq_vtime",
    "scx_bpf_reenqueue_local___v2",
    "scx_bpf_dsq_reenq",
    "scx_bpf_tid_to_task",
    "scx_bpf_cid_curr",
    "scx_bpf_cid_override",
    "scx_bpf_cid_to_cpu",
    "scx_bpf_cid_topo",
    "scx_bpf_cidperf_cap",
    "scx_bpf_cidperf_cur",
    "scx_bpf_cidperf_set",
    "scx_bpf_cpu_to_cid",
    "scx_bpf_kick_cid",
    "scx_bpf_nr_cids",
    "scx_bpf_nr_online_cids",
    "scx_bpf_task_cid",
    "scx_bpf_this_cid",
];

/// The rest of that version: types, enumerators, and the words by which policies ask for a function.
const OTHERS_OF_7_2: &[&str] = &[
    "linux 7.2",
    "struct scx_bpf_select_cpu_and_args",
    "struct scx_bpf_dsq_insert_vtime_args",
    "scx_bpf_dsq_insert___v2___compat",
    "scx_bpf_dsq_move_to_local___v2___compat",
    "scx_bpf_task_set_slice___new",
    "scx_bpf_task_set_dsq_vtime___new",
    "scx_bpf_reenqueue_local___v2___compat",
    "scx_bpf_dsq_reenq___compat",
    "struct sched_ext_ops_cid",
    "struct scx_cmask",
    "struct scx_cid_topo",
    "SCX_ENQ_IMMED",
    "SCX_OPS_ALWAYS_ENQ_IMMED",
    "SCX_OPS_TID_TO_TASK",
    "SCX_DEQ_SCHED_CHANGE",
];

/// The shadow headers that declare functions, types and enumerators.
const HEADERS: [&str; 8] = [
    include_str!("../../../include/native/scx/bpf.h"),
    include_str!("../../../include/native/scx/common.bpf.h"),
    include_str!("../../../include/native/scx/cpumask.h"),
    include_str!("../../../include/native/scx/enums.h"),
    include_str!("../../../include/native/scx/host.h"),
    include_str!("../../../include/native/scx/kfuncs.h"),
    include_str!("../../../include/native/scx/ops.h"),
    include_str!("../../../include/native/scx/types.h"),
];

/// Their identifiers.
static DECLARED: LazyLock<BTreeSet<&str>> =
    LazyLock::new(|| HEADERS.into_iter().flat_map(identifiers).collect());

/// The functions that Linux has and the virtual kernel lacks, though the headers declare them: a call ends the run.
static LACKING: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    let lines = HEADERS.into_iter().flat_map(str::lines);
    let lacking = lines.filter_map(|line| {
        let (place, parts) = match line.strip_prefix("LAB_MISSING(") {
            Some(parts) => (1, parts),
            None => (0, line.strip_prefix("LAB_MISSING_VOID(")?),
        };
        parts.split(',').nth(place).map(str::trim)
    });
    lacking.collect()
});

/// Returns the words of C code outside comments.
fn identifiers(code: &str) -> impl Iterator<Item = &str> {
    let mut parts = code.split("/*");
    let first = parts.next().into_iter();
    let code = first.chain(parts.filter_map(|part| Some(part.split_once("*/")?.1)));
    let words = code.flat_map(|code| code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    words.filter(|word| !word.is_empty())
}

/// Returns whether the shadow headers declare what CO-RE asks for: `struct NAME`, `NAME`, or an expression whose last word
/// is a member. CO-RE passes over the suffix of a variant, from `___` on.
pub fn is_declared(asked: &str) -> bool {
    let mut words = asked.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    // The number of an element says nothing about its array.
    let word = words.find(|word| word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'));
    let name = word.map(|word| word.split("___").next().unwrap_or(word));
    name.is_some_and(|name| DECLARED.contains(name))
}

/// Whether it came with Linux 7.2.
fn is_of_7_2(name: &str) -> bool {
    FUNCTIONS_OF_7_2.contains(&name) || OTHERS_OF_7_2.contains(&name)
}

/// Whether it came after that kernel.
pub fn is_newer(version: KernelVersion, name: &str) -> bool {
    version < KernelVersion::V7_2 && is_of_7_2(name)
}

/// Whether that kernel has a kfunc, type or enumerator of ours.
pub fn has(version: KernelVersion, name: &str) -> bool {
    !LACKING.contains(name) && !is_newer(version, name)
}

/// Whether that kernel has what a policy asks for in its own words.
pub fn exists(version: KernelVersion, asked: &str) -> bool {
    // Variants of functions that came later have names of their own in the list.
    has(version, asked) && (is_of_7_2(asked) || is_declared(asked))
}

/// Whether an update of an array's value leaves references in it alone (`bpf_obj_cancel_fields()`). Before, it
/// dropped them (`bpf_obj_free_fields()`).
pub fn array_keeps_references(version: KernelVersion) -> bool {
    version >= KernelVersion::V7_2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_header_declares_does_not_exist() {
        for there in [
            "scx_bpf_dsq_insert",
            "scx_bpf_cpu_node",
            "struct task_struct",
            "struct sched_ext_entity___gone",
            "SCX_ENQ_WAKEUP",
            "(ei)->exit_cpu",
            "p->scx.dsq_vtime",
            "p->comm[0]",
        ] {
            assert!(is_declared(there), "{there}");
        }
        for not in [
            "scx_bpf_of_the_future",
            "struct never_was___x",
            "SCX_THING_OF_2031___x",
            "e->gone",
            "e->gone[0]",
            "___",
            "",
        ] {
            assert!(!is_declared(not), "{not}");
        }
        let words: Vec<&str> = identifiers("int a; /* b */ c(d);").collect();
        assert_eq!(words, ["int", "a", "c", "d"]);
    }

    #[test]
    fn the_older_kernel_lacks_what_came_later() {
        assert!(has(KernelVersion::V7_2, "scx_bpf_dsq_peek"));
        assert!(!has(KernelVersion::V6_18, "scx_bpf_dsq_peek"));
        assert!(has(KernelVersion::V6_18, "scx_bpf_dsq_insert"));
        for lacking in ["scx_bpf_events", "scx_bpf_this_cid", "scx_bpf_locked_rq"] {
            assert!(!has(KernelVersion::V7_2, lacking), "{lacking}");
        }
        assert!(has(KernelVersion::V6_18, "scx_bpf_cpuperf_cap"));
    }
}
