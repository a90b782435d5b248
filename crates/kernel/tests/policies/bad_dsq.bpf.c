/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Inserts into a dispatch queue that was never created: the kernel must eject it.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

void BPF_STRUCT_OPS(bad_dsq_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, 0xbad, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(bad_dsq_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(bad_dsq_ops,
	       .enqueue	= (void *)bad_dsq_enqueue,
	       .exit	= (void *)bad_dsq_exit,
	       .name	= "bad_dsq");
