/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A kfunc that the kernel has and the virtual kernel has not: the run stops with its name when it is
 * called, and not before.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

u32 nr_runs;

void BPF_STRUCT_OPS(missing_kfunc_running, struct task_struct *p)
{
	if (++nr_runs == 5)
		scx_bpf_locked_rq();
}

SCX_OPS_DEFINE(missing_kfunc_ops,
	       .running = (void *)missing_kfunc_running,
	       .exit = (void *)rule_exit,
	       .name = "missing_kfunc");
