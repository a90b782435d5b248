/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * scx_bpf_select_cpu_dfl() may be called from ops.enqueue(). A CPU that it finds idle is one of the
 * task's, and is claimed: no other caller gets it as idle.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define FOUND_WANTED 100

u32 nr_found;

s32 BPF_STRUCT_OPS(enq_select_cpu_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

void BPF_STRUCT_OPS(enq_select_cpu_enqueue, struct task_struct *p, u64 enq_flags)
{
	bool found = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, scx_bpf_task_cpu(p), 0, &found);

	if (!found) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
		return;
	}
	if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
		rule_broken("CPU %d is none of %s[%d]'s", cpu, p->comm, p->pid);
	/* A CPU that looks again and stays idle counts as idle anew (__scx_update_idle()). */
	if (scx_bpf_test_and_clear_cpu_idle(cpu))
		rule_broken_or_raced("CPU %d was chosen and still counts as idle", cpu);
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | cpu, SCX_SLICE_DFL, enq_flags);
	if (__sync_add_and_fetch(&nr_found, 1) == FOUND_WANTED)
		rule_holds("%d idle CPUs found from enqueue", FOUND_WANTED);
}

SCX_OPS_DEFINE(enq_select_cpu_ops,
	       .select_cpu = (void *)enq_select_cpu_select_cpu,
	       .enqueue = (void *)enq_select_cpu_enqueue,
	       .timeout_ms = 1000U,
	       .exit = (void *)rule_exit,
	       .name = "enq_select_cpu");
