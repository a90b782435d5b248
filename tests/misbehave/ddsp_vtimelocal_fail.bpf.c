/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The built-in DSQs are FIFO only: inserting into a local one by vtime ejects the policy.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

s32 BPF_STRUCT_OPS(ddsp_vtimelocal_select_cpu, struct task_struct *p, s32 prev_cpu,
		   u64 wake_flags)
{
	s32 cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);

	scx_bpf_dsq_insert_vtime(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, p->scx.dsq_vtime, 0);
	return cpu < 0 ? prev_cpu : cpu;
}

SCX_OPS_DEFINE(ddsp_vtimelocal_fail_ops,
	       .select_cpu = (void *)ddsp_vtimelocal_select_cpu,
	       .timeout_ms = 1000U,
	       .exit = (void *)rule_exit,
	       .name = "ddsp_vtimelocal");
