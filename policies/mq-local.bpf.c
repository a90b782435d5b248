/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The multi-queue scheduler without its global phase: each CPU for itself.
 *
 * Idea: the goodness of Linux 2.4, a run queue and a lock for each CPU, and a
 * choice that looks at the own queue only. A task stays where it was forked.
 *
 * Good for: showing what the global phase of mq is worth; many independent
 * tasks that somebody else has spread over the CPUs.
 *
 * Bad for: everything that needs balance. A CPU idles beside a long queue, and
 * runs the unimportant beside one in which the important waits.
 *
 * Source: the multi-queue prototype of HP's plug-in scheduler, as M. Kravetz,
 * H. Franke, S. Nagar and R. Ravindran describe it in Enhancing Linux
 * Scheduler Scalability, 2001; docs/schedulers/mq-local.md restates the rules.
 *
 * Simplifications: besides what mq says
 * - Only that a choice is local is published. Placement, forks, real-time
 *   tasks and recalculation are our proposal: mq with pools of one CPU.
 */
#include <lab/lab.bpf.h>
#include <lab/linux24.h>

/* Goodness by which a woken task must exceed the running one (0 to 1073741824). */
const volatile u32 threshold = 1;

/* The unit that uses up a tick of the counter: 10 ms of running time, or a timer tick. */
const volatile enum linux24_charge charge = CHARGE_RUNTIME;

#include <lab/mq.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

static __always_inline u32 mq_pool_of(s32 cpu)
{
	return cpu;
}

static __always_inline bool mq_repairs(void)
{
	return false;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(mq_init)
{
	return mq_init_queues();
}

void BPF_STRUCT_OPS(mq_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

MQ_OPS(mq_local_ops, "mq_local", mq_init, mq_exit);
