/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ops.dispatch() may not select a CPU: scx_bpf_select_cpu_dfl() is for ops that hold no lock of a run queue, ops.select_cpu() and ops.enqueue().
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(select_dfl_in_dispatch_dispatch, s32 cpu, struct task_struct *prev)
{
	bool is_idle = false;

	if (prev)
		scx_bpf_select_cpu_dfl(prev, cpu, 0, &is_idle);
}

SCX_OPS_DEFINE(select_dfl_in_dispatch_ops,
	       .dispatch = (void *)select_dfl_in_dispatch_dispatch,
	       .exit = (void *)rule_exit,
	       .name = "dfl_dispatch");
