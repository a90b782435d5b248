/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: 512 bytes
 * says: stack
 */
#include "wrong.h"

static __noinline u64 inner(u64 x)
{
	volatile u64 kept[40];
	u32 i;

	for (i = 0; i < 40; i++)
		kept[i] = x + i;
	return kept[x & 31];
}

void BPF_STRUCT_OPS(stack_enqueue, struct task_struct *p, u64 enq_flags)
{
	volatile u64 kept[40];
	u32 i;

	for (i = 0; i < 40; i++)
		kept[i] = enq_flags + i;
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	sum = inner(kept[p->pid & 31]);
}

WRONG_OPS(enqueue, stack_enqueue);
