/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Inserting a task from ops.dispatch() into the local DSQ of the CPU that dispatches, where it may not run.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

static struct rule_ring ring;

void BPF_STRUCT_OPS(dispatch_local_not_allowed_enqueue, struct task_struct *p, u64 enq_flags)
{
	if (!rule_is_half(p)) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
		return;
	}
	rule_ring_push(&ring, p->pid);
	scx_bpf_kick_cpu(0, 0);
}

void BPF_STRUCT_OPS(dispatch_local_not_allowed_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task_struct *p;
	s32 pid;

	/* The tasks wait until CPU 0, where none of them may run, comes by. */
	if (cpu)
		return;
	pid = rule_ring_pop(&ring);
	p = pid ? bpf_task_from_pid(pid) : NULL;
	if (!p)
		return;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, 0);
	bpf_task_release(p);
}

SCX_OPS_DEFINE(dispatch_local_not_allowed_ops,
	       .enqueue = (void *)dispatch_local_not_allowed_enqueue,
	       .dispatch = (void *)dispatch_local_not_allowed_dispatch,
	       .exit = (void *)rule_exit,
	       .name = "dsp_forbidden");
