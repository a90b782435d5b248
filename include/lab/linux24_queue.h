/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The ops of a scheduler that has all that Linux 2.4's had around its run
 * queue, one lock included, and differs in that queue and in the choice from
 * it only. A policy includes this behind what it defines:
 *
 *   threshold, base, charge	as in linux24.h: options or constants
 *   rq.runqueue_lock		the lock
 *   cpus			see linux24.h
 *   LAB_TASKS()		its contexts begin with struct linux24_task `old`
 *   RQ_KEEPS_RUNNING		1: running tasks stay in the queue, 0: they are out
 *   RQ_SORTED			1: a task's place depends on its ticks
 *   RQ_YIELD_GOES_LAST		whether sched_yield() moves a task behind its equals
 *   int rq_init(void)		at the start; 0 or a negative errno
 *   int rq_new_task(void)	for each new context, where pages can be allocated
 *   s64 rq_nr(void)		tasks in the queue; read without the lock
 *
 * and, all of them called with the lock held:
 *
 *   void rq_add(task_t *t)	into the queue, ahead of its equals; sets old.linked
 *   void rq_del(task_t *t)	out of it; clears old.linked
 *   bool rq_misfiled(task_t *t)	it is not where rq_add() would put it now; may be
 *				asked without the lock
 *   void rq_prev(task_t *t, bool goes_last)	a choice begins and its previous task is
 *				still runnable; with a new round-robin quantum, or if
 *				RQ_YIELD_GOES_LAST, it goes behind its equals
 *   bool rq_choose(task_t *prev, s32 cpu, u64 mm, bool recalculated, task_t **best, s32 *value)
 *				the best task for that CPU, where that address space is
 *				in use; `prev` is NULL or still runnable. A value of 0
 *				asks for a recalculation and the same question again,
 *				`recalculated`. False: the loop budget ran out
 *   bool rq_recalculate(void)	all counters; false: the policy has ended, the lock is free
 */
#ifndef LAB_LINUX24_QUEUE_H
#define LAB_LINUX24_QUEUE_H

/*
 * CPUs that a higher class has taken, see <lab/higher.h>: one that was kicked to choose
 * cannot, so another is.
 */
static __always_inline u64 queue24_nr_stranded(s32 cpu)
{
	cpu_t *c = cpu_at(cpu);

	return lab_glance(c->marked) && !lab_glance(c->curr) && rq_nr();
}

static __always_inline bool queue24_idle(s32 cpu)
{
	cpu_t *c = cpu_at(cpu);

	return c->online && !lab_glance(c->marked) && linux24_free(cpu, lab_glance(c->curr));
}

static __always_inline bool queue24_rescue(u32 from, u32 to)
{
	unsigned long flags;

	if (!lab_lock_irqsave(&rq.runqueue_lock, flags))
		return false;
	lab_post(cpu_at(from)->marked, false);
	linux24_mark(to, !lab_glance(cpu_at(to)->curr));
	lab_unlock_irqrestore(&rq.runqueue_lock, flags);
	return true;
}

LAB_RESCUE(queue24_nr_stranded, queue24_idle, queue24_rescue);

static __always_inline void queue24_charge(task_t *t, u64 now)
{
	if (charge == CHARGE_RUNTIME)
		linux24_charge(&t->old, now);
}

/* Out of the queue and of the policy's custody. Under the lock. */
static __always_inline void queue24_unlink(task_t *t)
{
	/* alter() pays for what is known of it, if there is anything to do. */
	if (lab_unaudited(t->old.linked)) {
		alter(t);
		rq_del(t);
	}
	lab_unaudited(t->old.leaving = false);
	lab_unaudited(lab_post(t->old.takeable, false));
}

/* A blocked task leaves the queue once; `from` may have forgotten who it was. */
static __always_inline void queue24_unlink_leaving(cpu_t *from)
{
	task_t *t = (task_t *)from->leaving;

	from->leaving = NULL;
	/* In 2.4 it takes itself out: only what unlinking writes is charged. */
	if (t && lab_unaudited(t->old.leaving))
		queue24_unlink(t);
}

/* A field that decides a task's place in the queue has changed. Takes the lock if that matters. */
static __always_inline void queue24_refile(task_t *t, bool surely)
{
	unsigned long flags;

	if (!lab_glance(t->old.linked) || !(surely || rq_misfiled(t)))
		return;
	if (!lab_lock_irqsave(&rq.runqueue_lock, flags))
		return;
	if (t->old.linked && (surely || rq_misfiled(t))) {
		rq_del(t);
		rq_add(t);
	}
	lab_unlock_irqrestore(&rq.runqueue_lock, flags);
}

void BPF_STRUCT_OPS(queue24_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 this_cpu = bpf_get_smp_processor_id();
	task_t *t = task_of(p);
	unsigned long flags;
	bool sync, moved;

	if (!t) {
		scx_bpf_error("%s[%d] has no context", p->comm, p->pid);
		return;
	}
	moved = t->old.policy != p->policy;
	linux24_refresh(&t->old, p);
	sync = t->old.sync;
	t->old.sync = false;
	if (t->old.yielded && lab_glance(t->old.linked) && t->old.on_cpu && !rq_misfiled(t) &&
	    !(enq_flags & SCX_ENQ_REENQ)) {
		/* Left the CPU after a yield: waits where it is; no task is disturbed. */
		alter(t);
		t->old.yielded = false;
		t->old.on_cpu = false;
		smp_store_release(&t->old.takeable, true);
		return;
	}
	if (!lab_lock_irqsave(&rq.runqueue_lock, flags))
		return;
	alter(t);
	/* It did not leave the CPU because another task is better, so it does not ask for another. */
	if (t->old.yielded && t->old.on_cpu)
		sync = true;
	if (enq_flags & SCX_ENQ_REENQ)
		linux24_not_current(&t->old);
	t->old.yielded = false;
	t->old.on_cpu = false;
	if (t->old.leaving || (t->old.linked && (moved || rq_misfiled(t))))
		queue24_unlink(t);
	if (!t->old.linked)
		rq_add(t);
	lab_post(t->old.takeable, true);
	if (!sync || !lab_allowed(&t->lab, this_cpu))
		linux24_place(&t->old, threshold, base);
	lab_unlock_irqrestore(&rq.runqueue_lock, flags);
}

/*
 * A waiting task is taken away: an attribute of it changes. It keeps its place
 * in the queue and cannot be chosen until it is enqueued again.
 */
void BPF_STRUCT_OPS(queue24_dequeue, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);
	unsigned long flags;

	/* Tasks that dispatch has chosen come here too; they are no longer takeable. */
	if (!t || !lab_glance(t->old.takeable))
		return;
	if (!lab_lock_irqsave(&rq.runqueue_lock, flags))
		return;
	lab_post(t->old.takeable, false);
	if (deq_flags & SCX_DEQ_SLEEP)
		queue24_unlink(t);
	lab_unlock_irqrestore(&rq.runqueue_lock, flags);
}

/* schedule() */
void BPF_STRUCT_OPS(queue24_dispatch, s32 cpu, struct task_struct *prev_p)
{
	cpu_t *c = cpu_at(cpu);
	task_t *prev = NULL, *best;
	struct task_struct *p;
	u64 now = scx_bpf_now(), mm;
	bool refilled = false, recalculated = false;
	unsigned long flags;
	s32 value;

	lab_use_arena();
	if (!linux24_previous(c, prev_p, (linux24_task_t **)&prev))
		return;
	if (prev) {
		queue24_charge(prev, now);
	}
	if (!lab_lock_irqsave(&rq.runqueue_lock, flags))
		return;
	lab_touch(&c->curr, true);
	lab_count(LAB_SCHEDULES, 1);
	queue24_unlink_leaving(c);
	if (prev) {
		if (prev->old.policy == LAB_SCHED_RR && !lab_glance(prev->old.counter)) {
			lab_post(prev->old.counter, linux24_recalculated(0, prev->old.nice, base));
			refilled = true;
		}
		rq_prev(prev, refilled);
	}
	lab_post(c->marked, false);
	mm = c->mm;

	do {
		best = NULL;
		value = LINUX24_IDLE_GOODNESS;
		if (!rq_choose(prev, cpu, mm, recalculated, &best, &value))
			break;
		if (!value) {
			if (!rq_recalculate()) {
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
			lab_unlock_irqrestore(&rq.runqueue_lock, flags);
			return;
		}
		if (best == prev) {
			/* The previous task goes on. */
			prev->old.yielded = false;
			if (!RQ_KEEPS_RUNNING && prev->old.linked)
				rq_del(prev);
			lab_unlock_irqrestore(&rq.runqueue_lock, flags);
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
		if (!RQ_KEEPS_RUNNING) {
			rq_del(best);
			/* It will be here anyway, and the lock is held now. */
			if (prev && !prev->old.linked)
				rq_add(prev);
		}
		linux24_dispatch(c, cpu, &best->old, p, now);
		lab_unlock_irqrestore(&rq.runqueue_lock, flags);
		return;
	} while (can_loop);

	lab_unlock_irqrestore(&rq.runqueue_lock, flags);
	scx_bpf_error("schedule: the loop budget ran out before a choice");
}

void BPF_STRUCT_OPS(queue24_running, struct task_struct *p)
{
	task_t *t = task_of(p);
	unsigned long flags;

	if (!t)
		return;
	linux24_running(&t->old, p);
	if (RQ_KEEPS_RUNNING || !lab_glance(t->old.linked))
		return;
	/* An attribute of it changed while it ran: it was enqueued, but goes on. */
	if (!lab_lock_irqsave(&rq.runqueue_lock, flags))
		return;
	queue24_unlink(t);
	t->old.on_cpu = true;
	lab_unlock_irqrestore(&rq.runqueue_lock, flags);
}

void BPF_STRUCT_OPS(queue24_stopping, struct task_struct *p, bool runnable)
{
	task_t *t = task_of(p);

	if (t)
		queue24_charge(t, scx_bpf_now());
}

void BPF_STRUCT_OPS(queue24_quiescent, struct task_struct *p, u64 deq_flags)
{
	cpu_t *c = cpu_at(bpf_get_smp_processor_id());
	task_t *t = task_of(p);
	unsigned long flags;

	if (!t || !linux24_blocks(&t->old, deq_flags))
		return;
	if (c->leaving) {
		/* This CPU has run a task from its local queue since. */
		if (!lab_lock_irqsave(&rq.runqueue_lock, flags))
			return;
		queue24_unlink_leaving(c);
		lab_unlock_irqrestore(&rq.runqueue_lock, flags);
	}
	linux24_leaves(c, &t->old);
}

void BPF_STRUCT_OPS(queue24_tick, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	linux24_tick(&t->old, p, charge);
	queue24_refile(t, false);
}

/* sched_yield(): from 2.4 on only if a task waits. The lock is taken only if the task moves. */
bool BPF_STRUCT_OPS(queue24_yield, struct task_struct *from, struct task_struct *to)
{
	task_t *t = task_of(from);
	unsigned long flags;
	linux24_task_t *curr;
	s64 waiting;
	s32 cpu;
	cpu_t *c;

	if (!t || to)
		return false;
	if (base != BASE_2_3_99) {
		waiting = rq_nr();
		for (cpu = 0; cpu < lab_nr_cpus && can_loop; cpu++) {
			c = cpu_at(cpu);
			lab_touch(&c->curr, false);
			/* 2.4 counts the running tasks, and looks at none of them. */
			curr = lab_glance(c->curr);
			if (curr && lab_unaudited(lab_glance(curr->linked)))
				waiting--;
		}
		if (waiting <= 0)
			return false;
	}
	if (RQ_YIELD_GOES_LAST && lab_glance(t->old.linked)) {
		if (!lab_lock_irqsave(&rq.runqueue_lock, flags))
			return false;
		rq_prev(t, true);
		lab_unlock_irqrestore(&rq.runqueue_lock, flags);
	}
	if (!lab_realtime(t->old.policy))
		t->old.yielded = true;
	c = cpu_at(bpf_get_smp_processor_id());
	lab_write(c->marked, true);
	scx_bpf_task_set_slice(from, 0);
	return true;
}

void BPF_STRUCT_OPS(queue24_set_weight, struct task_struct *p, u32 weight)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	lab_post(t->old.nice, p->static_prio - 120);
	queue24_refile(t, false);
}

/* fork(): parent and child share the parent's remaining ticks. */
s32 BPF_STRUCT_OPS_SLEEPABLE(queue24_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct task_struct *forker = bpf_get_current_task_btf();
	task_t *t = task_new(p), *parent;
	int error;

	if (!t)
		return -ENOMEM;
	error = rq_new_task();
	if (error)
		return error;
	lab_note_higher(p);
	parent = (task_t *)linux24_fork(&t->old, p, args, forker, base);
	if (parent)
		queue24_refile(parent, false);
	return 0;
}

static __always_inline void queue24_forget(task_t *t)
{
	unsigned long flags;

	t->old.on_cpu = false;
	if (!lab_glance(t->old.linked))
		return;
	if (!lab_lock_irqsave(&rq.runqueue_lock, flags))
		return;
	queue24_unlink(t);
	lab_unlock_irqrestore(&rq.runqueue_lock, flags);
}

/* It leaves for a scheduling class that is not ours. */
void BPF_STRUCT_OPS(queue24_disable, struct task_struct *p)
{
	task_t *t = task_of(p);

	lab_note_higher(p);
	if (t)
		queue24_forget(t);
}

/* exit(): what is left of the ticks goes back to the task that forked it. */
void BPF_STRUCT_OPS(queue24_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	task_t *t = task_of(p), *parent;

	if (!t)
		return;
	queue24_forget(t);
	parent = task_parent(&t->old.parent);
	/* Its place is corrected where it got them. */
	if (linux24_collect(&t->old, (linux24_task_t *)parent))
		lab_unaudited(queue24_refile(parent, RQ_SORTED));
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(queue24_init)
{
	int error;

	if (!lab_at_most(threshold, LAB_THRESHOLD_MAX))
		return -EINVAL;
	error = lab_init();
	if (error)
		return error;
	lab_lock_init(&rq.runqueue_lock, LAB_LOCK_CLASS_RUN_QUEUE);
	linux24_init_cpus();
	return rq_init();
}

/* All of a policy's table but ops.exit and its name. */
#define QUEUE24_OPS							\
	.select_cpu		= (void *)linux24_select_cpu,		\
	.enqueue		= (void *)queue24_enqueue,		\
	.dequeue		= (void *)queue24_dequeue,		\
	.dispatch		= (void *)queue24_dispatch,		\
	.tick			= (void *)queue24_tick,			\
	.running		= (void *)queue24_running,		\
	.stopping		= (void *)queue24_stopping,		\
	.quiescent		= (void *)queue24_quiescent,		\
	.yield			= (void *)queue24_yield,		\
	.set_weight		= (void *)queue24_set_weight,		\
	.set_cpumask		= (void *)linux24_set_cpumask,		\
	.cpu_release		= (void *)linux24_cpu_release,		\
	.init_task		= (void *)queue24_init_task,		\
	.exit_task		= (void *)queue24_exit_task,		\
	.disable		= (void *)queue24_disable,		\
	.init			= (void *)queue24_init

#endif /* LAB_LINUX24_QUEUE_H */
