/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Capacity and frequency of every CPU, and levels that are allowed: none of it ends the policy. The
 * frequency of a real CPU changes, so only its range is looked at.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

u32 nr_runs;

void BPF_STRUCT_OPS(cpuperf_capacity_running, struct task_struct *p)
{
	u32 highest = 0;
	s32 cpu;

	bpf_for(cpu, 0, scx_bpf_nr_cpu_ids()) {
		u32 cap = scx_bpf_cpuperf_cap(cpu);

		if (!cap || cap > SCX_CPUPERF_ONE || scx_bpf_cpuperf_cur(cpu) > SCX_CPUPERF_ONE) {
			rule_broken("capacity %u of CPU %d", cap, cpu);
			return;
		}
		if (cap > highest)
			highest = cap;
	}
	if (highest != SCX_CPUPERF_ONE) {
		rule_broken("no CPU has all of the capacity");
		return;
	}
	scx_bpf_cpuperf_set(scx_bpf_task_cpu(p), nr_runs % 2 ? SCX_CPUPERF_ONE : 0);
	if (++nr_runs == 10)
		rule_holds("capacities are known");
}

SCX_OPS_DEFINE(cpuperf_capacity_ops,
	       .running = (void *)cpuperf_capacity_running,
	       .exit = (void *)rule_exit,
	       .name = "cpuperf_capacit");
