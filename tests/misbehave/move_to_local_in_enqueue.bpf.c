/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ops.enqueue() may not take from a DSQ: scx_bpf_dsq_move_to_local() is for ops.dispatch().
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(move_to_local_in_enqueue_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_move_to_local(0, 0);
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

SCX_OPS_DEFINE(move_to_local_in_enqueue_ops,
	       .enqueue = (void *)move_to_local_in_enqueue_enqueue,
	       .exit = (void *)rule_exit,
	       .name = "mtl_enqueue");
