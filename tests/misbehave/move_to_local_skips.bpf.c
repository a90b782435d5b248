/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * scx_bpf_dsq_move_to_local() passes over tasks that may not run on the CPU.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define DSQ 0

void BPF_STRUCT_OPS(move_to_local_skips_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 dsq = rule_is_half(p) ? DSQ : SCX_DSQ_GLOBAL;

	scx_bpf_dsq_insert(p, dsq, SCX_SLICE_DFL, enq_flags);
	if (dsq == DSQ)
		scx_bpf_kick_cpu(0, 0);
}

#define WANTED 50

u32 nr_passed_over;

void BPF_STRUCT_OPS(move_to_local_skips_dispatch, s32 cpu, struct task_struct *prev)
{
	bool waits = scx_bpf_dsq_nr_queued(DSQ) > 0;
	bool moved = scx_bpf_dsq_move_to_local(DSQ, 0);

	if (cpu)
		return;
	if (moved)
		rule_broken("CPU 0 got a task that may not run there");
	if (waits && __sync_fetch_and_add(&nr_passed_over, 1) >= WANTED)
		rule_holds("CPU 0 left %d queues alone", WANTED);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(move_to_local_skips_init)
{
	return scx_bpf_create_dsq(DSQ, -1);
}

SCX_OPS_DEFINE(move_to_local_skips_ops,
	       .enqueue = (void *)move_to_local_skips_enqueue,
	       .dispatch = (void *)move_to_local_skips_dispatch,
	       .init = (void *)move_to_local_skips_init,
	       .exit = (void *)rule_exit,
	       .name = "skips");
