/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ops.enqueue() reports an error under a lock that others wait for, and holds the lock for long after
 * that. Those who wait fail at once.
 */
#include "lock_rule.h"

char _license[] SEC("license") = "GPL";

s32 BPF_STRUCT_OPS_SLEEPABLE(lock_error_while_others_wait_init)
{
	return lock_rule_init();
}

void BPF_STRUCT_OPS(lock_error_while_others_wait_enqueue, struct task_struct *p, u64 enq_flags)
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
	pass_time(100000000);
	scx_bpf_error("given up under the lock");
	lab_write(ended_ns, bpf_ktime_get_ns());
	pass_time(3800000000ull);
	lab_unlock_irqrestore(&lock_a, flags);
}

SCX_OPS_DEFINE(lock_error_while_others_wait_ops,
	       .enqueue = (void *)lock_error_while_others_wait_enqueue,
	       .init = (void *)lock_error_while_others_wait_init,
	       .exit = (void *)rule_exit,
	       .name = "lock_error");
