/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ops.select_cpu() may insert the task that it was called for, no other.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

s32 last_pid;

s32 BPF_STRUCT_OPS(select_cpu_inserts_another_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 pid = last_pid;
	struct task_struct *other;

	last_pid = p->pid;
	if (pid && pid != p->pid && (other = bpf_task_from_pid(pid))) {
		scx_bpf_dsq_insert(other, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, 0);
		bpf_task_release(other);
	}
	return prev_cpu;
}

SCX_OPS_DEFINE(select_cpu_inserts_another_ops,
	       .select_cpu = (void *)select_cpu_inserts_another_select_cpu,
	       .exit = (void *)rule_exit,
	       .name = "sel_another");
