/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the schedulers that grew out of Linux 2.4: counters of
 * ticks and what uses them up, goodness, recalculation, the sharing of ticks
 * by fork and exit, and the search for a CPU (reschedule_idle). What sets them
 * apart, the run queue and the choice from it, is theirs.
 *
 * A policy includes this after <lab/lab.bpf.h>. Its contexts are
 *
 *	struct its_task {
 *		union {
 *			struct lab_task lab;
 *			struct linux24_task old;
 *		};
 *		...
 *	};
 *
 * or struct linux24_task itself. Nothing here is a tunable, so that no policy
 * has an option it does not obey; what differs between kernels is an argument.
 */
#ifndef LAB_LINUX24_H
#define LAB_LINUX24_H

#include "cores.h"

/* Linux 2.4 on i386: HZ, hence the unit of the counter. */
#define LINUX24_HZ		100
#define LINUX24_TICK_NS		(1000000000ull / LINUX24_HZ)

/* PROC_CHANGE_PENALTY of i386: the worth of a warm cache, in ticks. */
#define LINUX24_SAME_CPU_BONUS	15
#define LINUX24_SAME_MM_BONUS	1

/* Every real-time task beats every other. */
#define LINUX24_RT_BASE		1000

/* Below every goodness: the idle task, which is never chosen. */
#define LINUX24_IDLE_GOODNESS	(-1000)

/* Counter of a task without a parent (DEF_COUNTER), and of 2.3.99's. */
#define LINUX24_FIRST_COUNTER	10
#define LINUX24_FIRST_COUNTER_2_3_99 20

/* Cap when the ticks of an exited child are collected (MAX_COUNTER). */
#define LINUX24_COLLECT_MAX	(20 * LINUX24_HZ / 100)

/* The arithmetic: 2.4's, or 2.3.99's, against which ELSC was written. */
enum linux24_base { BASE_LINUX_2_4, BASE_2_3_99 };

/* The unit that uses up a tick of the counter: 10 ms of running time, or a timer tick. */
enum linux24_charge { CHARGE_RUNTIME, CHARGE_TICKS };

struct linux24_task {
	struct lab_task lab;
	u64 started_ns;		/* charged up to here; while on a CPU */
	u64 ran_ns;		/* running time that makes no whole tick yet */
	s32 counter;		/* ticks left */
	s32 nice;		/* -20 to 19 */
	u32 policy;		/* LAB_SCHED_FIFO, LAB_SCHED_RR or something else */
	u32 rt_priority;	/* 1 to 99 for real-time tasks */
	struct lab_parent parent;
	/*
	 * A runnable task is linked. Under the queue's lock, but for yielded and
	 * on_cpu, which belong to the CPU the task is on.
	 */
	bool linked;		/* in a run queue */
	bool takeable;		/* in the policy's custody: waits to be chosen */
	bool leaving;		/* blocked; to be unlinked by the next choice of its CPU */
	bool on_cpu;		/* running, or chosen to; until it blocks or is displaced */
	bool yielded;		/* gave the CPU up; until it has left it */
	bool sync;		/* woken by a task that is about to sleep */
	bool pad[2];
};

typedef struct linux24_task __arena linux24_task_t;

/* One cache line per CPU, as in 2.4; under the lock but for `marked`, which its CPU reads without. */
struct linux24_cpu {
	linux24_task_t *curr;	/* running task, NULL = idle */
	u64 last_schedule_ns;	/* last real context switch */
	u64 mm;			/* address space in use, borrowed by kernel threads */
	linux24_task_t *leaving; /* the task that blocked here and is still linked */
	s32 na;			/* goodness of curr without its bonuses; of mq only */
	bool marked;		/* need_resched of the current task */
	bool online;
} __attribute__((aligned(LAB_CACHELINE)));

typedef struct linux24_cpu __arena cpu_t;

/* Defined by the policy, among its data: where they lie matters to a cache. */
extern struct linux24_cpu __arena_global cpus[LAB_MAX_CPUS];

static __always_inline cpu_t *cpu_at(s32 cpu)
{
	return &cpus[cpu & (LAB_MAX_CPUS - 1)];
}

/*
 * Counters.
 */

/* Ticks that a recalculation adds on a kernel of `hz` ticks a second (TICK_SCALE, NICE_TO_TICKS). */
static __always_inline s32 linux24_quantum(s32 nice, u32 hz)
{
	s32 x = 20 - nice;

	if (hz < 200)
		x >>= 2;
	else if (hz < 400)
		x >>= 1;
	else if (hz >= 1600)
		x <<= 2;
	else if (hz >= 800)
		x <<= 1;
	return x + 1;
}

static __always_inline s32 linux24_added(s32 nice, enum linux24_base base)
{
	return base == BASE_2_3_99 ? 20 - nice : linux24_quantum(nice, LINUX24_HZ);
}

static __always_inline s32 linux24_recalculated(s32 counter, s32 nice, enum linux24_base base)
{
	return (counter >> 1) + linux24_added(nice, base);
}

/*
 * The same @times over. A recalculation halves, downwards, what the counter is
 * away from twice the quantum.
 */
static __always_inline s32 linux24_recalculated_times(s32 counter, s32 nice, u32 times,
						      enum linux24_base base)
{
	s32 limit = 2 * linux24_added(nice, base);

	return limit + ((counter - limit) >> (times < 31 ? times : 31));
}

/* The ticks of a forking task are shared: the child gets the odd one. */
static __always_inline s32 linux24_child_counter(s32 counter)
{
	return (counter + 1) >> 1;
}

static __always_inline s32 linux24_parent_counter(s32 counter)
{
	return counter >> 1;
}

/* The counter of a task that reaps a child with ticks left. */
static __always_inline s32 linux24_collected(s32 counter, s32 childs)
{
	s32 sum = counter + childs;

	return sum >= LINUX24_COLLECT_MAX ? LINUX24_COLLECT_MAX : sum;
}

/*
 * Recalculates the counters of all tasks of the system, runnable or not, whose
 * contexts have @bytes. Without the run queue's lock, as schedule() of Linux 2.3
 * and 2.4. False: the policy has ended.
 */
static __always_inline bool linux24_recalculate(u32 bytes, enum linux24_base base)
{
	u32 i, nr, done = 0;
	linux24_task_t *t;

	lab_count(LAB_RECALCULATIONS, 1);
	nr = lab_read(lab_tasks.nr);
	bpf_for(i, 0, nr) {
		t = (linux24_task_t *)lab_task_at(i, bytes);
		done++;
		/* The original goes through the tasks that there are. */
		if (!lab_unaudited(lab_glance(t->lab.pid)))
			continue;
		lab_recalculated(t);
		lab_post(t->counter, linux24_recalculated(lab_glance(t->counter), lab_glance(t->nice),
							  base));
	}
	if (done < nr) {
		scx_bpf_error("recalculation: the loop budget ran out at task %u of %u", done, nr);
		return false;
	}
	return true;
}

/* Charges a running task up to now: a tick of the counter is 10 ms of running time. */
static __always_inline void linux24_charge(linux24_task_t *t, u64 now)
{
	u64 ticks;
	s32 counter;

	if (now > t->started_ns)
		t->ran_ns += now - t->started_ns;
	t->started_ns = now;
	if (t->ran_ns < LINUX24_TICK_NS)
		return;
	ticks = t->ran_ns / LINUX24_TICK_NS;
	t->ran_ns -= ticks * LINUX24_TICK_NS;
	counter = lab_glance(t->counter);
	lab_post(t->counter, ticks < counter ? counter - ticks : 0);
}

/* The same, unless ticks of the timer use up the counter. */
static __always_inline void linux24_charge_runtime(linux24_task_t *t, u64 now,
						   enum linux24_charge charge)
{
	if (charge == CHARGE_RUNTIME)
		linux24_charge(t, now);
}

/*
 * Goodness.
 */

/*
 * The part that depends on no CPU: of a real-time task 1000 and its priority,
 * of any other 0 without ticks, else ticks and 20 - nice. Whether it has
 * yielded is the caller's business.
 */
static __always_inline s32 linux24_na_goodness_with(linux24_task_t *t, s32 counter)
{
	if (lab_realtime(lab_glance(t->policy)))
		return LINUX24_RT_BASE + lab_glance(t->rt_priority);
	if (!counter)
		return 0;
	return counter + 20 - lab_glance(t->nice);
}

static __always_inline s32 linux24_na_goodness(linux24_task_t *t)
{
	return linux24_na_goodness_with(t, lab_glance(t->counter));
}

static __always_inline s32 linux24_cpu_bonus(linux24_task_t *t, s32 cpu)
{
	return lab_glance(t->lab.cpu) == cpu ? LINUX24_SAME_CPU_BONUS : 0;
}

/* A kernel thread shares everybody's address space. */
static __always_inline s32 linux24_mm_bonus(linux24_task_t *t, u64 mm)
{
	u64 own = lab_glance(t->lab.mm);

	return own == mm || !own ? LINUX24_SAME_MM_BONUS : 0;
}

/* goodness() of a task on `cpu` beside a task whose address space is `mm`, if it had `counter` ticks. */
static __always_inline s32 linux24_goodness_with(linux24_task_t *t, s32 counter, s32 cpu, u64 mm,
						 enum linux24_base base)
{
	s32 value;

	if (lab_glance(t->yielded))
		return base == BASE_2_3_99 ? 0 : -1;
	value = linux24_na_goodness_with(t, counter);
	if (!value || lab_realtime(lab_glance(t->policy)))
		return value;
	return value + linux24_cpu_bonus(t, cpu) + linux24_mm_bonus(t, mm);
}

static __always_inline s32 linux24_goodness(linux24_task_t *t, s32 cpu, u64 mm,
					    enum linux24_base base)
{
	return linux24_goodness_with(t, lab_glance(t->counter), cpu, mm, base);
}

/*
 * CPUs.
 */

/* Marks the current task of a CPU and kicks that CPU. */
static __always_inline void linux24_mark(s32 cpu, bool idle)
{
	cpu_t *c = cpu_at(cpu);
	bool was = lab_glance(c->marked);

	lab_post(c->marked, true);
	if (!idle)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	else if (!was)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* Whether a CPU whose `curr` is NULL is idle: a higher class may have taken it. */
static __always_inline bool linux24_free(s32 cpu, linux24_task_t *curr)
{
	return !curr && !lab_cpu_taken(cpu);
}

/* A higher class has taken the CPU from the task, or it was chosen but never ran. Under the queue's lock. */
static __always_inline void linux24_not_current(linux24_task_t *t)
{
	cpu_t *c = cpu_at(lab_glance(t->lab.cpu));

	if (lab_glance(c->curr) == t)
		lab_write(c->curr, NULL);
}

/*
 * reschedule_idle(): finds a CPU for a task that waits, and marks it. A busy
 * one only if its task is beaten by more than `threshold`. The task is not
 * bound to it; whichever CPU chooses next and finds it best gets it. Under the
 * lock of the one run queue.
 */
static __always_inline void linux24_place(linux24_task_t *t, s32 threshold,
					  enum linux24_base base)
{
	s32 best = threshold, diff, cpu, last = lab_glance(t->lab.cpu), target = -1;
	u64 oldest = ~0ull, since, mm;
	u32 at;
	bool idle = false;
	linux24_task_t *curr;
	cpu_t *c;

	c = cpu_at(last);
	lab_touch(&c->curr, false);
	if (lab_allowed(&t->lab, last) && c->online && linux24_free(last, lab_glance(c->curr))) {
		linux24_mark(last, true);
		return;
	}
	/* Of equals the first one counts: in an order that numbers of CPUs do not decide. */
	for (at = 0; at < lab_nr_online && can_loop; at++) {
		cpu = lab_cpu_spread(at);
		c = cpu_at(cpu);
		if (!lab_allowed(&t->lab, cpu))
			continue;
		lab_touch(&c->curr, false);
		curr = lab_glance(c->curr);
		if (!curr && lab_cpu_taken(cpu))
			continue;
		if (!curr) {
			/* Idle for longest: its cache has least to lose. */
			since = lab_glance(c->last_schedule_ns);
			if (since < oldest) {
				oldest = since;
				target = cpu;
			}
			idle = true;
		} else if (!idle) {
			consult(curr);
			mm = lab_glance(c->mm);
			diff = linux24_goodness(t, cpu, mm, base) -
			       linux24_goodness(curr, cpu, mm, base);
			if (diff > best) {
				best = diff;
				target = cpu;
			}
		}
	}
	if (target >= 0)
		linux24_mark(target, idle);
}

/* The CPU switches to a task: from now on it is its last one, and its address space is in use. */
static __always_inline void linux24_switch_to(cpu_t *c, s32 cpu, linux24_task_t *t, u64 now)
{
	u64 mm;

	t->on_cpu = true;
	lab_post(t->lab.cpu, cpu);
	lab_post(c->curr, t);
	lab_post(c->last_schedule_ns, now);
	mm = lab_glance(t->lab.mm);
	if (mm)
		lab_post(c->mm, mm);
}

/*
 * Functions for ops, as far as they do not depend on the run queue.
 */

/* Reads the real task's attributes. */
static __always_inline void linux24_refresh(linux24_task_t *t, struct task_struct *p)
{
	lab_task_refresh(&t->lab, p);
	lab_post(t->nice, p->static_prio - 120);
	lab_post(t->policy, p->policy);
	lab_post(t->rt_priority, p->rt_priority);
}

/* ops.select_cpu: what enqueue must know of a wakeup. */
static __always_inline void linux24_woken(linux24_task_t *t, u64 wake_flags)
{
	t->sync = wake_flags & SCX_WAKE_SYNC;
}

/*
 * ops.dispatch, at its beginning: the context of the previous task in @prev, NULL
 * if it does not go on. False: it runs on, as an interrupt has come too late.
 */
static __always_inline bool linux24_previous(cpu_t *c, struct task_struct *prev_p,
					     linux24_task_t **prev)
{
	*prev = prev_p ? (linux24_task_t *)lab_task_of(prev_p) : NULL;
	if (*prev && !(*prev)->on_cpu)
		*prev = NULL;
	if (!*prev || lab_read(c->marked))
		return true;
	scx_bpf_task_set_slice(prev_p, LAB_LONG_SLICE_NS);
	return false;
}

/* ops.dispatch, at its end: the CPU goes on with a task that waited and was claimed as @p. */
static __always_inline void linux24_dispatch(cpu_t *c, s32 cpu, linux24_task_t *t,
					     struct task_struct *p, u64 now)
{
	lab_post(t->takeable, false);
	linux24_switch_to(c, cpu, t, now);
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, LAB_LONG_SLICE_NS, 0);
	bpf_task_release(p);
}

/* ops.running: a task that came by the local queue becomes the CPU's, too. */
static __always_inline void linux24_running(linux24_task_t *t, struct task_struct *p)
{
	s32 cpu = bpf_get_smp_processor_id();
	cpu_t *c = cpu_at(cpu);

	t->started_ns = scx_bpf_now();
	if (lab_glance(c->curr) == t)
		return;
	lab_count(LAB_PINNED_LOCAL, 1);
	linux24_switch_to(c, cpu, t, t->started_ns);
}

/* ops.quiescent: whether a task blocks that is still linked in a queue. */
static __always_inline bool linux24_blocks(linux24_task_t *t, u64 deq_flags)
{
	if (!(deq_flags & SCX_DEQ_SLEEP))
		return false;
	t->on_cpu = false;
	t->yielded = false;
	return lab_glance(t->linked);
}

/* ops.quiescent: the next choice of the CPU unlinks it. It is the only one that does. */
static __always_inline void linux24_leaves(cpu_t *c, linux24_task_t *t)
{
	t->leaving = true;
	c->leaving = t;
}

/* ops.tick */
static __always_inline void linux24_tick(linux24_task_t *t, struct task_struct *p,
					 enum linux24_charge charge)
{
	cpu_t *c = cpu_at(bpf_get_smp_processor_id());

	if (charge == CHARGE_RUNTIME)
		linux24_charge(t, scx_bpf_now());
	else if (lab_glance(t->counter) > 0)
		lab_post(t->counter, lab_glance(t->counter) - 1);
	if (!lab_glance(t->counter)) {
		lab_write(c->marked, true);
		scx_bpf_task_set_slice(p, 0);
	}
}

/*
 * ops.yield: whether a task waits, of @linked in the queues of all CPUs, which keep
 * their running ones.
 */
static __always_inline bool linux24_others_wait(s64 linked)
{
	linux24_task_t *curr;
	s32 cpu;
	cpu_t *c;

	for (cpu = 0; cpu < lab_nr_cpus && can_loop; cpu++) {
		c = cpu_at(cpu);
		lab_touch(&c->curr, false);
		/* 2.4 counts the running tasks, and looks at none of them. */
		curr = lab_glance(c->curr);
		if (curr && lab_unaudited(lab_glance(curr->linked)))
			linked--;
	}
	return linked > 0;
}

/* ops.yield: the CPU chooses again, and a task that is not a real-time one is the last choice. */
static __always_inline void linux24_yield(linux24_task_t *t, struct task_struct *p)
{
	cpu_t *c;

	if (!lab_realtime(t->policy))
		t->yielded = true;
	c = cpu_at(bpf_get_smp_processor_id());
	lab_write(c->marked, true);
	scx_bpf_task_set_slice(p, 0);
}

/* ops.set_weight */
static __always_inline void linux24_set_nice(linux24_task_t *t, struct task_struct *p)
{
	lab_post(t->nice, p->static_prio - 120);
}

/*
 * ops.init_task of a new context: parent and child share the parent's ticks.
 * @forker is the current task. Returns the parent's context, NULL if there is
 * none.
 */
static __always_inline linux24_task_t *linux24_fork(linux24_task_t *t, struct task_struct *p,
						    struct scx_init_task_args *args,
						    struct task_struct *forker,
						    enum linux24_base base)
{
	linux24_task_t *parent = NULL;
	s32 counter;

	linux24_refresh(t, p);
	lab_post(t->counter,
		 base == BASE_2_3_99 ? LINUX24_FIRST_COUNTER_2_3_99 : LINUX24_FIRST_COUNTER);
	if (args->fork && forker && forker->pid)
		parent = (linux24_task_t *)lab_task_of(forker);
	if (!parent)
		return NULL;
	lab_parent_set(&t->parent, &parent->lab);
	counter = lab_glance(parent->counter);
	lab_post(t->counter, linux24_child_counter(counter));
	lab_post(parent->counter, linux24_parent_counter(counter));
	lab_post(t->lab.cpu, lab_glance(parent->lab.cpu));
	if (!linux24_parent_counter(counter)) {
		lab_write(cpu_at(parent->lab.cpu)->marked, true);
		scx_bpf_kick_cpu(parent->lab.cpu, SCX_KICK_PREEMPT);
	}
	return parent;
}

/*
 * ops.exit_task: what is left of the ticks goes back to the task that forked
 * it, whose context is @parent, NULL if it is gone. True: it has got them.
 */
static __always_inline bool linux24_collect(linux24_task_t *t, linux24_task_t *parent)
{
	if (!parent)
		return false;
	/* In 2.4 a task waits for it on its own CPU, whose cache has the line. */
	lab_unaudited(lab_post(parent->counter,
			       linux24_collected(lab_glance(parent->counter), lab_glance(t->counter))));
	return true;
}

/* ops.init: which CPUs there are. */
static __always_inline void linux24_init_cpus(void)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	s32 cpu;

	bpf_for(cpu, 0, lab_nr_cpus)
		cpu_at(cpu)->online = lab_note_online(cpu, online);
	scx_bpf_put_cpumask(online);
	lab_cores_init();
}

#endif /* LAB_LINUX24_H */
