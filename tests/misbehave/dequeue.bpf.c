/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ops.dequeue() is called exactly once when a task leaves the policy's custody, and never for a task
 * that was not in it. A task is in custody from ops.enqueue() that keeps it (in a DSQ of the policy or
 * in the policy's own queue) or ops.select_cpu() that inserts it into such a DSQ, until it goes to a
 * local or the global DSQ. Being dispatched carries no SCX_DEQ_SCHED_CHANGE.
 *
 * The first letter of a task's name gives its behaviour:
 *   a  select_cpu inserts into the local DSQ      d  enqueue inserts into the local DSQ
 *   b  select_cpu inserts into the global DSQ     e  enqueue inserts into the global DSQ
 *   c  select_cpu inserts into a user DSQ         f  enqueue inserts into a user DSQ
 *   g  enqueue keeps it in a queue of its own and dispatch inserts it into a local DSQ
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define DSQ 0
#define WAKEUPS_WANTED 20

static struct rule_ring ring;

/* Per task, by slot. */
bool in_custody[RULE_TASKS];
/* Per way, a to g. */
u32 nr_runs[7], nr_dequeues[7];

static inline u32 way_of(const struct task_struct *p)
{
	u32 way = p->comm[0] - 'a';

	return way < 7 ? way : 1;
}

static inline void enters_custody(struct task_struct *p)
{
	u32 slot = slot_of(p);

	if (in_custody[slot])
		rule_broken("%s[%d] enters custody twice", p->comm, p->pid);
	in_custody[slot] = true;
}

s32 BPF_STRUCT_OPS(dequeue_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	switch (way_of(p)) {
	case 0:
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, 0);
		break;
	case 1:
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, 0);
		break;
	case 2:
		enters_custody(p);
		scx_bpf_dsq_insert(p, DSQ, SCX_SLICE_DFL, 0);
		break;
	}
	return prev_cpu;
}

void BPF_STRUCT_OPS(dequeue_enqueue, struct task_struct *p, u64 enq_flags)
{
	switch (way_of(p)) {
	case 3:
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, enq_flags);
		break;
	case 5:
		enters_custody(p);
		scx_bpf_dsq_insert(p, DSQ, SCX_SLICE_DFL, enq_flags);
		break;
	case 6:
		enters_custody(p);
		rule_ring_push(&ring, p->pid);
		break;
	default:
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
		break;
	}
	scx_bpf_kick_cpu(scx_bpf_task_cpu(p), SCX_KICK_IDLE);
}

void BPF_STRUCT_OPS(dequeue_dequeue, struct task_struct *p, u64 deq_flags)
{
	u32 way = way_of(p), slot = slot_of(p);

	if (!in_custody[slot])
		rule_broken("dequeue of %s[%d], which is not in custody", p->comm, p->pid);
	if (deq_flags & SCX_DEQ_SCHED_CHANGE)
		rule_broken("%s[%d] was dispatched, nothing of it changed", p->comm, p->pid);
	in_custody[slot] = false;
	nr_dequeues[way]++;
}

void BPF_STRUCT_OPS(dequeue_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task_struct *p;
	s32 pid = rule_ring_pop(&ring);

	if (!pid) {
		scx_bpf_dsq_move_to_local(DSQ, 0);
		return;
	}
	p = bpf_task_from_pid(pid);
	if (!p) {
		rule_broken("task %d is gone from the queue without a word", pid);
		return;
	}
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, 0);
	bpf_task_release(p);
}

void BPF_STRUCT_OPS(dequeue_running, struct task_struct *p)
{
	u32 i, way = way_of(p);
	bool enough = true;

	if (in_custody[slot_of(p)])
		rule_broken("%s[%d] runs, and no op reported that it left custody", p->comm, p->pid);
	nr_runs[way]++;
	bpf_for(i, 0, 7) {
		bool keeps = i == 2 || i == 5 || i == 6;

		if (nr_runs[i] < WAKEUPS_WANTED || (keeps && nr_dequeues[i] < WAKEUPS_WANTED))
			enough = false;
	}
	if (enough)
		rule_holds("all seven ways in and out of custody");
}

s32 BPF_STRUCT_OPS_SLEEPABLE(dequeue_init)
{
	return scx_bpf_create_dsq(DSQ, -1);
}

SCX_OPS_DEFINE(dequeue_ops,
	       .select_cpu = (void *)dequeue_select_cpu,
	       .enqueue = (void *)dequeue_enqueue,
	       .dequeue = (void *)dequeue_dequeue,
	       .dispatch = (void *)dequeue_dispatch,
	       .running = (void *)dequeue_running,
	       .init = (void *)dequeue_init,
	       .flags = SCX_OPS_ENQ_LAST,
	       .exit = (void *)rule_exit,
	       .name = "dequeue");
