/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Kicking a CPU that does not exist.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(kick_invalid_cpu_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	scx_bpf_kick_cpu(-3, 0);
}

SCX_OPS_DEFINE(kick_invalid_cpu_ops,
	       .enqueue = (void *)kick_invalid_cpu_enqueue,
	       .exit = (void *)rule_exit,
	       .name = "kick_invalid");
