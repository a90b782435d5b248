/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: stack
 */
#include "wrong.h"

void BPF_STRUCT_OPS(beyond_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 kept[4] = {};

	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	bpf_probe_read_kernel(kept, 4096, p); /* here */
	sum += kept[0];
}

WRONG_OPS(enqueue, beyond_enqueue);
