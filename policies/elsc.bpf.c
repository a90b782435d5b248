/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ELSC: a table of 30 lists in place of the run queue of Linux 2.3.99.
 *
 * Idea: what a waiting task's goodness consists of, ticks left and priority,
 * does not change while it waits, so it is filed by that sum, four values to a
 * list, and never moves. A choice looks at the first few tasks of the highest
 * list only. Tasks without ticks wait behind the others in the list where the
 * next recalculation puts them, so recalculating moves nobody. Running tasks
 * are out of the table. A yielder that is alone in the highest list runs on
 * instead of having the counters of the whole system recalculated.
 *
 * Good for: many runnable tasks; threads that yield, which make Linux 2.3.99
 * recalculate.
 *
 * Bad for: warm caches: a task of a lower list that has run here is never
 * looked at. More than about four CPUs, as the one lock stays.
 *
 * Source: S. Molloy and P. Honeyman, Scalable Linux Scheduling, 2001, against
 * Linux 2.3.99-pre4; docs/schedulers/elsc.md restates the rules.
 *
 * Simplifications: the same as dss, and
 * - Priority is 20 - nice, so that elsc and dss:base=2_3_99 take the same tasks.
 * - The source does not say where an ordinary task goes whose sum is that of
 *   the real-time lists: into the highest ordinary one, 19.
 * - Tasks that are just leaving another CPU count toward the search limit.
 * - Masks of allowed CPUs are younger than the source. A task that may not run
 *   here is passed over and does not count toward the limit. If no task with
 *   ticks may run here and one without may, counters are recalculated, as the
 *   base scheduler does; so no CPU is idle beside work.
 * - Recalculation drops the lock, as in Linux 2.3.99. Tasks that were filed
 *   meanwhile are filed again if they belong elsewhere afterwards.
 */
#include <lab/lab.bpf.h>
#include <lab/linux24.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

enum elsc_kernel { KERNEL_FITTING, KERNEL_SMP };

/* On one CPU: a uniprocessor kernel, which takes the first task of the same address space, or an SMP one. */
const volatile enum elsc_kernel kernel = KERNEL_FITTING;

/* Goodness by which a woken task must exceed the running one (0 to 1073741824). */
const volatile u32 threshold = 1;

/* The unit that uses up a tick of the counter: 10 ms of running time, or a timer tick. */
const volatile enum linux24_charge charge = CHARGE_RUNTIME;

/* The arithmetic of 2.3.99. */
static const enum linux24_base base = BASE_2_3_99;

#define ELSC_LISTS		30
/* Room for them: a power of two, so that any number has a list. */
#define ELSC_ROOM		32
/* The first list of real-time tasks, ten priorities to a list. */
#define ELSC_REALTIME		20
#define ELSC_RT_PER_LIST	10
/* Values of static goodness to a list. */
#define ELSC_PER_LIST		4
/* No list: 0 is one. */
#define ELSC_NONE		(-1)

struct elsc_task {
	union {
		struct lab_task lab;
		struct linux24_task old;
	};
	s32 list;		/* the one it is linked in */
	bool behind;		/* filed without ticks */
	bool pad[3];
};

LAB_TASKS(struct elsc_task);

struct elsc_queue {
	struct lab_lock runqueue_lock;
	s32 top;		/* highest list with a task that has ticks, or real time */
	s32 next_top;		/* highest list with a task that has none */
	s64 nr;			/* tasks in the table */
	/* Tasks with ticks first, those without behind them. */
	struct lab_list lists[ELSC_ROOM];
} __attribute__((aligned(LAB_CACHELINE)));

struct elsc_queue __arena_global rq;
struct linux24_cpu __arena_global cpus[LAB_MAX_CPUS];

/*
 * The table.
 */

/* It has to wait for the next recalculation. */
static __always_inline bool elsc_expired(task_t *t)
{
	return !lab_glance(t->old.counter) && !lab_realtime(lab_glance(t->old.policy));
}

/* Where a task belongs: one without ticks where the recalculation puts it. */
static __always_inline s32 elsc_list(task_t *t)
{
	s32 counter = lab_glance(t->old.counter), list;

	if (lab_realtime(lab_glance(t->old.policy))) {
		list = ELSC_REALTIME + lab_glance(t->old.rt_priority) / ELSC_RT_PER_LIST;
		return list < ELSC_LISTS ? list : ELSC_LISTS - 1;
	}
	if (!counter)
		counter = linux24_recalculated(0, lab_glance(t->old.nice), base);
	list = (counter + 20 - lab_glance(t->old.nice)) / ELSC_PER_LIST;
	return list < ELSC_REALTIME ? list : ELSC_REALTIME - 1;
}

static __always_inline lab_list_t *elsc_at(s32 list)
{
	return &rq.lists[list & (ELSC_ROOM - 1)];
}

static __always_inline task_t *elsc_entry(lab_node_t *node)
{
	return lab_entry(node, struct elsc_task, lab.node);
}

/* Whether a list has a task with ticks: the first one decides. */
static __always_inline bool elsc_has_ready(s32 list)
{
	lab_list_t *l = elsc_at(list);

	if (!l->nr)
		return false;
	consult(elsc_entry(l->head.next));
	return !elsc_expired(elsc_entry(l->head.next));
}

/* Whether a list has a task without ticks: the last one decides. */
static __always_inline bool elsc_has_expired(s32 list)
{
	lab_list_t *l = elsc_at(list);

	if (!l->nr)
		return false;
	consult(elsc_entry(l->head.prev));
	return elsc_expired(elsc_entry(l->head.prev));
}

/* The highest list with a task that has ticks, from `list` on down. */
__noinline s32 elsc_ready_from(s32 list)
{
	lab_use_arena();
	for (; list >= 0 && can_loop; list--) {
		if (elsc_has_ready(list))
			break;
	}
	return list;
}

/* The highest list with a task that has none. */
__noinline s32 elsc_expired_from(s32 list)
{
	lab_use_arena();
	for (; list >= 0 && can_loop; list--) {
		if (elsc_has_expired(list))
			break;
	}
	return list;
}

/* Into its section of its list, which is at the end of it if `last`. */
static __always_inline void elsc_add(task_t *t, bool last)
{
	s32 list = elsc_list(t);

	lab_touch(&rq.top, true);
	lab_touch(elsc_at(list), true);
	t->list = list;
	t->behind = elsc_expired(t);
	if (t->behind) {
		lab_list_add_tail(elsc_at(list), &t->lab.node);
		if (list > rq.next_top)
			rq.next_top = list;
	} else {
		/* In the lists of real-time tasks there is no other section behind. */
		if (last && list >= ELSC_REALTIME)
			lab_list_add_tail(elsc_at(list), &t->lab.node);
		else
			lab_list_add_head(elsc_at(list), &t->lab.node);
		if (list > rq.top)
			rq.top = list;
	}
	rq.nr++;
	t->old.linked = true;
}

/*
 * The functions that linux24_queue.h requires.
 */

#define RQ_KEEPS_RUNNING 0
#define RQ_SORTED 1
#define RQ_YIELD_GOES_LAST 0

static __always_inline int rq_init(void)
{
	s32 i;

	rq.top = ELSC_NONE;
	rq.next_top = ELSC_NONE;
	bpf_for(i, 0, ELSC_LISTS)
		lab_list_init(elsc_at(i));
	return 0;
}

static __always_inline int rq_new_task(void)
{
	return 0;
}

static __always_inline s64 rq_nr(void)
{
	return lab_read(rq.nr);
}

static __always_inline void rq_add(task_t *t)
{
	elsc_add(t, false);
}

static __always_inline void rq_del(task_t *t)
{
	s32 list = t->list;

	lab_touch(&rq.top, true);
	lab_touch(elsc_at(list), true);
	lab_list_del(elsc_at(list), &t->lab.node);
	rq.nr--;
	t->old.linked = false;
	if (list == rq.top)
		rq.top = elsc_ready_from(list);
	if (list == rq.next_top)
		rq.next_top = elsc_expired_from(list);
}

/* Gaining ticks by a recalculation moves no task; losing the last ones does. */
static __always_inline bool rq_misfiled(task_t *t)
{
	return lab_glance(t->list) != elsc_list(t) || (elsc_expired(t) && !lab_glance(t->behind));
}

/* A task that could go on is in the table like the others while the search lasts. */
static __always_inline void rq_prev(task_t *prev, bool refilled)
{
	if (prev->old.linked)
		rq_del(prev);
	elsc_add(prev, refilled);
}

static __always_inline bool elsc_uniprocessor(void)
{
	return lab_nr_online == 1 && kernel == KERNEL_FITTING;
}

/* The best of the first tasks of a list. False: the loop budget ran out. */
static __always_inline bool elsc_search(task_t *prev, s32 cpu, u64 mm, s32 list, task_t **best,
					s32 *best_value)
{
	s32 value, left = lab_nr_online / 2 + 5;
	bool ordinary = list < ELSC_REALTIME;
	lab_list_t *l = elsc_at(list);
	lab_node_t *pos;
	task_t *t;

	lab_touch(l, false);
	lab_list_for_each(pos, l) {
		if (!left)
			return true;
		t = elsc_entry(pos);
		examine(t);
		if (elsc_expired(t))
			/* So are all behind it. */
			return true;
		if (t == prev) {
			left--;
			if (prev->old.yielded)
				continue;
		} else {
			if (!lab_allowed(&t->lab, cpu))
				continue;
			if (ordinary || lab_glance(t->old.takeable))
				left--;
			/* Still leaving another CPU. */
			if (!lab_glance(t->old.takeable))
				continue;
		}
		value = linux24_na_goodness(&t->old);
		if (ordinary) {
			value += linux24_mm_bonus(&t->old, mm);
			if (!elsc_uniprocessor())
				value += linux24_cpu_bonus(&t->old, cpu);
			else if (linux24_mm_bonus(&t->old, mm)) {
				*best = t;
				*best_value = value;
				return true;
			}
		}
		if (value > *best_value) {
			*best = t;
			*best_value = value;
		}
	}
	return lab_list_ended(pos, l);
}

/* Whether a task without ticks may run here. */
static __always_inline bool elsc_expired_here(task_t *prev, s32 cpu)
{
	lab_node_t *pos;
	lab_list_t *l;
	task_t *t;
	s32 list;

	for (list = rq.next_top; list >= 0 && can_loop; list--) {
		l = elsc_at(list);
		for (pos = l->head.prev; pos != &l->head && can_loop; pos = pos->prev) {
			t = elsc_entry(pos);
			consult(t);
			if (!elsc_expired(t))
				break;
			if (t == prev || lab_allowed(&t->lab, cpu))
				return true;
		}
	}
	return false;
}

static __always_inline bool rq_choose(task_t *prev, s32 cpu, u64 mm, bool recalculated,
				      task_t **best, s32 *value)
{
	s32 list;

	lab_touch(&rq.top, false);
	for (list = rq.top; list >= 0 && can_loop; list--) {
		if (!elsc_at(list)->nr)
			continue;
		if (!elsc_search(prev, cpu, mm, list, best, value))
			return false;
		if (*best)
			return true;
		if (prev && prev->old.yielded && prev->list == list && !elsc_expired(prev)) {
			/* A yielder that is alone in this list. */
			*best = prev;
			*value = -1;
			return true;
		}
	}
	if (list >= 0)
		return false;
	if (elsc_expired_here(prev, cpu))
		*value = 0;
	return true;
}

/* The counters of all tasks of the system, without the lock. Those without ticks are where they belong already. */
static __always_inline bool rq_recalculate(void)
{
	bool moves = rq.top != ELSC_NONE;

	lab_unlock(&rq.runqueue_lock);
	if (!linux24_recalculate(sizeof(task_t), base) || !lab_lock(&rq.runqueue_lock))
		return false;
	/* Tasks that had ticks, because they may not run here or came meanwhile, may belong elsewhere now. */
	moves = moves || rq.top != ELSC_NONE;
	rq.top = elsc_ready_from(ELSC_LISTS - 1);
	rq.next_top = elsc_expired_from(ELSC_LISTS - 1);
	if (moves)
		linux24_refile_all();
	return true;
}

#include <lab/linux24_queue.h>

void BPF_STRUCT_OPS(elsc_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(elsc_ops,
	       QUEUE24_OPS,
	       .exit			= (void *)elsc_exit,
	       .name			= "elsc");
