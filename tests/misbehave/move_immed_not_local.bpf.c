/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * SCX_ENQ_IMMED is for local DSQs: scx_bpf_dsq_move() refuses it for others.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define DSQ 0

void BPF_STRUCT_OPS(move_immed_not_local_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 dsq = rule_is_half(p) ? DSQ : SCX_DSQ_GLOBAL;

	scx_bpf_dsq_insert(p, dsq, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(move_immed_not_local_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, DSQ, 0) {
		scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_GLOBAL, SCX_ENQ_IMMED);
		break;
	}
}

s32 BPF_STRUCT_OPS_SLEEPABLE(move_immed_not_local_init)
{
	return scx_bpf_create_dsq(DSQ, -1);
}

SCX_OPS_DEFINE(move_immed_not_local_ops,
	       .enqueue = (void *)move_immed_not_local_enqueue,
	       .dispatch = (void *)move_immed_not_local_dispatch,
	       .init = (void *)move_immed_not_local_init,
	       .exit = (void *)rule_exit,
	       .name = "move_immed");
