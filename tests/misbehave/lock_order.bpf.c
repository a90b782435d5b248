/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPUs with an even number take two locks in one order and the others in the other one, so two of them
 * wait for each other.
 */
#include "lock_rule.h"

char _license[] SEC("license") = "GPL";

s32 BPF_STRUCT_OPS_SLEEPABLE(lock_order_init)
{
	return lock_rule_init();
}

void BPF_STRUCT_OPS(lock_order_enqueue, struct task_struct *p, u64 enq_flags)
{
	unsigned long flags;

	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	if (!warmed_up())
		return;
	lab_irq_save(flags);
	if (bpf_get_smp_processor_id() & 1) {
		if (lab_lock(&lock_a)) {
			pass_time(1000000);
			if (lab_lock(&lock_b))
				lab_unlock(&lock_b);
			lab_unlock(&lock_a);
		}
	} else {
		if (lab_lock(&lock_b)) {
			pass_time(1000000);
			if (lab_lock(&lock_a))
				lab_unlock(&lock_a);
			lab_unlock(&lock_b);
		}
	}
	lab_irq_restore(flags);
}

SCX_OPS_DEFINE(lock_order_ops,
	       .enqueue = (void *)lock_order_enqueue,
	       .init = (void *)lock_order_init,
	       .exit = (void *)rule_exit,
	       .name = "lock_order");
