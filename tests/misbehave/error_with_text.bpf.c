/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * scx_bpf_error() ends the run with the policy's own text, and the first one counts.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(error_with_text_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_error("first: %s waits for %d", p->comm, 42);
	scx_bpf_error("second");
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

SCX_OPS_DEFINE(error_with_text_ops,
	       .enqueue = (void *)error_with_text_enqueue,
	       .exit = (void *)rule_exit,
	       .name = "error");
