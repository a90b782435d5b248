/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: bpf_local_irq_restore()
 */
#include "wrong.h"

void BPF_STRUCT_OPS(irq_enqueue, struct task_struct *p, u64 enq_flags)
{
	unsigned long flags;

	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	bpf_local_irq_save(&flags); /* here */
	sum++;
}

WRONG_OPS(enqueue, irq_enqueue);
