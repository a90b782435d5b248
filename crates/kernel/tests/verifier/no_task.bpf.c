/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: scx_bpf_dsq_insert
 * says: pointer
 */
#include "wrong.h"

void BPF_STRUCT_OPS(argument_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert((struct task_struct *)sum, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags); /* here */
}

WRONG_OPS(enqueue, argument_enqueue);
