/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: scx_bpf_no_such_function
 * says: this kernel
 */
#include "wrong.h"

void scx_bpf_no_such_function(struct task_struct *p) __ksym;

void BPF_STRUCT_OPS(unknown_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_no_such_function(p);
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

WRONG_OPS(enqueue, unknown_enqueue);
