/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ops.enqueue() may insert the task it was called for, no other.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

s32 last_pid;

void BPF_STRUCT_OPS(inserts_another_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 pid = last_pid;
	struct task_struct *other;

	last_pid = p->pid;
	if (pid && pid != p->pid && (other = bpf_task_from_pid(pid))) {
		scx_bpf_dsq_insert(other, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
		bpf_task_release(other);
		return;
	}
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

SCX_OPS_DEFINE(inserts_another_ops,
	       .enqueue = (void *)inserts_another_enqueue,
	       .exit = (void *)rule_exit,
	       .name = "another");
