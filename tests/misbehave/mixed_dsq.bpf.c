/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A DSQ is FIFO or ordered by vtime, not both at a time.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define DSQ 0

u32 nr_enqueues;

void BPF_STRUCT_OPS(mixed_dsq_enqueue, struct task_struct *p, u64 enq_flags)
{
	if (__sync_fetch_and_add(&nr_enqueues, 1) % 2)
		scx_bpf_dsq_insert_vtime(p, DSQ, SCX_SLICE_DFL, 0, enq_flags);
	else
		scx_bpf_dsq_insert(p, DSQ, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(mixed_dsq_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(DSQ, 0);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(mixed_dsq_init)
{
	return scx_bpf_create_dsq(DSQ, -1);
}

SCX_OPS_DEFINE(mixed_dsq_ops,
	       .enqueue = (void *)mixed_dsq_enqueue,
	       .dispatch = (void *)mixed_dsq_dispatch,
	       .init = (void *)mixed_dsq_init,
	       .exit = (void *)rule_exit,
	       .name = "mixed_dsq");
