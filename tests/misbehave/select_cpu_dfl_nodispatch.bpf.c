/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * scx_bpf_select_cpu_dfl() called by a policy only returns a CPU, and whether it was idle: the task
 * still goes through ops.enqueue().
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define FOUND_WANTED 100

/* By slot: the last select_cpu has not been followed by an enqueue yet. */
bool awaited[RULE_TASKS];
/* By slot: the CPU that select_cpu found was idle. */
bool found_idle[RULE_TASKS];
u32 nr_found;

s32 BPF_STRUCT_OPS(select_cpu_dfl_nodispatch_select_cpu, struct task_struct *p, s32 prev_cpu,
		   u64 wake_flags)
{
	bool found = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &found);

	awaited[slot_of(p)] = true;
	found_idle[slot_of(p)] = found;
	return cpu;
}

void BPF_STRUCT_OPS(select_cpu_dfl_nodispatch_enqueue, struct task_struct *p, u64 enq_flags)
{
	u32 slot = slot_of(p);
	u64 dsq = SCX_DSQ_GLOBAL;

	if (awaited[slot] && found_idle[slot]) {
		dsq = SCX_DSQ_LOCAL;
		if (__sync_add_and_fetch(&nr_found, 1) == FOUND_WANTED)
			rule_holds("%d idle CPUs found, each followed by an enqueue", FOUND_WANTED);
	}
	awaited[slot] = false;
	scx_bpf_dsq_insert(p, dsq, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(select_cpu_dfl_nodispatch_running, struct task_struct *p)
{
	if (awaited[slot_of(p)] && !(p->flags & PF_EXITING))
		rule_broken("%s[%d] runs without having been enqueued", p->comm, p->pid);
}

SCX_OPS_DEFINE(select_cpu_dfl_nodispatch_ops,
	       .select_cpu = (void *)select_cpu_dfl_nodispatch_select_cpu,
	       .enqueue = (void *)select_cpu_dfl_nodispatch_enqueue,
	       .running = (void *)select_cpu_dfl_nodispatch_running,
	       .exit = (void *)rule_exit,
	       .name = "dfl_nodispatch");
