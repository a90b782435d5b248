/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The default SMP scheduler of Linux 2.4.
 *
 * Idea: one unordered list of all runnable tasks under one lock. A CPU that calls
 * schedule() walks the whole list with the lock held and takes the task with
 * the greatest goodness: ticks left of its quantum, plus its nice level, plus a
 * bonus for having run on this CPU last and for sharing the address space.
 * When everybody's ticks are used up, the counters of all tasks in the system
 * are recalculated; sleepers keep half of what they had left.
 *
 * Good for: few runnable tasks and few CPUs; interactive tasks beside a batch
 * job; showing what one lock held over a linear scan costs.
 *
 * Bad for: many runnable tasks (each choice looks at all of them) and more
 * than about four CPUs (each choice waits for all others).
 *
 * Source: Linux 2.4.3; S. Molloy and P. Honeyman, Scalable Linux Scheduling,
 * 2001; H. Franke et al., PMQS: Scalable Linux Scheduling for High End Servers,
 * 2001; docs/schedulers/dss.md restates the rules.
 *
 * Simplifications: how schedule() maps to sched_ext.
 * - Its choice is ops.dispatch(), under the one lock, the previous task first.
 *   A blocked task leaves the list there too, as in 2.4: ops.quiescent() only
 *   notes it. Where the kernel runs something else without asking dispatch (a
 *   task in the local queue), it leaves the list at the next occasion.
 * - A task that was displaced is placed again in ops.enqueue(), which comes
 *   just before the context switch, not just after it.
 * - need_resched is a word per CPU. An IPI that arrives after its mark was
 *   honoured changes nothing, as in 2.4: dispatch keeps the running task
 *   without taking the lock.
 * - A 10 ms tick of the counter is 10 ms of running time, whatever HZ is.
 *   `charge=ticks` counts timer ticks instead, as 2.4 did; for HZ = 100.
 * - The remaining ticks of a task that has exited go to the task that created
 *   it, if that is still there; in 2.4 to the one that waits for it.
 * - In a real kernel real-time tasks never get here, and migration-disabled
 *   ones go to their CPU's local queue, which probes count.
 * - Recalculation does not take the task list's reader lock.
 * - A synchronous wakeup places the task nevertheless if the waker's CPU is
 *   not among its allowed ones (the rule of later 2.4 kernels).
 */
#include <lab/lab.bpf.h>
#include <lab/linux24.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

enum dss_ties { TIES_PREV, TIES_LIST };

/* The winner among equals: the previous task, or the one nearer the head (2.4.16). */
const volatile enum dss_ties ties = TIES_PREV;

/* Goodness by which a woken task must exceed the running one (0 to 1073741824): 1 up to 2.4.7, 0 in 2.4.13. */
const volatile u32 threshold = 1;

/* Which kernel's arithmetic: 2.4, or 2.3.99, which ELSC was written against. */
const volatile enum linux24_base base = BASE_LINUX_2_4;

/* The unit that uses up a tick of the counter: 10 ms of running time, or a timer tick. */
const volatile enum linux24_charge charge = CHARGE_RUNTIME;

struct dss_task {
	union {
		struct lab_task lab;
		struct linux24_task old;
	};
};

LAB_TASKS(struct dss_task);

struct dss_queue {
	struct lab_lock runqueue_lock;
	struct lab_list list;		/* all runnable tasks, in no order */
} __attribute__((aligned(LAB_CACHELINE)));

struct dss_queue __arena_global rq;
struct linux24_cpu __arena_global cpus[LAB_MAX_CPUS];

/*
 * The functions that linux24_queue.h requires.
 */

#define RQ_KEEPS_RUNNING 1
#define RQ_SORTED 0
#define RQ_YIELD_GOES_LAST (ties == TIES_LIST)

static __always_inline int rq_init(void)
{
	lab_list_init(&rq.list);
	return 0;
}

static __always_inline int rq_new_task(void)
{
	return 0;
}

static __always_inline s64 rq_nr(void)
{
	return lab_read(rq.list.nr);
}

static __always_inline void rq_add(task_t *t)
{
	lab_touch(&rq.list.head, true);
	lab_list_add_head(&rq.list, &t->lab.node);
	t->old.linked = true;
}

static __always_inline void rq_del(task_t *t)
{
	lab_touch(&rq.list.head, true);
	lab_list_del(&rq.list, &t->lab.node);
	t->old.linked = false;
}

static __always_inline bool rq_misfiled(task_t *t)
{
	return false;
}

static __always_inline void rq_prev(task_t *prev, bool goes_last)
{
	if (!goes_last || !prev->old.linked)
		return;
	lab_list_del(&rq.list, &prev->lab.node);
	lab_list_add_tail(&rq.list, &prev->lab.node);
}

static __always_inline s32 dss_goodness(task_t *t, s32 cpu, u64 mm)
{
	return linux24_goodness(&t->old, cpu, mm, base);
}

static __always_inline s32 dss_goodness_of_prev(task_t *prev, s32 cpu, u64 mm, bool recalculated)
{
	bool yielded = prev->old.yielded;
	s32 value;

	/* In 2.3.99 a yield counts once; after a recalculation it is like the others. */
	if (base == BASE_2_3_99 && recalculated)
		prev->old.yielded = false;
	value = dss_goodness(prev, cpu, mm);
	prev->old.yielded = yielded;
	return value;
}

static __always_inline bool rq_choose(task_t *prev, s32 cpu, u64 mm, bool recalculated,
				      task_t **best, s32 *best_value)
{
	lab_node_t *pos;
	s32 value;
	task_t *t;

	/* One that is not linked (it came by the local queue) has no other chance. */
	if (prev && (ties == TIES_PREV || !prev->old.linked)) {
		examine(prev);
		*best = prev;
		*best_value = dss_goodness_of_prev(prev, cpu, mm, recalculated);
	}
	lab_touch(&rq.list.head, false);
	lab_list_for_each(pos, &rq.list) {
		t = lab_entry(pos, struct dss_task, lab.node);
		if (t == prev && ties == TIES_PREV)
			continue;
		examine(t);
		if (t == prev)
			value = dss_goodness_of_prev(t, cpu, mm, recalculated);
		else if (!lab_glance(t->old.takeable) || !lab_allowed(&t->lab, cpu))
			continue;
		else
			value = dss_goodness(t, cpu, mm);
		if (value > *best_value) {
			*best = t;
			*best_value = value;
		}
	}
	return lab_list_ended(pos, &rq.list);
}

/*
 * Recalculates the counters of all tasks of the system, runnable or not. The
 * lock is dropped meanwhile, as 2.4 did.
 */
static __always_inline bool rq_recalculate(void)
{
	lab_unlock(&rq.runqueue_lock);
	if (!linux24_recalculate(sizeof(task_t), base))
		return false;
	return lab_lock(&rq.runqueue_lock);
}

#include <lab/linux24_queue.h>

void BPF_STRUCT_OPS(dss_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(dss_ops,
	       QUEUE24_OPS,
	       .exit			= (void *)dss_exit,
	       .name			= "dss");
