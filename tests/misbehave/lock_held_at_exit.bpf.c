/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ops.enqueue() unloads the policy under a lock that it does not release. Others that wait for it, or
 * come for it afterwards, fail at once.
 */
#include "lock_rule.h"

char _license[] SEC("license") = "GPL";

s32 BPF_STRUCT_OPS_SLEEPABLE(lock_held_at_exit_init)
{
	return lock_rule_init();
}

void BPF_STRUCT_OPS(lock_held_at_exit_enqueue, struct task_struct *p, u64 enq_flags)
{
	unsigned long flags;

	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	if (!warmed_up()) {
		use_lock(&lock_a);
		return;
	}
	if (!lab_lock_irqsave(&lock_a, flags)) {
		judge_attempt(false);
		return;
	}
	judge_attempt(true);
	/* Others come to wait. */
	pass_time(100000000);
	rule_holds("the lock is not released");
	lab_write(ended_ns, bpf_ktime_get_ns());
	lab_irq_restore(flags);
}

SCX_OPS_DEFINE(lock_held_at_exit_ops,
	       .enqueue = (void *)lock_held_at_exit_enqueue,
	       .init = (void *)lock_held_at_exit_init,
	       .exit = (void *)rule_exit,
	       .name = "lock_exit");
