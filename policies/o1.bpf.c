/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The O(1) scheduler as it was announced in January 2002.
 *
 * Idea: every CPU has its own queue and lock. A queue is two arrays of lists,
 * one list per priority, with a bitmap of those in use: the next task is the
 * head of the first list, found in the same time whatever the number of tasks.
 * A task whose slice ends goes to the expired array, and when the active one is
 * empty the two change places. How much a task slept in the last four seconds
 * makes its priority better. A CPU looks for work in longer queues up to a
 * hundred times a second and takes expired tasks first. Real-time tasks have
 * one array of their own for the whole machine.
 *
 * Good for: many tasks, many CPUs; work that stays where its cache is warm.
 *
 * Bad for: load that must be levelled within less than a tick; real-time tasks
 * on many CPUs, as every choice then takes all locks; a task that expires beside
 * busy sleepers.
 *
 * Source: I. Molnar's announcement of the O(1) scheduler and its discussion with
 * D. Libenzi on linux-kernel, January 2002; patches up to Linux 2.5.2 where the
 * mails are silent; docs/schedulers/o1.md restates the rules.
 *
 * Simplifications:
 * - schedule() is ops.dispatch(), under the CPU's lock. A blocked task leaves
 *   the queue there; ops.quiescent() only notes it.
 * - A tick of a slice is 10 ms of running time, whatever HZ is.
 * - sched_ext has no tick on idle CPUs. A timer looks every 10 ms whether tasks
 *   wait behind others and wakes as many idle CPUs; these balance themselves, as
 *   a CPU does that has become idle.
 * - What the mails leave open is as in version H6 (slices) and in 2.5.2 (how much
 *   is balanced, yield). A forked task starts with its parent's priority, since
 *   it shall run first; a change of nice shifts the priority by the difference.
 * - In a real kernel real-time tasks never get here. Tasks that come by a CPU's
 *   local queue (exiting ones) are counted and linked when they run.
 */
#include <lab/lab.bpf.h>
#include <lab/arrays.h>
#include <lab/percpu.h>
#include <lab/periodic.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

/* Most calls of the balancer by the tick of one CPU in a second. */
const volatile u32 balance_hz = 100;

/* The unit of slices and of the sleep history. */
#define O1_HZ			100
#define O1_TICK_NS		(1000000000ull / O1_HZ)

/* Priorities of ordinary tasks, 0 the best; nice 0 is in the middle of the static ones. */
#define O1_LEVELS		64
#define O1_NICE_0		44
#define O1_RT_LEVELS		100

/* Seconds of sleep that are remembered. */
#define O1_HISTORY		4

/*
 * By this part of an interval of balancing a tick may come too early. It comes early after
 * one that was handled late. Half a tick of 1000 Hz, if there are to be 100 a second.
 */
#define O1_BALANCE_LATE		20

/* Slices of nice 19 and -20, in ticks of 10 ms (MIN_TIMESLICE and MAX_TIMESLICE of H6). */
#define O1_SLICE_MIN		3
#define O1_SLICE_MAX		15

struct o1_task {
	union {
		struct lab_task lab;
		struct lab_rq_task q;
	};
	u64 ran_ns;		/* running time that makes no whole tick yet */
	u64 sleep_ts;		/* when it fell asleep, in ticks */
	u64 run_ts;		/* when it woke, or the history was brought up to date, in ticks */
	u64 updated;		/* tick of its last change of priority */
	struct lab_node __arena *before; /* to be linked before this one, NULL = last */
	s32 hist[O1_HISTORY];	/* ticks slept in each of the last seconds */
	u32 idx;		/* slot of the current second */
	s32 left;		/* ticks left of the slice */
	s32 prio;		/* 0 to 63; level of an ordinary task */
	s32 prio_nice;		/* nice level that prio was computed from */
	u32 array;		/* index of the array it is linked in */
	u32 level;		/* list it is linked in */
	u32 to_array;		/* 1 + index of the array it is to be linked in, 0 = the active one */
	bool realtime;		/* linked in the real-time array */
	bool pad[3];
};

LAB_TASKS(struct o1_task);

struct o1_rq {
	struct lab_rq q;
	u64 balanced_ns;		/* last balancing by a tick */
	u64 want;			/* tasks that the balancing under way still wants */
	struct lab_arrays arrays;
	struct lab_list lists[2 * O1_LEVELS];
};

typedef struct o1_rq __arena rq_t;

/* Real-time tasks of the whole machine. Its lock is taken after queues'. */
struct o1_rt {
	struct lab_lock lock;
	u64 nr;				/* runnable ones, running ones included */
	struct lab_prio_array array;
	struct lab_list lists[O1_RT_LEVELS];
} __attribute__((aligned(LAB_CACHELINE)));

struct o1_rt __arena_global rt;

/*
 * The rules. Pure functions of numbers, so that they can be tested one by one.
 */

static __always_inline s32 o1_static_prio(s32 nice)
{
	return O1_NICE_0 + nice;
}

static __always_inline s32 o1_clamp(s32 prio)
{
	return prio < 0 ? 0 : prio >= O1_LEVELS ? O1_LEVELS - 1 : prio;
}

/* Ticks of a full slice: from 3 for nice 19 to 15 for nice -20. */
static __always_inline s32 o1_slice(s32 nice)
{
	s32 u = nice + 20;

	return ((39 - u) * (O1_SLICE_MAX - O1_SLICE_MIN) + 39) / 40 + O1_SLICE_MIN;
}

/* Ticks of the last seconds, out of 100, that it slept. */
static __always_inline s32 o1_sleep(task_t *t, u64 now)
{
	s32 sum = 0;
	u32 i;

	for (i = 0; i < O1_HISTORY; i++)
		sum += t->hist[i];
	return sum * O1_HZ / (s32)((O1_HISTORY - 1) * O1_HZ + now % O1_HZ);
}

/* By how much its load makes the priority worse. */
static __always_inline s32 o1_penalty(task_t *t, u64 now)
{
	return O1_LEVELS / 3 * (O1_HZ - o1_sleep(t, now)) / O1_HZ;
}

/* Whether a tick so long after the last balancing balances again; balance_hz is not 0. */
static __always_inline bool o1_balance_due(u64 passed_ns)
{
	u64 interval = 1000000000ull / balance_hz;

	return passed_ns + interval / O1_BALANCE_LATE >= interval;
}

/*
 * The sleep history: a ring with a slot per second, of ticks slept in it.
 */

static __always_inline void o1_next_slot(task_t *t, s32 value)
{
	t->idx = (t->idx + 1) % O1_HISTORY;
	t->hist[t->idx & (O1_HISTORY - 1)] = value;
}

static __always_inline void o1_fill(task_t *t, s32 value)
{
	u32 i;

	for (i = 0; i < O1_HISTORY; i++)
		t->hist[i] = value;
	t->idx = 0;
}

/* It falls asleep: the seconds that it ran through are seconds without sleep. */
static __always_inline void o1_deactivate(task_t *t, u64 now)
{
	u64 d = now / O1_HZ - t->run_ts / O1_HZ;
	u32 i;

	if (d >= O1_HISTORY) {
		o1_fill(t, 0);
	} else {
		for (i = 0; i < O1_HISTORY - 1; i++)
			if (i < d)
				o1_next_slot(t, 0);
	}
	t->sleep_ts = now;
}

/*
 * It wakes: what it slept goes into the slots. As in the original, the slot of
 * the first whole second of sleep keeps what it held four seconds before.
 */
static __always_inline void o1_activate(task_t *t, u64 now)
{
	u64 d = now / O1_HZ - t->sleep_ts / O1_HZ;
	u32 i;

	if (!d) {
		t->hist[t->idx & (O1_HISTORY - 1)] += now - t->sleep_ts;
	} else if (d < O1_HISTORY) {
		t->hist[t->idx & (O1_HISTORY - 1)] += O1_HZ - t->sleep_ts % O1_HZ;
		t->idx = (t->idx + 1) % O1_HISTORY;
		for (i = 1; i < O1_HISTORY - 1; i++)
			if (i < d)
				o1_next_slot(t, O1_HZ);
		t->hist[t->idx & (O1_HISTORY - 1)] = now % O1_HZ;
	} else {
		o1_fill(t, O1_HZ);
		t->hist[0] = now % O1_HZ;
	}
	t->run_ts = now;
}

/* Its priority by its history; without a penalty it keeps the one it has. */
static __always_inline void o1_update_prio(task_t *t, u64 now)
{
	s32 penalty;

	if (t->updated == now)
		return;
	t->updated = now;
	penalty = o1_penalty(t, now);
	if (penalty)
		t->prio = o1_clamp(o1_static_prio(t->q.nice) + penalty);
}

static __always_inline u64 o1_ticks(u64 ns)
{
	return ns / O1_TICK_NS;
}

/* Charges a running task up to now. */
static __always_inline void o1_charge(task_t *t, u64 now)
{
	u64 ticks;

	if (now > t->q.started_ns)
		t->ran_ns += now - t->q.started_ns;
	t->q.started_ns = now;
	if (t->ran_ns < O1_TICK_NS)
		return;
	ticks = t->ran_ns / O1_TICK_NS;
	t->ran_ns -= ticks * O1_TICK_NS;
	if (t->q.policy != LAB_SCHED_FIFO)
		t->left = ticks < t->left ? t->left - ticks : 0;
}

/*
 * The queues.
 */

static __always_inline rq_t *o1_rq(lab_rq_t *q)
{
	return (rq_t *)q;
}

static __always_inline bool o1_is_rt(task_t *t)
{
	return lab_realtime(lab_glance(t->q.policy));
}

static __noinline void rq_link(lab_rq_t *q, lab_rq_task_t *qt)
{
	task_t *t = (task_t *)qt;
	rq_t *rq = o1_rq(q);

	lab_use_arena();
	t->realtime = o1_is_rt(t);
	if (t->realtime) {
		t->level = O1_RT_LEVELS - 1 - t->q.rt_priority;
		if (!lab_lock(&rt.lock))
			return;
		lab_prio_add_tail(&rt.array, t->level, &t->lab.node);
		lab_write(rt.nr, rt.nr + 1);
		lab_unlock(&rt.lock);
		return;
	}
	t->level = t->prio;
	t->array = t->to_array ? t->to_array - 1 : lab_arrays_active(&rq->arrays);
	t->to_array = 0;
	if (t->before)
		lab_prio_add_before(lab_arrays_at(&rq->arrays, t->array), t->level, &t->lab.node,
				    t->before);
	else
		lab_prio_add_tail(lab_arrays_at(&rq->arrays, t->array), t->level, &t->lab.node);
	t->before = NULL;
	rq_count(q, 1);
}

static __noinline void rq_unlink(lab_rq_t *q, lab_rq_task_t *qt)
{
	task_t *t = (task_t *)qt;
	rq_t *rq = o1_rq(q);

	lab_use_arena();
	if (t->realtime) {
		if (!lab_lock(&rt.lock))
			return;
		lab_prio_del(&rt.array, t->level, &t->lab.node);
		lab_write(rt.nr, rt.nr - 1);
		lab_unlock(&rt.lock);
		return;
	}
	lab_prio_del(lab_arrays_at(&rq->arrays, t->array), t->level, &t->lab.node);
	rq_count(q, -1);
}

/* An ordinary task becomes the last of a list of its queue. */
static __always_inline void o1_requeue(rq_t *rq, task_t *t, u32 array, u32 level)
{
	alter(t);
	lab_prio_del(lab_arrays_at(&rq->arrays, t->array), t->level, &t->lab.node);
	t->array = array;
	t->level = level;
	lab_prio_add_tail(lab_arrays_at(&rq->arrays, array), level, &t->lab.node);
}

/* Its slice has ended: a new one, but not before all others of the queue had theirs. */
static __always_inline void o1_expire(rq_t *rq, task_t *t)
{
	t->left = o1_slice(t->q.nice);
	o1_requeue(rq, t, lab_arrays_expired(&rq->arrays), t->prio);
}

/*
 * Balancing.
 */

/* Longest queue, without @cpu's, that is shorter than @below: its length << 32 | its CPU. */
LAB_PART u64 o1_longest(u32 cpu, u64 below)
{
	u64 longest = 0, nr;
	u32 i, which = 0;
	lab_rq_t *q;

	lab_use_arena();
	bpf_for(i, 0, lab_nr_cpus) {
		q = rq_at(i);
		if (i == cpu || !q->online)
			continue;
		lab_touch(&q->nr, false);
		nr = lab_read(q->nr);
		if (nr > longest && nr < below) {
			longest = nr;
			which = i;
		}
	}
	return longest << 32 | which;
}

/*
 * Moves the best task of an array that may go; @curr runs on where it goes, NULL
 * while that CPU is choosing. True: one went.
 */
LAB_PART bool o1_pull(rq_t *from __arg_arena, rq_t *to __arg_arena, u32 index,
		      task_t *curr __arg_arena)
{
	lab_prio_array_t *array;
	lab_list_t *list;
	lab_node_t *pos;
	task_t *t;
	s32 level;

	lab_use_arena();
	array = lab_arrays_at(&from->arrays, index);
	for (level = lab_prio_first(array); level >= 0 && can_loop;
	     level = lab_prio_next(array, level + 1)) {
		list = lab_prio_list(array, level);
		lab_list_for_each(pos, list) {
			t = lab_entry(pos, struct o1_task, lab.node);
			if (!rq_may_pull(&t->q, &to->q))
				continue;
			rq_pull(&from->q, &to->q, &t->q);
			if (curr && !o1_is_rt(curr) && t->prio < lab_glance(curr->prio))
				rq_mark(&to->q);
			return true;
		}
	}
	return false;
}

static __noinline bool rq_give(lab_rq_t *from, lab_rq_t *to)
{
	rq_t *source = o1_rq(from);

	lab_use_arena();
	if (to->curr)
		consult((task_t *)to->curr);
	return o1_pull(source, o1_rq(to), lab_arrays_expired(&source->arrays), (task_t *)to->curr) ||
	       o1_pull(source, o1_rq(to), lab_arrays_active(&source->arrays), (task_t *)to->curr);
}

/* How many tasks a queue of @own takes from others, the longest of which has @longest. */
static __always_inline u64 o1_wanted(u64 own, u64 longest)
{
	u64 want = longest > own ? longest - own : 0;

	return want > 1 + longest / 8 ? want : 0;
}

/*
 * Takes tasks from longer queues, expired ones first. The queue's lock is held
 * and may be given up meanwhile. False: the policy has ended, no lock is held.
 */
LAB_PART bool o1_balance(rq_t *rq __arg_arena, task_t *curr __arg_arena)
{
	u64 found, longest;
	rq_t *from;
	u32 round __maybe_unused;

	lab_use_arena();
	found = o1_longest(rq->q.cpu, ~0ull);
	rq->want = o1_wanted(rq->q.nr, found >> 32);
	bpf_for(round, 0, lab_nr_cpus) {
		longest = found >> 32;
		if (!rq->want || longest <= rq->q.nr)
			break;
		from = o1_rq(rq_at(found));
		if (!rq_lock_second(&rq->q, &from->q))
			return false;
		/* It may have become shorter by now. */
		if (from->q.nr > rq->q.nr) {
			if (o1_pull(from, rq, lab_arrays_expired(&from->arrays), curr))
				rq->want--;
			if (rq->want &&
			    o1_pull(from, rq, lab_arrays_active(&from->arrays), curr))
				rq->want--;
		}
		lab_unlock(&from->q.lock);
		found = o1_longest(rq->q.cpu, longest);
	}
	return true;
}

static void o1_idle_tick(void)
{
	rq_wake_idle();
}

LAB_PERIODIC(o1_idle, o1_idle_tick, O1_TICK_NS);

/*
 * The choice.
 */

LAB_PART bool o1_lock_all(void)
{
	bool taken = true;
	u32 i;

	lab_use_arena();
	bpf_for(i, 0, lab_nr_cpus) {
		taken = lab_lock(&rq_at(i)->lock);
		if (!taken)
			break;
	}
	return taken && lab_lock(&rt.lock);
}

LAB_PART int o1_unlock_others(u32 cpu)
{
	u32 i;

	lab_use_arena();
	lab_unlock(&rt.lock);
	bpf_for(i, 0, lab_nr_cpus) {
		if (i != cpu)
			lab_unlock(&rq_at(i)->lock);
	}
	return 0;
}

/*
 * The best real-time task of the machine that runs nowhere else. With all locks
 * held, so that no two of the CPUs that were interrupted at the same time go by
 * different views: whichever comes first, the best tasks run. The queue's lock
 * is given up and taken again. False: the policy has ended, no lock is held.
 */
static __always_inline bool o1_choose_rt(lab_rq_t *q, task_t *prev, task_t **chosen)
{
	task_t *t;

	lab_unlock(&q->lock);
	if (!o1_lock_all())
		return false;
	t = (task_t *)rq_first(q, &rt.array, 0, &prev->q);
	/* It is this queue's business from here on: the others need its lock to take it. */
	if (t)
		t->q.home = q->cpu;
	o1_unlock_others(q->cpu);
	*chosen = t;
	return true;
}

static __always_inline task_t *o1_first(rq_t *rq, u32 array, task_t *prev)
{
	return (task_t *)rq_first(&rq->q, lab_arrays_at(&rq->arrays, array), 0, &prev->q);
}

/* False: the policy has ended, no lock is held. */
static __always_inline bool o1_choose(rq_t *rq, task_t *prev, task_t **chosen)
{
	task_t *t = NULL;

	if (!rq->q.nr && !o1_balance(rq, NULL))
		return false;
	if (rq->q.nr) {
		lab_arrays_swap_if_empty(&rq->arrays);
		t = o1_first(rq, lab_arrays_active(&rq->arrays), prev);
		if (!t)
			t = o1_first(rq, lab_arrays_expired(&rq->arrays), prev);
	}
	*chosen = t;
	return true;
}

/*
 * Ops, in the order of a task's life.
 */

/* fork(): parent and child share what is left of the slice. */
static __always_inline void o1_fork(task_t *t, task_t *parent, u64 now)
{
	unsigned long flags;
	rq_t *rq;
	u32 i;

	for (i = 0; i < O1_HISTORY; i++)
		t->hist[i] = parent->hist[i];
	t->idx = parent->idx;
	t->hist[t->idx & (O1_HISTORY - 1)] = 0;
	t->prio = parent->prio;
	t->prio_nice = parent->prio_nice;
	t->q.fresh = true;
	t->left = (parent->left + 1) / 2;
	parent->left /= 2;
	if (parent->left)
		return;
	/* One tick is left, and charged at once: the slice has ended. */
	lab_irq_save(flags);
	rq = o1_rq(rq_lock_home(&parent->q));
	if (rq) {
		if (parent->q.linked && !parent->realtime)
			o1_expire(rq, parent);
		else
			parent->left = o1_slice(parent->q.nice);
		rq_mark(&rq->q);
		lab_unlock(&rq->q.lock);
	}
	lab_irq_restore(flags);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(o1_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_struct *current_p = bpf_get_current_task_btf();
	task_t *t = task_new(p), *parent = NULL;
	u64 now = o1_ticks(scx_bpf_now());

	if (!t)
		return -ENOMEM;
	rq_new_task(&t->q, p);
	t->left = o1_slice(t->q.nice);
	t->prio = o1_static_prio(t->q.nice);
	t->prio_nice = t->q.nice;
	t->sleep_ts = now;
	t->run_ts = now;
	if (args->fork && current_p && current_p->pid)
		parent = task_of(current_p);
	if (parent)
		o1_fork(t, parent, now);
	return 0;
}

/* A task wakes where it last ran. */
s32 BPF_STRUCT_OPS(o1_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

/* A real-time task is everybody's: all CPUs choose again. */
LAB_PART int o1_broadcast(void)
{
	u32 i;

	lab_use_arena();
	bpf_for(i, 0, lab_nr_cpus) {
		if (rq_at(i)->online)
			rq_mark(rq_at(i));
	}
	return 0;
}

/* A forked task goes before its parent, if that is in the queue's active array. */
static __always_inline void o1_before_parent(rq_t *rq, task_t *t)
{
	task_t *parent = (task_t *)rq->q.curr;

	t->q.fresh = false;
	if (!parent || o1_is_rt(t))
		return;
	consult(parent);
	if (!parent->q.linked || parent->realtime || parent->q.home != rq->q.cpu ||
	    parent->array != lab_arrays_active(&rq->arrays))
		return;
	t->prio = parent->level;
	t->before = &parent->lab.node;
}

void BPF_STRUCT_OPS(o1_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 now = o1_ticks(scx_bpf_now());
	task_t *t = task_of(p), *curr;
	unsigned long flags;
	bool forked, better, realtime;
	rq_t *rq;

	if (!t) {
		lab_no_context(p);
		return;
	}
	if (rq_enqueue_stays(&t->q, p, true, enq_flags))
		return;
	if (t->q.stayed && !t->realtime)
		t->to_array = 1 + t->array;
	t->prio = o1_clamp(t->prio + t->q.nice - t->prio_nice);
	t->prio_nice = t->q.nice;
	rq = o1_rq(rq_at(t->q.home));
	if (!lab_lock_irqsave(&rq->q.lock, flags))
		return;
	forked = t->q.fresh;
	if (t->q.asleep) {
		o1_activate(t, now);
		o1_update_prio(t, now);
		t->q.asleep = false;
	}
	if (forked)
		o1_before_parent(rq, t);
	rq_add(&rq->q, &t->q);
	t->q.takeable = true;
	curr = (task_t *)rq->q.curr;
	better = !curr || forked;
	if (!better) {
		consult(curr);
		better = !o1_is_rt(curr) && t->prio < lab_glance(curr->prio);
	}
	realtime = t->realtime;
	if (better && !realtime)
		rq_mark(&rq->q);
	lab_unlock_irqrestore(&rq->q.lock, flags);
	/* Another CPU may have it by now. */
	if (realtime)
		o1_broadcast();
}

void BPF_STRUCT_OPS(o1_dequeue, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		rq_dequeue(&t->q, deq_flags);
}

/* Real-time tasks first. False: the policy has ended, no lock is held. */
static __always_inline bool o1_choose_any(rq_t *rq, task_t *prev, task_t **chosen)
{
	if (lab_read(rt.nr) && !o1_choose_rt(&rq->q, prev, chosen))
		return false;
	return *chosen || o1_choose(rq, prev, chosen);
}

/* schedule() */
void BPF_STRUCT_OPS(o1_dispatch, s32 cpu, struct task_struct *prev_p)
{
	task_t *prev = NULL, *next = NULL;
	struct task_struct *p = NULL;
	unsigned long flags;
	rq_t *rq;

	lab_use_arena();
	rq = o1_rq(rq_at(cpu));
	if (!rq_previous(&rq->q, prev_p, (lab_rq_task_t **)&prev))
		return;
	if (prev) {
		o1_charge(prev, scx_bpf_now());
	}
	if (!lab_lock_irqsave(&rq->q.lock, flags))
		return;
	rq_begin_choice(&rq->q);
	if (!rq_choose(next, prev, p, cpu, o1_choose_any(rq, prev, &next))) {
		lab_irq_restore(flags);
		return;
	}
	rq_end_choice(&rq->q, &next->q, p, prev_p, prev);
	lab_unlock_irqrestore(&rq->q.lock, flags);
}

void BPF_STRUCT_OPS(o1_running, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (t)
		rq_running(&t->q, p);
}

/* A round-robin task whose slice has ended goes behind its equals. */
static __always_inline void o1_tick_rt(rq_t *rq, task_t *t, struct task_struct *p)
{
	if (t->q.policy != LAB_SCHED_RR || t->left)
		return;
	t->left = o1_slice(t->q.nice);
	if (!lab_lock(&rt.lock))
		return;
	lab_prio_del(&rt.array, t->level, &t->lab.node);
	lab_prio_add_tail(&rt.array, t->level, &t->lab.node);
	lab_unlock(&rt.lock);
	rq_mark_current(&rq->q, p);
}

void BPF_STRUCT_OPS(o1_tick, struct task_struct *p)
{
	u64 now = scx_bpf_now(), tick = o1_ticks(now);
	task_t *t = task_of(p);
	unsigned long flags;
	rq_t *rq;

	if (!t)
		return;
	rq = o1_rq(rq_this());
	o1_charge(t, now);
	if (!lab_lock_irqsave(&rq->q.lock, flags))
		return;
	if (t->q.linked && t->q.home == rq->q.cpu) {
		if (t->realtime) {
			o1_tick_rt(rq, t, p);
		} else if (t->array != lab_arrays_active(&rq->arrays)) {
			rq_mark_current(&rq->q, p);
		} else if (!t->left) {
			o1_expire(rq, t);
			rq_mark_current(&rq->q, p);
		} else if (t->updated != tick) {
			o1_deactivate(t, tick);
			o1_activate(t, tick);
			o1_update_prio(t, tick);
			o1_requeue(rq, t, t->array, t->prio);
		}
	}
	if (balance_hz && o1_balance_due(now - rq->balanced_ns)) {
		rq->balanced_ns = now;
		if (!o1_balance(rq, t)) {
			lab_irq_restore(flags);
			return;
		}
	}
	lab_unlock_irqrestore(&rq->q.lock, flags);
}

/* sched_yield(): one priority worse, behind its new equals. */
bool BPF_STRUCT_OPS(o1_yield, struct task_struct *from, struct task_struct *to)
{
	task_t *t = task_of(from);
	unsigned long flags;
	rq_t *rq;

	if (!t || to)
		return false;
	rq = o1_rq(rq_this());
	if (!lab_lock_irqsave(&rq->q.lock, flags))
		return false;
	if (t->q.linked && t->q.home == rq->q.cpu) {
		if (t->realtime) {
			if (lab_lock(&rt.lock)) {
				lab_prio_del(&rt.array, t->level, &t->lab.node);
				lab_prio_add_tail(&rt.array, t->level, &t->lab.node);
				lab_unlock(&rt.lock);
			}
		} else {
			t->prio = o1_clamp(t->prio + 1);
			o1_requeue(rq, t, t->array, t->prio);
		}
	}
	rq_mark_current(&rq->q, from);
	lab_unlock_irqrestore(&rq->q.lock, flags);
	return true;
}

void BPF_STRUCT_OPS(o1_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	task_t *t = task_of(p);

	if (t)
		lab_task_refresh(&t->lab, p);
}

void BPF_STRUCT_OPS(o1_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	lab_cpu_release();
}

void BPF_STRUCT_OPS(o1_stopping, struct task_struct *p, bool runnable)
{
	task_t *t = task_of(p);

	if (t)
		o1_charge(t, scx_bpf_now());
}

void BPF_STRUCT_OPS(o1_quiescent, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t && rq_quiescent(&t->q, deq_flags))
		o1_deactivate(t, o1_ticks(scx_bpf_now()));
}

/* It leaves for a scheduling class that is not ours. */
void BPF_STRUCT_OPS(o1_disable, struct task_struct *p)
{
	task_t *t = task_of(p);

	lab_note_higher(p);
	if (t)
		rq_forget(&t->q);
}

void BPF_STRUCT_OPS(o1_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	rq_forget(&t->q);
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(o1_init)
{
	int error = lab_init();
	rq_t *rq;
	u32 cpu;

	if (!error)
		error = rq_init(sizeof(struct o1_rq));
	if (error)
		return error;
	lab_cores_init();
	bpf_for(cpu, 0, lab_nr_cpus) {
		rq = o1_rq(rq_at(cpu));
		rq->balanced_ns = 0;
		if (!lab_arrays_init(&rq->arrays, rq->lists, O1_LEVELS))
			return -EINVAL;
	}
	lab_lock_init(&rt.lock, LAB_LOCK_CLASS_RUN_QUEUE);
	if (!lab_prio_init(&rt.array, rt.lists, O1_RT_LEVELS))
		return -EINVAL;
	return o1_idle_start();
}

void BPF_STRUCT_OPS(o1_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(o1_ops,
	       .init_task		= (void *)o1_init_task,
	       .select_cpu		= (void *)o1_select_cpu,
	       .enqueue			= (void *)o1_enqueue,
	       .dequeue			= (void *)o1_dequeue,
	       .dispatch		= (void *)o1_dispatch,
	       .running			= (void *)o1_running,
	       .tick			= (void *)o1_tick,
	       .yield			= (void *)o1_yield,
	       .set_cpumask		= (void *)o1_set_cpumask,
	       .cpu_release		= (void *)o1_cpu_release,
	       .stopping		= (void *)o1_stopping,
	       .quiescent		= (void *)o1_quiescent,
	       .disable			= (void *)o1_disable,
	       .exit_task		= (void *)o1_exit_task,
	       .init			= (void *)o1_init,
	       .exit			= (void *)o1_exit,
	       .name			= "o1");
