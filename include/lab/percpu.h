/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by schedulers with a run queue and a lock per CPU: which task is in which
 * queue, which may be taken, and how a queue's CPU is kicked. The policy decides
 * what a queue looks like inside, and the choice from it.
 *
 * A task that is runnable is linked in exactly one queue, its home, the task
 * that runs included. The kernel's task_cpu() follows only when the task is
 * dispatched, so a balancer that moves a waiting task changes its home alone.
 *
 * A policy includes this after <lab/lab.bpf.h>. Its contexts and queues are
 *
 *	struct its_task {			struct its_rq {
 *		union {					struct lab_rq q;
 *			struct lab_task lab;		...
 *			struct lab_rq_task q;	};
 *		};
 *		...
 *	};
 *
 * and it defines the functions under "Hooks".
 */
#ifndef LAB_PERCPU_H
#define LAB_PERCPU_H

#include "idle.h"
#include "periodic.h"

struct lab_rq_task {
	struct lab_task lab;
	u64 started_ns;		/* charged up to here; while on a CPU */
	s32 home;		/* CPU whose queue it is or was linked in */
	s32 nice;		/* -20 to 19 */
	u32 policy;		/* LAB_SCHED_FIFO, LAB_SCHED_RR or something else */
	u32 rt_priority;	/* 1 to 99 for real-time tasks */
	/* Under the lock of its home, but for on_cpu, which belongs to the CPU it is on. */
	bool linked;		/* in a queue */
	bool takeable;		/* in the policy's custody: waits to be chosen or moved */
	bool leaving;		/* blocked; to be unlinked by the next choice of its CPU */
	bool on_cpu;		/* running, or chosen to; until it blocks or is displaced */
	bool asleep;		/* blocked since it was enqueued last */
	bool fresh;		/* forked, and never enqueued yet */
	bool sync;		/* woken by a task that is about to sleep */
	bool stayed;		/* as enqueued last it only waits on: neither woken nor moved, nor of another policy */
	s32 waker;		/* CPU it was woken from last */
	u32 pad2;
};

typedef struct lab_rq_task __arena lab_rq_task_t;

struct lab_rq {
	struct lab_lock lock;
	/* Others read these without the lock, by lab_read(). */
	u64 nr;			/* tasks that are linked, the running one included */
	lab_rq_task_t *curr;	/* running task, NULL = idle */
	u32 cpu;
	bool online;
	bool marked;		/* need_resched of the current task */
	bool idle_tick;		/* woken by rq_wake_idle() since it chose last */
	u8 pad;
	lab_rq_task_t *leaving;	/* the task that blocked here and is still linked */
} __attribute__((aligned(LAB_CACHELINE)));

typedef struct lab_rq __arena lab_rq_t;

struct lab_rqs {
	lab_rq_t *at[LAB_MAX_CPUS];
} __attribute__((aligned(LAB_CACHELINE)));

struct lab_rqs __arena_global lab_rqs;

/*
 * Hooks, with the queue's lock held. They also count the task in `nr` by
 * rq_count(); `linked` is set here.
 */
static void rq_link(lab_rq_t *rq, lab_rq_task_t *t);	/* into the queue, at the policy's place */
static void rq_unlink(lab_rq_t *rq, lab_rq_task_t *t);	/* out of it */
/* With both locks held, gives a task that waits in one queue to the other; false: none may go. */
static bool rq_give(lab_rq_t *from, lab_rq_t *to);

static __always_inline lab_rq_t *rq_at(s32 cpu)
{
	return lab_rqs.at[cpu & (LAB_MAX_CPUS - 1)];
}

static __always_inline lab_rq_t *rq_this(void)
{
	return rq_at(bpf_get_smp_processor_id());
}

/* ops.init: makes a queue of @bytes for every CPU; 0 or a negative errno after an error. */
static __always_inline int rq_init(u32 bytes)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	lab_rq_t *rq;
	int error = 0;
	s32 cpu;

	bpf_for(cpu, 0, lab_nr_cpus) {
		rq = (lab_rq_t *)bpf_arena_alloc_pages(&arena, NULL, (bytes + 4095) / 4096,
						       NUMA_NO_NODE, 0);
		if (!rq) {
			scx_bpf_error("no memory for the run queue of CPU %d", cpu);
			error = -ENOMEM;
			break;
		}
		lab_lock_init(&rq->lock, LAB_LOCK_CLASS_RUN_QUEUE);
		rq->nr = 0;
		rq->curr = NULL;
		rq->leaving = NULL;
		rq->cpu = cpu;
		rq->marked = false;
		rq->idle_tick = false;
		rq->online = lab_note_online(cpu, online);
		lab_rqs.at[cpu & (LAB_MAX_CPUS - 1)] = rq;
	}
	scx_bpf_put_cpumask(online);
	return error;
}

/*
 * Locks.
 */

/* Takes the lock of a task's home: lab_lock_home(). */
#define rq_lock_home(t)	lab_lock_home(t, rq_at)

/* Takes the lock of @other while @rq's is held, the lower CPU's first: lab_lock_second(). */
#define rq_lock_second(rq, other) \
	lab_lock_second(&(rq)->lock, &(other)->lock, (other)->cpu > (rq)->cpu)

/*
 * The queue.
 */

/* Tells a queue's CPU to choose again; SCX_KICK_IDLE does nothing to a CPU that has begun to. */
static __always_inline void rq_mark(lab_rq_t *rq)
{
	bool was = lab_read(rq->marked);

	lab_write(rq->marked, true);
	/* The lock may not be held (o1, a real-time task). */
	if (lab_glance(rq->curr))
		scx_bpf_kick_cpu(rq->cpu, SCX_KICK_PREEMPT);
	else if (!was)
		scx_bpf_kick_cpu(rq->cpu, SCX_KICK_IDLE);
}

/* The running task shall make way: its CPU, which is this one, asks for the next. */
static __always_inline void rq_mark_current(lab_rq_t *rq, struct task_struct *p)
{
	lab_write(rq->marked, true);
	scx_bpf_task_set_slice(p, 0);
}

static __always_inline u64 rq_nr_of(s32 cpu)
{
	return lab_read(rq_at(cpu)->nr);
}

/* The same for a comparison of CPUs: a task of a higher class counts as one of the queue's. */
static __always_inline u64 rq_nr_with_higher(s32 cpu)
{
	return rq_nr_of(cpu) + lab_cpu_taken(cpu);
}

/* Whether the CPU has no task of ours and runs none of a higher class. */
static __always_inline bool rq_cpu_free(lab_rq_t *rq)
{
	return !lab_read(rq->curr) && !lab_cpu_taken(rq->cpu);
}

/* Whether a CPU has nothing to do; then it is noted that it is woken to look for tasks. */
static __always_inline bool rq_idle_ticks(s32 cpu)
{
	lab_rq_t *rq = rq_at(cpu);

	if (!rq->online || lab_read(rq->nr) || !rq_cpu_free(rq))
		return false;
	lab_write(rq->idle_tick, true);
	return true;
}

/* In place of the ticks of idle CPUs, which sched_ext has not. */
static __always_inline void rq_wake_idle(void)
{
	lab_wake_idle(rq_nr_of, rq_idle_ticks);
}

/*
 * Address of the first task of an array, from a level on, that the queue's CPU
 * may run: one that waits, or @prev, which it runs. That is the first task,
 * unless a mask forbids it.
 */
LAB_PART u64 rq_first(lab_rq_t *rq __arg_arena, lab_prio_array_t *array __arg_arena,
		      u32 from, lab_rq_task_t *prev __arg_arena)
{
	lab_rq_task_t *t;
	lab_list_t *list;
	lab_node_t *pos;
	s32 level;

	lab_use_arena();
	for (level = lab_prio_next(array, from); level >= 0 && can_loop;
	     level = lab_prio_next(array, level + 1)) {
		list = lab_prio_list(array, level);
		lab_list_for_each(pos, list) {
			t = lab_entry(pos, struct lab_rq_task, lab.node);
			examine(t);
			if (t == prev || (lab_glance(t->takeable) && lab_allowed(&t->lab, rq->cpu)))
				return (u64)t;
		}
	}
	return 0;
}

static __always_inline void rq_count(lab_rq_t *rq, s64 n)
{
	lab_touch(&rq->nr, true);
	lab_write(rq->nr, rq->nr + n);
}

static __always_inline void rq_add(lab_rq_t *rq, lab_rq_task_t *t)
{
	alter(t);
	t->home = rq->cpu;
	t->linked = true;
	rq_link(rq, t);
}

static __always_inline void rq_del(lab_rq_t *rq, lab_rq_task_t *t)
{
	/* alter() pays for what is known of it, if there is anything to do. */
	lab_unaudited_set(t->leaving, false);
	lab_unaudited_set(t->takeable, false);
	if (!lab_unaudited(t->linked))
		return;
	alter(t);
	rq_unlink(rq, t);
	t->linked = false;
}

/* A blocked task leaves the queue once; `rq` may have forgotten who it was. */
static __always_inline void rq_del_leaving(lab_rq_t *rq)
{
	lab_rq_task_t *t = rq->leaving;

	rq->leaving = NULL;
	/* In the original it takes itself out: only what unlinking writes is charged. */
	if (t && lab_unaudited(t->leaving && t->home == rq->cpu))
		rq_del(rq, t);
}

/* Takes a task out of its home, wherever that is. Interrupts are on. */
static __always_inline bool rq_del_anywhere(lab_rq_task_t *t)
{
	unsigned long flags;
	lab_rq_t *rq;

	lab_irq_save(flags);
	rq = rq_lock_home(t);
	if (rq) {
		rq_del(rq, t);
		lab_unlock(&rq->lock);
	}
	lab_irq_restore(flags);
	return rq;
}

/* The CPU switches to a task of its queue. */
static __always_inline void rq_switch_to(lab_rq_t *rq, lab_rq_task_t *t)
{
	if (t->lab.cpu != rq->cpu)
		lab_count(LAB_PICKED_ELSEWHERE, 1);
	alter(t);
	t->takeable = false;
	t->on_cpu = true;
	t->lab.cpu = rq->cpu;
	lab_write(rq->curr, t);
}

/*
 * Takes a waiting task over from @from, both locks held: checked on the real
 * task, as only that shows whether it may go there.
 */
static __always_inline bool rq_may_pull(lab_rq_task_t *t, lab_rq_t *to)
{
	struct task_struct *p;

	consult(t);
	if (!lab_glance(t->takeable) || !lab_allowed(&t->lab, to->cpu))
		return false;
	/* In a timer's function no other CPU has taken it. */
	bpf_rcu_read_lock();
	p = lab_task_claim(&t->lab, to->cpu);
	if (p)
		bpf_task_release(p);
	bpf_rcu_read_unlock();
	return p;
}

static __always_inline void rq_pull(lab_rq_t *from, lab_rq_t *to, lab_rq_task_t *t)
{
	rq_del(from, t);
	rq_add(to, t);
	t->takeable = true;
}

/*
 * CPUs that a higher class has taken, see <lab/higher.h>.
 */

static __always_inline bool rq_idle(s32 cpu)
{
	lab_rq_t *rq = rq_at(cpu);

	return rq->online && !lab_read(rq->nr) && rq_cpu_free(rq);
}

static __noinline bool rq_rescue(u32 from_cpu, u32 to_cpu)
{
	lab_rq_t *from, *to;
	unsigned long flags;
	bool moved;

	lab_use_arena();
	from = rq_at(from_cpu);
	to = rq_at(to_cpu);
	lab_irq_save(flags);
	if (!lab_lock(&from->lock)) {
		lab_irq_restore(flags);
		return false;
	}
	if (!rq_lock_second(from, to)) {
		lab_irq_restore(flags);
		return false;
	}
	moved = rq_give(from, to);
	if (moved && !to->curr)
		rq_mark(to);
	lab_unlock(&to->lock);
	lab_unlock(&from->lock);
	lab_irq_restore(flags);
	return moved;
}

LAB_RESCUE(rq_nr_of, rq_idle, rq_rescue);

/*
 * Ops, as far as they do not depend on what a queue looks like.
 */

/* Reads the real task's attributes. */
static __always_inline void rq_refresh(lab_rq_task_t *t, struct task_struct *p)
{
	lab_task_refresh(&t->lab, p);
	t->nice = p->static_prio - 120;
	t->policy = p->policy;
	t->rt_priority = p->rt_priority;
}

/*
 * ops.select_cpu and the start of a life: what enqueue must know of a wakeup.
 */
static __always_inline void rq_woken(lab_rq_task_t *t, u64 wake_flags)
{
	t->sync = wake_flags & SCX_WAKE_SYNC;
	t->waker = bpf_get_smp_processor_id();
}

/* A higher class has taken the CPU from the task, or it was chosen but never ran. */
static __noinline int rq_not_current(lab_rq_task_t *t)
{
	lab_rq_t *rq = rq_at(t->lab.cpu);
	unsigned long flags;

	lab_use_arena();
	if (!lab_lock_irqsave(&rq->lock, flags))
		return 0;
	if (rq->curr == t)
		lab_write(rq->curr, NULL);
	lab_unlock_irqrestore(&rq->lock, flags);
	return 0;
}

/*
 * ops.enqueue: true if the task stays where it is linked, having been displaced
 * and unchanged. Otherwise it is linked nowhere, its attributes are read again
 * and its home is chosen, to be linked by the policy. @found: a choice comes upon
 * it where it is; if not, the policy puts it there and makes it takeable.
 */
static __always_inline bool rq_enqueue_stays(lab_rq_task_t *t, struct task_struct *p, bool found,
					     u64 enq_flags)
{
	bool changed = t->nice != p->static_prio - 120 || t->policy != p->policy ||
		       t->rt_priority != p->rt_priority;
	s32 cpu = scx_bpf_task_cpu(p), home = t->home;

	if (enq_flags & SCX_ENQ_REENQ)
		rq_not_current(t);
	if (t->linked && !t->leaving && !changed) {
		lab_task_refresh(&t->lab, p);
		if (home == cpu) {
			alter(t);
			t->on_cpu = false;
			/* Last: from here on another CPU may take it. */
			if (found)
				smp_store_release(&t->takeable, true);
			return true;
		}
	}
	if (t->linked && !rq_del_anywhere(t))
		return true;
	t->stayed = !t->asleep && home == cpu && t->policy == p->policy;
	rq_refresh(t, p);
	t->on_cpu = false;
	t->home = cpu;
	return false;
}

/* ops.dequeue: a waiting task is taken away; it is enqueued again when it is back. */
static __always_inline void rq_dequeue(lab_rq_task_t *t, u64 deq_flags)
{
	unsigned long flags;
	lab_rq_t *rq;

	/* Tasks that dispatch has chosen come here too; they are no longer takeable. */
	if (!lab_read(t->takeable))
		return;
	lab_irq_save(flags);
	rq = rq_lock_home(t);
	if (rq) {
		if (!lab_glance(t->takeable)) {
			/* Chosen meanwhile by another CPU, which will find it gone. */
		} else if (deq_flags & SCX_DEQ_CORE_SCHED_EXEC) {
			/* An attribute of a running task was changed: it goes on. */
			t->takeable = false;
			t->on_cpu = true;
		} else {
			rq_del(rq, t);
		}
		lab_unlock(&rq->lock);
	}
	lab_irq_restore(flags);
}

/* ops.running: a task that did not come by a choice becomes the CPU's, too. */
static __always_inline void rq_running(lab_rq_task_t *t, struct task_struct *p)
{
	lab_rq_t *rq = rq_this();
	unsigned long flags;

	t->started_ns = scx_bpf_now();
	if (rq->curr == t && t->linked && t->home == rq->cpu)
		return;
	lab_count(LAB_PINNED_LOCAL, 1);
	if (t->linked && t->home != rq->cpu && !rq_del_anywhere(t))
		return;
	if (!t->linked)
		rq_refresh(t, p);
	if (!lab_lock_irqsave(&rq->lock, flags))
		return;
	t->leaving = false;
	if (!t->linked)
		rq_add(rq, t);
	t->takeable = false;
	t->on_cpu = true;
	t->lab.cpu = rq->cpu;
	lab_write(rq->curr, t);
	lab_unlock_irqrestore(&rq->lock, flags);
}

/* ops.quiescent: notes that a task blocked; the next choice of the CPU unlinks it. True: it did. */
static __always_inline bool rq_quiescent(lab_rq_task_t *t, u64 deq_flags)
{
	lab_rq_t *rq = rq_this();
	unsigned long flags;

	if (!(deq_flags & SCX_DEQ_SLEEP))
		return false;
	t->on_cpu = false;
	t->asleep = true;
	if (!t->linked)
		return true;
	if (t->home != rq->cpu) {
		rq_del_anywhere(t);
		return true;
	}
	if (rq->leaving) {
		/* This CPU has run a task from its local queue since. */
		if (!lab_lock_irqsave(&rq->lock, flags))
			return true;
		rq_del_leaving(rq);
		lab_unlock_irqrestore(&rq->lock, flags);
	}
	t->leaving = true;
	rq->leaving = t;
	return true;
}

/* ops.init_task, the beginning: a task's attributes; it has never run. */
static __always_inline void rq_new_task(lab_rq_task_t *t, struct task_struct *p)
{
	rq_refresh(t, p);
	t->home = scx_bpf_task_cpu(p);
	t->asleep = true;
	lab_note_higher(p);
}

/*
 * ops.dispatch, at its beginning: the context of the previous task in @prev, NULL
 * if it does not go on. False: it runs on, as an interrupt has come too late.
 */
static __always_inline bool rq_previous(lab_rq_t *rq, struct task_struct *prev_p,
					lab_rq_task_t **prev)
{
	*prev = prev_p ? (lab_rq_task_t *)lab_task_of(prev_p) : NULL;
	if (*prev && !(*prev)->on_cpu)
		*prev = NULL;
	if (!*prev || lab_read(rq->marked))
		return true;
	scx_bpf_task_set_slice(prev_p, LAB_LONG_SLICE_NS);
	return false;
}

/* ops.dispatch, once the lock is held: the choice of the queue's CPU begins. */
static __always_inline void rq_begin_choice(lab_rq_t *rq)
{
	lab_count(LAB_SCHEDULES, 1);
	rq_del_leaving(rq);
	lab_write(rq->marked, false);
}

/*
 * ops.dispatch, the choice: asks until no task is named, or the previous task, or
 * one that can be claimed, as @p. `choice` is an expression that sets @next, which
 * is NULL before; it is false if the policy has ended, and so is this then.
 */
#define rq_choose(next, prev, p, cpu, choice)					\
({										\
	bool ___goes_on;							\
										\
	do {									\
		(next) = NULL;							\
		___goes_on = (choice);						\
		if (!___goes_on || !(next) || (next) == (prev))			\
			break;							\
		(p) = lab_task_claim(&(next)->lab, (cpu));			\
	} while (!(p) && can_loop);						\
	___goes_on;								\
})

/*
 * ops.dispatch, at its end: the CPU goes on with @next, which was claimed as
 * @p, or with the task that it ran, if @goes_on; otherwise it is idle.
 */
static __always_inline void rq_end_choice(lab_rq_t *rq, lab_rq_task_t *next, struct task_struct *p,
					  struct task_struct *prev, bool goes_on)
{
	if (p) {
		rq_switch_to(rq, next);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, LAB_LONG_SLICE_NS, 0);
		bpf_task_release(p);
	} else if (prev && goes_on) {
		scx_bpf_task_set_slice(prev, LAB_LONG_SLICE_NS);
	} else {
		lab_write(rq->curr, NULL);
	}
}

/* ops.exit_task, ops.disable: the task is not ours any more. */
static __always_inline void rq_forget(lab_rq_task_t *t)
{
	t->on_cpu = false;
	if (t->linked)
		rq_del_anywhere(t);
}

#endif /* LAB_PERCPU_H */
