/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Two arguments may be NULL, and are when there is nothing to point to: the previous task of
 * ops.dispatch() on a CPU that was idle, and the target of ops.yield() when sched_yield() was called.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

static inline void kick_all_idle(void)
{
	u32 cpu;

	bpf_for(cpu, 0, scx_bpf_nr_cpu_ids())
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

u32 nr_prev, nr_idle, nr_yields;
u64 vtime_seen;

void BPF_STRUCT_OPS(maybe_null_dispatch, s32 cpu, struct task_struct *prev)
{
	if (prev) {
		vtime_seen = prev->scx.dsq_vtime;
		nr_prev++;
	} else {
		nr_idle++;
	}
	if (nr_prev >= 20 && nr_idle >= 5 && nr_yields >= 20)
		rule_holds("with and without a previous task");
}

bool BPF_STRUCT_OPS(maybe_null_yield, struct task_struct *from, struct task_struct *to)
{
	if (to)
		rule_broken("%s[%d] yields to nobody, not to %d", from->comm, from->pid, to->pid);
	nr_yields++;
	/* An idle CPU has nothing to dispatch for, unless somebody makes it look. */
	kick_all_idle();
	return false;
}

SCX_OPS_DEFINE(maybe_null_ops,
	       .dispatch = (void *)maybe_null_dispatch,
	       .yield = (void *)maybe_null_yield,
	       .exit = (void *)rule_exit,
	       .name = "maybe_null");
