/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reading through ops.dispatch()'s previous task without a test is refused by the verifier; in the
 * virtual kernel, which has none, it is a fault of the policy as soon as a CPU was idle.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

u64 vtime_seen;

void BPF_STRUCT_OPS(maybe_null_fail_dispatch, s32 cpu, struct task_struct *prev)
{
	vtime_seen = prev->scx.dsq_vtime;
}

/* An idle CPU has nothing to dispatch for, unless somebody makes it look. */
void BPF_STRUCT_OPS(maybe_null_fail_running, struct task_struct *p)
{
	u32 cpu;

	bpf_for(cpu, 0, scx_bpf_nr_cpu_ids())
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

SCX_OPS_DEFINE(maybe_null_fail_ops,
	       .dispatch = (void *)maybe_null_fail_dispatch,
	       .running = (void *)maybe_null_fail_running,
	       .exit = (void *)rule_exit,
	       .name = "maybe_null_fail");
