/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: The sequence of 8193 jumps is too complex
 * says: functions of their own
 */
#include "wrong.h"

static u64 table[64];

void BPF_STRUCT_OPS(complex_enqueue, struct task_struct *p, u64 enq_flags)
{
	u32 i;

	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	for (i = 0; i < 10000; i++)
		if (READ_ONCE(table[i & 63]) & 1)
			WRITE_ONCE(sum, i);
}

WRONG_OPS(enqueue, complex_enqueue);
