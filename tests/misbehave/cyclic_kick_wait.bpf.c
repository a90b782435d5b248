/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Three CPUs that kick each other in a circle with SCX_KICK_WAIT, each waiting for the next one to
 * reschedule, all make progress.
 *
 * The workload keeps several yielding tasks bound to each of CPUs 0 to 2.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define NR_CPUS_IN_CIRCLE 3
#define KICKS_WANTED 200

/* By CPU: how often it kicked its neighbour. */
u32 nr_kicks[NR_CPUS_IN_CIRCLE];

void BPF_STRUCT_OPS(cyclic_kick_wait_enqueue, struct task_struct *p, u64 enq_flags)
{
	u32 i, cpu = bpf_get_smp_processor_id();

	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	if (cpu >= NR_CPUS_IN_CIRCLE)
		return;
	scx_bpf_kick_cpu((cpu + 1) % NR_CPUS_IN_CIRCLE, SCX_KICK_WAIT);
	nr_kicks[cpu]++;
	bpf_for(i, 0, NR_CPUS_IN_CIRCLE)
		if (nr_kicks[i] < KICKS_WANTED)
			return;
	rule_holds("%d waiting kicks of each CPU", KICKS_WANTED);
}

SCX_OPS_DEFINE(cyclic_kick_wait_ops,
	       .enqueue = (void *)cyclic_kick_wait_enqueue,
	       .timeout_ms = 300U,
	       .exit = (void *)rule_exit,
	       .name = "cyclic_kick_wait");
