/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: task_struct
 * says: static_prio
 * says: scx_bpf_task_set_slice
 */
#include "wrong.h"

void BPF_STRUCT_OPS(field_enqueue, struct task_struct *p, u64 enq_flags)
{
	p->static_prio = 120; /* here */
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

WRONG_OPS(enqueue, field_enqueue);
