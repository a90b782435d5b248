/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * scx_bpf_create_dsq() may sleep, and ops.enqueue() may not.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(create_dsq_in_enqueue_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_create_dsq(1, -1);
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

SCX_OPS_DEFINE(create_dsq_in_enqueue_ops,
	       .enqueue = (void *)create_dsq_in_enqueue_enqueue,
	       .exit = (void *)rule_exit,
	       .name = "create_enq");
