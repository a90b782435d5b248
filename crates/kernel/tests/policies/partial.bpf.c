/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Takes only the tasks that ask for it. No task does: the kernel enables it and calls no op.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(partial_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

SCX_OPS_DEFINE(partial_ops,
	       .enqueue		= (void *)partial_enqueue,
	       .flags		= SCX_OPS_SWITCH_PARTIAL,
	       .name		= "partial");
