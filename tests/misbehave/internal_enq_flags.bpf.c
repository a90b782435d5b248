/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The upper enqueue flags are the kernel's own; a policy that passes them is ejected.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(internal_enq_flags_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags | 1LLU << 56);
}

SCX_OPS_DEFINE(internal_enq_flags_ops,
	       .enqueue = (void *)internal_enq_flags_enqueue,
	       .exit = (void *)rule_exit,
	       .name = "internal_flags");
