/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: may be NULL
 * says: counter
 */
#include "wrong.h"

void BPF_STRUCT_OPS(value_enqueue, struct task_struct *p, u64 enq_flags)
{
	u32 key = 1;
	u64 *counter = bpf_map_lookup_elem(&counters, &key);

	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	*counter += 1; /* here */
}

WRONG_OPS(enqueue, value_enqueue);
