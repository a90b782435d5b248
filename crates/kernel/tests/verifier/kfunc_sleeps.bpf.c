/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: may sleep
 * says: BPF_STRUCT_OPS_SLEEPABLE
 */
#include "wrong.h"

int bpf_copy_from_user_str(void *dst, u32 dst__sz, const void *unsafe_ptr__ign, u64 flags) __weak __ksym;

void BPF_STRUCT_OPS(sleeps_enqueue, struct task_struct *p, u64 enq_flags)
{
	char text[8];

	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	bpf_copy_from_user_str(text, sizeof(text), NULL, 0); /* here */
}

WRONG_OPS(enqueue, sleeps_enqueue);
