/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Dispatching to the local DSQ of a CPU that does not exist.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(local_on_no_cpu_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | 99999, SCX_SLICE_DFL, enq_flags);
}

SCX_OPS_DEFINE(local_on_no_cpu_ops,
	       .enqueue = (void *)local_on_no_cpu_enqueue,
	       .exit = (void *)rule_exit,
	       .name = "no_cpu");
