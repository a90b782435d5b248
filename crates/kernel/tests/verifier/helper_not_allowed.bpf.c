/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: bpf_override_return
 * says: not for programs of sched_ext
 */
#include "wrong.h"

void BPF_STRUCT_OPS(helper_enqueue, struct task_struct *p, u64 enq_flags)
{

	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	bpf_override_return((void *)p, 0); /* here */
}

WRONG_OPS(enqueue, helper_enqueue);
