/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The capacity of a CPU that does not exist.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(cpuperf_no_cpu_running, struct task_struct *p)
{
	scx_bpf_cpuperf_cap(99999);
}

SCX_OPS_DEFINE(cpuperf_no_cpu_ops,
	       .running = (void *)cpuperf_no_cpu_running,
	       .exit = (void *)rule_exit,
	       .name = "cpuperf_no_cpu");
