/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: bpf_spin_unlock()
 */
#include "wrong.h"

private(A) struct bpf_spin_lock lock;
u64 guarded;

void BPF_STRUCT_OPS(lock_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	bpf_spin_lock(&lock); /* here */
	guarded++;
}

WRONG_OPS(enqueue, lock_enqueue);
