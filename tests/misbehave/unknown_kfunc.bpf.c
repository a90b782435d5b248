/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A kfunc that no kernel has. Linux refuses to load the call; here the run ends when it is reached.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void scx_bpf_make_it_fast(struct task_struct *p) __ksym __weak;

u32 nr_runs;

void BPF_STRUCT_OPS(unknown_kfunc_running, struct task_struct *p)
{
	if (++nr_runs == 5)
		scx_bpf_make_it_fast(p);
}

SCX_OPS_DEFINE(unknown_kfunc_ops,
	       .running = (void *)unknown_kfunc_running,
	       .exit = (void *)rule_exit,
	       .name = "unknown_kfunc");
