/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: may be NULL
 */
#include "wrong.h"

void BPF_STRUCT_OPS(prev_dispatch, s32 cpu, struct task_struct *prev)
{
	sum += prev->pid; /* here */
	scx_bpf_dsq_move_to_local(0, 0);
}

WRONG_OPS(dispatch, prev_dispatch);
