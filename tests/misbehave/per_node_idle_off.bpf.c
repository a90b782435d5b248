/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Idle CPUs per node are only kept with SCX_OPS_BUILTIN_IDLE_PER_NODE.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

s32 BPF_STRUCT_OPS(per_node_idle_off_select_cpu, struct task_struct *p, s32 prev_cpu,
		   u64 wake_flags)
{
	s32 cpu = scx_bpf_pick_idle_cpu_node(p->cpus_ptr, 0, 0);

	return cpu < 0 ? prev_cpu : cpu;
}

SCX_OPS_DEFINE(per_node_idle_off_ops,
	       .select_cpu = (void *)per_node_idle_off_select_cpu,
	       .exit = (void *)rule_exit,
	       .name = "per_node_off");
