/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The multi-queue scheduler of IBM for Linux 2.4.
 *
 * Idea: the goodness of Linux 2.4, but a run queue and a lock for each CPU.
 * Each queue publishes the goodness, without bonuses, of the best of its tasks
 * that waits. schedule() searches its own queue, then takes a look at what the
 * other queues have published; if one has something better it tries that
 * queue's lock, looks again and takes that task. A lock that is not free is
 * not waited for: the next best queue is tried.
 *
 * Good for: the decisions of dss, nearly, on more CPUs than four; no choice
 * waits for another CPU's.
 *
 * Bad for: hundreds of CPUs (each choice looks at what all others have
 * published) and, as dss, many runnable tasks.
 *
 * Source: M. Kravetz, H. Franke, S. Nagar and R. Ravindran, Enhancing Linux
 * Scheduler Scalability, 2001, and the authors' patches for Linux 2.4.7,
 * 2.4.14 and 2.5.0; docs/schedulers/mq.md restates the rules.
 *
 * Simplifications: besides what dss says about sched_ext, ticks and exits
 * - A recalculation moves a global number on, and a task applies what it has
 *   missed when it is looked at next; in the simulator it takes the time that
 *   the loop over all tasks took. What queues have published before is read as
 *   the recalculations since then have made it.
 * - A queue does not keep a copy of the allowed CPUs of the task it publishes:
 *   others read the task's own, as a filter.
 * - The CPU that recalculates because the best it found elsewhere had no ticks
 *   keeps the task that it has taken from there.
 * - After a recalculation a CPU in whose queue somebody waits, and which publishes
 *   nothing, chooses again, lest nobody look there.
 * - The first patch's quirk of adding the affinity bonus twice is left out.
 * - After 16 repetitions because of locks that were not free, a CPU goes idle
 *   and interrupts itself.
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

enum mq_repairing { REPAIR_NONE, REPAIR_FIRST };

/* The value that a queue publishes after it was robbed: nothing, or the first task with ticks (later patches). */
const volatile enum mq_repairing repair = REPAIR_NONE;

static __always_inline u32 mq_pool_of(s32 cpu)
{
	return 0;
}

static __always_inline bool mq_repairs(void)
{
	return repair == REPAIR_FIRST;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(mq_init)
{
	return mq_init_queues();
}

void BPF_STRUCT_OPS(mq_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

MQ_OPS(mq_ops, "mq", mq_init, mq_exit);
