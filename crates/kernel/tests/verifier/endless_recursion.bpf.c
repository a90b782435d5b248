/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: recursive call from again() to again()
 * says: loop
 * says in 6.18: the call stack of 9 frames is too deep
 * says in 6.18: make it a loop
 */
#include "wrong.h"

static __noinline u64 again(u64 x)
{
	if (x < 3)
		return x;
	return again(x - 1) + again(x - 2);
}

void BPF_STRUCT_OPS(recursion_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	sum = again(p->pid);
}

WRONG_OPS(enqueue, recursion_enqueue);
