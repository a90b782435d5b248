/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Dispatching to the local DSQ of a CPU with a negative number.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

static struct rule_ring ring;

void BPF_STRUCT_OPS(local_on_negative_cpu_enqueue, struct task_struct *p, u64 enq_flags)
{
	rule_ring_push(&ring, p->pid);
}

void BPF_STRUCT_OPS(local_on_negative_cpu_dispatch, s32 cpu, struct task_struct *prev)
{
	s32 pid = rule_ring_pop(&ring);
	struct task_struct *p = pid ? bpf_task_from_pid(pid) : NULL;

	if (!p)
		return;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | (u32)-1, SCX_SLICE_DFL, 0);
	bpf_task_release(p);
}

SCX_OPS_DEFINE(local_on_negative_cpu_ops,
	       .enqueue = (void *)local_on_negative_cpu_enqueue,
	       .dispatch = (void *)local_on_negative_cpu_dispatch,
	       .exit = (void *)rule_exit,
	       .name = "negative");
