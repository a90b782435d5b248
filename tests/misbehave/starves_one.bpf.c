/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A policy that forgets one task while the others run: the watchdog finds that one, within the bound
 * that the policy set itself.
 *
 * The workload's forgotten task is called "victim".
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(starves_one_enqueue, struct task_struct *p, u64 enq_flags)
{
	if (p->comm[0] != 'v')
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

SCX_OPS_DEFINE(starves_one_ops,
	       .enqueue = (void *)starves_one_enqueue,
	       .timeout_ms = 1000U,
	       .exit = (void *)rule_exit,
	       .name = "starves_one");
