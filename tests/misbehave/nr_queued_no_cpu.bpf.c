/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Asking for the length of the local DSQ of a CPU that does not exist ejects the policy.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(nr_queued_no_cpu_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | 99999);
}

SCX_OPS_DEFINE(nr_queued_no_cpu_ops,
	       .dispatch = (void *)nr_queued_no_cpu_dispatch,
	       .exit = (void *)rule_exit,
	       .name = "nr_no_cpu");
