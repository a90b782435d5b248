/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A write through a pointer into nowhere. The verifier lets none through; in the virtual kernel it is
 * a fault of the policy, and schedlab lives on.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(wild_pointer_enqueue, struct task_struct *p, u64 enq_flags)
{
	volatile u64 *nowhere = (u64 *)(0x10000UL + (u32)p->pid * 8);

	*nowhere = 1;
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

SCX_OPS_DEFINE(wild_pointer_ops,
	       .enqueue = (void *)wild_pointer_enqueue,
	       .exit = (void *)rule_exit,
	       .name = "wild_pointer");
