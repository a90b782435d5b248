/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The multi-queue scheduler: a run queue and a lock for each CPU, and a choice
 * in two phases, first from the own queue, then from the tasks that the other
 * queues of the pool have published. The policies differ only in the pool size:
 * all CPUs (mq), one CPU (mq-local), or any number (mq-pool).
 *
 * A policy includes this, says which CPU belongs to which pool, and calls these
 * functions in its ops with its options.
 *
 * Locks: the own queue first, then the lock of the pool's real-time tasks; another
 * CPU's queue only by try-lock, so there is no order among queues.
 *
 * A recalculation moves a number on. A task applies those it has missed when the
 * holder of its queue's lock or the CPU that runs it looks at it; a published value
 * is read as if its task had.
 */
#ifndef LAB_MQ_H
#define LAB_MQ_H

#include "linux24.h"

/* Published by a queue without a waiting task; by an idle CPU. */
#define MQ_NOTHING		LINUX24_IDLE_GOODNESS

/* Below the keys of all busy CPUs: the keys of idle ones are this and when they became so. */
#define MQ_IDLE_KEY		(-(1ll << 62))
#define MQ_FIRST_KEY		(MQ_IDLE_KEY - 1)

/* Choices that are repeated because of locks that were not free; then the CPU asks again. */
#define MQ_REPEATS		16

struct mq_task {
	union {
		struct lab_task lab;
		struct linux24_task old;
	};
	s32 home;		/* CPU whose queue it is linked in; below 0: -1 - pool, real time */
	u32 number;		/* recalculations that its counter has seen */
};

LAB_TASKS(struct mq_task);

/* The lock, the list and what is published: different lines, different readers. */
struct mq_queue {
	struct lab_lock lock;
	struct lab_list list;		/* runnable tasks, the running one included */
	struct {
		s32 max_na;		/* greatest goodness without bonuses of those that wait */
		u32 number;		/* recalculations there had been */
		s32 counter;		/* ticks and nice level of that task */
		s32 nice;
		task_t *task;		/* the task that has it */
	} __attribute__((aligned(LAB_CACHELINE))) published;
} __attribute__((aligned(LAB_CACHELINE)));

/* The data of a pool: its real-time tasks, running ones included; and where its CPUs are in `order`. */
struct mq_pool {
	struct lab_lock lock;
	struct lab_list realtime;
	u32 begin __attribute__((aligned(LAB_CACHELINE)));
	u32 end;			/* both are written once */
} __attribute__((aligned(LAB_CACHELINE)));

/* Data that the parts of a choice exchange; its CPU's, under the lock of its queue. */
struct mq_choice {
	task_t *best;		/* by goodness; NULL = none */
	task_t *second;		/* best without bonuses of the others that do not run */
	task_t *stolen;		/* from another queue; NULL = none */
	s32 value;		/* goodness of the best */
	s32 second_na;
	bool failed;		/* a lock was not free */
} __attribute__((aligned(LAB_CACHELINE)));

struct mq_sweeps {
	u32 number;			/* recalculations of all counters */
} __attribute__((aligned(LAB_CACHELINE)));

typedef struct mq_queue __arena queue_t;
typedef struct mq_pool __arena pool_t;
typedef struct mq_choice __arena choice_t;

struct mq_queue __arena_global queues[LAB_MAX_CPUS];
struct mq_pool __arena_global pools[LAB_MAX_CPUS];
struct linux24_cpu __arena_global cpus[LAB_MAX_CPUS];
u32 __arena_global pool_of[LAB_MAX_CPUS];	/* by CPU */
s32 __arena_global order[LAB_MAX_CPUS];		/* CPUs, pool by pool */
struct mq_choice __arena_global choices[LAB_MAX_CPUS];
struct mq_sweeps __arena_global sweeps;

static __always_inline queue_t *queue_at(s32 cpu)
{
	return &queues[cpu & (LAB_MAX_CPUS - 1)];
}

static __always_inline pool_t *pool_at(u32 pool)
{
	return &pools[pool & (LAB_MAX_CPUS - 1)];
}

static __always_inline u32 pool_of_cpu(s32 cpu)
{
	return pool_of[cpu & (LAB_MAX_CPUS - 1)];
}

static __always_inline choice_t *choice_at(s32 cpu)
{
	return &choices[cpu & (LAB_MAX_CPUS - 1)];
}

/* A CPU of a pool, by its position among all. */
static __always_inline s32 cpu_in_order(u32 at)
{
	return order[at & (LAB_MAX_CPUS - 1)];
}

/*
 * Recalculation.
 */

static __always_inline u32 mq_number(void)
{
	lab_touch(&sweeps.number, false);
	return lab_read(sweeps.number);
}

/* The ticks a task has once it has applied what it has missed. */
static __always_inline s32 mq_counter(task_t *t, u32 number)
{
	s32 missed = number - lab_glance(t->number), counter = lab_glance(t->old.counter);

	if (missed <= 0)
		return counter;
	return linux24_recalculated_times(counter, lab_glance(t->old.nice), missed, BASE_LINUX_2_4);
}

static __always_inline void mq_catch_up(task_t *t, u32 number)
{
	s32 missed = number - lab_glance(t->number);

	if (missed <= 0)
		return;
	lab_post(t->old.counter, mq_counter(t, number));
	lab_post(t->number, number);
}

/*
 * If a task waits and nothing is published no other CPU sees it, and that CPU's own
 * task may get ticks for ever by the recalculations of others: it looks itself.
 */
LAB_PART int mq_look_again(void)
{
	s32 cpu, own = bpf_get_smp_processor_id();
	linux24_task_t *curr;

	lab_use_arena();
	bpf_for(cpu, 0, lab_nr_cpus) {
		lab_touch(&cpu_at(cpu)->curr, false);
		curr = lab_read(cpu_at(cpu)->curr);
		/* The task that runs is in its queue, too. */
		if (cpu != own && !lab_glance(queue_at(cpu)->published.task) &&
		    lab_glance(queue_at(cpu)->list.nr) > (curr ? 1 : 0))
			linux24_mark(cpu, !curr);
	}
	return 0;
}

/*
 * All counters of the system are recalculated, unless another CPU did that since
 * the number was @seen. The lock is dropped meanwhile. False: the policy has ended.
 */
static __always_inline bool mq_recalculate(queue_t *q, u32 seen)
{
	lab_unlock(&q->lock);
	lab_touch(&sweeps.number, true);
	if (__sync_val_compare_and_swap(&sweeps.number, seen, seen + 1) == seen) {
		lab_count(LAB_RECALCULATIONS, 1);
		lab_charge_recalculation(sizeof(struct mq_task));
		mq_look_again();
	}
	return lab_lock(&q->lock);
}

/*
 * Goodness.
 */

/* Without bonuses; what queues publish. */
static __always_inline s32 mq_na(task_t *t)
{
	return lab_glance(t->old.yielded) ? -1 : linux24_na_goodness(&t->old);
}

static __always_inline s32 mq_goodness(task_t *t, s32 cpu, u64 mm)
{
	return linux24_goodness(&t->old, cpu, mm, BASE_LINUX_2_4);
}

/* By how much a task that waits beats the one that runs on a CPU, seen from anywhere. */
static __always_inline s32 mq_advantage(task_t *t, task_t *curr, s32 cpu, u32 number)
{
	u64 mm = lab_glance(cpu_at(cpu)->mm);

	consult(curr);
	return mq_goodness(t, cpu, mm) -
	       linux24_goodness_with(&curr->old, mq_counter(curr, number), cpu, mm, BASE_LINUX_2_4);
}

/*
 * Queues. The lock of the queue is held.
 */

static __always_inline void mq_publish(queue_t *q, task_t *t, s32 na, u32 number)
{
	lab_touch(&q->published, true);
	lab_write(q->published.max_na, t ? na : MQ_NOTHING);
	q->published.task = t;
	q->published.number = number;
	q->published.counter = t ? lab_glance(t->old.counter) : 0;
	q->published.nice = t ? lab_glance(t->old.nice) : 0;
}

/* Returns a queue's published value, as the recalculations since then have made it. */
static __always_inline s32 mq_published(queue_t *q, u32 number)
{
	s32 missed = number - lab_glance(q->published.number), counter, nice;

	/* A recalculation gives ticks to a task that yielded, too, but not its turn back. */
	if (missed <= 0 || lab_read(q->published.max_na) < 0)
		return lab_read(q->published.max_na);
	nice = lab_glance(q->published.nice);
	counter = linux24_recalculated_times(lab_glance(q->published.counter), nice, missed,
					     BASE_LINUX_2_4);
	return counter + 20 - nice;
}

/* The task comes to the head of a CPU's queue and becomes that CPU's. */
static __always_inline void mq_add(task_t *t, s32 cpu, u32 number)
{
	queue_t *q = queue_at(cpu);
	s32 na;

	alter(t);
	mq_catch_up(t, number);
	if (!t->old.linked) {
		lab_touch(&q->list.head, true);
		lab_list_add_head(&q->list, &t->lab.node);
		t->old.linked = true;
		t->home = cpu;
	}
	lab_post(t->lab.cpu, cpu);
	lab_post(t->old.takeable, true);
	na = mq_na(t);
	lab_touch(&q->published, false);
	if (na > mq_published(q, number))
		mq_publish(q, t, na, number);
}

/* The first that could run elsewhere and has ticks left: good enough, not the best. */
static __always_inline void mq_repair(queue_t *q, u32 number)
{
	lab_node_t *pos;
	task_t *t;

	lab_list_for_each(pos, &q->list) {
		t = lab_entry(pos, struct mq_task, lab.node);
		examine(t);
		if (!lab_glance(t->old.takeable))
			continue;
		mq_catch_up(t, number);
		if (mq_na(t) > 0) {
			mq_publish(q, t, mq_na(t), number);
			return;
		}
	}
}

/* The task leaves the queue of its home, real-time tasks theirs. */
static __always_inline void mq_delete(task_t *t)
{
	/* alter() pays for what is known of it, if there is anything to do. */
	s32 home = lab_unaudited(t->home);
	queue_t *q = queue_at(home);
	lab_list_t *list = &q->list;

	if (home < 0)
		list = &pool_at(-1 - home)->realtime;
	if (lab_unaudited(t->old.linked)) {
		alter(t);
		lab_touch(&list->head, true);
		lab_list_del(list, &t->lab.node);
		t->old.linked = false;
		if (home >= 0 && q->published.task == t) {
			mq_publish(q, NULL, 0, q->published.number);
			/* No other CPU sees those that are left; an idle CPU must look itself. */
			if (!lab_glance(cpu_at(home)->curr) && q->list.nr)
				linux24_mark(home, true);
		}
	}
	lab_unaudited_set(t->old.leaving, false);
	lab_unaudited(lab_post(t->old.takeable, false));
}

static __always_inline lab_lock_t *mq_lock_of(s32 home)
{
	return home < 0 ? &pool_at(-1 - home)->lock : &queue_at(home)->lock;
}

/* Takes the task out of whatever queue it is in; no lock is held. */
LAB_PART int mq_detach(task_t *t __arg_arena)
{
	unsigned long flags;
	lab_lock_t *lock;
	bool done;
	s32 home;

	lab_use_arena();
	do {
		home = lab_read(t->home);
		lock = mq_lock_of(home);
		if (!lab_lock_irqsave(lock, flags))
			return 0;
		/* Another CPU may have moved it. */
		done = !lab_glance(t->old.linked) || lab_glance(t->home) == home;
		if (done)
			mq_delete(t);
		lab_unlock_irqrestore(lock, flags);
	} while (!done && can_loop);
	return 0;
}

/* A blocked task leaves its queue with the next choice of its CPU, whose lock is held. */
static __always_inline bool mq_delete_leaving(cpu_t *c, s32 cpu)
{
	task_t *t = (task_t *)c->leaving;
	lab_lock_t *lock;
	s32 home;

	c->leaving = NULL;
	/* In the original it takes itself out: only what unlinking writes is charged. */
	if (!t || !lab_unaudited(t->old.leaving))
		return true;
	home = lab_unaudited(t->home);
	if (home >= 0) {
		if (home == cpu)
			mq_delete(t);
		return true;
	}
	lock = mq_lock_of(home);
	if (!lab_lock(lock))
		return false;
	if (lab_unaudited(t->old.leaving && t->home < 0))
		mq_delete(t);
	lab_unlock(lock);
	return true;
}

/* A task that waits goes from one queue to another; both locks are held. */
static __always_inline void mq_move(task_t *t, s32 to, u32 number)
{
	mq_delete(t);
	mq_add(t, to, number);
}

/*
 * reschedule_idle(): finds a CPU of the pool for a task that waits.
 */

/*
 * The next best CPU to disturb after that with @key at @at: an idle one, for
 * the longest first, else the one whose task is worth least. There its task
 * has the bonus of an affine one, which the other lacks, but on its last CPU.
 * @at becomes LAB_MAX_CPUS if no CPU has it.
 */
static __always_inline s32 mq_next_target(task_t *t, s32 na, bool realtime, u32 threshold,
					  s64 *key, u32 *at)
{
	s32 last = lab_glance(t->lab.cpu), cpu, target = -1;
	s64 after = *key, lowest = 0, of;
	u32 i, from = *at, found = LAB_MAX_CPUS;
	pool_t *pool = pool_at(pool_of_cpu(last));
	cpu_t *c;

	for (i = pool->begin; i < pool->end && can_loop; i++) {
		cpu = cpu_in_order(i);
		c = cpu_at(cpu);
		if (!lab_allowed(&t->lab, cpu) || !c->online)
			continue;
		lab_touch(&c->curr, false);
		if (!lab_read(c->curr)) {
			if (lab_cpu_taken(cpu))
				continue;
			of = MQ_IDLE_KEY + (s64)lab_glance(c->last_schedule_ns);
		} else {
			of = lab_glance(c->na);
			if (cpu != last && !realtime)
				of += LINUX24_SAME_CPU_BONUS;
			if (of >= na - (s32)threshold)
				continue;
		}
		if (of < after || (of == after && i <= from))
			continue;
		if (found == LAB_MAX_CPUS || of < lowest) {
			lowest = of;
			found = i;
			target = cpu;
		}
	}
	*key = lowest;
	*at = found;
	return target;
}

/*
 * The task waits, linked in the queue of @own or not; the lock of that queue
 * is held. True: it is now in the queue of another CPU.
 */
LAB_PART int mq_place(task_t *t __arg_arena, s32 own, u32 number, u32 threshold)
{
	cpu_t *c = cpu_at(own);
	linux24_task_t *curr;
	s64 key = MQ_FIRST_KEY;
	s32 na, target;
	u32 at = ~0u;
	bool good;

	lab_use_arena();
	lab_touch(&c->curr, false);
	if (lab_allowed(&t->lab, own) && c->online && linux24_free(own, lab_glance(c->curr))) {
		linux24_mark(own, true);
		return false;
	}
	na = mq_na(t);
	bpf_repeat(LAB_MAX_CPUS) {
		target = mq_next_target(t, na, false, threshold, &key, &at);
		if (target < 0)
			break;
		c = cpu_at(target);
		if (target == own) {
			curr = lab_glance(c->curr);
			if (curr && mq_advantage(t, (task_t *)curr, own, number) > (s32)threshold) {
				linux24_mark(own, false);
				return false;
			}
			continue;
		}
		if (!lab_trylock(&queue_at(target)->lock))
			continue;
		curr = lab_glance(c->curr);
		good = !curr ||
		       mq_advantage(t, (task_t *)curr, target, number) > (s32)threshold;
		if (good) {
			mq_move(t, target, number);
			linux24_mark(target, !curr);
		}
		lab_unlock(&queue_at(target)->lock);
		if (good)
			return true;
	}
	return false;
}

/*
 * CPUs that a higher class has taken, see <lab/higher.h>. A task leaves such a CPU
 * even for another pool, as the kernel ends a scheduler that lets it wait.
 */

static __always_inline u64 mq_nr_of(s32 cpu)
{
	return lab_read(queue_at(cpu)->list.nr);
}

static __always_inline bool mq_idle(s32 cpu)
{
	cpu_t *c = cpu_at(cpu);

	return c->online && linux24_free(cpu, lab_read(c->curr)) && !lab_glance(queue_at(cpu)->list.nr);
}

/* The first task of a queue that may go to another; both locks are held. */
LAB_PART int mq_give(s32 from, s32 to, u32 number)
{
	lab_node_t *pos;
	task_t *t;

	lab_use_arena();
	lab_list_for_each(pos, &queue_at(from)->list) {
		t = lab_entry(pos, struct mq_task, lab.node);
		consult(t);
		if (!lab_glance(t->old.takeable) || !lab_allowed(&t->lab, to))
			continue;
		mq_move(t, to, number);
		linux24_mark(to, !lab_glance(cpu_at(to)->curr));
		return true;
	}
	return false;
}

LAB_PART int mq_rescue(s32 from, s32 to)
{
	unsigned long flags;
	bool moved = false;

	lab_use_arena();
	if (!lab_lock_irqsave(&queue_at(from)->lock, flags))
		return false;
	if (lab_trylock(&queue_at(to)->lock)) {
		moved = mq_give(from, to, mq_number());
		lab_unlock(&queue_at(to)->lock);
	}
	lab_unlock_irqrestore(&queue_at(from)->lock, flags);
	return moved;
}

LAB_RESCUE(mq_nr_of, mq_idle, mq_rescue);

/*
 * The choice.
 */

static __always_inline void mq_consider_second(choice_t *choice, task_t *t, s32 na)
{
	if (na > choice->second_na) {
		choice->second = t;
		choice->second_na = na;
	}
}

/* First phase: the own queue, the previous task first if it may go on. False: the budget ran out. */
LAB_PART int mq_local(s32 cpu, task_t *prev __arg_arena, u32 number)
{
	choice_t *choice = choice_at(cpu);
	queue_t *q = queue_at(cpu);
	lab_node_t *pos;
	s32 value;
	task_t *t;
	u64 mm;

	lab_use_arena();
	mm = lab_glance(cpu_at(cpu)->mm);
	choice->best = NULL;
	choice->value = MQ_NOTHING;
	choice->second = NULL;
	choice->second_na = MQ_NOTHING;
	if (prev) {
		examine(prev);
		mq_catch_up(prev, number);
		choice->best = prev;
		choice->value = mq_goodness(prev, cpu, mm);
	}
	lab_touch(&q->list.head, false);
	lab_list_for_each(pos, &q->list) {
		t = lab_entry(pos, struct mq_task, lab.node);
		if (t == prev)
			continue;
		examine(t);
		if (!lab_glance(t->old.takeable) || !lab_allowed(&t->lab, cpu))
			continue;
		mq_catch_up(t, number);
		value = mq_goodness(t, cpu, mm);
		if (value > choice->value) {
			if (choice->best)
				mq_consider_second(choice, choice->best, mq_na(choice->best));
			choice->best = t;
			choice->value = value;
		} else {
			mq_consider_second(choice, t, mq_na(t));
		}
	}
	return lab_list_ended(pos, &q->list);
}

/*
 * A task of another queue comes to this one, under that queue's lock, if what it
 * published holds. @repairs: then that queue publishes the next best that comes along.
 */
LAB_PART int mq_steal(s32 cpu, s32 from, s32 value, u32 number, bool repairs)
{
	queue_t *q = queue_at(from);
	bool stolen = false;
	task_t *t;

	lab_use_arena();
	if (!lab_trylock(&q->lock)) {
		choice_at(cpu)->failed = true;
		return false;
	}
	lab_touch(&q->published, true);
	if (mq_published(q, number) > value) {
		t = q->published.task;
		consult(t);
		if (lab_glance(t->old.takeable) && lab_glance(t->home) == from && lab_allowed(&t->lab, cpu)) {
			mq_move(t, cpu, number);
			choice_at(cpu)->stolen = t;
			stolen = true;
			if (repairs)
				mq_repair(q, number);
		}
	}
	lab_unlock(&q->lock);
	return stolen;
}

/*
 * Second phase: the best of what the other queues of the pool have published,
 * if it is better than @value. A queue whose lock is not free, or which has
 * lost that task meanwhile, is not considered again. The task is in this
 * CPU's queue on return.
 */
LAB_PART int mq_global(s32 cpu, s32 value, u32 number, bool repairs)
{
	s32 below = 0x7fffffff, highest, na, other, from;
	u32 i, at = ~0u, found;
	pool_t *pool;
	queue_t *q;
	task_t *t;

	lab_use_arena();
	pool = pool_at(pool_of_cpu(cpu));
	choice_at(cpu)->stolen = NULL;
	choice_at(cpu)->failed = false;
	bpf_repeat(LAB_MAX_CPUS) {
		highest = value;
		from = -1;
		found = 0;
		for (i = pool->begin; i < pool->end && can_loop; i++) {
			other = cpu_in_order(i);
			if (other == cpu)
				continue;
			q = queue_at(other);
			lab_touch(&q->published, false);
			na = mq_published(q, number);
			t = lab_glance(q->published.task);
			if (na <= highest || na > below || (na == below && i <= at))
				continue;
			/* The original's copy of the mask is in the line of what is published. */
			if (!t || !lab_unaudited(lab_allowed(&t->lab, cpu)))
				continue;
			highest = na;
			from = other;
			found = i;
		}
		if (from < 0)
			return false;
		if (mq_steal(cpu, from, value, number, repairs))
			return true;
		below = highest;
		at = found;
	}
	return false;
}

/* The best real-time task that may run here, the previous one first. Its queue's lock is held. */
LAB_PART int mq_best_realtime(s32 cpu, task_t *prev __arg_arena)
{
	s32 value = MQ_NOTHING;
	task_t *best = NULL, *t;
	lab_node_t *pos;
	pool_t *pool;

	lab_use_arena();
	pool = pool_at(pool_of_cpu(cpu));
	if (prev && lab_realtime(prev->old.policy)) {
		examine(prev);
		best = prev;
		value = mq_na(prev);
	}
	lab_touch(&pool->realtime.head, false);
	lab_list_for_each(pos, &pool->realtime) {
		t = lab_entry(pos, struct mq_task, lab.node);
		if (t == prev)
			continue;
		examine(t);
		if (!lab_glance(t->old.takeable) || !lab_allowed(&t->lab, cpu))
			continue;
		if (mq_na(t) > value) {
			best = t;
			value = mq_na(t);
		}
	}
	choice_at(cpu)->best = best;
	return 0;
}

#include "mq_ops.h"

#endif /* LAB_MQ_H */
