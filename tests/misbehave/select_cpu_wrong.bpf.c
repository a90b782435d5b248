/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ops.select_cpu() returns a CPU that no machine has.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

s32 BPF_STRUCT_OPS(select_cpu_wrong_select_cpu, struct task_struct *p, s32 prev_cpu,
		   u64 wake_flags)
{
	return 99999;
}

SCX_OPS_DEFINE(select_cpu_wrong_ops,
	       .select_cpu = (void *)select_cpu_wrong_select_cpu,
	       .exit = (void *)rule_exit,
	       .name = "wrong_cpu");
