/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * scx_bpf_dsq_peek() shows the task at the head of a DSQ, the one that the next move takes, and NULL
 * for an empty DSQ. It takes nothing.
 *
 * On one CPU, so that nobody comes between the look and the move.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define DSQ 1234
#define PEEKS_WANTED 100

s32 expected_pid;
u32 nr_tasks_seen, nr_empty_seen;

void BPF_STRUCT_OPS(peek_dsq_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, DSQ, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(peek_dsq_dispatch, s32 cpu, struct task_struct *prev)
{
	s32 nr = scx_bpf_dsq_nr_queued(DSQ);
	struct task_struct *head = scx_bpf_dsq_peek(DSQ);

	if (!head != !nr)
		rule_broken("the DSQ holds %d tasks and the look shows %d", nr, head ? 1 : 0);
	if (scx_bpf_dsq_nr_queued(DSQ) != nr)
		rule_broken("the look changed the number of tasks");
	if (!head) {
		nr_empty_seen++;
		return;
	}
	expected_pid = head->pid;
	nr_tasks_seen++;
	if (!scx_bpf_dsq_move_to_local(DSQ, 0))
		rule_broken("task %d was seen and could not be moved", expected_pid);
	if (nr_tasks_seen >= PEEKS_WANTED && nr_empty_seen)
		rule_holds("%d heads seen and taken", PEEKS_WANTED);
}

void BPF_STRUCT_OPS(peek_dsq_running, struct task_struct *p)
{
	if (expected_pid && p->pid != expected_pid)
		rule_broken("the head was %d and %d runs", expected_pid, p->pid);
	expected_pid = 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(peek_dsq_init)
{
	return scx_bpf_create_dsq(DSQ, -1);
}

SCX_OPS_DEFINE(peek_dsq_ops,
	       .enqueue = (void *)peek_dsq_enqueue,
	       .dispatch = (void *)peek_dsq_dispatch,
	       .running = (void *)peek_dsq_running,
	       .init = (void *)peek_dsq_init,
	       .exit = (void *)rule_exit,
	       .name = "peek_dsq");
