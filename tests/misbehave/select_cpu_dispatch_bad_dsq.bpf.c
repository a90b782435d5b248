/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Inserting into a DSQ that nobody created, from ops.select_cpu(), ejects the policy.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define NOBODYS_DSQ 0xabad1dea

s32 BPF_STRUCT_OPS(bad_dsq_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	scx_bpf_dsq_insert(p, NOBODYS_DSQ, SCX_SLICE_DFL, 0);
	return prev_cpu;
}

SCX_OPS_DEFINE(select_cpu_dispatch_bad_dsq_ops,
	       .select_cpu = (void *)bad_dsq_select_cpu,
	       .timeout_ms = 1000U,
	       .exit = (void *)rule_exit,
	       .name = "bad_dsq");
