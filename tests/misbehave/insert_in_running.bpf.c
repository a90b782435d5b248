/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ops.running() may not insert a task: scx_bpf_dsq_insert() is for ops.select_cpu(), ops.enqueue() and ops.dispatch().
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(insert_in_running_running, struct task_struct *p)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, 0);
}

SCX_OPS_DEFINE(insert_in_running_ops,
	       .running = (void *)insert_in_running_running,
	       .exit = (void *)rule_exit,
	       .name = "ins_running");
