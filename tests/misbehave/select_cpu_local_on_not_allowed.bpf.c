/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Inserting a task from ops.select_cpu() into the local DSQ of a CPU that it may not run on.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

s32 BPF_STRUCT_OPS(select_cpu_local_on_not_allowed_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	if (rule_is_half(p))
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | 0, SCX_SLICE_DFL, 0);
	return prev_cpu;
}

SCX_OPS_DEFINE(select_cpu_local_on_not_allowed_ops,
	       .select_cpu = (void *)select_cpu_local_on_not_allowed_select_cpu,
	       .exit = (void *)rule_exit,
	       .name = "sel_forbidden");
