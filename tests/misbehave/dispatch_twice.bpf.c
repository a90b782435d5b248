/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A task that ops.dispatch() inserts twice goes to the first of the two DSQs, and that is no error.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define DSQ 0
#define WANTED 100

static struct rule_ring ring;
u32 nr_twice;

void BPF_STRUCT_OPS(dispatch_twice_enqueue, struct task_struct *p, u64 enq_flags)
{
	if (rule_is_half(p))
		rule_ring_push(&ring, p->pid);
	else
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(dispatch_twice_dispatch, s32 cpu, struct task_struct *prev)
{
	s32 pid = rule_ring_pop(&ring);
	struct task_struct *p = pid ? bpf_task_from_pid(pid) : NULL;

	if (p) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, 0);
		/* Nobody takes from there. */
		scx_bpf_dsq_insert(p, DSQ, SCX_SLICE_DFL, 0);
		bpf_task_release(p);
		if (__sync_fetch_and_add(&nr_twice, 1) >= WANTED)
			rule_holds("%d tasks inserted twice", WANTED);
	}
	if (scx_bpf_dsq_nr_queued(DSQ))
		rule_broken("the second insertion took effect");
}

s32 BPF_STRUCT_OPS_SLEEPABLE(dispatch_twice_init)
{
	return scx_bpf_create_dsq(DSQ, -1);
}

SCX_OPS_DEFINE(dispatch_twice_ops,
	       .enqueue = (void *)dispatch_twice_enqueue,
	       .dispatch = (void *)dispatch_twice_dispatch,
	       .init = (void *)dispatch_twice_init,
	       .exit = (void *)rule_exit,
	       .name = "twice");
