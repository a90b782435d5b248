/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the kernel's fair schedulers, CFS and EEVDF: weights, virtual time, a
 * queue and a lock per CPU, the choice of a CPU for a task that wakes or is new,
 * and the balancer. The policy decides how a queue is ordered, which task is
 * chosen, where a task starts and which task it preempts.
 *
 * A queue holds the tasks that wait; the one that runs is not in it. It belongs
 * to task_cpu() of its tasks, except where the balancer has moved them.
 *
 * Functions that are called from several places are global ones: the verifier looks
 * at each of them once.
 *
 * A policy includes this after <lab/lab.bpf.h> and defines the functions under
 * "Hooks". Its ops table is made of the ops at the end and its own.
 */
#ifndef LAB_FAIR_H
#define LAB_FAIR_H

#include "rbtree.h"
#include "topology.h"

#define FAIR_WEIGHT_0		1024
#define FAIR_WEIGHT_IDLE	3

/* Load of a CPU that a higher class has taken, besides the tasks that wait there. */
#define FAIR_LOAD_HIGHER	(2 * FAIR_WEIGHT_0)

/* A second, the most that options in µs may be, as in Linux: products with weights fit. */
#define FAIR_OPTION_US_MAX	1000000

/* A task that ran this recently has a warm cache. */
#define FAIR_MIGRATION_COST_NS	500000

/* A CPU that becomes idle, and is for less each time, takes nothing: up to Linux 5.15. Later policies define it before. */
#ifndef FAIR_NEWIDLE_NS
#define FAIR_NEWIDLE_NS		FAIR_MIGRATION_COST_NS
#endif

/* Most tasks that one balancing looks at. */
#define FAIR_BALANCE_LOOKS	32

/* Instead of a number of tasks moved: none of those that wait may run there; the policy has ended. */
#define FAIR_ALL_BOUND		(-1)
#define FAIR_ENDED		(-2)

/* Loads that differ by less, in percent, count as equal; among threads of a core, and else. */
#define FAIR_IMBALANCE_CORE	110
#define FAIR_IMBALANCE		117

/* A busy CPU balances this many times more rarely. */
#define FAIR_BUSY_FACTOR	16

/*
 * A running task is pushed from a core that it shares to an idle one once that
 * was found so many times in a row: one more than Linux's nr_balance_failed may
 * be, cache_nice_tries + 2, within a cache and beyond it.
 */
#define FAIR_PUSH_LOOKS_LLC	4
#define FAIR_PUSH_LOOKS_FAR	5

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
	s32 home;			/* CPU whose queue it is or was in */
	u32 to;				/* 1 + the CPU that it is being pushed to, or 0 */
	s32 nice;			/* -20 to 19 */
	u32 policy;			/* LAB_SCHED_BATCH, LAB_SCHED_IDLE or something else */
	u32 flips;			/* how often it woke another task than before, halved each second */
	u32 wakee;			/* number of the context that it woke last */
	u32 pad;
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

/*
 * Hooks. The queue's lock is held.
 */

/* The key of the tree. */
static __always_inline s64 fair_key(task_t *t);
/* A task joins a queue: sets its virtual time, by whether it is fresh or was asleep. */
static __always_inline void fair_place(rq_t *rq, task_t *t, u64 now);
/* A waiting task, or the current one that blocks, leaves the queue otherwise than by being chosen. */
static __always_inline void fair_leave(rq_t *rq, task_t *t, u64 now);
/* The queue's clock has moved by this much. */
static __always_inline void fair_clock_moved(rq_t *rq, s64 by);
/* A task has been put into (1) or taken out of (-1) the tree. */
static __always_inline void fair_counted(rq_t *rq, task_t *t, s64 sign);
/* Whether a task that has just woken, or is fresh, takes the CPU from the current one. */
static __always_inline bool fair_preempts(rq_t *rq, task_t *t, bool fresh, u64 now);
/* Returns the next task: @prev, which is still runnable, one that waits, or NULL. */
static __always_inline task_t *fair_pick(rq_t *rq, task_t *prev);
/* A turn of a task begins. */
static __always_inline void fair_begin(rq_t *rq, task_t *t);
/* Whether the turn of the current task, charged up to now, has ended. */
static __always_inline bool fair_turn_ends(rq_t *rq, task_t *t);

/*
 * Numbers.
 */

/* Weight of a nice level: each is worth about a quarter more than the next (sched_prio_to_weight). */
static const u32 fair_weights[40] = {
	88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916,
	9548, 7620, 6100, 4904, 3906, 3121, 2501, 1991, 1586, 1277,
	1024, 820, 655, 526, 423, 335, 272, 215, 172, 137,
	110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
};

static __always_inline u64 fair_weight(s32 nice, u32 policy)
{
	u32 level = nice + 20;

	if (policy == LAB_SCHED_IDLE)
		return FAIR_WEIGHT_IDLE;
	return level < 40 ? fair_weights[level] : FAIR_WEIGHT_0;
}

/* Virtual time of @ns of running. */
static __always_inline s64 fair_virtual(u64 ns, u64 weight)
{
	return weight ? ns * FAIR_WEIGHT_0 / weight : 0;
}

/* By how much the times grow with the number of CPUs: 1 + log2(CPUs), up to 4. */
static __always_inline u64 fair_factor(u32 nr_cpus)
{
	return nr_cpus >= 8 ? 4 : nr_cpus >= 4 ? 3 : nr_cpus >= 2 ? 2 : 1;
}

static __always_inline s64 fair_later(s64 a, s64 b)
{
	return lab_rb_less(a, b) ? b : a;
}

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
__weak int fair_advance(rq_t *rq __arg_arena, u64 now)
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
	fair_clock_moved(rq, by);
	return 0;
}

__weak int fair_link(rq_t *rq __arg_arena, task_t *t __arg_arena)
{
	lab_use_arena();
	alter(t);
	t->tree.key = fair_key(t);
	t->tree.value = t->vruntime;
	if (!lab_rb_add(&rq->tree, &t->tree)) {
		scx_bpf_error("a queue of %llu tasks: the loop budget ran out", rq->tree.nr);
		return 0;
	}
	lab_list_add_head(&rq->waiting, &t->lab.node);
	lab_touch(&rq->nr, true);
	lab_write(rq->nr, rq->nr + 1);
	rq->load += t->weight;
	fair_counted(rq, t, 1);
	t->home = rq->cpu;
	t->queued = true;
	return 0;
}

__weak int fair_unlink(rq_t *rq __arg_arena, task_t *t __arg_arena)
{
	lab_use_arena();
	alter(t);
	fair_counted(rq, t, -1);
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
__weak int fair_remove(task_t *t __arg_arena)
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
			fair_leave(rq, t, now);
			fair_unlink(rq, t);
		}
		lab_unlock(&rq->lock);
	}
	lab_irq_restore(flags);
	return 0;
}

#include "fair_balance.h"

/*
 * CPUs that a higher class has taken, see <lab/higher.h>.
 */

static __always_inline u64 fair_nr_waiting(s32 cpu)
{
	return lab_read(rq_at(cpu)->nr);
}

static __noinline bool fair_rescue(u32 from_cpu, u32 to_cpu)
{
	rq_t *from, *to;
	unsigned long flags;
	bool moved, idle;

	lab_use_arena();
	from = rq_at(from_cpu);
	to = rq_at(to_cpu);
	lab_irq_save(flags);
	if (!lab_lock(&from->lock) || !fair_lock_second(from, to)) {
		lab_irq_restore(flags);
		return false;
	}
	moved = fair_move(from, to, ~0ull, 1, scx_bpf_now()) > 0;
	idle = !to->curr;
	lab_unlock(&to->lock);
	lab_unlock(&from->lock);
	lab_irq_restore(flags);
	if (moved && idle)
		scx_bpf_kick_cpu(to_cpu, SCX_KICK_IDLE);
	return moved;
}

LAB_RESCUE(fair_nr_waiting, fair_cpu_idle, fair_rescue);

/*
 * Which CPU a task goes to.
 */

/* A level below the groups: every CPU by itself. */
#define FAIR_LEVEL_CPU	LAB_NR_LEVELS

/* Of the groups of @level in places [begin, end), where the one with the least load a CPU begins. */
static __noinline u32 fair_idlest(struct task_struct *p, u32 range, u32 level, u32 own)
{
	u32 begin = range >> 16, end = range & 0xffff, best = begin, nr = 0, i;
	u64 load = 0, least = ~0ull, mean;
	bool usable = false;
	s32 cpu;

	lab_use_arena();
	bpf_for(i, begin, end) {
		lab_place_t *place;
		rq_t *rq;
		u32 l = level & (LAB_NR_LEVELS - 1);

		cpu = lab_cpu_at(i);
		rq = rq_at(cpu);
		lab_touch(&rq->nr, false);
		load += fair_load_with_higher(rq);
		nr++;
		if (rq->online && bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			usable = true;
		place = lab_place_of(cpu);
		/* A group of CPUs ends here. */
		if (level != FAIR_LEVEL_CPU && i + 1 < place->end[l])
			continue;
		mean = load * FAIR_IMBALANCE / nr;
		/* The own one stays unless another is clearly better. */
		if (own >= i + 1 - nr && own <= i)
			mean = load * 100 / nr;
		if (usable && mean < least) {
			least = mean;
			best = i + 1 - nr;
		}
		load = 0;
		nr = 0;
		usable = false;
	}
	return best;
}

/* fork: the idlest node, in it the idlest cache, in it the idlest core, of it the idlest CPU. */
static __always_inline s32 fair_select_idlest(struct task_struct *p, s32 cpu)
{
	u32 own = lab_place_of(cpu)->at, at;
	lab_place_t *place;

	at = fair_idlest(p, lab_nr_online, LAB_LEVEL_NODE, own);
	place = lab_place_of(lab_cpu_at(at));
	at = fair_idlest(p, place->begin[LAB_LEVEL_NODE] << 16 | place->end[LAB_LEVEL_NODE],
			 LAB_LEVEL_LLC, own);
	place = lab_place_of(lab_cpu_at(at));
	at = fair_idlest(p, place->begin[LAB_LEVEL_LLC] << 16 | place->end[LAB_LEVEL_LLC],
			 LAB_LEVEL_CORE, own);
	place = lab_place_of(lab_cpu_at(at));
	at = fair_idlest(p, place->begin[LAB_LEVEL_CORE] << 16 | place->end[LAB_LEVEL_CORE],
			 FAIR_LEVEL_CPU, own);
	return lab_cpu_at(at);
}

/* An idle CPU of those that share @level with @target: of an idle core, else any, if that will do; -1: none. */
static __noinline s32 fair_idle_near(struct task_struct *p, s32 target, u32 level, bool any_will_do)
{
	u32 i, begin, end;
	s32 cpu, core = -1, any = -1;
	bool whole = true;
	lab_place_t *place;

	lab_use_arena();
	place = lab_place_of(target);
	begin = place->begin[level & (LAB_NR_LEVELS - 1)];
	end = place->end[level & (LAB_NR_LEVELS - 1)];
	bpf_for(i, begin, end) {
		cpu = lab_cpu_at(i);
		place = lab_place_of(cpu);
		if (i == place->begin[LAB_LEVEL_CORE]) {
			whole = true;
			core = -1;
		}
		if (!fair_cpu_idle(cpu))
			whole = false;
		else if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			core = cpu;
		if (any < 0)
			any = core;
		if (i + 1 == place->end[LAB_LEVEL_CORE] && whole && core >= 0)
			return core;
	}
	return any_will_do ? any : -1;
}

/* Notes whom @waker wakes: one that wakes many in turn shall not gather them around itself. */
static __always_inline void fair_note_wakee(task_t *waker, task_t *t, u64 now)
{
	if (now - waker->flips_ns > 1000000000ull) {
		waker->flips /= 2;
		waker->flips_ns = now;
	}
	if (waker->wakee != t->lab.index) {
		waker->wakee = t->lab.index;
		waker->flips++;
	}
}

/* Whether waker and wakee belong to a crowd larger than a cache's CPUs. */
static __always_inline bool fair_wide(task_t *waker, task_t *t, s32 cpu)
{
	lab_place_t *place = lab_place_of(cpu);
	u32 size = place->end[LAB_LEVEL_LLC] - place->begin[LAB_LEVEL_LLC];
	u32 more = waker->flips, less = t->flips;

	if (more < less) {
		more = t->flips;
		less = waker->flips;
	}
	return less >= size && more >= less * size;
}

/* The waker's CPU or the previous one. */
static __always_inline s32 fair_affine(task_t *t, s32 this_cpu, s32 prev_cpu, bool sync)
{
	rq_t *here = rq_at(this_cpu), *there = rq_at(prev_cpu);
	bool prev_idle = fair_cpu_idle(prev_cpu);
	task_t *curr;
	u64 own, other;

	if (fair_cpu_idle(this_cpu) && lab_share(this_cpu, prev_cpu, LAB_LEVEL_LLC))
		return prev_idle ? prev_cpu : this_cpu;
	if (sync && fair_nr(here) == 1)
		return this_cpu;
	if (prev_idle)
		return prev_cpu;
	own = fair_load_with_higher(here);
	curr = lab_glance(here->curr);
	if (sync && curr)
		own -= lab_glance(curr->weight);
	own = (own + t->weight) * 100;
	other = fair_load_with_higher(there) * (100 + (FAIR_IMBALANCE - 100) / 2);
	return own < other ? this_cpu : prev_cpu;
}

static __noinline s32 fair_select_cpu(struct task_struct *p, task_t *t, s32 prev_cpu, u64 wake_flags)
{
	struct task_struct *current_p = bpf_get_current_task_btf();
	s32 this_cpu = bpf_get_smp_processor_id(), target = prev_cpu, cpu;
	bool sync = wake_flags & SCX_WAKE_SYNC;
	task_t *waker = NULL;

	lab_use_arena();
	if (wake_flags & SCX_WAKE_FORK)
		return fair_select_idlest(p, this_cpu);
	if (current_p && current_p->pid)
		waker = task_of(current_p);
	if (waker) {
		fair_note_wakee(waker, t, scx_bpf_now());
		if (this_cpu != prev_cpu && bpf_cpumask_test_cpu(this_cpu, p->cpus_ptr) &&
		    !fair_wide(waker, t, this_cpu))
			target = fair_affine(t, this_cpu, prev_cpu, sync);
	}
	if (fair_cpu_idle(target) && bpf_cpumask_test_cpu(target, p->cpus_ptr))
		return target;
	if (target != prev_cpu && lab_share(target, prev_cpu, LAB_LEVEL_LLC) &&
	    fair_cpu_idle(prev_cpu) && bpf_cpumask_test_cpu(prev_cpu, p->cpus_ptr))
		return prev_cpu;
	cpu = fair_idle_near(p, target, LAB_LEVEL_LLC, true);
	return cpu >= 0 ? cpu : target;
}

/*
 * Active balance: a task that runs alone on its CPU, but shares the core, goes to
 * a core that is idle. Linux lets the idle CPU find it; here its own tick does, as
 * sched_ext has none on idle CPUs.
 */

/* Whether another thread of the core runs a task that is not about to go. */
static __always_inline bool fair_core_shared(s32 cpu)
{
	lab_place_t *place = lab_place_of(cpu);
	u32 i, end = place->end[LAB_LEVEL_CORE];
	rq_t *rq;

	bpf_for(i, place->begin[LAB_LEVEL_CORE], end) {
		rq = rq_at(lab_cpu_at(i));
		if (rq->cpu == cpu)
			continue;
		lab_touch(&rq->nr, false);
		if (lab_read(rq->curr) && !lab_glance(rq->push))
			return true;
	}
	return false;
}

/* The tick of @p, beside which no task waits: the CPU it shall go to, or -1. */
static __noinline s32 fair_push_target(struct task_struct *p, s32 cpu, u64 now)
{
	rq_t *rq = rq_at(cpu);
	u32 level, but, until, begin, end;
	lab_place_t *place;
	s32 idle;

	lab_use_arena();
	place = lab_place_of(cpu);
	but = place->begin[LAB_LEVEL_CORE];
	until = place->end[LAB_LEVEL_CORE];
	if (until - but < 2 || p->nr_cpus_allowed == 1)
		return -1;
	bpf_for(level, LAB_LEVEL_LLC, LAB_NR_LEVELS) {
		u32 l = level & (LAB_NR_LEVELS - 1);

		begin = place->begin[l];
		end = place->end[l];
		if (end - begin == until - but)
			continue;
		but = begin;
		until = end;
		if (now < rq->look_ns[l])
			continue;
		rq->look_ns[l] = now + (end - begin) * 1000000ull;
		idle = fair_core_shared(cpu) ? fair_idle_near(p, cpu, l, false) : -1;
		rq->crowded[l] = idle < 0 ? 0 : rq->crowded[l] + 1;
		if (rq->crowded[l] >= (l == LAB_LEVEL_LLC ? FAIR_PUSH_LOOKS_LLC :
							    FAIR_PUSH_LOOKS_FAR)) {
			rq->crowded[l] = 0;
			return idle;
		}
	}
	return -1;
}

/* Where a task that leaves the CPU is enqueued: at its CPU, or where it is being pushed to, if that is still idle. */
static __always_inline s32 fair_destination(struct task_struct *p, task_t *t)
{
	s32 cpu = t->to - 1;

	if (!t->to)
		return scx_bpf_task_cpu(p);
	t->to = 0;
	if (fair_cpu_idle(cpu) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
		return cpu;
	return scx_bpf_task_cpu(p);
}

/*
 * Ops.
 */

static __always_inline void fair_refresh(task_t *t, struct task_struct *p)
{
	lab_task_refresh(&t->lab, p);
	t->nice = p->static_prio - 120;
	t->policy = p->policy;
	t->weight = fair_weight(t->nice, t->policy);
}

s32 BPF_STRUCT_OPS(fair_op_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	task_t *t = task_of(p);

	return t ? fair_select_cpu(p, t, prev_cpu, wake_flags) : prev_cpu;
}

__weak int fair_not_current(task_t *t __arg_arena)
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

void BPF_STRUCT_OPS(fair_op_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 now = scx_bpf_now();
	task_t *t = task_of(p);
	unsigned long flags;
	bool preempt, fresh, idle;
	rq_t *rq;
	s32 cpu;

	if (!t) {
		scx_bpf_error("%s[%d] has no context", p->comm, p->pid);
		return;
	}
	fair_remove(t);
	/* It was chosen, but the choice came to nothing; or it was moved while it ran. */
	fair_not_current(t);
	cpu = fair_destination(p, t);
	rq = rq_at(cpu);
	if (!lab_lock_irqsave(&rq->lock, flags))
		return;
	fair_refresh(t, p);
	fair_advance(rq, now);
	fair_place(rq, t, now);
	preempt = t->asleep;
	fresh = t->fresh;
	t->asleep = false;
	t->fresh = false;
	fair_link(rq, t);
	idle = !rq->curr;
	if (!idle && preempt)
		preempt = fair_preempts(rq, t, fresh, now);
	lab_unlock_irqrestore(&rq->lock, flags);
	if (idle)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	else if (preempt)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* A waiting task is taken away, or an attribute of it changes; then it is enqueued again. */
void BPF_STRUCT_OPS(fair_op_dequeue, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	/* Tasks that dispatch has chosen come here too; they are no longer in the queue. */
	if (t)
		fair_remove(t);
}

void BPF_STRUCT_OPS(fair_op_dispatch, s32 cpu, struct task_struct *prev_p)
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
	    (lab_glance(rq->asked) || rq->idle_avg_ns >= FAIR_NEWIDLE_NS) &&
	    !fair_balance_idle(rq, now)) {
		lab_irq_restore(flags);
		return;
	}
	lab_post(rq->asked, false);
	push = rq->push;
	if (push)
		lab_write(rq->push, 0);

	while (can_loop) {
		t = fair_pick(rq, prev);
		if (!t || t == prev)
			break;
		p = lab_task_claim(&t->lab, cpu);
		if (!p) {
			/* Whatever made it so enqueues it again. */
			fair_leave(rq, t, now);
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
		fair_begin(rq, t);
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
		fair_leave(rq, prev, now);
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

void BPF_STRUCT_OPS(fair_op_running, struct task_struct *p)
{
	s32 cpu = bpf_get_smp_processor_id();
	u64 now = scx_bpf_now();
	task_t *t = task_of(p);
	rq_t *rq = rq_at(cpu);
	unsigned long flags;

	if (!t)
		return;
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
		fair_place(rq, t, now);
		t->asleep = false;
		t->fresh = false;
	}
	t->lab.cpu = cpu;
	t->turn_ns = 0;
	lab_write(rq->curr, t);
	lab_unlock_irqrestore(&rq->lock, flags);
}

void BPF_STRUCT_OPS(fair_op_stopping, struct task_struct *p, bool runnable)
{
	task_t *t = task_of(p);

	if (t)
		fair_charge(t, scx_bpf_now());
}

void BPF_STRUCT_OPS(fair_op_quiescent, struct task_struct *p, u64 deq_flags)
{
	u64 now = scx_bpf_now();
	task_t *t = task_of(p);
	unsigned long flags;
	rq_t *rq;

	if (!t || t->asleep)
		return;
	rq = rq_at(t->lab.cpu);
	if (!lab_lock_irqsave(&rq->lock, flags))
		return;
	if (rq->curr == t) {
		fair_advance(rq, now);
		fair_leave(rq, t, now);
		/* Otherwise an attribute of it changes, and it goes on. */
		if (deq_flags & SCX_DEQ_SLEEP)
			lab_write(rq->curr, NULL);
	}
	if (deq_flags & SCX_DEQ_SLEEP)
		t->asleep = true;
	lab_unlock_irqrestore(&rq->lock, flags);
}

void BPF_STRUCT_OPS(fair_op_tick, struct task_struct *p)
{
	s32 cpu = bpf_get_smp_processor_id(), idle;
	u64 now = scx_bpf_now();
	task_t *t = task_of(p);
	rq_t *rq = rq_at(cpu);
	unsigned long flags;
	bool ends, waits;

	if (!t || !lab_lock_irqsave(&rq->lock, flags))
		return;
	fair_charge(t, now);
	if (rq->curr != t)
		lab_write(rq->curr, t);
	fair_advance(rq, now);
	ends = fair_turn_ends(rq, t);
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

LAB_SET_CPUMASK(fair_op)

LAB_CPU_RELEASE(fair_op)

/* Nice level and policy; a waiting task is enqueued again anyway. */
void BPF_STRUCT_OPS(fair_op_set_weight, struct task_struct *p, u32 weight)
{
	task_t *t = task_of(p);

	if (!t || lab_read(t->queued))
		return;
	t->nice = p->static_prio - 120;
	t->policy = p->policy;
	t->weight = fair_weight(t->nice, t->policy);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(fair_op_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct task_struct *forker = bpf_get_current_task_btf();
	task_t *t = task_new(p), *parent = NULL;

	if (!t)
		return -ENOMEM;
	lab_note_higher(p);
	fair_refresh(t, p);
	t->wakee = ~0u;
	t->asleep = true;
	t->fresh = true;
	t->home = scx_bpf_task_cpu(p);
	t->vruntime = lab_glance(rq_at(t->home)->min_v);
	if (args->fork && forker && forker->pid)
		parent = task_of(forker);
	if (parent) {
		t->home = parent->home;
		t->vruntime = lab_glance(parent->vruntime);
		t->request_ns = parent->request_ns;
	}
	return 0;
}

/* It is not our task any more. */
__weak int fair_forget(task_t *t __arg_arena)
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
	fair_leave(rq, t, scx_bpf_now());
	if (rq->curr == t)
		lab_write(rq->curr, NULL);
	lab_unlock_irqrestore(&rq->lock, flags);
	return 0;
}

void BPF_STRUCT_OPS(fair_op_disable, struct task_struct *p)
{
	task_t *t = task_of(p);

	lab_note_higher(p);
	if (t)
		fair_forget(t);
}

void BPF_STRUCT_OPS(fair_op_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	fair_forget(t);
	lab_task_free(p);
}

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

#define FAIR_OPS							\
	.select_cpu		= (void *)fair_op_select_cpu,		\
	.enqueue		= (void *)fair_op_enqueue,		\
	.dequeue		= (void *)fair_op_dequeue,		\
	.dispatch		= (void *)fair_op_dispatch,		\
	.tick			= (void *)fair_op_tick,			\
	.running		= (void *)fair_op_running,		\
	.stopping		= (void *)fair_op_stopping,		\
	.quiescent		= (void *)fair_op_quiescent,		\
	.set_weight		= (void *)fair_op_set_weight,		\
	.set_cpumask		= (void *)fair_op_set_cpumask,		\
	.cpu_release		= (void *)fair_op_cpu_release,		\
	.init_task		= (void *)fair_op_init_task,		\
	.exit_task		= (void *)fair_op_exit_task,		\
	.disable		= (void *)fair_op_disable,		\
	.flags			= SCX_OPS_ENQ_LAST

#endif /* LAB_FAIR_H */
