/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ops.dispatch() may insert a task into the local DSQ of any CPU the task may run on, and there it
 * runs.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define REMOTE_WANTED 100

static struct rule_ring ring;
/* By slot: the CPU that a task was sent to plus 1, or 0. */
s32 target[RULE_TASKS];
/*
 * By slot: the task is in the ring. One whose attributes change is enqueued again and then stands there
 * twice; the first CPU that takes it clears this.
 */
u32 queued[RULE_TASKS];
u32 nr_remote;

s32 BPF_STRUCT_OPS(dsp_local_on_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

void BPF_STRUCT_OPS(dsp_local_on_enqueue, struct task_struct *p, u64 enq_flags)
{
	target[slot_of(p)] = 0;
	queued[slot_of(p)] = 1;
	rule_ring_push(&ring, p->pid);
}

void BPF_STRUCT_OPS(dsp_local_on_dispatch, s32 cpu, struct task_struct *prev)
{
	s32 pid = rule_ring_pop(&ring), to;
	struct task_struct *p;

	if (!pid || !__sync_val_compare_and_swap(&queued[(u32)pid % RULE_TASKS], 1, 0))
		return;
	p = bpf_task_from_pid(pid);
	if (!p) {
		rule_broken("task %d is gone from the queue without a word", pid);
		return;
	}
	to = bpf_get_prandom_u32() % scx_bpf_nr_cpu_ids();
	if (is_migration_disabled(p) || !bpf_cpumask_test_cpu(to, p->cpus_ptr))
		to = scx_bpf_task_cpu(p);
	target[slot_of(p)] = to + 1;
	if (to != cpu)
		__sync_fetch_and_add(&nr_remote, 1);
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | to, SCX_SLICE_DFL, 0);
	bpf_task_release(p);
}

void BPF_STRUCT_OPS(dsp_local_on_running, struct task_struct *p)
{
	s32 cpu = bpf_get_smp_processor_id(), to = target[slot_of(p)];

	if (to && to - 1 != cpu)
		rule_broken("%s[%d] was sent to CPU %d and runs on %d", p->comm, p->pid, to - 1, cpu);
	/* The next time it may come without having been sent: exiting, or bound to its CPU for a while. */
	target[slot_of(p)] = 0;
	if (nr_remote >= REMOTE_WANTED)
		rule_holds("%d tasks sent to other CPUs", REMOTE_WANTED);
}

SCX_OPS_DEFINE(dsp_local_on_ops,
	       .select_cpu = (void *)dsp_local_on_select_cpu,
	       .enqueue = (void *)dsp_local_on_enqueue,
	       .dispatch = (void *)dsp_local_on_dispatch,
	       .running = (void *)dsp_local_on_running,
	       .timeout_ms = 1000U,
	       .exit = (void *)rule_exit,
	       .name = "dsp_local_on");
