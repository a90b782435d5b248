/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Functions for the ops of a scheduler that has all that Linux 2.4's had around its
 * run queue, one lock included, and differs in that queue and in the choice from it
 * only. A policy includes this, says in a struct queue24_hooks what its queue
 * does, and calls these functions in its ops with that, its lock and its options.
 * The hooks are constants of the policy, so that no call goes by a pointer.
 */
#ifndef LAB_LINUX24_QUEUE_H
#define LAB_LINUX24_QUEUE_H

#include "linux24.h"

/* All of them are called with the lock held, but for `misfiled`. */
struct queue24_hooks {
	/* Running tasks stay in the queue. */
	bool keeps_running;
	/* A task joins the queue, ahead of its equals; sets `linked`. */
	void (*add)(linux24_task_t *t);
	/* A task leaves the queue; clears `linked`. */
	void (*del)(linux24_task_t *t);
	/* Whether a task is not where `add` would put it now; may be asked without the lock. NULL: none ever is. */
	bool (*misfiled)(linux24_task_t *t);
	/* A choice begins, and its previous task is still runnable; @refilled: with a new round-robin quantum. */
	void (*previous)(linux24_task_t *prev, bool refilled);
	/*
	 * The best task for that CPU, where that address space is in use; @prev is NULL or
	 * still runnable. A value of 0 asks for a recalculation and the same question
	 * again, with @recalculated. False: the loop budget ran out.
	 */
	bool (*choose)(linux24_task_t *prev, s32 cpu, u64 mm, bool recalculated,
		       linux24_task_t **best, s32 *value);
	/* All counters; false: the policy has ended, the lock is free. */
	bool (*recalculate)(void);
};

/*
 * CPUs that a higher class has taken, see <lab/higher.h>: one that was kicked to choose
 * cannot, so another is.
 */

/* Whether a task that waits may have been left to a CPU that is taken. */
static __always_inline bool queue24_stranded(s32 cpu)
{
	cpu_t *c = cpu_at(cpu);

	return lab_glance(c->marked) && !lab_glance(c->curr);
}

static __always_inline bool queue24_idle(s32 cpu)
{
	cpu_t *c = cpu_at(cpu);

	return c->online && !lab_glance(c->marked) && linux24_free(cpu, lab_glance(c->curr));
}

/* Another CPU chooses in place of one that is taken. */
static __always_inline bool queue24_rescue(lab_lock_t *runqueue_lock, u32 from, u32 to)
{
	unsigned long flags;

	if (!lab_lock_irqsave(runqueue_lock, flags))
		return false;
	lab_post(cpu_at(from)->marked, false);
	linux24_mark(to, !lab_glance(cpu_at(to)->curr));
	lab_unlock_irqrestore(runqueue_lock, flags);
	return true;
}

/*
 * Into the queue and out of it.
 */

static __always_inline bool queue24_misfiled(const struct queue24_hooks *hooks, linux24_task_t *t)
{
	return hooks->misfiled && hooks->misfiled(t);
}

/* Out of the queue and of the policy's custody. Under the lock. */
static __always_inline void queue24_unlink(const struct queue24_hooks *hooks, linux24_task_t *t)
{
	/* alter() pays for what is known of it, if there is anything to do. */
	if (lab_unaudited(t->linked)) {
		alter(t);
		hooks->del(t);
	}
	lab_unaudited_set(t->leaving, false);
	lab_unaudited(lab_post(t->takeable, false));
}

/* A blocked task leaves the queue once; `from` may have forgotten who it was. */
static __always_inline void queue24_unlink_leaving(const struct queue24_hooks *hooks, cpu_t *from)
{
	linux24_task_t *t = from->leaving;

	from->leaving = NULL;
	/* In 2.4 it takes itself out: only what unlinking writes is charged. */
	if (t && lab_unaudited(t->leaving))
		queue24_unlink(hooks, t);
}

/* A field that decides a task's place in the queue has changed. Takes the lock if that matters. */
static __always_inline void queue24_refile(lab_lock_t *runqueue_lock,
					   const struct queue24_hooks *hooks, linux24_task_t *t,
					   bool surely)
{
	unsigned long flags;

	if (!lab_glance(t->linked) || !(surely || queue24_misfiled(hooks, t)))
		return;
	if (!lab_lock_irqsave(runqueue_lock, flags))
		return;
	if (t->linked && (surely || queue24_misfiled(hooks, t))) {
		hooks->del(t);
		hooks->add(t);
	}
	lab_unlock_irqrestore(runqueue_lock, flags);
}

/*
 * Files those tasks again whose place depended on the ticks that they had. Their
 * contexts have @bytes. Under the lock; for a hook, hence the functions one by one.
 */
static __always_inline void queue24_refile_all(u32 bytes, bool (*misfiled)(linux24_task_t *t),
					       void (*del)(linux24_task_t *t),
					       void (*add)(linux24_task_t *t))
{
	u32 i, nr = lab_read(lab_tasks.nr);
	linux24_task_t *t;

	bpf_for(i, 0, nr) {
		t = (linux24_task_t *)lab_task_at(i, bytes);
		/* All but those that came meanwhile have just been recalculated. */
		if (lab_unaudited(lab_glance(t->linked) && misfiled(t))) {
			del(t);
			add(t);
		}
	}
}

/*
 * Ops.
 */

/* ops.init, at its beginning: 0 or a negative errno after an error. */
static __always_inline int queue24_init(lab_lock_t *runqueue_lock, u32 threshold)
{
	int error;

	if (!lab_at_most(threshold, LAB_THRESHOLD_MAX))
		return -EINVAL;
	error = lab_init();
	if (error)
		return error;
	lab_lock_init(runqueue_lock, LAB_LOCK_CLASS_RUN_QUEUE);
	linux24_init_cpus();
	return 0;
}

/* ops.enqueue: into the queue; then a CPU is found that should choose it. */
static __always_inline void queue24_enqueue(lab_lock_t *runqueue_lock,
					    const struct queue24_hooks *hooks, linux24_task_t *t,
					    struct task_struct *p, u64 enq_flags, u32 threshold,
					    enum linux24_base base)
{
	s32 this_cpu = bpf_get_smp_processor_id();
	bool moved = t->policy != p->policy, sync;
	unsigned long flags;

	linux24_refresh(t, p);
	sync = t->sync;
	t->sync = false;
	if (t->yielded && lab_glance(t->linked) && t->on_cpu && !queue24_misfiled(hooks, t) &&
	    !(enq_flags & SCX_ENQ_REENQ)) {
		/* Left the CPU after a yield: waits where it is; no task is disturbed. */
		alter(t);
		t->yielded = false;
		t->on_cpu = false;
		smp_store_release(&t->takeable, true);
		return;
	}
	if (!lab_lock_irqsave(runqueue_lock, flags))
		return;
	alter(t);
	/* It did not leave the CPU because another task is better, so it does not ask for another. */
	if (t->yielded && t->on_cpu)
		sync = true;
	if (enq_flags & SCX_ENQ_REENQ)
		linux24_not_current(t);
	t->yielded = false;
	t->on_cpu = false;
	if (t->leaving || (t->linked && (moved || queue24_misfiled(hooks, t))))
		queue24_unlink(hooks, t);
	if (!t->linked)
		hooks->add(t);
	lab_post(t->takeable, true);
	if (!sync || !lab_allowed(&t->lab, this_cpu))
		linux24_place(t, threshold, base);
	lab_unlock_irqrestore(runqueue_lock, flags);
}

/*
 * ops.dequeue: a waiting task is taken away, as an attribute of it changes. It
 * keeps its place in the queue and cannot be chosen until it is enqueued again.
 */
static __always_inline void queue24_dequeue(lab_lock_t *runqueue_lock,
					    const struct queue24_hooks *hooks, linux24_task_t *t,
					    u64 deq_flags)
{
	unsigned long flags;

	/* Tasks that dispatch has chosen come here too; they are no longer takeable. */
	if (!lab_glance(t->takeable))
		return;
	if (!lab_lock_irqsave(runqueue_lock, flags))
		return;
	lab_post(t->takeable, false);
	if (deq_flags & SCX_DEQ_SLEEP)
		queue24_unlink(hooks, t);
	lab_unlock_irqrestore(runqueue_lock, flags);
}

/* ops.dispatch: schedule() of Linux 2.4. */
static __always_inline void queue24_schedule(lab_lock_t *runqueue_lock,
					     const struct queue24_hooks *hooks, s32 cpu,
					     struct task_struct *prev_p,
					     enum linux24_charge charge, enum linux24_base base)
{
	cpu_t *c = cpu_at(cpu);
	linux24_task_t *prev = NULL, *best;
	struct task_struct *p;
	u64 now = scx_bpf_now(), mm;
	bool refilled = false, recalculated = false;
	unsigned long flags;
	s32 value;

	lab_use_arena();
	if (!linux24_previous(c, prev_p, &prev))
		return;
	if (prev)
		linux24_charge_runtime(prev, now, charge);
	if (!lab_lock_irqsave(runqueue_lock, flags))
		return;
	lab_touch(&c->curr, true);
	lab_count(LAB_SCHEDULES, 1);
	queue24_unlink_leaving(hooks, c);
	if (prev) {
		if (prev->policy == LAB_SCHED_RR && !lab_glance(prev->counter)) {
			lab_post(prev->counter, linux24_recalculated(0, prev->nice, base));
			refilled = true;
		}
		hooks->previous(prev, refilled);
	}
	lab_post(c->marked, false);
	mm = c->mm;

	do {
		best = NULL;
		value = LINUX24_IDLE_GOODNESS;
		if (!hooks->choose(prev, cpu, mm, recalculated, &best, &value))
			break;
		if (!value) {
			if (!hooks->recalculate()) {
				lab_irq_restore(flags);
				return;
			}
			recalculated = true;
			continue;
		}
		if (!best) {
			if (c->curr)
				lab_post(c->last_schedule_ns, now);
			lab_post(c->curr, NULL);
			lab_unlock_irqrestore(runqueue_lock, flags);
			return;
		}
		if (best == prev) {
			/* The previous task goes on. */
			prev->yielded = false;
			if (!hooks->keeps_running && prev->linked)
				hooks->del(prev);
			lab_unlock_irqrestore(runqueue_lock, flags);
			if (prev_p)
				scx_bpf_task_set_slice(prev_p, LAB_LONG_SLICE_NS);
			return;
		}
		p = lab_task_claim(&best->lab, cpu);
		if (!p)
			continue;
		if (best->lab.cpu != cpu)
			lab_count(LAB_PICKED_ELSEWHERE, 1);
		alter(best);
		if (!hooks->keeps_running) {
			hooks->del(best);
			/* It will be here anyway, and the lock is held now. */
			if (prev && !prev->linked)
				hooks->add(prev);
		}
		linux24_dispatch(c, cpu, best, p, now);
		lab_unlock_irqrestore(runqueue_lock, flags);
		return;
	} while (can_loop);

	lab_unlock_irqrestore(runqueue_lock, flags);
	scx_bpf_error("schedule: the loop budget ran out before a choice");
}

/*
 * ops.running, of a queue without running tasks: an attribute of the task changed
 * while it ran, so that it was enqueued, but it goes on.
 */
static __always_inline void queue24_take_out(lab_lock_t *runqueue_lock,
					     const struct queue24_hooks *hooks, linux24_task_t *t)
{
	unsigned long flags;

	if (!lab_glance(t->linked) || !lab_lock_irqsave(runqueue_lock, flags))
		return;
	queue24_unlink(hooks, t);
	t->on_cpu = true;
	lab_unlock_irqrestore(runqueue_lock, flags);
}

/* ops.quiescent: a task that blocks is unlinked by the next choice of its CPU. */
static __always_inline void queue24_quiescent(lab_lock_t *runqueue_lock,
					      const struct queue24_hooks *hooks, linux24_task_t *t,
					      u64 deq_flags)
{
	cpu_t *c = cpu_at(bpf_get_smp_processor_id());
	unsigned long flags;

	if (!linux24_blocks(t, deq_flags))
		return;
	if (c->leaving) {
		/* This CPU has run a task from its local queue since. */
		if (!lab_lock_irqsave(runqueue_lock, flags))
			return;
		queue24_unlink_leaving(hooks, c);
		lab_unlock_irqrestore(runqueue_lock, flags);
	}
	linux24_leaves(c, t);
}

/* ops.disable, ops.exit_task: the task is not ours any more. */
static __always_inline void queue24_forget(lab_lock_t *runqueue_lock,
					   const struct queue24_hooks *hooks, linux24_task_t *t)
{
	unsigned long flags;

	t->on_cpu = false;
	if (!lab_glance(t->linked))
		return;
	if (!lab_lock_irqsave(runqueue_lock, flags))
		return;
	queue24_unlink(hooks, t);
	lab_unlock_irqrestore(runqueue_lock, flags);
}

#endif /* LAB_LINUX24_QUEUE_H */
