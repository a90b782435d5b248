/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: loop without end
 * says: bpf_for
 */
#include "wrong.h"

void BPF_STRUCT_OPS(loop_enqueue, struct task_struct *p, u64 enq_flags)
{
	volatile u64 *place = &sum;

	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	while (1)
		*place = 1; /* here */
}

WRONG_OPS(enqueue, loop_enqueue);
