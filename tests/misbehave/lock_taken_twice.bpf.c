/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ops.enqueue() takes a lock that it holds already.
 */
#include "lock_rule.h"

char _license[] SEC("license") = "GPL";

s32 BPF_STRUCT_OPS_SLEEPABLE(lock_taken_twice_init)
{
	return lock_rule_init();
}

void BPF_STRUCT_OPS(lock_taken_twice_enqueue, struct task_struct *p, u64 enq_flags)
{
	unsigned long flags;

	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	if (!lab_lock_irqsave(&lock_a, flags))
		return;
	if (warmed_up() && lab_lock(&lock_a))
		lab_unlock(&lock_a);
	lab_unlock_irqrestore(&lock_a, flags);
}

SCX_OPS_DEFINE(lock_taken_twice_ops,
	       .enqueue = (void *)lock_taken_twice_enqueue,
	       .init = (void *)lock_taken_twice_init,
	       .exit = (void *)rule_exit,
	       .name = "lock_twice");
