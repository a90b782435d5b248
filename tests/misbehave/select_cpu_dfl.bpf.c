/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Without ops.select_cpu() a woken task goes straight to an idle CPU's local DSQ, and ops.enqueue()
 * does not hear of it. The workload always leaves CPUs idle.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define RUNS_WANTED 200

u32 nr_runs;

void BPF_STRUCT_OPS(select_cpu_dfl_enqueue, struct task_struct *p, u64 enq_flags)
{
	if (enq_flags & SCX_ENQ_WAKEUP)
		rule_broken("%s[%d] woke up on an idle machine and was enqueued", p->comm, p->pid);
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(select_cpu_dfl_running, struct task_struct *p)
{
	if (__sync_add_and_fetch(&nr_runs, 1) == RUNS_WANTED)
		rule_holds("%d runs without an enqueue", RUNS_WANTED);
}

SCX_OPS_DEFINE(select_cpu_dfl_ops,
	       .enqueue = (void *)select_cpu_dfl_enqueue,
	       .running = (void *)select_cpu_dfl_running,
	       .exit = (void *)rule_exit,
	       .name = "select_cpu_dfl");
