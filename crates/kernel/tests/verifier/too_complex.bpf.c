/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: 1000000 instructions
 * says: bpf_for()
 */
#include "wrong.h"

static u64 table[64];

void BPF_STRUCT_OPS(complex_enqueue, struct task_struct *p, u64 enq_flags)
{
	u32 i, j, k;

	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	for (i = 0; i < 64; i++)
		for (j = 0; j < 64; j++)
			for (k = 0; k < 512; k++)
				WRITE_ONCE(table[j], READ_ONCE(table[i]) * k + READ_ONCE(sum));
}

WRONG_OPS(enqueue, complex_enqueue);
