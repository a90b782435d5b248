/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * SCX_ENQ_IMMED is for local DSQs: scx_bpf_dsq_insert() refuses it for others.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(immed_not_local_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags | SCX_ENQ_IMMED);
}

SCX_OPS_DEFINE(immed_not_local_ops,
	       .enqueue = (void *)immed_not_local_enqueue,
	       .exit = (void *)rule_exit,
	       .name = "immed");
