/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ops.select_cpu() may insert the task itself: into the local DSQ, which is the one of the CPU it
 * returns, or into the global one. ops.enqueue() is then not called.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define MOVED_WANTED 50

/* By slot: the CPU whose local DSQ the task went to plus 1, or 0. */
s32 target[RULE_TASKS];
/* By slot: select_cpu inserted the task. */
bool inserted[RULE_TASKS];
u32 nr_moved, nr_global;

s32 BPF_STRUCT_OPS(select_cpu_dispatch_select_cpu, struct task_struct *p, s32 prev_cpu,
		   u64 wake_flags)
{
	/* Any idle CPU but the last one, if there is one: where the task goes must be visible. */
	bool stays = scx_bpf_test_and_clear_cpu_idle(prev_cpu);
	s32 cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	u32 slot = slot_of(p);

	if (cpu < 0 && stays)
		cpu = prev_cpu;
	inserted[slot] = true;
	if (cpu < 0) {
		target[slot] = 0;
		nr_global++;
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, 0);
		return prev_cpu;
	}
	target[slot] = cpu + 1;
	if (cpu != prev_cpu)
		nr_moved++;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, 0);
	return cpu;
}

void BPF_STRUCT_OPS(select_cpu_dispatch_enqueue, struct task_struct *p, u64 enq_flags)
{
	u32 slot = slot_of(p);

	if (inserted[slot])
		rule_broken("%s[%d] was inserted and is enqueued", p->comm, p->pid);
	target[slot] = 0;
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(select_cpu_dispatch_running, struct task_struct *p)
{
	s32 cpu = bpf_get_smp_processor_id();
	u32 slot = slot_of(p);

	if (target[slot] && target[slot] != cpu + 1)
		rule_broken("%s[%d] was sent to CPU %d and runs on %d", p->comm, p->pid,
			    target[slot] - 1, cpu);
	inserted[slot] = false;
	if (nr_moved >= MOVED_WANTED && nr_global >= MOVED_WANTED)
		rule_holds("%d tasks sent to another CPU", MOVED_WANTED);
}

/* It sleeps, or is taken out because an attribute changes: what it was inserted for is void. */
void BPF_STRUCT_OPS(select_cpu_dispatch_quiescent, struct task_struct *p, u64 deq_flags)
{
	target[slot_of(p)] = 0;
	inserted[slot_of(p)] = false;
}

SCX_OPS_DEFINE(select_cpu_dispatch_ops,
	       .select_cpu = (void *)select_cpu_dispatch_select_cpu,
	       .enqueue = (void *)select_cpu_dispatch_enqueue,
	       .running = (void *)select_cpu_dispatch_running,
	       .quiescent = (void *)select_cpu_dispatch_quiescent,
	       .timeout_ms = 1000U,
	       .exit = (void *)rule_exit,
	       .name = "select_dispatch");
