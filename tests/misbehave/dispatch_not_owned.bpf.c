/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A task that ops.dispatch() inserts and that the policy does not have stays where it is, and that is no error.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define DSQ 0
#define WANTED 100

u32 nr_tried;

void BPF_STRUCT_OPS(dispatch_not_owned_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(dispatch_not_owned_dispatch, s32 cpu, struct task_struct *prev)
{
	/* It blocks, or waits in no queue yet. */
	if (prev) {
		scx_bpf_dsq_insert(prev, DSQ, SCX_SLICE_DFL, 0);
		if (__sync_fetch_and_add(&nr_tried, 1) >= WANTED)
			rule_holds("%d tasks inserted that were not the policy's", WANTED);
	}
	if (scx_bpf_dsq_nr_queued(DSQ))
		rule_broken("a task that the policy does not have was inserted");
}

s32 BPF_STRUCT_OPS_SLEEPABLE(dispatch_not_owned_init)
{
	return scx_bpf_create_dsq(DSQ, -1);
}

SCX_OPS_DEFINE(dispatch_not_owned_ops,
	       .enqueue = (void *)dispatch_not_owned_enqueue,
	       .dispatch = (void *)dispatch_not_owned_dispatch,
	       .init = (void *)dispatch_not_owned_init,
	       .exit = (void *)rule_exit,
	       .name = "not_owned");
