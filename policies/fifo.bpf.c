/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * First come, first served: one queue for all CPUs.
 *
 * Idea: a task that becomes runnable goes to the tail of one global queue, and a
 * CPU that has nothing to do takes the head. A task runs until its slice is
 * used up and then queues at the tail again. A woken task starts at once on an
 * idle CPU if there is one.
 *
 * Good for: being the least that schedules a machine; equal tasks that wait
 * little; a baseline without any choice to pay for.
 *
 * Bad for: interactive tasks beside computing ones, since all wait for all
 * slices before them; nice levels, which it ignores; many CPUs, which all take
 * the lock of the one queue; caches, since a task resumes anywhere.
 *
 * Source: E. G. Coffman and P. J. Denning, Operating Systems Theory, 1973
 * (first come, first served, with a quantum: round robin).
 *
 * Simplifications: none; it is what it says.
 */
#include <scx/common.bpf.h>
#include <lab/option.h>
#include <lab/higher.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

/* How long a task may run before the next one in the queue gets the CPU, in µs (0 to 3600000000). */
const volatile u64 slice_us = 20000;

/* An hour; in ns it fits. */
#define FIFO_SLICE_US_MAX	3600000000ull

/* The one queue. Ids below 2^63 are free for policies. */
#define FIFO_QUEUE	0

static __always_inline u64 fifo_slice_ns(void)
{
	return slice_us * 1000;
}

/* Decides where a woken task runs; an idle CPU gets it without any queue. */
s32 BPF_STRUCT_OPS(fifo_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);

	if (is_idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, fifo_slice_ns(), 0);
	return cpu;
}

void BPF_STRUCT_OPS(fifo_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, FIFO_QUEUE, fifo_slice_ns(), enq_flags);
	if (enq_flags & SCX_ENQ_REENQ)
		lab_kick_idle(p);
}

void BPF_STRUCT_OPS(fifo_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(FIFO_QUEUE, 0);
}

void BPF_STRUCT_OPS(fifo_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	lab_cpu_release_of(FIFO_QUEUE);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(fifo_init)
{
	if (!lab_at_most(slice_us, FIFO_SLICE_US_MAX))
		return -EINVAL;
	return scx_bpf_create_dsq(FIFO_QUEUE, NUMA_NO_NODE);
}

void BPF_STRUCT_OPS(fifo_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(fifo_ops,
	       .select_cpu	= (void *)fifo_select_cpu,
	       .enqueue		= (void *)fifo_enqueue,
	       .dispatch	= (void *)fifo_dispatch,
	       .cpu_release	= (void *)fifo_cpu_release,
	       .init		= (void *)fifo_init,
	       .exit		= (void *)fifo_exit,
	       .name		= "fifo");
