/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Functions for the ops of the multi-queue scheduler, in the order of a task's life:
 * the start, forks, wakeups, the choice, ticks, blocking and exits. <lab/mq.h>
 * includes this after the queues that it uses.
 */
#ifndef LAB_MQ_OPS_H
#define LAB_MQ_OPS_H

/* Puts the CPUs in the order of their pools; within one, numbers decide nothing. */
static __always_inline void mq_init_pools(u32 (*number_of)(s32 cpu))
{
	u32 number, i, at = 0;
	pool_t *pool;
	s32 cpu;

	/* First `end` counts a pool's CPUs, then those that have their place. */
	bpf_for(cpu, 0, lab_nr_cpus) {
		number = number_of(cpu);
		pool_of[cpu & (LAB_MAX_CPUS - 1)] = number;
		if (lab_cpu_online(cpu))
			pool_at(number)->end++;
	}
	bpf_for(number, 0, LAB_MAX_CPUS) {
		pool = pool_at(number);
		pool->begin = at;
		at += pool->end;
		pool->end = pool->begin;
	}
	bpf_for(i, 0, lab_nr_online) {
		cpu = lab_cpu_spread(i);
		pool = pool_at(pool_of_cpu(cpu));
		order[pool->end & (LAB_MAX_CPUS - 1)] = cpu;
		pool->end++;
	}
}

/*
 * ops.init: 0 or a negative errno after an error. @number_of: the pool of a CPU, less
 * than LAB_MAX_CPUS.
 */
static __always_inline s32 mq_init_queues(u32 threshold, u32 (*number_of)(s32 cpu))
{
	int error;
	s32 cpu;

	if (!lab_at_most(threshold, LAB_THRESHOLD_MAX))
		return -EINVAL;
	error = lab_init();
	if (error)
		return error;
	linux24_init_cpus();
	mq_init_pools(number_of);
	bpf_for(cpu, 0, lab_nr_cpus) {
		lab_lock_init(&queue_at(cpu)->lock, LAB_LOCK_CLASS_RUN_QUEUE);
		lab_list_init(&queue_at(cpu)->list);
		queue_at(cpu)->published.max_na = MQ_NOTHING;
		lab_lock_init(&pool_at(cpu)->lock, LAB_LOCK_CLASS_RUN_QUEUE);
		lab_list_init(&pool_at(cpu)->realtime);
		cpu_at(cpu)->na = MQ_NOTHING;
	}
	return 0;
}

/*
 * ops.init_task of a new context: parent and child share the parent's ticks. @number:
 * recalculations before the context was made.
 */
static __always_inline void mq_fork(task_t *t, struct task_struct *p,
				    struct scx_init_task_args *args, struct task_struct *forker,
				    u32 number)
{
	task_t *parent;

	t->number = number;
	if (args->fork && forker && forker->pid) {
		parent = task_of(forker);
		if (parent)
			mq_catch_up(parent, number);
	}
	linux24_fork(&t->old, p, args, forker, BASE_LINUX_2_4);
	t->home = t->lab.cpu;
}

/* Real-time tasks of a pool wait in one list, whichever CPU of it they ran on. */
LAB_PART int mq_enqueue_realtime(task_t *t __arg_arena, bool place, u32 threshold)
{
	u32 number = pool_of_cpu(t->lab.cpu), at = ~0u;
	pool_t *pool = pool_at(number);
	s64 key = MQ_FIRST_KEY;
	unsigned long flags;
	s32 target;

	lab_use_arena();
	if (!lab_lock_irqsave(&pool->lock, flags))
		return 0;
	alter(t);
	if (!t->old.linked) {
		lab_touch(&pool->realtime.head, true);
		lab_list_add_head(&pool->realtime, &t->lab.node);
		t->old.linked = true;
		t->home = -1 - (s32)number;
	}
	lab_post(t->old.takeable, true);
	lab_unlock_irqrestore(&pool->lock, flags);
	if (!place)
		return 0;
	/* Another CPU may have it by now. */
	target = lab_glance(t->lab.cpu);
	if (!lab_allowed(&t->lab, target) || lab_glance(cpu_at(target)->curr))
		target = mq_next_target(t, mq_na(t), true, threshold, &key, &at);
	if (target >= 0) {
		/* Its queue's lock is not held: it may be about to forget its mark. */
		lab_write(cpu_at(target)->marked, true);
		scx_bpf_kick_cpu(target, SCX_KICK_PREEMPT);
	}
	return 0;
}

/* The first CPU a task may run on, if its last one is no more among them. */
static __always_inline void mq_allowed_home(task_t *t)
{
	s32 cpu;

	if (lab_allowed(&t->lab, t->lab.cpu))
		return;
	for (cpu = 0; cpu < lab_nr_cpus && can_loop; cpu++) {
		if (lab_allowed(&t->lab, cpu) && cpu_at(cpu)->online) {
			lab_post(t->lab.cpu, cpu);
			return;
		}
	}
}

/* ops.enqueue: into a queue; a CPU is found that should choose it. */
static __always_inline void mq_queue(task_t *t, struct task_struct *p, u64 enq_flags,
				     u32 threshold)
{
	s32 this_cpu = bpf_get_smp_processor_id(), cpu, home;
	u32 number = mq_number();
	unsigned long flags;
	bool sync, moved, realtime;

	mq_catch_up(t, number);
	moved = t->old.policy != p->policy;
	linux24_refresh(&t->old, p);
	sync = t->old.sync;
	t->old.sync = false;
	if (t->old.yielded && lab_glance(t->old.linked) && t->old.on_cpu &&
	    lab_allowed(&t->lab, t->lab.cpu) && !(enq_flags & SCX_ENQ_REENQ)) {
		/* Left the CPU after a yield: waits where it is; no task is disturbed. */
		alter(t);
		t->old.yielded = false;
		t->old.on_cpu = false;
		smp_store_release(&t->old.takeable, true);
		return;
	}
	t->old.yielded = false;
	t->old.on_cpu = false;
	mq_allowed_home(t);
	cpu = t->lab.cpu;
	realtime = lab_realtime(t->old.policy);
	home = realtime ? -1 - (s32)pool_of_cpu(cpu) : cpu;
	/* The waker's next choice sees it only if that is in the same pool. */
	sync = sync && lab_allowed(&t->lab, this_cpu) && pool_of_cpu(this_cpu) == pool_of_cpu(cpu);
	if (lab_glance(t->old.linked) && (moved || lab_glance(t->home) != home || (realtime && t->old.leaving)))
		mq_detach(t);
	if (realtime) {
		mq_enqueue_realtime(t, !sync, threshold);
		return;
	}
	if (!lab_lock_irqsave(&queue_at(cpu)->lock, flags))
		return;
	if (enq_flags & SCX_ENQ_REENQ)
		linux24_not_current(&t->old);
	if (t->old.leaving)
		mq_delete(t);
	if (sync || !mq_place(t, cpu, number, threshold))
		mq_add(t, cpu, number);
	lab_unlock_irqrestore(&queue_at(cpu)->lock, flags);
}

/*
 * ops.dequeue: a waiting task is taken away, as an attribute of it changes. It
 * keeps its place in the list and cannot be chosen until it is enqueued again.
 */
static __always_inline void mq_take_away(task_t *t, u64 deq_flags)
{
	unsigned long flags;
	lab_lock_t *lock;
	bool done;
	s32 home;

	/* Tasks that dispatch has chosen come here too; they are no longer takeable. */
	do {
		if (!lab_read(t->old.takeable))
			return;
		home = lab_glance(t->home);
		lock = mq_lock_of(home);
		if (!lab_lock_irqsave(lock, flags))
			return;
		done = lab_glance(t->home) == home;
		if (done) {
			lab_post(t->old.takeable, false);
			if (deq_flags & SCX_DEQ_SLEEP)
				mq_delete(t);
		}
		lab_unlock_irqrestore(lock, flags);
	} while (!done && can_loop);
}

/* ops.dispatch: schedule(). @repairs: whether a queue that was robbed publishes another task. */
static __always_inline void mq_schedule(s32 cpu, struct task_struct *prev_p,
					enum linux24_charge charge, bool repairs)
{
	cpu_t *c = cpu_at(cpu);
	queue_t *q = queue_at(cpu);
	pool_t *pool;
	task_t *prev = NULL, *best, *stolen = NULL;
	choice_t *choice = choice_at(cpu);
	bool decided = false, scanned, realtime = false;
	u32 number, repeats = 0;
	s32 value;
	struct task_struct *p;
	u64 now = scx_bpf_now();
	unsigned long flags;

	lab_use_arena();
	pool = pool_at(pool_of_cpu(cpu));
	if (!linux24_previous(c, prev_p, (linux24_task_t **)&prev))
		return;
	if (prev) {
		mq_catch_up(prev, mq_number());
		linux24_charge_runtime(&prev->old, now, charge);
		realtime = lab_realtime(prev->old.policy);
	}
	if (!lab_lock_irqsave(&q->lock, flags))
		return;
	lab_touch(&c->curr, true);
	lab_count(LAB_SCHEDULES, 1);
	lab_post(c->marked, false);
	if (!mq_delete_leaving(c, cpu)) {
		lab_unlock_irqrestore(&q->lock, flags);
		return;
	}

	do {
		number = mq_number();
		best = NULL;
		p = NULL;

		lab_touch(&pool->realtime.nr, false);
		if (realtime || lab_read(pool->realtime.nr)) {
			if (!lab_lock(&pool->lock)) {
				lab_unlock_irqrestore(&q->lock, flags);
				return;
			}
			if (realtime && prev->old.policy == LAB_SCHED_RR && !lab_glance(prev->old.counter)) {
				lab_post(prev->old.counter, linux24_quantum(prev->old.nice, LINUX24_HZ));
				if (prev->old.linked) {
					lab_list_del(&pool->realtime, &prev->lab.node);
					lab_list_add_tail(&pool->realtime, &prev->lab.node);
				}
			}
			mq_best_realtime(cpu, realtime ? prev : NULL);
			best = choice->best;
			if (best && best != prev) {
				p = lab_task_claim(&best->lab, cpu);
				if (p)
					lab_post(best->old.takeable, false);
			}
			lab_unlock(&pool->lock);
			if (best && best != prev && !p)
				continue;
		}

		scanned = !best || mq_published(q, number) == MQ_NOTHING;
		if (scanned && !mq_local(cpu, realtime ? NULL : prev, number)) {
			if (p)
				bpf_task_release(p);
			break;
		}
		if (!best) {
			best = choice->best;
			value = choice->value;
			if (mq_global(cpu, value, number, repairs)) {
				best = stolen = choice->stolen;
				value = mq_na(best);
			}
			if (best && !value) {
				if (!mq_recalculate(q, number)) {
					lab_irq_restore(flags);
					return;
				}
				continue;
			}
			if (!best && choice->failed) {
				/* A waiting task may be missed: look again. */
				mq_publish(q, NULL, 0, number);
				if (repeats++ < MQ_REPEATS)
					continue;
				linux24_mark(cpu, true);
			}
			if (best && best != prev) {
				p = lab_task_claim(&best->lab, cpu);
				if (!p)
					continue;
			}
		}
		if (scanned) {
			if (choice->best && choice->best != best)
				mq_consider_second(choice, choice->best, mq_na(choice->best));
			mq_publish(q, choice->second, choice->second_na, number);
		}
		decided = true;
		if (!p)
			break;

		if (best == stolen || best->lab.cpu != cpu)
			lab_count(LAB_PICKED_ELSEWHERE, 1);
		alter(best);
		lab_write(c->na, mq_na(best));
		linux24_dispatch(c, cpu, &best->old, p, now);
		lab_unlock_irqrestore(&q->lock, flags);
		return;
	} while (can_loop);

	if (!decided) {
		lab_unlock_irqrestore(&q->lock, flags);
		scx_bpf_error("schedule: the loop budget ran out before a choice");
		return;
	}
	if (best) {
		/* The previous task goes on. */
		best->old.yielded = false;
		lab_write(c->na, mq_na(best));
		lab_unlock_irqrestore(&q->lock, flags);
		if (prev_p)
			scx_bpf_task_set_slice(prev_p, LAB_LONG_SLICE_NS);
		return;
	}
	if (c->curr)
		lab_post(c->last_schedule_ns, now);
	lab_write(c->curr, NULL);
	lab_post(c->na, MQ_NOTHING);
	lab_unlock_irqrestore(&q->lock, flags);
}

/* ops.running */
static __always_inline void mq_run(task_t *t, struct task_struct *p)
{
	cpu_t *c = cpu_at(bpf_get_smp_processor_id());

	if (lab_glance(c->curr) != &t->old) {
		/* It came by the local queue; it may still be linked where it blocked. */
		if (lab_glance(t->old.linked))
			mq_detach(t);
		mq_catch_up(t, mq_number());
		lab_post(c->na, mq_na(t));
	}
	linux24_running(&t->old, p);
}

/* ops.tick */
static __always_inline void mq_use_tick(task_t *t, struct task_struct *p,
					enum linux24_charge charge)
{
	mq_catch_up(t, mq_number());
	linux24_tick(&t->old, p, charge);
	lab_write(cpu_at(bpf_get_smp_processor_id())->na, mq_na(t));
}

/* ops.yield: whether a task waits in the pool. No lock is taken. */
static __always_inline bool mq_others_wait(void)
{
	pool_t *pool = pool_at(pool_of_cpu(bpf_get_smp_processor_id()));
	s32 waiting = lab_read(pool->realtime.nr);
	linux24_task_t *curr;
	queue_t *q;
	cpu_t *c;
	u32 i;

	for (i = pool->begin; i < pool->end && can_loop; i++) {
		q = queue_at(cpu_in_order(i));
		c = cpu_at(cpu_in_order(i));
		lab_touch(&q->list.nr, false);
		waiting += lab_read(q->list.nr);
		lab_touch(&c->curr, false);
		/* The original counts the running tasks, and looks at none of them. */
		curr = lab_glance(c->curr);
		if (curr && lab_unaudited(lab_glance(curr->linked)))
			waiting--;
	}
	return waiting > 0;
}

/* ops.quiescent: a task that blocks is unlinked by the next choice of its CPU. */
static __always_inline void mq_block(task_t *t, u64 deq_flags)
{
	s32 cpu = bpf_get_smp_processor_id();
	queue_t *q = queue_at(cpu);
	cpu_t *c = cpu_at(cpu);
	unsigned long flags;

	if (!linux24_blocks(&t->old, deq_flags))
		return;
	if (c->leaving) {
		/* This CPU has run a task from its local queue since. */
		if (!lab_lock_irqsave(&q->lock, flags))
			return;
		mq_delete_leaving(c, cpu);
		lab_unlock_irqrestore(&q->lock, flags);
	}
	linux24_leaves(c, &t->old);
}

/* ops.disable, ops.exit_task: the task is not ours any more. */
static __always_inline void mq_forget(task_t *t)
{
	t->old.on_cpu = false;
	if (lab_glance(t->old.linked))
		mq_detach(t);
}

/* ops.exit_task: what is left of the ticks goes back to the task that forked it. */
static __always_inline void mq_collect(task_t *t)
{
	u32 number = mq_number();
	task_t *parent;

	mq_catch_up(t, number);
	parent = task_parent(&t->old.parent);
	/* As linux24_collect(), where it is said why that costs nothing. */
	if (parent)
		lab_unaudited(mq_catch_up(parent, number));
	linux24_collect(&t->old, (linux24_task_t *)parent);
}

#endif /* LAB_MQ_OPS_H */
