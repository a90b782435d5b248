/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The performance level of another CPU than the one whose run queue is locked: ops.running() is called
 * with the lock of its own CPU.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(cpuperf_other_cpu_running, struct task_struct *p)
{
	scx_bpf_cpuperf_set(scx_bpf_task_cpu(p) ? 0 : 1, SCX_CPUPERF_ONE);
}

SCX_OPS_DEFINE(cpuperf_other_cpu_ops,
	       .running = (void *)cpuperf_other_cpu_running,
	       .exit = (void *)rule_exit,
	       .name = "cpuperf_other_c");
