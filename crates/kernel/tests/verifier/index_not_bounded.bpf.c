/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: bounds
 */
#include "wrong.h"

u64 table[16];

void BPF_STRUCT_OPS(index_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	table[p->pid] += 1; /* here */
}

WRONG_OPS(enqueue, index_enqueue);
