//! Checks the cost of ops and kfuncs: the value of the machine's profile, once.

use schedlab_machine::Machine;
use schedlab_sim::{Scheduler, SimSpec};

/// Times that the one task yields.
const YIELDS: u64 = 100;

/// `ops.yield()` calls a kfunc that the virtual kernel carries out and one that it need not be asked for.
const POLICY: &str = r#"
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

bool BPF_STRUCT_OPS(costs_yield, struct task_struct *from, struct task_struct *to)
{
	return scx_bpf_now() == (u64)scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(costs_init)
{
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops costs_ops = {
	.yield	= (void *)costs_yield,
	.init	= (void *)costs_init,
	.name	= "costs",
};
"#;

/// Until when the task has yielded, with these costs.
fn makespan_ns(folder: &std::path::Path, op_ns: u64, kfunc_ns: u64) -> f64 {
    let mut machine = Machine::builtin("uniprocessor").unwrap();
    machine.sched_ext.op_ns = op_ns;
    machine.sched_ext.kfunc_ns = kfunc_ns;
    // No tick, so that nothing else takes longer in a longer run.
    machine.hz = 1;
    let profile = folder.join("machine.toml");
    std::fs::write(&profile, machine.to_toml()).unwrap();
    let policy = folder.join("costs.bpf.c");
    std::fs::write(&policy, POLICY).unwrap();
    let spec = SimSpec::new(
        format!("cpu:tasks=1,yield=true,run=10us,loops={YIELDS},duration=0"),
        Scheduler::parse(policy.to_str().unwrap()),
        profile.to_str().unwrap(),
    );
    let result = schedlab_sim::run(&spec, None).unwrap();
    assert!(result.is_done(), "{:?}", result.message);
    result.measures.number("makespan_ns").unwrap()
}

#[test]
fn an_op_and_a_kfunc_cost_what_the_profile_says_once() {
    let folder = tempfile::tempdir().unwrap();
    let least = makespan_ns(folder.path(), 0, 0);
    let ops = makespan_ns(folder.path(), 100, 0) - least;
    let kfuncs = makespan_ns(folder.path(), 0, 100) - least;
    assert_eq!(ops, (100 * YIELDS) as f64);
    assert_eq!(kfuncs, (2 * 100 * YIELDS) as f64);
}
