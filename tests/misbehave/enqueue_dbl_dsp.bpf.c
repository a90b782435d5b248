/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Inserting the same task twice in one ops.enqueue() ejects the policy.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(enqueue_dbl_dsp_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

SCX_OPS_DEFINE(enqueue_dbl_dsp_ops,
	       .enqueue = (void *)enqueue_dbl_dsp_enqueue,
	       .exit = (void *)rule_exit,
	       .name = "enq_dbl_dsp");
