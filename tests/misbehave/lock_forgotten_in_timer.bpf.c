/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A timer takes a lock and does not release it; ops.enqueue() waits for it.
 */
#include "lock_rule.h"

char _license[] SEC("license") = "GPL";

static void forget(void)
{
	unsigned long flags;

	if (lab_read(nr_enqueued) <= LOCK_RULE_WARM_UP || !lab_lock_irqsave(&lock_a, flags))
		return;
	lab_irq_restore(flags);
}

LAB_PERIODIC(tick, forget, 1000000)

s32 BPF_STRUCT_OPS_SLEEPABLE(lock_forgotten_in_timer_init)
{
	s32 err = lock_rule_init();

	return err ?: tick_start();
}

void BPF_STRUCT_OPS(lock_forgotten_in_timer_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	warmed_up();
	use_lock(&lock_a);
}

SCX_OPS_DEFINE(lock_forgotten_in_timer_ops,
	       .enqueue = (void *)lock_forgotten_in_timer_enqueue,
	       .init = (void *)lock_forgotten_in_timer_init,
	       .exit = (void *)rule_exit,
	       .name = "lock_timer");
