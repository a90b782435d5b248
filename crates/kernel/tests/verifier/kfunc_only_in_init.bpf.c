/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: scx_bpf_create_dsq
 * says: only some ops
 * says in 6.18: must be sleepable to call sleepable kfunc scx_bpf_create_dsq
 */
#include "wrong.h"

void BPF_STRUCT_OPS(create_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	scx_bpf_create_dsq(1, -1); /* here */
}

WRONG_OPS(enqueue, create_enqueue);
