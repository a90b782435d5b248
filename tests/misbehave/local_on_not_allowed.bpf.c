/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Dispatching a task to a CPU that it may not run on. The workload's tasks are bound to CPU 1.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

static struct rule_ring ring;

void BPF_STRUCT_OPS(local_on_not_allowed_enqueue, struct task_struct *p, u64 enq_flags)
{
	rule_ring_push(&ring, p->pid);
}

void BPF_STRUCT_OPS(local_on_not_allowed_dispatch, s32 cpu, struct task_struct *prev)
{
	s32 pid = rule_ring_pop(&ring);
	struct task_struct *p = pid ? bpf_task_from_pid(pid) : NULL;

	if (!p)
		return;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | 0, SCX_SLICE_DFL, 0);
	bpf_task_release(p);
}

SCX_OPS_DEFINE(local_on_not_allowed_ops,
	       .enqueue = (void *)local_on_not_allowed_enqueue,
	       .dispatch = (void *)local_on_not_allowed_dispatch,
	       .exit = (void *)rule_exit,
	       .name = "not_allowed");
