/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * scx_bpf_select_cpu_and() picks an idle CPU that is both in the given mask and among the task's, or
 * fails; what it picks is claimed. It works from ops.select_cpu() and from ops.enqueue().
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define PICKS_WANTED 50

private(ALLOWED) struct bpf_cpumask __kptr *allowed_mask;
u32 nr_selected, nr_enqueued;

static inline void check(struct task_struct *p, const struct cpumask *allowed, s32 cpu)
{
	if (!bpf_cpumask_test_cpu(cpu, allowed) || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
		rule_broken("CPU %d is not allowed for %s[%d]", cpu, p->comm, p->pid);
	/* A CPU that looks again and stays idle counts as idle anew (__scx_update_idle()). */
	if (scx_bpf_test_and_clear_cpu_idle(cpu))
		rule_broken_or_raced("CPU %d was picked and still counts as idle", cpu);
}

s32 BPF_STRUCT_OPS(allowed_cpus_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	const struct cpumask *allowed = cast_mask(allowed_mask);
	s32 cpu;

	if (!allowed) {
		rule_broken("the mask of init is gone");
		return prev_cpu;
	}
	/* Tasks called "enq" are left to ops.enqueue(). */
	if (p->comm[0] == 'e')
		return prev_cpu;
	cpu = scx_bpf_select_cpu_and(p, prev_cpu, wake_flags, allowed, 0);
	if (cpu < 0)
		return prev_cpu;
	check(p, allowed, cpu);
	__sync_fetch_and_add(&nr_selected, 1);
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, 0);
	return cpu;
}

void BPF_STRUCT_OPS(allowed_cpus_enqueue, struct task_struct *p, u64 enq_flags)
{
	const struct cpumask *allowed = cast_mask(allowed_mask);
	s32 cpu;

	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	if (!allowed) {
		rule_broken("the mask of init is gone");
		return;
	}
	cpu = scx_bpf_select_cpu_and(p, scx_bpf_task_cpu(p), 0, allowed, 0);
	if (cpu < 0)
		return;
	check(p, allowed, cpu);
	__sync_fetch_and_add(&nr_enqueued, 1);
	scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	if (nr_selected >= PICKS_WANTED && nr_enqueued >= PICKS_WANTED)
		rule_holds("%d picks from either op", PICKS_WANTED);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(allowed_cpus_init)
{
	struct bpf_cpumask *mask = bpf_cpumask_create();

	if (!mask)
		return -ENOMEM;
	/* CPUs 1 and 2 of the machine's four. */
	bpf_cpumask_set_cpu(1, mask);
	bpf_cpumask_set_cpu(2, mask);
	mask = bpf_kptr_xchg(&allowed_mask, mask);
	if (mask)
		bpf_cpumask_release(mask);
	return 0;
}

SCX_OPS_DEFINE(allowed_cpus_ops,
	       .select_cpu = (void *)allowed_cpus_select_cpu,
	       .enqueue = (void *)allowed_cpus_enqueue,
	       .init = (void *)allowed_cpus_init,
	       .exit = (void *)rule_exit,
	       .name = "allowed_cpus");
