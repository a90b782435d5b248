/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Inserting a task from ops.enqueue() into the local DSQ of a CPU that it may not run on.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(enqueue_local_on_not_allowed_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 dsq = rule_is_half(p) ? SCX_DSQ_LOCAL_ON | 0 : SCX_DSQ_GLOBAL;

	scx_bpf_dsq_insert(p, dsq, SCX_SLICE_DFL, enq_flags);
}

SCX_OPS_DEFINE(enqueue_local_on_not_allowed_ops,
	       .enqueue = (void *)enqueue_local_on_not_allowed_enqueue,
	       .exit = (void *)rule_exit,
	       .name = "enq_forbidden");
