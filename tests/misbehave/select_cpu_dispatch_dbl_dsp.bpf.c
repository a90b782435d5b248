/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Inserting the same task twice in one ops.select_cpu() ejects the policy.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

s32 BPF_STRUCT_OPS(dbl_dsp_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, 0);
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, 0);
	return prev_cpu;
}

SCX_OPS_DEFINE(select_cpu_dispatch_dbl_dsp_ops,
	       .select_cpu = (void *)dbl_dsp_select_cpu,
	       .timeout_ms = 1000U,
	       .exit = (void *)rule_exit,
	       .name = "dbl_dsp");
