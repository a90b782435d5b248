/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ops.dispatch() takes a lock and does not release it; ops.enqueue() waits for it.
 */
#include "lock_rule.h"

char _license[] SEC("license") = "GPL";

s32 BPF_STRUCT_OPS_SLEEPABLE(lock_forgotten_in_dispatch_init)
{
	return lock_rule_init();
}

void BPF_STRUCT_OPS(lock_forgotten_in_dispatch_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	warmed_up();
	use_lock(&lock_a);
}

void BPF_STRUCT_OPS(lock_forgotten_in_dispatch_dispatch, s32 cpu, struct task_struct *prev)
{
	unsigned long flags;

	if (lab_read(nr_enqueued) <= LOCK_RULE_WARM_UP || !lab_lock_irqsave(&lock_a, flags))
		return;
	lab_irq_restore(flags);
}

SCX_OPS_DEFINE(lock_forgotten_in_dispatch_ops,
	       .enqueue = (void *)lock_forgotten_in_dispatch_enqueue,
	       .dispatch = (void *)lock_forgotten_in_dispatch_dispatch,
	       .init = (void *)lock_forgotten_in_dispatch_init,
	       .exit = (void *)rule_exit,
	       .name = "lock_dispatch");
