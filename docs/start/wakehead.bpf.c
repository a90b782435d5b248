/* SPDX-License-Identifier: GPL-2.0-only */
/* Woken tasks go to the head of one queue, all others to its tail. */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

/* How long a task may run before the next one gets the CPU, in µs. */
const volatile u64 slice_us = 20000;

#define QUEUE	0

void BPF_STRUCT_OPS(wakehead_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 flags = enq_flags & SCX_ENQ_WAKEUP ? enq_flags | SCX_ENQ_HEAD : enq_flags;

	scx_bpf_dsq_insert(p, QUEUE, slice_us * 1000, flags);
}

void BPF_STRUCT_OPS(wakehead_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(QUEUE, 0);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(wakehead_init)
{
	return scx_bpf_create_dsq(QUEUE, NUMA_NO_NODE);
}

SCX_OPS_DEFINE(wakehead_ops,
	       .enqueue		= (void *)wakehead_enqueue,
	       .dispatch	= (void *)wakehead_dispatch,
	       .init		= (void *)wakehead_init,
	       .name		= "wakehead");
