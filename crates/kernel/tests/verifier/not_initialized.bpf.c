/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: has no value
 */
#include "wrong.h"

void BPF_STRUCT_OPS(value_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 slice;

	asm volatile("%0 = r9" : "=r"(slice)); /* here */
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, slice, enq_flags);
}

WRONG_OPS(enqueue, value_enqueue);
