/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One ops.dispatch() inserts at most dispatch_max_batch tasks.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

static struct rule_ring ring;

void BPF_STRUCT_OPS(dispatch_overflow_enqueue, struct task_struct *p, u64 enq_flags)
{
	rule_ring_push(&ring, p->pid);
}

void BPF_STRUCT_OPS(dispatch_overflow_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task_struct *p;
	s32 pid;
	u32 i;

	bpf_for(i, 0, 3) {
		pid = rule_ring_pop(&ring);
		p = pid ? bpf_task_from_pid(pid) : NULL;
		if (!p)
			return;
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, 0);
		bpf_task_release(p);
	}
}

SCX_OPS_DEFINE(dispatch_overflow_ops,
	       .enqueue = (void *)dispatch_overflow_enqueue,
	       .dispatch = (void *)dispatch_overflow_dispatch,
	       .dispatch_max_batch = 2,
	       .exit = (void *)rule_exit,
	       .name = "overflow");
