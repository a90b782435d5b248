/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A DSQ that holds tasks cannot be destroyed.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define DSQ 0

void BPF_STRUCT_OPS(destroys_dsq_in_use_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, DSQ, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(destroys_dsq_in_use_dispatch, s32 cpu, struct task_struct *prev)
{
	if (scx_bpf_dsq_nr_queued(DSQ) > 0)
		scx_bpf_destroy_dsq(DSQ);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(destroys_dsq_in_use_init)
{
	return scx_bpf_create_dsq(DSQ, -1);
}

SCX_OPS_DEFINE(destroys_dsq_in_use_ops,
	       .enqueue = (void *)destroys_dsq_in_use_enqueue,
	       .dispatch = (void *)destroys_dsq_in_use_dispatch,
	       .init = (void *)destroys_dsq_in_use_init,
	       .exit = (void *)rule_exit,
	       .name = "dsq_in_use");
