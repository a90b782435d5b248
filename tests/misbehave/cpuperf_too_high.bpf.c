/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A performance level above the highest.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(cpuperf_too_high_running, struct task_struct *p)
{
	scx_bpf_cpuperf_set(0, SCX_CPUPERF_ONE + 1);
}

SCX_OPS_DEFINE(cpuperf_too_high_ops,
	       .running = (void *)cpuperf_too_high_running,
	       .exit = (void *)rule_exit,
	       .name = "cpuperf_too_hig");
