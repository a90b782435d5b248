/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * With ops.update_idle() and without SCX_OPS_KEEP_BUILTIN_IDLE the built-in idle tracking is off, and
 * so is what builds on it.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

s32 BPF_STRUCT_OPS(idle_tracking_off_select_cpu, struct task_struct *p, s32 prev_cpu,
		   u64 wake_flags)
{
	s32 cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);

	return cpu < 0 ? prev_cpu : cpu;
}

void BPF_STRUCT_OPS(idle_tracking_off_update_idle, s32 cpu, bool idle)
{
}

SCX_OPS_DEFINE(idle_tracking_off_ops,
	       .select_cpu = (void *)idle_tracking_off_select_cpu,
	       .update_idle = (void *)idle_tracking_off_update_idle,
	       .exit = (void *)rule_exit,
	       .name = "idle_off");
