/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: scx_bpf_dsq_move_to_local
 * says: only some ops
 * says in 6.18: called from an operation only allowing
 * runs in 6.18
 */
#include "wrong.h"

void BPF_STRUCT_OPS(other_running, struct task_struct *p)
{
	scx_bpf_dsq_move_to_local(0, 0); /* here */
}

WRONG_OPS(running, other_running);
