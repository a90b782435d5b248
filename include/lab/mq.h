/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The multi-queue scheduler: a run queue and a lock for each CPU, and a choice
 * in two phases, first from the own queue, then from what the other queues of
 * the pool have published. How large pools are makes the policies: all CPUs
 * (mq), one CPU (mq-local), or what one likes (mq-pool).
 *
 * A policy includes this behind <lab/linux24.h> and its options `threshold` and
 * `charge`, defines the two functions that are declared first here, and makes
 * its ops table by MQ_OPS().
 *
 * Locks: the own queue first, then that of the pool's real-time tasks; another
 * CPU's queue only by try-lock, so there is no order among queues.
 *
 * A recalculation moves a number on. A task applies those it has missed when
 * it is looked at by whoever holds its queue's lock or runs it; what a queue
 * has published is void once the number has moved.
 */
#ifndef LAB_MQ_H
#define LAB_MQ_H

/* The policy's: to which pool a CPU belongs, less than LAB_MAX_CPUS. */
static __always_inline u32 mq_pool_of(s32 cpu);

/* The policy's: whether a queue that was robbed publishes the next best that comes along. */
static __always_inline bool mq_repairs(void);

/* Published by a queue in which nobody waits; of an idle CPU. */
#define MQ_NOTHING		LINUX24_IDLE_GOODNESS

/* Below the keys of all busy CPUs: those of idle ones are this and when they became so. */
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
		task_t *task;		/* who has it */
	} __attribute__((aligned(LAB_CACHELINE))) published;
} __attribute__((aligned(LAB_CACHELINE)));

/* What a pool shares: its real-time tasks, running ones included; and where its CPUs are in `order`. */
struct mq_pool {
	struct lab_lock lock;
	struct lab_list realtime;
	u32 begin __attribute__((aligned(LAB_CACHELINE)));
	u32 end;			/* both are written once */
} __attribute__((aligned(LAB_CACHELINE)));

/* What the parts of a choice tell each other; its CPU's, under the lock of its queue. */
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
	s32 missed = number - t->number;

	if (missed <= 0)
		return t->old.counter;
	return linux24_recalculated_times(t->old.counter, t->old.nice, missed, BASE_LINUX_2_4);
}

static __always_inline void mq_catch_up(task_t *t, u32 number)
{
	s32 missed = number - t->number;

	if (missed <= 0)
		return;
	t->old.counter = mq_counter(t, number);
	t->number = number;
}

/*
 * What the queues of idle CPUs have published is void: whoever waits there, by
 * a synchronous wakeup, would not be seen. Such a CPU looks itself.
 */
LAB_PART int mq_wake_idle(void)
{
	s32 cpu;

	lab_use_arena();
	bpf_for(cpu, 0, lab_nr_cpus) {
		lab_touch(&cpu_at(cpu)->curr, false);
		if (!lab_read(cpu_at(cpu)->curr) && queue_at(cpu)->list.nr)
			linux24_mark(cpu, true);
	}
	return 0;
}

/*
 * All counters of the system are recalculated, unless somebody did that since
 * the number was @seen. The lock is dropped meanwhile. False: the policy has ended.
 */
static __always_inline bool mq_recalculate(queue_t *q, u32 seen)
{
	lab_unlock(&q->lock);
	lab_touch(&sweeps.number, true);
	if (__sync_val_compare_and_swap(&sweeps.number, seen, seen + 1) == seen) {
		lab_count(LAB_RECALCULATIONS, 1);
		lab_charge_recalculation(sizeof(struct mq_task));
		mq_wake_idle();
	}
	return lab_lock(&q->lock);
}

/*
 * Goodness.
 */

/* Without bonuses; what queues publish. */
static __always_inline s32 mq_na(task_t *t)
{
	return t->old.yielded ? -1 : linux24_na_goodness(&t->old);
}

static __always_inline s32 mq_goodness(task_t *t, s32 cpu, u64 mm)
{
	return linux24_goodness(&t->old, cpu, mm, BASE_LINUX_2_4);
}

/* By how much a task that waits beats the one that runs on a CPU, seen from anywhere. */
static __always_inline s32 mq_advantage(task_t *t, task_t *curr, s32 cpu, u32 number)
{
	u64 mm = cpu_at(cpu)->mm;

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
}

/* What a queue has published, if it still holds. */
static __always_inline s32 mq_published(queue_t *q, u32 number)
{
	return q->published.number == number ? q->published.max_na : MQ_NOTHING;
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
	t->lab.cpu = cpu;
	t->old.takeable = true;
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
		if (!t->old.takeable)
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
	queue_t *q = queue_at(t->home);
	lab_list_t *list = &q->list;

	if (t->home < 0)
		list = &pool_at(-1 - t->home)->realtime;
	if (t->old.linked) {
		alter(t);
		lab_touch(&list->head, true);
		lab_list_del(list, &t->lab.node);
		t->old.linked = false;
		if (t->home >= 0 && q->published.task == t) {
			mq_publish(q, NULL, 0, q->published.number);
			/* Nobody else sees those that are left; an idle CPU must look itself. */
			if (!cpu_at(t->home)->curr && q->list.nr)
				linux24_mark(t->home, true);
		}
	}
	t->old.leaving = false;
	t->old.takeable = false;
}

static __always_inline lab_lock_t *mq_lock_of(s32 home)
{
	return home < 0 ? &pool_at(-1 - home)->lock : &queue_at(home)->lock;
}

/* Takes the task out of whatever queue it is in; no lock is held. */
LAB_PART int mq_detach(task_t *t LAB_ARENA_ARG)
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
		/* Somebody may have moved it. */
		done = !t->old.linked || t->home == home;
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

	c->leaving = NULL;
	if (!t || !t->old.leaving)
		return true;
	if (t->home >= 0) {
		if (t->home == cpu)
			mq_delete(t);
		return true;
	}
	lock = mq_lock_of(t->home);
	if (!lab_lock(lock))
		return false;
	if (t->old.leaving && t->home < 0)
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
 * @at becomes LAB_MAX_CPUS if there is none.
 */
static __always_inline s32 mq_next_target(task_t *t, s32 na, bool realtime, s64 *key, u32 *at)
{
	s32 last = t->lab.cpu, cpu, target = -1;
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
			of = MQ_IDLE_KEY + (s64)c->last_schedule_ns;
		} else {
			of = c->na;
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
LAB_PART int mq_place(task_t *t LAB_ARENA_ARG, s32 own, u32 number)
{
	cpu_t *c = cpu_at(own);
	s64 key = MQ_FIRST_KEY;
	s32 na, target;
	u32 at = ~0u;
	bool good;

	lab_use_arena();
	lab_touch(&c->curr, false);
	if (lab_allowed(&t->lab, own) && c->online && !c->curr) {
		linux24_mark(own, true);
		return false;
	}
	na = mq_na(t);
	bpf_repeat(LAB_MAX_CPUS) {
		target = mq_next_target(t, na, false, &key, &at);
		if (target < 0)
			break;
		c = cpu_at(target);
		if (target == own) {
			if (c->curr && mq_advantage(t, (task_t *)c->curr, own, number) > (s32)threshold) {
				linux24_mark(own, false);
				return false;
			}
			continue;
		}
		if (!lab_trylock(&queue_at(target)->lock))
			continue;
		good = !c->curr ||
		       mq_advantage(t, (task_t *)c->curr, target, number) > (s32)threshold;
		if (good) {
			mq_move(t, target, number);
			linux24_mark(target, !c->curr);
		}
		lab_unlock(&queue_at(target)->lock);
		if (good)
			return true;
	}
	return false;
}

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
LAB_PART int mq_local(s32 cpu, task_t *prev LAB_ARENA_ARG, u32 number)
{
	choice_t *choice = choice_at(cpu);
	queue_t *q = queue_at(cpu);
	lab_node_t *pos;
	s32 value;
	task_t *t;
	u64 mm;

	lab_use_arena();
	mm = cpu_at(cpu)->mm;
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
		if (!t->old.takeable || !lab_allowed(&t->lab, cpu))
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

/* A task of another queue comes to this one, under that queue's lock, if what it published holds. */
LAB_PART int mq_steal(s32 cpu, s32 from, s32 value, u32 number)
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
		if (t->old.takeable && t->home == from && lab_allowed(&t->lab, cpu)) {
			mq_move(t, cpu, number);
			choice_at(cpu)->stolen = t;
			stolen = true;
			if (mq_repairs())
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
LAB_PART int mq_global(s32 cpu, s32 value, u32 number)
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
			na = lab_read(q->published.max_na);
			t = q->published.task;
			if (q->published.number != number)
				continue;
			if (na <= highest || na > below || (na == below && i <= at))
				continue;
			if (!t || !lab_allowed(&t->lab, cpu))
				continue;
			highest = na;
			from = other;
			found = i;
		}
		if (from < 0)
			return false;
		if (mq_steal(cpu, from, value, number))
			return true;
		below = highest;
		at = found;
	}
	return false;
}

/* The best real-time task that may run here, the previous one first. Its queue's lock is held. */
LAB_PART int mq_best_realtime(s32 cpu, task_t *prev LAB_ARENA_ARG)
{
	s32 value = MQ_NOTHING;
	task_t *best = NULL, *t;
	lab_node_t *pos;
	pool_t *pool;

	lab_use_arena();
	pool = pool_at(pool_of_cpu(cpu));
	if (prev && linux24_realtime(prev->old.policy)) {
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
		if (!t->old.takeable || !lab_allowed(&t->lab, cpu))
			continue;
		if (mq_na(t) > value) {
			best = t;
			value = mq_na(t);
		}
	}
	choice_at(cpu)->best = best;
	return 0;
}

/*
 * Ops, in the order of a task's life.
 */

/* Only the previous CPU: where a task goes is settled under the locks, in enqueue. */
s32 BPF_STRUCT_OPS(mq_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	task_t *t = task_of(p);

	if (t)
		t->old.sync = wake_flags & SCX_WAKE_SYNC;
	return prev_cpu;
}

/* A task that may run on one CPU only waits there, outside the queues. */
static __always_inline void mq_enqueue_pinned(struct task_struct *p, task_t *t, u64 enq_flags,
					      u32 number)
{
	s32 cpu = scx_bpf_task_cpu(p);
	task_t *curr = (task_t *)cpu_at(cpu)->curr;

	if (t->old.linked)
		mq_detach(t);
	t->old.on_cpu = false;
	t->old.yielded = false;
	lab_count(LAB_PINNED_LOCAL, 1);
	if (curr && curr != t && mq_advantage(t, curr, cpu, number) > (s32)threshold)
		enq_flags |= SCX_ENQ_PREEMPT;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, LINUX24_SLICE_NS, enq_flags);
}

/* Real-time tasks of a pool wait in one list, whichever CPU of it they ran on. */
LAB_PART int mq_enqueue_realtime(task_t *t LAB_ARENA_ARG, bool place)
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
	t->old.takeable = true;
	lab_unlock_irqrestore(&pool->lock, flags);
	if (!place)
		return 0;
	target = t->lab.cpu;
	if (!lab_allowed(&t->lab, target) || cpu_at(target)->curr)
		target = mq_next_target(t, mq_na(t), true, &key, &at);
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
			t->lab.cpu = cpu;
			return;
		}
	}
}

void BPF_STRUCT_OPS(mq_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 this_cpu = bpf_get_smp_processor_id(), cpu, home;
	task_t *t = task_of(p);
	unsigned long flags;
	bool sync, moved, realtime;
	u32 number;

	if (!t) {
		scx_bpf_error("%s[%d] has no context", p->comm, p->pid);
		return;
	}
	number = mq_number();
	mq_catch_up(t, number);
	moved = t->old.policy != p->policy;
	linux24_refresh(&t->old, p);
	sync = t->old.sync;
	t->old.sync = false;
	if (p->nr_cpus_allowed == 1 && lab_nr_cpus > 1) {
		mq_enqueue_pinned(p, t, enq_flags, number);
		return;
	}
	if (t->old.yielded && t->old.linked && t->old.on_cpu &&
	    lab_allowed(&t->lab, t->lab.cpu)) {
		/* Left the CPU after a yield: waits where it is; nobody is disturbed. */
		alter(t);
		t->old.yielded = false;
		t->old.on_cpu = false;
		lab_write(t->old.takeable, true);
		return;
	}
	t->old.yielded = false;
	t->old.on_cpu = false;
	mq_allowed_home(t);
	cpu = t->lab.cpu;
	realtime = linux24_realtime(t->old.policy);
	home = realtime ? -1 - (s32)pool_of_cpu(cpu) : cpu;
	/* The waker's next choice sees it only if that is in the same pool. */
	sync = sync && lab_allowed(&t->lab, this_cpu) && pool_of_cpu(this_cpu) == pool_of_cpu(cpu);
	if (t->old.linked && (moved || t->home != home || (realtime && t->old.leaving)))
		mq_detach(t);
	if (realtime) {
		mq_enqueue_realtime(t, !sync);
		return;
	}
	if (!lab_lock_irqsave(&queue_at(cpu)->lock, flags))
		return;
	if (t->old.leaving)
		mq_delete(t);
	if (sync || !mq_place(t, cpu, number))
		mq_add(t, cpu, number);
	lab_unlock_irqrestore(&queue_at(cpu)->lock, flags);
}

/*
 * A waiting task is taken away: an attribute of it changes. It keeps its place
 * in the list and cannot be chosen until it is enqueued again.
 */
void BPF_STRUCT_OPS(mq_dequeue, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);
	unsigned long flags;
	lab_lock_t *lock;
	bool done;
	s32 home;

	/* Tasks that dispatch has chosen come here too; they are no longer takeable. */
	if (!t)
		return;
	do {
		if (!lab_read(t->old.takeable))
			return;
		home = t->home;
		lock = mq_lock_of(home);
		if (!lab_lock_irqsave(lock, flags))
			return;
		done = t->home == home;
		if (done) {
			t->old.takeable = false;
			if (deq_flags & SCX_DEQ_SLEEP)
				mq_delete(t);
		}
		lab_unlock_irqrestore(lock, flags);
	} while (!done && can_loop);
}

/* schedule() */
void BPF_STRUCT_OPS(mq_dispatch, s32 cpu, struct task_struct *prev_p)
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
	if (prev_p) {
		prev = task_of(prev_p);
		if (prev && !prev->old.on_cpu)
			prev = NULL;
	}
	if (prev) {
		if (!lab_read(c->marked)) {
			/* An IPI that came too late. */
			scx_bpf_task_set_slice(prev_p, LINUX24_SLICE_NS);
			return;
		}
		mq_catch_up(prev, mq_number());
		if (charge == CHARGE_RUNTIME)
			linux24_charge(&prev->old, now);
		realtime = linux24_realtime(prev->old.policy);
	}
	if (!lab_lock_irqsave(&q->lock, flags))
		return;
	lab_touch(&c->curr, true);
	lab_count(LAB_SCHEDULES, 1);
	c->marked = false;
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
			if (realtime && prev->old.policy == LINUX24_RR && !prev->old.counter) {
				prev->old.counter = linux24_quantum(prev->old.nice, LINUX24_HZ);
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
					best->old.takeable = false;
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
			if (mq_global(cpu, value, number)) {
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
				/* What is there may be missed: look again. */
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
		best->old.takeable = false;
		linux24_switch_to(c, cpu, &best->old, now);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, LINUX24_SLICE_NS, 0);
		bpf_task_release(p);
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
			scx_bpf_task_set_slice(prev_p, LINUX24_SLICE_NS);
		return;
	}
	if (c->curr)
		c->last_schedule_ns = now;
	lab_write(c->curr, NULL);
	c->na = MQ_NOTHING;
	lab_unlock_irqrestore(&q->lock, flags);
}

void BPF_STRUCT_OPS(mq_running, struct task_struct *p)
{
	cpu_t *c = cpu_at(bpf_get_smp_processor_id());
	task_t *t = task_of(p);

	if (!t)
		return;
	if (c->curr != &t->old) {
		/* It came by the local queue; it may still be linked where it blocked. */
		if (t->old.linked)
			mq_detach(t);
		mq_catch_up(t, mq_number());
		c->na = mq_na(t);
	}
	linux24_running(&t->old, p);
}

void BPF_STRUCT_OPS(mq_stopping, struct task_struct *p, bool runnable)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	mq_catch_up(t, mq_number());
	if (charge == CHARGE_RUNTIME)
		linux24_charge(&t->old, scx_bpf_now());
}

void BPF_STRUCT_OPS(mq_quiescent, struct task_struct *p, u64 deq_flags)
{
	s32 cpu = bpf_get_smp_processor_id();
	queue_t *q = queue_at(cpu);
	cpu_t *c = cpu_at(cpu);
	task_t *t = task_of(p);
	unsigned long flags;

	if (!t || !(deq_flags & SCX_DEQ_SLEEP))
		return;
	t->old.on_cpu = false;
	t->old.yielded = false;
	if (!t->old.linked)
		return;
	if (c->leaving) {
		/* This CPU has run a task from its local queue since. */
		if (!lab_lock_irqsave(&q->lock, flags))
			return;
		mq_delete_leaving(c, cpu);
		lab_unlock_irqrestore(&q->lock, flags);
	}
	t->old.leaving = true;
	c->leaving = &t->old;
}

void BPF_STRUCT_OPS(mq_tick, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	mq_catch_up(t, mq_number());
	linux24_tick(&t->old, p, charge);
	lab_write(cpu_at(bpf_get_smp_processor_id())->na, mq_na(t));
}

/* sched_yield(): only if somebody waits in the pool. No lock is taken. */
bool BPF_STRUCT_OPS(mq_yield, struct task_struct *from, struct task_struct *to)
{
	s32 cpu = bpf_get_smp_processor_id(), waiting;
	pool_t *pool = pool_at(pool_of_cpu(cpu));
	task_t *t = task_of(from);
	queue_t *q;
	cpu_t *c;
	u32 i;

	if (!t || to)
		return false;
	waiting = lab_read(pool->realtime.nr);
	for (i = pool->begin; i < pool->end && can_loop; i++) {
		q = queue_at(cpu_in_order(i));
		c = cpu_at(cpu_in_order(i));
		lab_touch(&q->list.nr, false);
		waiting += lab_read(q->list.nr);
		lab_touch(&c->curr, false);
		if (c->curr && c->curr->linked)
			waiting--;
	}
	if (waiting <= 0)
		return false;
	if (!linux24_realtime(t->old.policy))
		t->old.yielded = true;
	lab_write(cpu_at(cpu)->marked, true);
	scx_bpf_task_set_slice(from, 0);
	return true;
}

/* Nice levels change without any queueing. */
void BPF_STRUCT_OPS(mq_set_weight, struct task_struct *p, u32 weight)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	mq_catch_up(t, mq_number());
	t->old.nice = p->static_prio - 120;
}

void BPF_STRUCT_OPS(mq_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	task_t *t = task_of(p);

	if (t)
		lab_task_refresh(&t->lab, p);
}

/* fork(): parent and child share the parent's remaining ticks. */
s32 BPF_STRUCT_OPS_SLEEPABLE(mq_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct task_struct *forker = bpf_get_current_task_btf();
	u32 number = mq_number();
	task_t *t = task_new(p), *parent;

	if (!t)
		return -ENOMEM;
	t->number = number;
	if (args->fork && forker && forker->pid) {
		parent = task_of(forker);
		if (parent)
			mq_catch_up(parent, number);
	}
	linux24_fork(&t->old, p, args, forker, BASE_LINUX_2_4);
	t->home = t->lab.cpu;
	return 0;
}

static __always_inline void mq_forget(task_t *t)
{
	t->old.on_cpu = false;
	if (t->old.linked)
		mq_detach(t);
}

/* It leaves for a scheduling class that is not ours. */
void BPF_STRUCT_OPS(mq_disable, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (t)
		mq_forget(t);
}

/* exit(): what is left of the ticks goes back to the task that forked it. */
void BPF_STRUCT_OPS(mq_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	task_t *t = task_of(p), *parent;
	u32 number;

	if (!t)
		return;
	mq_forget(t);
	number = mq_number();
	mq_catch_up(t, number);
	parent = task_at(t->old.parent);
	if (t->old.has_parent && parent->lab.pid && parent->lab.life == t->old.parent_life)
		mq_catch_up(parent, number);
	linux24_collect(&t->old, &parent->old);
	lab_task_free(p);
}

/* Puts the CPUs in the order of their pools. */
static __always_inline void mq_init_pools(void)
{
	u32 number, at = 0;
	pool_t *pool;
	s32 cpu;

	/* First `end` counts a pool's CPUs, then those that have their place. */
	for (cpu = 0; cpu < lab_nr_cpus && can_loop; cpu++) {
		number = mq_pool_of(cpu);
		pool_of[cpu & (LAB_MAX_CPUS - 1)] = number;
		pool_at(number)->end++;
	}
	for (number = 0; number < LAB_MAX_CPUS && can_loop; number++) {
		pool = pool_at(number);
		pool->begin = at;
		at += pool->end;
		pool->end = pool->begin;
	}
	for (cpu = 0; cpu < lab_nr_cpus && can_loop; cpu++) {
		pool = pool_at(pool_of_cpu(cpu));
		order[pool->end & (LAB_MAX_CPUS - 1)] = cpu;
		pool->end++;
	}
}

/* The policy's ops.init() calls it; 0 or a negative errno after an error. */
static __always_inline s32 mq_init_queues(void)
{
	int error = lab_init();
	s32 cpu;

	if (error)
		return error;
	mq_init_pools();
	linux24_init_cpus();
	for (cpu = 0; cpu < lab_nr_cpus && can_loop; cpu++) {
		lab_lock_init(&queue_at(cpu)->lock, LAB_LOCK_CLASS_RUN_QUEUE);
		lab_list_init(&queue_at(cpu)->list);
		queue_at(cpu)->published.max_na = MQ_NOTHING;
		lab_lock_init(&pool_at(cpu)->lock, LAB_LOCK_CLASS_RUN_QUEUE);
		lab_list_init(&pool_at(cpu)->realtime);
		cpu_at(cpu)->na = MQ_NOTHING;
	}
	return 0;
}

#define MQ_OPS(ops, title, initialize, finish)				\
	SCX_OPS_DEFINE(ops,						\
		       .select_cpu	= (void *)mq_select_cpu,	\
		       .enqueue		= (void *)mq_enqueue,		\
		       .dequeue		= (void *)mq_dequeue,		\
		       .dispatch	= (void *)mq_dispatch,		\
		       .tick		= (void *)mq_tick,		\
		       .running		= (void *)mq_running,		\
		       .stopping	= (void *)mq_stopping,		\
		       .quiescent	= (void *)mq_quiescent,		\
		       .yield		= (void *)mq_yield,		\
		       .set_weight	= (void *)mq_set_weight,	\
		       .set_cpumask	= (void *)mq_set_cpumask,	\
		       .init_task	= (void *)mq_init_task,		\
		       .exit_task	= (void *)mq_exit_task,		\
		       .disable		= (void *)mq_disable,		\
		       .init		= (void *)initialize,		\
		       .exit		= (void *)finish,		\
		       .name		= title)

#endif /* LAB_MQ_H */
