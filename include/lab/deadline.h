/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by BFS and MuQSS: virtual deadlines by nice level, slices, classes,
 * the share of soft real-time tasks, and the choice of a CPU for a task that
 * waits. The policy decides where tasks wait and how the next is chosen.
 *
 * A policy includes this after <lab/lab.bpf.h>. Two of its options are arguments
 * here: @rr_interval, the slice of every task and unit of deadlines in ms, and
 * @iso_cpu, the percentage of all CPU time that soft real-time tasks may have. Its
 * contexts are
 *
 *	struct its_task {
 *		union {
 *			struct lab_task lab;
 *			struct dl_task dl;
 *		};
 *		...
 *	};
 */
#ifndef LAB_DEADLINE_H
#define LAB_DEADLINE_H

#include "topology.h"

/*
 * Levels: 100 of real time, 0 the best, then these. Idle priority has none of its
 * own, see dl_due().
 */
enum dl_level {
	DL_LEVEL_ISO = 100,
	DL_LEVEL_NORMAL,
	DL_LEVELS,
};

/* The unit of deadlines: a millisecond in 128 parts, in whole ns. */
#define DL_UNIT_NS		(1000000 / 128)

/* A remainder of a slice below this counts as used, in ns. */
#define DL_RESCHED_NS		100000

/* By how much the deadlines of idle-priority tasks are later than normal ones. */
#define DL_IDLE_NS		1000000000ull

/* Soft real-time tasks may have their share of this time. */
#define DL_ISO_PERIOD_NS	5000000000ull

struct dl_task {
	struct lab_task lab;
	u64 started_ns;		/* charged up to here */
	s64 left_ns;		/* of its slice */
	u64 deadline;		/* ns of real time */
	s32 nice;		/* -20 to 19 */
	u32 policy;		/* LAB_SCHED_* or something else */
	u32 rt_priority;
	u32 level;		/* enum dl_level, or less: real time */
	s32 home;		/* MuQSS: whose queue it is or was in */
	bool queued;		/* waits */
	bool asleep;		/* blocked, or not enqueued yet */
	bool yielded;		/* and was not judged by a choice yet */
	bool pad;
};

typedef struct dl_task __arena dl_task_t;

/* One line per CPU. Others read it without a lock. */
struct dl_cpu {
	dl_task_t *curr;	/* running task, NULL = none of ours */
	u64 deadline;		/* and its deadline, */
	u32 level;		/* and level */
	bool online;
} __attribute__((aligned(LAB_CACHELINE)));

typedef struct dl_cpu __arena dl_cpu_t;

struct dl_cpu __arena_global dl_cpus[LAB_MAX_CPUS];

/* Real time of soft real-time tasks, decaying; under `lock`. */
struct dl_iso {
	struct lab_lock lock;
	u64 ran_ns;		/* within about the last period, by all CPUs */
	u64 decayed_ns;		/* when it decayed last */
	u32 refused;		/* they have had too much: they count as normal */
} __attribute__((aligned(LAB_CACHELINE)));

struct dl_iso __arena_global dl_iso;

static __always_inline dl_cpu_t *dl_cpu_at(s32 cpu)
{
	return &dl_cpus[cpu & (LAB_MAX_CPUS - 1)];
}

/*
 * The rules. Pure functions of numbers, so that they can be tested one by one.
 */

/* 128 for nice -20, and a tenth more, rounded down, for each level (prio_ratios). */
static const u32 dl_ratios[40] = {
	128, 140, 154, 169, 185, 203, 223, 245, 269, 295,
	324, 356, 391, 430, 473, 520, 572, 629, 691, 760,
	836, 919, 1010, 1111, 1222, 1344, 1478, 1625, 1787, 1965,
	2161, 2377, 2614, 2875, 3162, 3478, 3825, 4207, 4627, 5089,
};

/* How far in the future a deadline of this nice level is. */
static __always_inline u64 dl_distance(s32 nice, u32 rr_interval)
{
	u32 level = nice + 20;

	return (u64)dl_ratios[level < 40 ? level : 20] * rr_interval * DL_UNIT_NS;
}

static __always_inline s64 dl_slice(u32 rr_interval)
{
	return (s64)rr_interval * 1000000;
}

static __always_inline bool dl_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

static __always_inline bool dl_realtime(u32 level)
{
	return level < DL_LEVEL_ISO;
}

static __always_inline u32 dl_level(u32 policy, u32 rt_priority, bool refused)
{
	switch (policy) {
	case LAB_SCHED_FIFO:
	case LAB_SCHED_RR:
		return rt_priority < 100 ? 99 - rt_priority : 0;
	case LAB_SCHED_ISO:
		return refused ? DL_LEVEL_NORMAL : DL_LEVEL_ISO;
	}
	return DL_LEVEL_NORMAL;
}

/* Whether a task beats another by level, else by deadline where there are such. */
static __always_inline bool dl_beats(u32 level, u64 deadline, u32 other_level, u64 other_deadline)
{
	if (level != other_level)
		return level < other_level;
	return level == DL_LEVEL_NORMAL && dl_before(deadline, other_deadline);
}

/*
 * Soft real time.
 */

static __always_inline bool dl_iso_refused(void)
{
	return lab_read(dl_iso.refused);
}

/* Soft real-time tasks are refused above their share, until they are clearly below it. */
static __always_inline void dl_iso_judge(u32 nr_cpus, u32 iso_cpu)
{
	u64 most = DL_ISO_PERIOD_NS / 100 * iso_cpu * nr_cpus;

	if (!dl_iso.refused && dl_iso.ran_ns > most)
		lab_write(dl_iso.refused, 1);
	else if (dl_iso.refused && dl_iso.ran_ns < most / 128 * 115)
		lab_write(dl_iso.refused, 0);
}

/* @ran_ns of the soft real-time class, and the time that has gone by. Interrupts are off. */
static __noinline int dl_iso_account(u64 ran_ns, u64 now, u32 iso_cpu)
{
	u64 gone;

	lab_use_arena();
	if (!lab_lock(&dl_iso.lock))
		return 0;
	gone = now > dl_iso.decayed_ns ? now - dl_iso.decayed_ns : 0;
	if (gone > DL_ISO_PERIOD_NS)
		gone = DL_ISO_PERIOD_NS;
	/* In µs, so that the product fits. */
	dl_iso.ran_ns -= dl_iso.ran_ns / 1000 * (gone / 1000) / (DL_ISO_PERIOD_NS / 1000 / 1000);
	dl_iso.ran_ns += ran_ns;
	dl_iso.decayed_ns = now;
	dl_iso_judge(lab_nr_online, iso_cpu);
	lab_unlock(&dl_iso.lock);
	return 0;
}

/*
 * Slices and deadlines.
 */

/* A whole slice and the deadline that goes with it. */
static __always_inline void dl_renew(dl_task_t *t, u64 now, u32 rr_interval)
{
	t->left_ns = dl_slice(rr_interval);
	t->yielded = false;
	t->deadline = now + dl_distance(t->nice, rr_interval);
}

/*
 * The deadline by which a task competes. That of an idle-priority task is a second
 * later, so that it runs where hardly anything else waits, but does run: it may
 * have been preempted within a read-side critical section of RCU, whose stall after
 * 21 s ends the policy, as does a task that waits for 30 s. (BFS raises such a task
 * while it holds what others need, which a policy cannot see. With 10 s here RCU
 * was seen to stall.)
 */
static __always_inline u64 dl_due(dl_task_t *t)
{
	u64 deadline = lab_glance(t->deadline);

	return lab_glance(t->policy) == LAB_SCHED_IDLE ? deadline + DL_IDLE_NS : deadline;
}

/* A task wakes: what one of idle priority has slept does not make it due. */
static __always_inline void dl_wake(dl_task_t *t)
{
	u64 now;

	t->asleep = false;
	if (t->policy != LAB_SCHED_IDLE)
		return;
	now = scx_bpf_now();
	if (dl_before(t->deadline, now))
		t->deadline = now;
}

/* Charges a running task up to now. Interrupts are off. */
static __always_inline void dl_charge(dl_task_t *t, u64 now, u32 iso_cpu)
{
	u64 ran = now > t->started_ns ? now - t->started_ns : 0;

	t->started_ns = now;
	if (t->policy == LAB_SCHED_FIFO)
		return;
	t->left_ns -= ran;
	if (t->policy == LAB_SCHED_ISO || dl_iso_refused())
		dl_iso_account(t->policy == LAB_SCHED_ISO ? ran : 0, now, iso_cpu);
}

/* Whether it makes way for its equals. A FIFO task has no slice, but may yield. */
static __always_inline bool dl_used_up(dl_task_t *t)
{
	return t->yielded || (t->policy != LAB_SCHED_FIFO && t->left_ns < DL_RESCHED_NS);
}

/* It has been judged by that: a whole slice, the deadline stays. */
static __always_inline void dl_refill(dl_task_t *t, u32 rr_interval)
{
	t->left_ns = dl_slice(rr_interval);
	t->yielded = false;
}

/* Reads the real task's attributes. */
static __always_inline void dl_refresh(dl_task_t *t, struct task_struct *p)
{
	lab_task_refresh(&t->lab, p);
	t->nice = p->static_prio - 120;
	t->policy = p->policy;
	t->rt_priority = p->rt_priority;
	t->level = dl_level(t->policy, t->rt_priority, dl_iso_refused());
}

/* fork: the parent's deadline and half of what is left of its slice. */
static __always_inline void dl_fork(dl_task_t *t, dl_task_t *parent)
{
	t->deadline = parent->deadline;
	t->left_ns = parent->left_ns / 2;
	parent->left_ns -= t->left_ns;
}

/*
 * CPUs.
 */

/* The CPU shows what it runs; NULL: nothing. */
static __always_inline void dl_show(dl_cpu_t *c, dl_task_t *t)
{
	lab_touch(c, true);
	if (t) {
		c->deadline = dl_due(t);
		c->level = t->level;
	}
	lab_write(c->curr, t);
}

static __always_inline bool dl_cpu_idle(s32 cpu)
{
	dl_cpu_t *c = dl_cpu_at(cpu);

	lab_touch(c, false);
	return c->online && !lab_read(c->curr) && !lab_cpu_taken(cpu);
}

/* Whether nothing runs on the other threads of the core of a CPU. */
static __noinline bool dl_siblings_idle(s32 cpu)
{
	lab_place_t *place;
	u32 i;

	lab_use_arena();
	place = lab_place_of(cpu);
	bpf_for(i, place->begin[LAB_LEVEL_CORE], place->end[LAB_LEVEL_CORE]) {
		if (i != place->at && dl_cpu_at(lab_cpu_at(i))->online && !dl_cpu_idle(lab_cpu_at(i)))
			return false;
	}
	return true;
}

/*
 * An allowed idle CPU: the one that the task last ran on, else the closest one. Within a
 * node one whose core is idle comes before one that shares its core with a busy thread,
 * and so beyond the node (siblings_idle() in best_mask_cpu() of BFS). -1: none.
 */
static __noinline s32 dl_idle_cpu(dl_task_t *t)
{
	u32 level, i, but, until, begin, end;
	s32 last, cpu, shared = -1;
	lab_place_t *place;

	lab_use_arena();
	last = lab_glance(t->lab.cpu);
	if (lab_allowed(&t->lab, last) && dl_cpu_idle(last))
		return last;
	place = lab_place_of(last);
	but = place->at;
	until = but + 1;
	bpf_for(level, 0, LAB_NR_LEVELS) {
		if (level == LAB_LEVEL_MACHINE && shared >= 0)
			break;
		begin = place->begin[level & (LAB_NR_LEVELS - 1)];
		end = place->end[level & (LAB_NR_LEVELS - 1)];
		bpf_for(i, begin, end) {
			if (i >= but && i < until)
				continue;
			cpu = lab_cpu_at(i);
			if (!lab_allowed(&t->lab, cpu) || !dl_cpu_idle(cpu))
				continue;
			if (dl_siblings_idle(cpu))
				return cpu;
			if (shared < 0)
				shared = cpu;
		}
		but = begin;
		until = end;
	}
	return shared;
}

/* The allowed CPU whose task has the worst level, then the latest deadline, if @t beats it; -1: none. */
static __noinline s32 dl_preempted_cpu(dl_task_t *t)
{
	s32 cpu, worst = -1;
	u64 deadline = 0, due;
	u32 level = 0, of_level;
	dl_cpu_t *c;

	lab_use_arena();
	bpf_for(cpu, 0, lab_nr_cpus) {
		c = dl_cpu_at(cpu);
		if (!c->online || !lab_allowed(&t->lab, cpu))
			continue;
		lab_touch(c, false);
		if (!lab_read(c->curr))
			continue;
		of_level = lab_glance(c->level);
		due = lab_glance(c->deadline);
		if (worst < 0 || of_level > level ||
		    (of_level == level && dl_before(deadline, due))) {
			worst = cpu;
			level = of_level;
			deadline = due;
		}
	}
	if (worst < 0 || !dl_beats(lab_glance(t->level), dl_due(t), level, deadline))
		return -1;
	return worst;
}

/* Tells a CPU that a task waits: an idle one; if it has woken, also one that it may preempt. */
static __always_inline void dl_tell(dl_task_t *t, bool woken)
{
	s32 cpu = dl_idle_cpu(t);

	if (cpu >= 0) {
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		return;
	}
	if (!woken)
		return;
	cpu = dl_preempted_cpu(t);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/*
 * CPUs that a higher class has taken, see <lab/higher.h>: others look for the tasks
 * that wait there once they are kicked.
 */

static __always_inline bool dl_rescue(u32 from, u32 to)
{
	/* A busy one looks when its task's slice is used up. */
	if (!lab_glance(dl_cpu_at(to)->curr))
		scx_bpf_kick_cpu(to, SCX_KICK_IDLE);
	return true;
}

/*
 * Functions for ops, as far as they do not depend on where tasks wait.
 */

/* ops.running: a task that came by the local queue becomes the CPU's, too. */
static __always_inline void dl_running(dl_task_t *t)
{
	s32 cpu = bpf_get_smp_processor_id();
	dl_cpu_t *c = dl_cpu_at(cpu);

	t->started_ns = scx_bpf_now();
	if (lab_glance(c->curr) == t)
		return;
	lab_count(LAB_PINNED_LOCAL, 1);
	t->lab.cpu = cpu;
	dl_show(c, t);
}

/* ops.quiescent */
static __always_inline void dl_quiescent(dl_task_t *t, u64 deq_flags)
{
	dl_cpu_t *c = dl_cpu_at(bpf_get_smp_processor_id());

	if (!(deq_flags & SCX_DEQ_SLEEP))
		return;
	t->asleep = true;
	if (lab_glance(c->curr) == t)
		dl_show(c, NULL);
}

/* ops.tick */
static __always_inline void dl_tick(dl_task_t *t, struct task_struct *p, u32 iso_cpu)
{
	dl_cpu_t *c = dl_cpu_at(bpf_get_smp_processor_id());
	unsigned long flags;

	lab_irq_save(flags);
	dl_charge(t, scx_bpf_now(), iso_cpu);
	lab_irq_restore(flags);
	if (lab_glance(c->curr) != t)
		dl_show(c, t);
	/* Too much soft real time: it goes on as a normal task. */
	if (dl_used_up(t) || (t->level == DL_LEVEL_ISO && dl_iso_refused()))
		scx_bpf_task_set_slice(p, 0);
}

/* ops.yield of @from: what is left of the slice is given up, with the deadline. */
static __always_inline bool dl_yield(dl_task_t *t, struct task_struct *from)
{
	t->yielded = true;
	scx_bpf_task_set_slice(from, 0);
	return true;
}

/* ops.init_task of a new context; @parent is the current task's or NULL. */
static __always_inline void dl_init_task(dl_task_t *t, struct task_struct *p, dl_task_t *parent,
					 u32 rr_interval)
{
	dl_refresh(t, p);
	t->asleep = true;
	t->home = scx_bpf_task_cpu(p);
	dl_renew(t, scx_bpf_now(), rr_interval);
	if (parent)
		dl_fork(t, parent);
}

/* The context of the task that forks, or NULL. */
static __always_inline dl_task_t *dl_forker(struct scx_init_task_args *args)
{
	struct task_struct *forker = bpf_get_current_task_btf();

	if (!args->fork || !forker || !forker->pid)
		return NULL;
	return (dl_task_t *)lab_task_of(forker);
}

/* It is current nowhere. */
static __always_inline void dl_forget(dl_task_t *t)
{
	dl_cpu_t *c = dl_cpu_at(t->lab.cpu);

	if (lab_read(c->curr) == t)
		dl_show(c, NULL);
}

/* ops.init, after lab_init() */
static __always_inline int dl_init(u32 rr_interval, u32 iso_cpu)
{
	const struct cpumask *online;
	s32 cpu;

	/* The originals take no others, and products with more would wrap. */
	if (!rr_interval) {
		scx_bpf_error("rr_interval must be at least 1");
		return -EINVAL;
	}
	if (!lab_at_most(rr_interval, 1000) || !lab_at_most(iso_cpu, 100))
		return -EINVAL;
	lab_lock_init(&dl_iso.lock, LAB_LOCK_CLASS_OTHER);
	online = scx_bpf_get_online_cpumask();
	bpf_for(cpu, 0, lab_nr_cpus)
		dl_cpu_at(cpu)->online = lab_note_online(cpu, online);
	scx_bpf_put_cpumask(online);
	lab_topology_init();
	return 0;
}

#endif /* LAB_DEADLINE_H */
