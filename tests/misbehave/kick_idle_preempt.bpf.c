/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A kick only for idle CPUs cannot also preempt.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(kick_idle_preempt_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	scx_bpf_kick_cpu(0, SCX_KICK_IDLE | SCX_KICK_PREEMPT);
}

SCX_OPS_DEFINE(kick_idle_preempt_ops,
	       .enqueue = (void *)kick_idle_preempt_enqueue,
	       .exit = (void *)rule_exit,
	       .name = "idle_preempt");
