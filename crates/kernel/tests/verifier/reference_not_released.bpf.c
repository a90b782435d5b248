/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: bpf_task_from_pid
 * says: release
 */
#include "wrong.h"

void BPF_STRUCT_OPS(reference_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_struct *parent = bpf_task_from_pid(1); /* here */

	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	if (parent)
		sum += parent->pid;
}

WRONG_OPS(enqueue, reference_enqueue);
