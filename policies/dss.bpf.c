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
#include <lab/linux24_queue.h>

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
 * The list. Its lock is held.
 */

static __always_inline void dss_add(linux24_task_t *t)
{
	lab_touch(&rq.list.head, true);
	lab_list_add_head(&rq.list, &t->lab.node);
	t->linked = true;
}

static __always_inline void dss_del(linux24_task_t *t)
{
	lab_touch(&rq.list.head, true);
	lab_list_del(&rq.list, &t->lab.node);
	t->linked = false;
}

static __always_inline void dss_move_last(linux24_task_t *t)
{
	lab_list_del(&rq.list, &t->lab.node);
	lab_list_add_tail(&rq.list, &t->lab.node);
}

/* A real-time task whose quantum has ended goes behind its equals. */
static __always_inline void dss_previous(linux24_task_t *prev, bool refilled)
{
	if (refilled && prev->linked)
		dss_move_last(prev);
}

static __always_inline s32 dss_goodness(linux24_task_t *t, s32 cpu, u64 mm)
{
	return linux24_goodness(t, cpu, mm, base);
}

static __always_inline s32 dss_goodness_of_prev(linux24_task_t *prev, s32 cpu, u64 mm,
						bool recalculated)
{
	bool yielded = prev->yielded;
	s32 value;

	/* In 2.3.99 a yield counts once; after a recalculation it is like the others. */
	if (base == BASE_2_3_99 && recalculated)
		prev->yielded = false;
	value = dss_goodness(prev, cpu, mm);
	prev->yielded = yielded;
	return value;
}

static __always_inline bool dss_choose(linux24_task_t *prev, s32 cpu, u64 mm, bool recalculated,
				       linux24_task_t **best, s32 *best_value)
{
	linux24_task_t *t;
	lab_node_t *pos;
	s32 value;

	/* One that is not linked (it came by the local queue) has no other chance. */
	if (prev && (ties == TIES_PREV || !prev->linked)) {
		examine(prev);
		*best = prev;
		*best_value = dss_goodness_of_prev(prev, cpu, mm, recalculated);
	}
	lab_touch(&rq.list.head, false);
	lab_list_for_each(pos, &rq.list) {
		t = lab_entry(pos, struct linux24_task, lab.node);
		if (t == prev && ties == TIES_PREV)
			continue;
		examine(t);
		if (t == prev)
			value = dss_goodness_of_prev(t, cpu, mm, recalculated);
		else if (!lab_glance(t->takeable) || !lab_allowed(&t->lab, cpu))
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
static __always_inline bool dss_recalculate(void)
{
	lab_unlock(&rq.runqueue_lock);
	if (!linux24_recalculate(sizeof(task_t), base))
		return false;
	return lab_lock(&rq.runqueue_lock);
}

static const struct queue24_hooks dss_list = {
	.keeps_running	= true,
	.add		= dss_add,
	.del		= dss_del,
	.misfiled	= NULL,		/* in a list without order nobody is */
	.previous	= dss_previous,
	.choose		= dss_choose,
	.recalculate	= dss_recalculate,
};

/*
 * CPUs that a higher class has taken.
 */

static __always_inline u64 dss_nr_stranded(s32 cpu)
{
	return queue24_stranded(cpu) && lab_read(rq.list.nr);
}

static __always_inline bool dss_rescue(u32 from, u32 to)
{
	return queue24_rescue(&rq.runqueue_lock, from, to);
}

LAB_RESCUE(dss_nr_stranded, queue24_idle, dss_rescue);

/*
 * Ops, in the order of a task's life.
 */

/* fork(): parent and child share the parent's remaining ticks. */
s32 BPF_STRUCT_OPS_SLEEPABLE(dss_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct task_struct *forker = bpf_get_current_task_btf();
	task_t *t = task_new(p);

	if (!t)
		return -ENOMEM;
	lab_note_higher(p);
	linux24_fork(&t->old, p, args, forker, base);
	return 0;
}

/* Only the previous CPU: where a task goes is settled under the lock, in enqueue. */
s32 BPF_STRUCT_OPS(dss_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	task_t *t = task_of(p);

	if (t)
		linux24_woken(&t->old, wake_flags);
	return prev_cpu;
}

void BPF_STRUCT_OPS(dss_enqueue, struct task_struct *p, u64 enq_flags)
{
	task_t *t = task_of(p);

	if (t)
		queue24_enqueue(&rq.runqueue_lock, &dss_list, &t->old, p, enq_flags, threshold, base);
	else
		lab_no_context(p);
}

void BPF_STRUCT_OPS(dss_dequeue, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		queue24_dequeue(&rq.runqueue_lock, &dss_list, &t->old, deq_flags);
}

void BPF_STRUCT_OPS(dss_dispatch, s32 cpu, struct task_struct *prev)
{
	queue24_schedule(&rq.runqueue_lock, &dss_list, cpu, prev, charge, base);
}

void BPF_STRUCT_OPS(dss_running, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (t)
		linux24_running(&t->old, p);
}

void BPF_STRUCT_OPS(dss_tick, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (t)
		linux24_tick(&t->old, p, charge);
}

/* sched_yield(): from 2.4 on only if a task waits. The lock is taken only if the task moves. */
bool BPF_STRUCT_OPS(dss_yield, struct task_struct *from, struct task_struct *to)
{
	task_t *t = task_of(from);
	unsigned long flags;

	if (!t || to)
		return false;
	if (base != BASE_2_3_99 && !linux24_others_wait(lab_read(rq.list.nr)))
		return false;
	if (ties == TIES_LIST && lab_glance(t->old.linked)) {
		if (!lab_lock_irqsave(&rq.runqueue_lock, flags))
			return false;
		if (t->old.linked)
			dss_move_last(&t->old);
		lab_unlock_irqrestore(&rq.runqueue_lock, flags);
	}
	linux24_yield(&t->old, from);
	return true;
}

void BPF_STRUCT_OPS(dss_set_weight, struct task_struct *p, u32 weight)
{
	task_t *t = task_of(p);

	if (t)
		linux24_set_nice(&t->old, p);
}

void BPF_STRUCT_OPS(dss_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	task_t *t = task_of(p);

	if (t)
		lab_task_refresh(&t->lab, p);
}

void BPF_STRUCT_OPS(dss_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	lab_cpu_release();
}

void BPF_STRUCT_OPS(dss_stopping, struct task_struct *p, bool runnable)
{
	task_t *t = task_of(p);

	if (t)
		linux24_charge_runtime(&t->old, scx_bpf_now(), charge);
}

void BPF_STRUCT_OPS(dss_quiescent, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		queue24_quiescent(&rq.runqueue_lock, &dss_list, &t->old, deq_flags);
}

/* It leaves for a scheduling class that is not ours. */
void BPF_STRUCT_OPS(dss_disable, struct task_struct *p)
{
	task_t *t = task_of(p);

	lab_note_higher(p);
	if (t)
		queue24_forget(&rq.runqueue_lock, &dss_list, &t->old);
}

/* exit(): what is left of the ticks goes back to the task that forked it. */
void BPF_STRUCT_OPS(dss_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	queue24_forget(&rq.runqueue_lock, &dss_list, &t->old);
	linux24_collect(&t->old, (linux24_task_t *)task_parent(&t->old.parent));
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(dss_init)
{
	int error = queue24_init(&rq.runqueue_lock, threshold);

	if (!error)
		lab_list_init(&rq.list);
	return error;
}

void BPF_STRUCT_OPS(dss_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(dss_ops,
	       .init_task		= (void *)dss_init_task,
	       .select_cpu		= (void *)dss_select_cpu,
	       .enqueue			= (void *)dss_enqueue,
	       .dequeue			= (void *)dss_dequeue,
	       .dispatch		= (void *)dss_dispatch,
	       .running			= (void *)dss_running,
	       .tick			= (void *)dss_tick,
	       .yield			= (void *)dss_yield,
	       .set_weight		= (void *)dss_set_weight,
	       .set_cpumask		= (void *)dss_set_cpumask,
	       .cpu_release		= (void *)dss_cpu_release,
	       .stopping		= (void *)dss_stopping,
	       .quiescent		= (void *)dss_quiescent,
	       .disable			= (void *)dss_disable,
	       .exit_task		= (void *)dss_exit_task,
	       .init			= (void *)dss_init,
	       .exit			= (void *)dss_exit,
	       .name			= "dss");
