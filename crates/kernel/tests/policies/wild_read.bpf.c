/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads through a number as if it were a pointer: the verifier must refuse it.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

void BPF_STRUCT_OPS(wild_read_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 *wild = (u64 *)enq_flags;

	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, *wild, enq_flags);
}

void BPF_STRUCT_OPS(wild_read_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(wild_read_ops,
	       .enqueue	= (void *)wild_read_enqueue,
	       .exit	= (void *)wild_read_exit,
	       .name	= "wild_read");
