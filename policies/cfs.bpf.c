/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The Completely Fair Scheduler of Linux 2.6.23 to 6.5.
 *
 * Idea: a task's virtual time grows while it runs, the slower the greater its
 * weight. Each CPU keeps its tasks in a tree ordered by it and runs the one that
 * has had the least. In a period every task has a turn of a length proportional
 * to its weight. A task that wakes is placed half a period behind the queue's
 * clock at most, so that sleepers run soon but cannot hoard. Wakeups stay close to
 * the waker or the previous CPU; queues are levelled per cache, node and machine.
 *
 * Good for: fair shares by nice level; desktops and servers with mixed work; many
 * CPUs, as each has a queue and a lock of its own.
 *
 * Bad for: bounded latency (a task's turn comes when its virtual time is least,
 * however urgent it is); queues that are uneven for less than a balancing period.
 *
 * Source: Linux 5.16 (kernel/sched/fair.c), without group scheduling and NUMA
 * balancing; docs/schedulers/cfs.md restates the rules.
 *
 * Simplifications:
 * - The load of a queue is the sum of the weights of runnable tasks now, not a
 *   decaying average of them (a woken task's own load is one), and a queue is
 *   compared with the busiest one, not group with group. Balancing so reacts
 *   faster and more to chance.
 * - Active balance is for threads of a core only: a task that runs alone on its
 *   CPU but shares the core goes to an idle core, once its own tick has found that
 *   four times in a row (five times, beyond the cache). Linux evens out the numbers
 *   of running tasks of nodes in this way, too.
 * - A new task is placed on the queue it goes to, with its parent's virtual time
 *   moved to that queue's clock, not on its parent's queue.
 * - sched_ext has no tick on idle CPUs: the tick of a CPU where tasks wait wakes
 *   one idle CPU, which takes a task from the busiest queue nearby.
 * - Between the choice of another task and the context switch the previous one is
 *   counted in no queue.
 * - Real-time tasks never get here in a real kernel. Tasks that come by a CPU's
 *   local queue (exiting and migration-disabled ones) run next; probes count them.
 */
#include <lab/lab.bpf.h>
#include <lab/fair.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

/* Period in which each task has a turn, if they are few, in µs (0 to 1000000); on one CPU, see `scale`. */
const volatile u64 latency_us = 6000;

/* Least length of a turn, in µs (0 to 1000000); on one CPU. */
const volatile u64 min_granularity_us = 750;

/* By how much a woken task must be behind to take the CPU, in µs (0 to 1000000); on one CPU. */
const volatile u64 wakeup_granularity_us = 1000;

/* Whether these times grow with the number of CPUs: 2 from 2, 3 from 4, 4 from 8 on. */
const volatile bool scale = true;

/* Whether a sleeper gets half a period only. */
const volatile bool gentle = true;

/* Whether a new task runs before its parent. */
const volatile bool child_runs_first = false;

/* Least turn of the idle policy beside others; the same on any number of CPUs, and no option of Linux's. */
#define CFS_IDLE_MIN_GRANULARITY_NS	750000

/* A CPU that becomes idle, and is for less each time, takes nothing: up to Linux 5.15. */
#define CFS_NEWIDLE_NS			FAIR_MIGRATION_COST_NS

/* The times on this machine, in ns. */
static u64 cfs_latency, cfs_min_granularity, cfs_wakeup_granularity;

static __always_inline void cfs_times(u32 nr_cpus)
{
	u64 factor = scale ? fair_factor(nr_cpus) : 1;

	cfs_latency = latency_us * 1000 * factor;
	cfs_min_granularity = min_granularity_us * 1000 * factor;
	cfs_wakeup_granularity = wakeup_granularity_us * 1000 * factor;
}

/*
 * The rules. Pure functions of numbers, so that they can be tested one by one.
 */

/* The time in which each of @nr tasks has a turn. */
static __always_inline u64 cfs_period(u64 nr)
{
	u64 most = cfs_min_granularity ? cfs_latency / cfs_min_granularity : 0;

	return nr > most ? nr * cfs_min_granularity : cfs_latency;
}

/* A task's part of the period, of @load in all. */
static __always_inline u64 cfs_share(u64 nr, u64 weight, u64 load)
{
	return load ? cfs_period(nr) * weight / load : cfs_period(nr);
}

/* Whether all of a queue's @nr tasks, of @load in all, have the idle policy; there must be any. */
static __always_inline bool cfs_all_idle(u64 nr, u64 load)
{
	return nr && load == nr * FAIR_WEIGHT_IDLE;
}

/* And how long its turn is; @yields: it has the idle policy, and is not among its like. */
static __always_inline u64 cfs_slice(u64 nr, u64 weight, u64 load, bool yields)
{
	u64 least = yields ? CFS_IDLE_MIN_GRANULARITY_NS : cfs_min_granularity;
	u64 share = cfs_share(nr, weight, load);

	return share < least ? least : share;
}

/* Virtual time of a task that wakes beside a queue's clock. */
static __always_inline s64 cfs_woken(s64 v, s64 min_v, bool idle_policy)
{
	u64 credit = idle_policy ? cfs_min_granularity : cfs_latency;

	if (gentle)
		credit /= 2;
	return fair_later(v, min_v - credit);
}

/*
 * Whether a task at @v takes the CPU from one at @curr_v: 1 yes; 0 it is ahead,
 * but not by enough; -1 it is not ahead.
 */
static __always_inline s32 cfs_ahead(s64 curr_v, s64 v, u64 weight)
{
	s64 lead = (u64)curr_v - (u64)v;

	if (lead <= 0)
		return -1;
	return lead > fair_virtual(cfs_wakeup_granularity, weight);
}

/*
 * The hooks of <lab/fair.h>. The queue's lock is held.
 */

static __always_inline s64 cfs_key(task_t *t)
{
	return t->vruntime;
}

/* Whether its turns have the idle policy's least length, among @nr tasks of @load in all. */
static __always_inline bool cfs_yields(task_t *t, u64 nr, u64 load)
{
	return t->policy == LAB_SCHED_IDLE && !cfs_all_idle(nr, load);
}

static __always_inline void cfs_place(rq_t *rq, task_t *t, u64 now)
{
	u64 others = fair_load(rq), nr, slice;

	if (t->home != rq->cpu)
		t->vruntime += (u64)rq->min_v - (u64)lab_read(rq_at(t->home)->min_v);
	if (t->fresh) {
		nr = fair_nr(rq);
		slice = cfs_slice(nr + 1, t->weight, others + t->weight,
				  cfs_yields(t, nr, others));
		t->vruntime = fair_later(t->vruntime, rq->min_v + fair_virtual(slice, t->weight));
	} else if (t->asleep) {
		t->vruntime = cfs_woken(t->vruntime, rq->min_v, t->policy == LAB_SCHED_IDLE);
	}
	if (t->fresh && child_runs_first && rq->curr) {
		s64 v = fair_curr_v(rq, now), own = t->vruntime;

		if (lab_rb_less(v, own)) {
			t->vruntime = v;
			lab_post(rq->curr->vruntime,
				 lab_glance(rq->curr->vruntime) + ((u64)own - (u64)v));
		}
	}
	t->home = rq->cpu;
}

static __always_inline void cfs_forget_hints(rq_t *rq, task_t *t)
{
	if (rq->next == t)
		rq->next = NULL;
	if (rq->last == t)
		rq->last = NULL;
	if (rq->skip == t)
		rq->skip = NULL;
}

static __always_inline void cfs_leave(rq_t *rq, task_t *t, u64 now)
{
	cfs_forget_hints(rq, t);
}

static __always_inline bool cfs_preempts(rq_t *rq, task_t *t, bool fresh, u64 now)
{
	task_t *curr = rq->curr;

	consult(curr);
	if (lab_glance(curr->policy) == LAB_SCHED_IDLE && t->policy != LAB_SCHED_IDLE)
		return true;
	if (t->policy == LAB_SCHED_BATCH || t->policy == LAB_SCHED_IDLE)
		return false;
	if (fresh && child_runs_first && lab_rb_less(t->vruntime, lab_glance(curr->vruntime)))
		return true;
	if (cfs_ahead(fair_curr_v(rq, now), t->vruntime, t->weight) < 1)
		return false;
	rq->next = t;
	/* With many tasks the one that is interrupted comes back soon: its cache is warm. */
	if (cfs_min_granularity && fair_nr(rq) >= cfs_latency / cfs_min_granularity)
		rq->last = curr;
	return true;
}

static __always_inline task_t *cfs_task(lab_rb_node_t *node)
{
	return lab_entry(node, struct fair_task, tree);
}

/*
 * Whether a hint is honoured: if that is not unfair to the one whose turn it is. A task
 * that went to another queue may still be a hint here; then it does not count.
 */
static __always_inline bool cfs_hint(rq_t *rq, task_t *hint, task_t *prev, task_t *left)
{
	if (!hint)
		return false;
	consult(hint);
	if (hint != prev && (!lab_read(hint->queued) || lab_read(hint->home) != rq->cpu))
		return false;
	return cfs_ahead(hint->vruntime, left->vruntime, left->weight) < 1;
}

static __always_inline task_t *cfs_pick(rq_t *rq, task_t *prev)
{
	task_t *left = NULL, *second = NULL, *chosen;
	lab_rb_node_t *first = rq->tree.first, *next;

	if (first) {
		left = cfs_task(first);
		examine(left);
	}
	if (prev) {
		examine(prev);
		if (!left || lab_rb_less(prev->vruntime, left->vruntime))
			left = prev;
	}
	if (!left)
		return NULL;
	chosen = left;
	if (rq->skip == left) {
		if (left == prev) {
			if (first)
				second = cfs_task(first);
		} else {
			next = lab_rb_next(first);
			if (next) {
				second = cfs_task(next);
				consult(second);
			}
			if (prev && (!second || lab_rb_less(prev->vruntime, second->vruntime)))
				second = prev;
		}
		if (second) {
			examine(second);
			if (cfs_hint(rq, second, prev, left))
				chosen = second;
		}
	}
	if (cfs_hint(rq, rq->next, prev, left))
		chosen = rq->next;
	else if (cfs_hint(rq, rq->last, prev, left))
		chosen = rq->last;
	if (chosen == prev)
		cfs_forget_hints(rq, prev);
	return chosen;
}

static __always_inline void cfs_begin(rq_t *rq, task_t *t)
{
	cfs_forget_hints(rq, t);
}

static __always_inline bool cfs_turn_ends(rq_t *rq, task_t *t)
{
	u64 slice, nr, load;
	s64 lead;

	if (!rq->nr)
		return false;
	load = fair_load(rq);
	nr = fair_nr(rq);
	slice = cfs_slice(nr, t->weight, load, cfs_yields(t, nr, load));
	if (t->turn_ns > slice) {
		cfs_forget_hints(rq, t);
		return true;
	}
	if (t->turn_ns < cfs_min_granularity)
		return false;
	lab_touch(rq->tree.first, false);
	lead = (u64)t->vruntime - (u64)rq->tree.first->key;
	return lead > (s64)slice;
}

static const struct fair_hooks fair_hooks = {
	.key		= cfs_key,
	.place		= cfs_place,
	.leave		= cfs_leave,
	.clock_moved	= NULL,
	.counted	= NULL,
	.preempts	= cfs_preempts,
	.pick		= cfs_pick,
	.begin		= cfs_begin,
	.turn_ends	= cfs_turn_ends,
};

/*
 * Ops, in the order of a task's life.
 */

s32 BPF_STRUCT_OPS_SLEEPABLE(cfs_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct task_struct *forker = bpf_get_current_task_btf();
	task_t *t = task_new(p);

	if (!t)
		return -ENOMEM;
	lab_note_higher(p);
	fair_fork(t, p, args, forker);
	return 0;
}

s32 BPF_STRUCT_OPS(cfs_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	task_t *t = task_of(p);

	return t ? fair_select_cpu(p, t, prev_cpu, wake_flags) : prev_cpu;
}

void BPF_STRUCT_OPS(cfs_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 now = scx_bpf_now();
	task_t *t = task_of(p);

	if (t)
		fair_enqueue(t, p, now);
	else
		lab_no_context(p);
}

/*
 * A waiting task is taken away, or an attribute of it changes; then it is enqueued
 * again. Tasks that dispatch has chosen come here too; they are no longer in the queue.
 */
void BPF_STRUCT_OPS(cfs_dequeue, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		fair_remove(t);
}

void BPF_STRUCT_OPS(cfs_dispatch, s32 cpu, struct task_struct *prev)
{
	fair_dispatch(cpu, prev, CFS_NEWIDLE_NS);
}

void BPF_STRUCT_OPS(cfs_running, struct task_struct *p)
{
	u64 now = scx_bpf_now();
	task_t *t = task_of(p);

	if (t)
		fair_running(t, now);
}

void BPF_STRUCT_OPS(cfs_tick, struct task_struct *p)
{
	u64 now = scx_bpf_now();
	task_t *t = task_of(p);

	if (t)
		fair_tick(t, p, now);
}

/* sched_yield(): the others first, if that is fair; nothing is taken from the task. */
bool BPF_STRUCT_OPS(cfs_yield, struct task_struct *from, struct task_struct *to)
{
	rq_t *rq = rq_at(bpf_get_smp_processor_id());
	task_t *t = task_of(from);
	unsigned long flags;
	bool waits;

	if (!t || to || !lab_lock_irqsave(&rq->lock, flags))
		return false;
	waits = rq->nr;
	if (waits) {
		cfs_forget_hints(rq, t);
		rq->skip = t;
	}
	lab_unlock_irqrestore(&rq->lock, flags);
	if (waits)
		scx_bpf_task_set_slice(from, 0);
	return waits;
}

void BPF_STRUCT_OPS(cfs_set_weight, struct task_struct *p, u32 weight)
{
	task_t *t = task_of(p);

	if (t)
		fair_set_weight(t, p);
}

void BPF_STRUCT_OPS(cfs_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	task_t *t = task_of(p);

	if (t)
		lab_task_refresh(&t->lab, p);
}

void BPF_STRUCT_OPS(cfs_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	lab_cpu_release();
}

void BPF_STRUCT_OPS(cfs_stopping, struct task_struct *p, bool runnable)
{
	task_t *t = task_of(p);

	if (t)
		fair_charge(t, scx_bpf_now());
}

void BPF_STRUCT_OPS(cfs_quiescent, struct task_struct *p, u64 deq_flags)
{
	u64 now = scx_bpf_now();
	task_t *t = task_of(p);

	if (t)
		fair_quiescent(t, deq_flags, now);
}

/* It leaves for a scheduling class that is not ours. */
void BPF_STRUCT_OPS(cfs_disable, struct task_struct *p)
{
	task_t *t = task_of(p);

	lab_note_higher(p);
	if (t)
		fair_forget(t);
}

void BPF_STRUCT_OPS(cfs_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	fair_forget(t);
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(cfs_init)
{
	int error;

	if (!lab_at_most(latency_us, FAIR_OPTION_US_MAX) ||
	    !lab_at_most(min_granularity_us, FAIR_OPTION_US_MAX) ||
	    !lab_at_most(wakeup_granularity_us, FAIR_OPTION_US_MAX))
		return -EINVAL;
	error = fair_init();
	if (!error)
		cfs_times(lab_nr_online);
	return error;
}

void BPF_STRUCT_OPS(cfs_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(cfs_ops,
	       .init_task		= (void *)cfs_init_task,
	       .select_cpu		= (void *)cfs_select_cpu,
	       .enqueue			= (void *)cfs_enqueue,
	       .dequeue			= (void *)cfs_dequeue,
	       .dispatch		= (void *)cfs_dispatch,
	       .running			= (void *)cfs_running,
	       .tick			= (void *)cfs_tick,
	       .yield			= (void *)cfs_yield,
	       .set_weight		= (void *)cfs_set_weight,
	       .set_cpumask		= (void *)cfs_set_cpumask,
	       .cpu_release		= (void *)cfs_cpu_release,
	       .stopping		= (void *)cfs_stopping,
	       .quiescent		= (void *)cfs_quiescent,
	       .disable			= (void *)cfs_disable,
	       .exit_task		= (void *)cfs_exit_task,
	       .init			= (void *)cfs_init,
	       .exit			= (void *)cfs_exit,
	       .flags			= SCX_OPS_ENQ_LAST,
	       .name			= "cfs");
