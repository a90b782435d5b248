/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A CPU that ops.select_cpu() returns and where the task may not run is no error: the kernel takes another one, and SCX_DSQ_LOCAL means that one.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define WANTED 100

u32 nr;

s32 BPF_STRUCT_OPS(select_cpu_not_allowed_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	if (!rule_is_half(p))
		return prev_cpu;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, 0);
	return 0;
}

void BPF_STRUCT_OPS(select_cpu_not_allowed_running, struct task_struct *p)
{
	s32 cpu = bpf_get_smp_processor_id();

	if (!rule_is_half(p))
		return;
	/* set_next_task() comes before the migration where a task that runs changes its own mask (do_set_cpus_allowed()). */
	if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr)) {
		rule_broken_or_raced("%s[%d] runs on CPU %d", p->comm, p->pid, cpu);
		return;
	}
	if (__sync_fetch_and_add(&nr, 1) >= WANTED)
		rule_holds("%d runs on allowed CPUs", WANTED);
}

SCX_OPS_DEFINE(select_cpu_not_allowed_ops,
	       .select_cpu = (void *)select_cpu_not_allowed_select_cpu,
	       .running = (void *)select_cpu_not_allowed_running,
	       .exit = (void *)rule_exit,
	       .name = "sel_fallback");
