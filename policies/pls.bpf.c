/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The priority-level scheduler: the one run queue of Linux 2.4, sorted.
 *
 * Idea: instead of one list in no order, a list for each value of goodness
 * that depends on no CPU (ticks left and nice level), and a bitmap of the lists
 * in use. A choice begins at the highest list. Only the bonus for having run on
 * this CPU can lift a task of a lower list above a candidate, and it is worth
 * 15, so the search ends 15 lists below the candidate, and at the first task
 * that has the bonus. A task moves when its ticks change.
 *
 * Good for: many runnable tasks, where Linux 2.4 looks at each of them.
 *
 * Bad for: more than about four CPUs, as the one lock stays. A lower list costs
 * a look although nobody in it can be better by more than the bonus, and moving
 * running tasks at each tick takes the lock that Linux 2.4 did not take there.
 *
 * Source: M. Kravetz, H. Franke, S. Nagar, R. Ravindran, Enhancing Linux
 * Scheduler Scalability, 2001; docs/schedulers/pls.md restates the rules.
 *
 * Simplifications: the same as dss, and
 * - Recalculation keeps the lock, because ticks and lists have to agree; Linux
 *   2.4 drops it. Waits for it show in pls as waits for the lock.
 * - The source says 61 lists on i386. Ticks and nice levels give 0 to 61, so
 *   there are 62, and one for real-time tasks.
 * - It leaves open where in its new list a task goes that moves: to the head,
 *   where new ones go.
 */
#include <lab/lab.bpf.h>
#include <lab/linux24.h>
#include <lab/prio_array.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

/* Goodness by which a woken task must exceed the running one (0 to 1073741824): 1 up to 2.4.7, 0 in 2.4.13. */
const volatile u32 threshold = 1;

/* The unit that uses up a tick of the counter: 10 ms of running time, or a timer tick. */
const volatile enum linux24_charge charge = CHARGE_RUNTIME;

/* The arithmetic is 2.4's. */
static const enum linux24_base base = BASE_LINUX_2_4;

/*
 * Most ticks that a task can have: two quanta of the best nice level, less
 * one, where recalculation ends (or MAX_COUNTER, which is less).
 */
#define PLS_COUNTER_MAX		21
/* Greatest goodness without bonuses but for real-time tasks, which have one list above it. */
#define PLS_GOODNESS_MAX	(PLS_COUNTER_MAX + 40)
#define PLS_REALTIME		(PLS_GOODNESS_MAX + 1)
#define PLS_LISTS		(PLS_REALTIME + 1)

/* The list of tasks without ticks, which no search enters. */
#define PLS_EXPIRED		0

struct pls_task {
	union {
		struct lab_task lab;
		struct linux24_task old;
	};
	u64 list;		/* the one it is linked in */
};

LAB_TASKS(struct pls_task);

struct pls_queue {
	struct lab_lock runqueue_lock;
	struct lab_prio_array levels;	/* level 0 is the highest list */
	struct lab_list lists[PLS_LISTS];
} __attribute__((aligned(LAB_CACHELINE)));

struct pls_queue __arena_global rq;
struct linux24_cpu __arena_global cpus[LAB_MAX_CPUS];

/* The list in which a task belongs: running and yielding ones, too. */
static __always_inline u32 pls_list(task_t *t)
{
	s32 goodness;

	if (lab_realtime(lab_glance(t->old.policy)))
		return PLS_REALTIME;
	goodness = linux24_na_goodness(&t->old);
	return goodness > PLS_GOODNESS_MAX ? PLS_GOODNESS_MAX : goodness;
}

static __always_inline u32 pls_level(u32 list)
{
	return PLS_REALTIME - list;
}

/*
 * The functions that linux24_queue.h requires.
 */

#define RQ_KEEPS_RUNNING 1
#define RQ_SORTED 1
#define RQ_YIELD_GOES_LAST 0

static __always_inline int rq_init(void)
{
	return lab_prio_init(&rq.levels, rq.lists, PLS_LISTS) ? 0 : -E2BIG;
}

static __always_inline int rq_new_task(void)
{
	return 0;
}

static __always_inline s64 rq_nr(void)
{
	return lab_read(rq.levels.nr);
}

static __always_inline void pls_file(task_t *t)
{
	t->list = pls_list(t);
	t->old.linked = true;
}

static __always_inline void rq_add(task_t *t)
{
	pls_file(t);
	lab_prio_add_head(&rq.levels, pls_level(t->list), &t->lab.node);
}

static __always_inline void rq_del(task_t *t)
{
	lab_prio_del(&rq.levels, pls_level(t->list), &t->lab.node);
	t->old.linked = false;
}

static __always_inline bool rq_misfiled(task_t *t)
{
	return lab_glance(t->list) != pls_list(t);
}

static __always_inline void rq_prev(task_t *prev, bool refilled)
{
	if (!prev->old.linked || !(refilled || rq_misfiled(prev)))
		return;
	rq_del(prev);
	if (refilled) {
		pls_file(prev);
		lab_prio_add_tail(&rq.levels, pls_level(prev->list), &prev->lab.node);
	} else {
		rq_add(prev);
	}
}

/* Whether a task waits that this CPU may run. */
static __always_inline bool pls_schedulable(task_t *t, s32 cpu)
{
	return lab_glance(t->old.takeable) && lab_allowed(&t->lab, cpu);
}

/*
 * Looks through the lists from the highest on down to @bottom, which rises with
 * the candidates. False: the loop budget ran out.
 */
static __always_inline bool pls_search(task_t *prev, s32 cpu, s32 bottom, task_t **best,
				       s32 *best_value)
{
	s32 level, list, value;
	lab_node_t *pos;
	task_t *t;

	level = lab_prio_first(&rq.levels);
	while (level != LAB_PRIO_NONE && can_loop) {
		list = PLS_REALTIME - level;
		if (list < bottom)
			return true;
		lab_list_for_each(pos, lab_prio_list(&rq.levels, level)) {
			t = lab_entry(pos, struct pls_task, lab.node);
			if (t == prev)
				continue;
			examine(t);
			if (!pls_schedulable(t, cpu))
				continue;
			value = linux24_na_goodness(&t->old);
			if (list != PLS_REALTIME)
				value += linux24_cpu_bonus(&t->old, cpu);
			if (value > *best_value) {
				*best = t;
				*best_value = value;
				/* At the bottom there are only ties. */
				if (bottom < list - LINUX24_SAME_CPU_BONUS)
					bottom = list - LINUX24_SAME_CPU_BONUS;
			}
			/* No task below has more than this one, the bonus included. */
			if (list != PLS_REALTIME && lab_glance(t->lab.cpu) == cpu)
				return true;
		}
		if (!lab_list_ended(pos, lab_prio_list(&rq.levels, level)))
			return false;
		/* A real-time task beats all others. */
		if (*best_value >= LINUX24_RT_BASE)
			return true;
		level = lab_prio_next(&rq.levels, level + 1);
	}
	return level == LAB_PRIO_NONE;
}

static __always_inline bool rq_choose(task_t *prev, s32 cpu, u64 mm, bool recalculated,
				      task_t **best, s32 *value)
{
	s32 bottom = PLS_EXPIRED + 1;
	lab_node_t *pos;
	task_t *t;

	if (prev) {
		examine(prev);
		*best = prev;
		if (prev->old.yielded) {
			*value = -1;
		} else {
			*value = linux24_na_goodness(&prev->old);
			if (*value)
				bottom = pls_list(prev);
			if (*value && bottom != PLS_REALTIME)
				*value += LINUX24_SAME_CPU_BONUS;
		}
	}
	if (!pls_search(prev, cpu, bottom, best, value))
		return false;
	if (*value >= 0)
		return true;

	/* No task, or a yielder: does another task only lack ticks? */
	lab_list_for_each(pos, &rq.lists[pls_level(PLS_EXPIRED)]) {
		t = lab_entry(pos, struct pls_task, lab.node);
		if (t == prev)
			continue;
		consult(t);
		if (pls_schedulable(t, cpu)) {
			/* It has ticks where another CPU's recalculation has not moved it yet. */
			*value = linux24_na_goodness(&t->old);
			if (*value)
				*best = t;
			return true;
		}
	}
	return lab_list_ended(pos, &rq.lists[pls_level(PLS_EXPIRED)]);
}

/* The counters of all tasks of the system without the lock, then the lists of the runnable ones. */
static __always_inline bool rq_recalculate(void)
{
	lab_unlock(&rq.runqueue_lock);
	if (!linux24_recalculate(sizeof(task_t), base) || !lab_lock(&rq.runqueue_lock))
		return false;
	linux24_refile_all();
	return true;
}

#include <lab/linux24_queue.h>

void BPF_STRUCT_OPS(pls_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(pls_ops,
	       QUEUE24_OPS,
	       .exit			= (void *)pls_exit,
	       .name			= "pls");
