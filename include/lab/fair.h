/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the kernel's fair schedulers, CFS and EEVDF: a queue and a lock per CPU,
 * and what their ops do. <lab/fair_weights.h> has the numbers, <lab/fair_placement.h>
 * the choice of a CPU for a task that wakes or is new, <lab/fair_balance.h> the
 * balancer. The policy decides how a queue is ordered, which task is chosen, where a
 * task starts and which task it preempts: by struct fair_hooks.
 *
 * A queue holds the tasks that wait; the one that runs is not in it. It belongs
 * to task_cpu() of its tasks, except where the balancer has moved them.
 *
 * A policy includes this after <lab/lab.bpf.h>, defines fair_hooks, and calls the
 * functions at the end in its ops.
 */
#ifndef LAB_FAIR_H
#define LAB_FAIR_H

#include "fair_weights.h"
#include "topology.h"

/* Load of a CPU that a higher class has taken, besides the tasks that wait there. */
#define FAIR_LOAD_HIGHER	(2 * FAIR_WEIGHT_0)

/* A task that ran this recently has a warm cache. */
#define FAIR_MIGRATION_COST_NS	500000

/* Loads that differ by less, in percent, count as equal; among threads of a core, and else. */
#define FAIR_IMBALANCE_CORE	110
#define FAIR_IMBALANCE		117

struct fair_task {
	struct lab_task lab;		/* node: among the waiting ones of its queue */
	struct lab_rb_node tree;
	/* Under the lock of its home; while it runs, its CPU's. */
	u64 started_ns;			/* charged up to here */
	u64 turn_ns;			/* ran since it was chosen */
	s64 vruntime;			/* virtual time, ns; of its home's clock */
	s64 lag;			/* EEVDF: what it lacked when it left a queue, virtual ns */
	s64 deadline;			/* EEVDF: virtual, ns */
	s64 protected;			/* EEVDF: its deadline when it was chosen */
	u64 request_ns;			/* EEVDF: length of its requests, 0 = the usual */
	u64 weight;			/* of its nice level */
	u64 flips_ns;			/* when flips were halved last */
	u64 remembered_ns;		/* runnable is of this moment */
	s32 home;			/* CPU whose queue it is or was in */
	u32 to;				/* 1 + the CPU that it is being pushed to, or 0 */
	s32 nice;			/* -20 to 19 */
	u32 policy;			/* LAB_SCHED_BATCH, LAB_SCHED_IDLE or something else */
	u32 flips;			/* how often it woke another task than before, halved each second */
	u32 wakee;			/* number of the context that it woke last */
	u32 runnable;			/* share of the time of late, of FAIR_ALWAYS */
	bool queued;			/* in the queue of its home */
	bool asleep;			/* blocked, or not enqueued yet */
	bool fresh;			/* forked, and not enqueued yet */
	bool sync;
};

LAB_TASKS(struct fair_task);

struct fair_rq {
	struct lab_lock lock;
	/* Others read this line without the lock, by lab_read(). */
	u64 nr __attribute__((aligned(LAB_CACHELINE)));	/* tasks that wait */
	u64 load;			/* sum of their weights */
	task_t *curr;			/* running task, NULL = none of ours */
	s64 min_v;			/* clock: never more than the least virtual time, only moves forward */
	u32 cpu;
	bool online;
	bool asked;			/* woken to take tasks from others */
	u32 push;			/* 1 + the CPU that the running task shall go to, or 0 */
	/* Under the lock. */
	struct lab_rb_tree tree __attribute__((aligned(LAB_CACHELINE)));
	struct lab_list waiting;	/* the last one has waited for longest */
	s64 sum;			/* EEVDF: of (v - min_v) * weight over those that wait */
	task_t *next, *last, *skip;	/* CFS: hints */
	u64 idle_ns;			/* when the CPU became idle */
	u64 idle_avg_ns;		/* how long it is idle each time */
	u64 balance_ns[LAB_NR_LEVELS];	/* when it balances next, at the earliest */
	bool even[LAB_NR_LEVELS];	/* nothing was out of balance: an interval later than that */
	u32 failed;			/* balancings in a row that found nothing to move */
	u32 refused;			/* idle CPUs in a row that were woken for it and got nothing */
	u32 crowded[LAB_NR_LEVELS];	/* looks in a row that found the core shared and another idle */
	u64 look_ns[LAB_NR_LEVELS];	/* when it looks next */
} __attribute__((aligned(LAB_CACHELINE)));

typedef struct fair_rq __arena rq_t;

struct fair_rq __arena_global rqs[LAB_MAX_CPUS];

static __always_inline rq_t *rq_at(s32 cpu)
{
	return &rqs[cpu & (LAB_MAX_CPUS - 1)];
}

/* The differences between the policies. The queue's lock is held. */
struct fair_hooks {
	/* The key of the tree. */
	s64 (*key)(task_t *t);
	/* A task joins a queue: sets its virtual time, by whether it is fresh or was asleep. */
	void (*place)(rq_t *rq, task_t *t, u64 now);
	/* A waiting task, or the current one that blocks, leaves the queue otherwise than by being chosen. */
	void (*leave)(rq_t *rq, task_t *t, u64 now);
	/* The queue's clock has moved by this much. NULL: that changes nothing. */
	void (*clock_moved)(rq_t *rq, s64 by);
	/* A task has been put into (1) or taken out of (-1) the tree. NULL: that changes nothing. */
	void (*counted)(rq_t *rq, task_t *t, s64 sign);
	/* Whether a task that has just woken, or is fresh, takes the CPU from the current one. */
	bool (*preempts)(rq_t *rq, task_t *t, bool fresh, u64 now);
	/* Returns the next task: @prev, which is still runnable, one that waits, or NULL. */
	task_t *(*pick)(rq_t *rq, task_t *prev);
	/* A turn of a task begins. */
	void (*begin)(rq_t *rq, task_t *t);
	/* Whether the turn of the current task, charged up to now, has ended. */
	bool (*turn_ends)(rq_t *rq, task_t *t);
};

/*
 * The policy's: which functions of its own these are. By this name and not as an
 * argument, as the parts of the verifier need them, too; constants, so that no call goes
 * by a pointer.
 */
static const struct fair_hooks fair_hooks;

/*
 * Loads.
 */

/* Runnable tasks of a queue, and their weights; without the lock a good guess. */
static __always_inline u64 fair_nr(rq_t *rq)
{
	return lab_read(rq->nr) + !!lab_glance(rq->curr);
}

static __always_inline u64 fair_load(rq_t *rq)
{
	u64 load = lab_read(rq->load);
	task_t *curr = lab_glance(rq->curr);

	/* In the original the load includes it. */
	return curr ? load + lab_unaudited(lab_glance(curr->weight)) : load;
}

/* The share of the time of late that a task was runnable, as of now. */
static __always_inline u32 fair_runnable(task_t *t, u64 now)
{
	u64 ns = now > t->remembered_ns ? now - t->remembered_ns : 0;
	u32 kept = fair_decay(t->runnable, ns);

	return t->asleep ? kept : kept + FAIR_ALWAYS - fair_decay(FAIR_ALWAYS, ns);
}

/* Called before a task falls asleep or wakes. */
static __always_inline void fair_remember(task_t *t, u64 now)
{
	t->runnable = fair_runnable(t, now);
	t->remembered_ns = now;
}

/* The load that a task has had of late (task_h_load()). */
static __always_inline u64 fair_task_load(task_t *t, u64 now)
{
	return t->weight * fair_runnable(t, now) >> FAIR_ALWAYS_SHIFT;
}

/* The same for a comparison of CPUs: of one that a higher class has taken little is left (scale_rt_capacity()). */
static __always_inline u64 fair_load_with_higher(rq_t *rq)
{
	u64 load = fair_load(rq);

	return !lab_glance(rq->curr) && lab_cpu_taken(rq->cpu) ? load + FAIR_LOAD_HIGHER : load;
}

static __always_inline bool fair_cpu_idle(s32 cpu)
{
	rq_t *rq = rq_at(cpu);

	lab_touch(&rq->nr, false);
	return rq->online && !lab_read(rq->curr) && !lab_glance(rq->nr) && !lab_cpu_taken(cpu);
}

/*
 * The queue, its lock held.
 */

/* Virtual time of the current task as of now; another CPU may ask, while its own charges it. */
static __always_inline s64 fair_curr_v(rq_t *rq, u64 now)
{
	task_t *curr = rq->curr;
	u64 started = lab_glance(curr->started_ns);
	s64 v = lab_glance(curr->vruntime);

	return v + (now > started ? fair_virtual(now - started, lab_glance(curr->weight)) : 0);
}

static __always_inline void fair_charge(task_t *t, u64 now)
{
	u64 ran = now > t->started_ns ? now - t->started_ns : 0;

	t->started_ns = now;
	t->turn_ns += ran;
	/* The CPU of a child that runs first may change it (cfs); of two changes at once one is lost. */
	lab_post(t->vruntime, lab_glance(t->vruntime) + fair_virtual(ran, t->weight));
}

/* The clock follows the least virtual time. */
LAB_PART int fair_advance(rq_t *rq __arg_arena, u64 now)
{
	bool any = false;
	s64 least = 0, by;

	lab_use_arena();
	if (rq->curr) {
		/* It may be another CPU's. */
		consult(rq->curr);
		least = fair_curr_v(rq, now);
		any = true;
	}
	if (rq->tree.root)
		lab_touch(rq->tree.root, false);
	if (rq->tree.root && (!any || lab_rb_less(rq->tree.root->least, least))) {
		least = rq->tree.root->least;
		any = true;
	}
	if (!any || !lab_rb_less(rq->min_v, least))
		return 0;
	by = (u64)least - (u64)rq->min_v;
	lab_write(rq->min_v, least);
	if (fair_hooks.clock_moved)
		fair_hooks.clock_moved(rq, by);
	return 0;
}

LAB_PART int fair_link(rq_t *rq __arg_arena, task_t *t __arg_arena)
{
	lab_use_arena();
	alter(t);
	t->tree.key = fair_hooks.key(t);
	t->tree.value = t->vruntime;
	if (!lab_rb_add(&rq->tree, &t->tree)) {
		scx_bpf_error("a queue of %llu tasks: the loop budget ran out", rq->tree.nr);
		return 0;
	}
	lab_list_add_head(&rq->waiting, &t->lab.node);
	lab_touch(&rq->nr, true);
	lab_write(rq->nr, rq->nr + 1);
	rq->load += t->weight;
	if (fair_hooks.counted)
		fair_hooks.counted(rq, t, 1);
	t->home = rq->cpu;
	t->queued = true;
	return 0;
}

LAB_PART int fair_unlink(rq_t *rq __arg_arena, task_t *t __arg_arena)
{
	lab_use_arena();
	alter(t);
	if (fair_hooks.counted)
		fair_hooks.counted(rq, t, -1);
	lab_rb_del(&rq->tree, &t->tree);
	lab_list_del(&rq->waiting, &t->lab.node);
	lab_touch(&rq->nr, true);
	lab_write(rq->nr, rq->nr - 1);
	rq->load -= t->weight;
	t->queued = false;
	return 0;
}

/* Takes the lock of a waiting task's home: lab_lock_home(). */
#define fair_lock_home(t)	lab_lock_home(t, rq_at)

/* A task leaves the queue it waits in, if it does. */
LAB_PART int fair_remove(task_t *t __arg_arena)
{
	u64 now = scx_bpf_now();
	unsigned long flags;
	rq_t *rq;

	lab_use_arena();
	if (!lab_read(t->queued))
		return 0;
	lab_irq_save(flags);
	rq = fair_lock_home(t);
	if (rq) {
		if (t->queued) {
			fair_advance(rq, now);
			fair_hooks.leave(rq, t, now);
			fair_unlink(rq, t);
		}
		lab_unlock(&rq->lock);
	}
	lab_irq_restore(flags);
	return 0;
}

#include "fair_placement.h"
#include "fair_balance.h"

/*
 * Functions for ops, in the order of a task's life.
 */

/* ops.init, at its beginning: 0 or a negative errno after an error. */
static __always_inline int fair_init(void)
{
	const struct cpumask *online;
	int error = lab_init();
	u32 cpu, level;
	rq_t *rq;

	if (error)
		return error;
	online = scx_bpf_get_online_cpumask();
	bpf_for(cpu, 0, lab_nr_cpus) {
		rq = rq_at(cpu);
		lab_lock_init(&rq->lock, LAB_LOCK_CLASS_RUN_QUEUE);
		lab_rb_init(&rq->tree);
		lab_list_init(&rq->waiting);
		rq->cpu = cpu;
		rq->online = lab_note_online(cpu, online);
		rq->idle_avg_ns = 2 * FAIR_MIGRATION_COST_NS;
		for (level = 0; level < LAB_NR_LEVELS; level++) {
			rq->balance_ns[level] = 0;
			rq->even[level] = false;
		}
	}
	scx_bpf_put_cpumask(online);
	lab_topology_init();
	return 0;
}

/* Reads the real task's attributes. */
static __always_inline void fair_refresh(task_t *t, struct task_struct *p)
{
	lab_task_refresh(&t->lab, p);
	t->nice = p->static_prio - 120;
	t->policy = p->policy;
	t->weight = fair_weight(t->nice, t->policy);
}

/* ops.init_task of a new context: it begins where its parent is. @forker is the current task. */
static __always_inline void fair_fork(task_t *t, struct task_struct *p,
				      struct scx_init_task_args *args, struct task_struct *forker)
{
	task_t *parent = NULL;

	fair_refresh(t, p);
	t->wakee = ~0u;
	t->asleep = true;
	t->fresh = true;
	/* A new task counts as one that never slept (init_entity_runnable_average()). */
	t->runnable = FAIR_ALWAYS;
	t->remembered_ns = scx_bpf_now();
	t->home = scx_bpf_task_cpu(p);
	t->vruntime = lab_glance(rq_at(t->home)->min_v);
	if (args->fork && forker && forker->pid)
		parent = task_of(forker);
	if (parent) {
		t->home = parent->home;
		t->vruntime = lab_glance(parent->vruntime);
		t->request_ns = parent->request_ns;
	}
}

/* The task is no CPU's current one, if it was. */
LAB_PART int fair_not_current(task_t *t __arg_arena)
{
	unsigned long flags;
	rq_t *rq;

	lab_use_arena();
	rq = rq_at(t->lab.cpu);
	if (lab_read(rq->curr) != t || !lab_lock_irqsave(&rq->lock, flags))
		return 0;
	if (rq->curr == t)
		lab_write(rq->curr, NULL);
	lab_unlock_irqrestore(&rq->lock, flags);
	return 0;
}

/* ops.enqueue: into the queue of a CPU, which is kicked if it should choose again. */
static __always_inline void fair_enqueue(task_t *t, struct task_struct *p, u64 now)
{
	unsigned long flags;
	bool preempt, fresh, idle;
	rq_t *rq;
	s32 cpu;

	fair_remove(t);
	/* It was chosen, but the choice came to nothing; or it was moved while it ran. */
	fair_not_current(t);
	cpu = fair_destination(p, t);
	rq = rq_at(cpu);
	if (!lab_lock_irqsave(&rq->lock, flags))
		return;
	fair_refresh(t, p);
	fair_advance(rq, now);
	fair_hooks.place(rq, t, now);
	preempt = t->asleep;
	fresh = t->fresh;
	fair_remember(t, now);
	t->asleep = false;
	t->fresh = false;
	fair_link(rq, t);
	idle = !rq->curr;
	if (!idle && preempt)
		preempt = fair_hooks.preempts(rq, t, fresh, now);
	lab_unlock_irqrestore(&rq->lock, flags);
	if (idle)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	else if (preempt)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/*
 * ops.dispatch: the CPU becomes idle, or goes on with a task. One that is idle for less
 * than @newidle_ns each time takes no task from others then.
 */
static __always_inline void fair_dispatch(s32 cpu, struct task_struct *prev_p, u64 newidle_ns)
{
	rq_t *rq = rq_at(cpu);
	task_t *prev = NULL, *t = NULL;
	u64 now = scx_bpf_now();
	struct task_struct *p;
	unsigned long flags;
	u32 push;

	lab_use_arena();
	if (prev_p && (prev_p->scx.flags & SCX_TASK_QUEUED))
		prev = task_of(prev_p);
	if (!lab_lock_irqsave(&rq->lock, flags))
		return;
	lab_count(LAB_SCHEDULES, 1);
	lab_touch(&rq->curr, true);
	if (prev)
		fair_charge(prev, now);
	lab_write(rq->curr, prev);
	fair_advance(rq, now);
	if (!prev && !rq->nr &&
	    (lab_glance(rq->asked) || rq->idle_avg_ns >= newidle_ns) &&
	    !fair_balance_idle(rq, now)) {
		lab_irq_restore(flags);
		return;
	}
	lab_post(rq->asked, false);
	push = rq->push;
	if (push)
		lab_write(rq->push, 0);

	while (can_loop) {
		t = fair_hooks.pick(rq, prev);
		if (!t || t == prev)
			break;
		p = lab_task_claim(&t->lab, cpu);
		if (!p) {
			/* Whatever made it so enqueues it again. */
			fair_hooks.leave(rq, t, now);
			fair_unlink(rq, t);
			continue;
		}
		fair_unlink(rq, t);
		if (t->lab.cpu != cpu)
			lab_count(LAB_PICKED_ELSEWHERE, 1);
		alter(t);
		t->lab.cpu = cpu;
		t->turn_ns = 0;
		t->started_ns = now;
		fair_hooks.begin(rq, t);
		lab_write(rq->curr, t);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, LAB_LONG_SLICE_NS, 0);
		bpf_task_release(p);
		lab_unlock_irqrestore(&rq->lock, flags);
		return;
	}
	if (t != prev) {
		lab_unlock_irqrestore(&rq->lock, flags);
		scx_bpf_error("the loop budget ran out before a choice");
		return;
	}
	if (prev && push) {
		/* With no slice left it is enqueued again: ops.enqueue sends it there. */
		fair_hooks.leave(rq, prev, now);
		prev->to = push;
		lab_write(rq->curr, NULL);
		prev = NULL;
	}
	if (!prev)
		rq->idle_ns = now;
	lab_unlock_irqrestore(&rq->lock, flags);
	if (prev && prev_p)
		scx_bpf_task_set_slice(prev_p, LAB_LONG_SLICE_NS);
}

/* How long the CPU was idle; long times count as twice the cost of a migration. */
static __always_inline void fair_idle_ended(rq_t *rq, u64 now)
{
	u64 idle;

	if (!rq->idle_ns)
		return;
	idle = now > rq->idle_ns ? now - rq->idle_ns : 0;
	rq->idle_avg_ns = (rq->idle_avg_ns * 7 + idle) / 8;
	if (rq->idle_avg_ns > 2 * FAIR_MIGRATION_COST_NS)
		rq->idle_avg_ns = 2 * FAIR_MIGRATION_COST_NS;
	rq->idle_ns = 0;
}

/* ops.running */
static __always_inline void fair_running(task_t *t, u64 now)
{
	s32 cpu = bpf_get_smp_processor_id();
	rq_t *rq = rq_at(cpu);
	unsigned long flags;

	t->started_ns = now;
	t->to = 0;
	fair_idle_ended(rq, now);
	if (rq->curr == t)
		return;
	/* It came by the CPU's local queue without a choice. */
	lab_count(LAB_PINNED_LOCAL, 1);
	rq->push = 0;
	fair_remove(t);
	if (!lab_lock_irqsave(&rq->lock, flags))
		return;
	if (t->asleep || t->fresh || t->home != cpu) {
		fair_advance(rq, now);
		fair_hooks.place(rq, t, now);
		fair_remember(t, now);
		t->asleep = false;
		t->fresh = false;
	}
	t->lab.cpu = cpu;
	t->turn_ns = 0;
	lab_write(rq->curr, t);
	lab_unlock_irqrestore(&rq->lock, flags);
}

/* ops.tick: the end of a turn, and the balancer. */
static __always_inline void fair_tick(task_t *t, struct task_struct *p, u64 now)
{
	s32 cpu = bpf_get_smp_processor_id(), idle;
	rq_t *rq = rq_at(cpu);
	unsigned long flags;
	bool ends, waits;

	if (!lab_lock_irqsave(&rq->lock, flags))
		return;
	fair_charge(t, now);
	if (rq->curr != t)
		lab_write(rq->curr, t);
	fair_advance(rq, now);
	ends = fair_hooks.turn_ends(rq, t);
	if (!fair_balance_busy(rq, now)) {
		lab_irq_restore(flags);
		return;
	}
	waits = rq->nr;
	lab_unlock_irqrestore(&rq->lock, flags);
	if (!waits) {
		idle = fair_push_target(p, cpu, now);
		if (idle >= 0) {
			lab_write(rq->push, idle + 1);
			ends = true;
		}
	}
	if (ends)
		scx_bpf_task_set_slice(p, 0);
	if (!waits)
		return;
	/* Idle CPUs have no tick: one of them is woken to balance. */
	idle = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (idle >= 0) {
		lab_write(rq_at(idle)->asked, true);
		scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
	}
}

/* ops.set_weight: nice level and policy; a waiting task is enqueued again anyway. */
static __always_inline void fair_set_weight(task_t *t, struct task_struct *p)
{
	if (lab_read(t->queued))
		return;
	t->nice = p->static_prio - 120;
	t->policy = p->policy;
	t->weight = fair_weight(t->nice, t->policy);
}

/* ops.quiescent: the current task blocks, or an attribute of it changes. */
static __always_inline void fair_quiescent(task_t *t, u64 deq_flags, u64 now)
{
	unsigned long flags;
	rq_t *rq;

	if (t->asleep)
		return;
	rq = rq_at(t->lab.cpu);
	if (!lab_lock_irqsave(&rq->lock, flags))
		return;
	if (rq->curr == t) {
		fair_advance(rq, now);
		fair_hooks.leave(rq, t, now);
		/* Otherwise an attribute of it changes, and it goes on. */
		if (deq_flags & SCX_DEQ_SLEEP)
			lab_write(rq->curr, NULL);
	}
	if (deq_flags & SCX_DEQ_SLEEP) {
		fair_remember(t, now);
		t->asleep = true;
	}
	lab_unlock_irqrestore(&rq->lock, flags);
}

/* ops.disable, ops.exit_task: the task is not ours any more. */
LAB_PART int fair_forget(task_t *t __arg_arena)
{
	unsigned long flags;
	rq_t *rq;

	lab_use_arena();
	fair_remove(t);
	rq = rq_at(t->lab.cpu);
	if (!lab_lock_irqsave(&rq->lock, flags))
		return 0;
	if (rq->curr)
		consult(rq->curr);
	fair_hooks.leave(rq, t, scx_bpf_now());
	if (rq->curr == t)
		lab_write(rq->curr, NULL);
	lab_unlock_irqrestore(&rq->lock, flags);
	return 0;
}

#endif /* LAB_FAIR_H */
