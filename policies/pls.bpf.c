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
#include <lab/linux24_queue.h>
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
static __always_inline u32 pls_list(linux24_task_t *t)
{
	s32 goodness;

	if (lab_realtime(lab_glance(t->policy)))
		return PLS_REALTIME;
	goodness = linux24_na_goodness(t);
	return goodness > PLS_GOODNESS_MAX ? PLS_GOODNESS_MAX : goodness;
}

static __always_inline u32 pls_level(u32 list)
{
	return PLS_REALTIME - list;
}

/*
 * The lists. Their lock is held.
 */

static __always_inline void pls_file(task_t *t)
{
	t->list = pls_list(&t->old);
	t->old.linked = true;
}

static __always_inline void pls_add(linux24_task_t *old)
{
	task_t *t = (task_t *)old;

	pls_file(t);
	lab_prio_add_head(&rq.levels, pls_level(t->list), &t->lab.node);
}

static __always_inline void pls_add_last(linux24_task_t *old)
{
	task_t *t = (task_t *)old;

	pls_file(t);
	lab_prio_add_tail(&rq.levels, pls_level(t->list), &t->lab.node);
}

static __always_inline void pls_del(linux24_task_t *old)
{
	task_t *t = (task_t *)old;

	lab_prio_del(&rq.levels, pls_level(t->list), &t->lab.node);
	t->old.linked = false;
}

static __always_inline bool pls_misfiled(linux24_task_t *old)
{
	task_t *t = (task_t *)old;

	return lab_glance(t->list) != pls_list(old);
}

/* Its ticks may have changed; a real-time task whose quantum has ended goes behind its equals. */
static __always_inline void pls_previous(linux24_task_t *prev, bool refilled)
{
	if (!prev->linked || !(refilled || pls_misfiled(prev)))
		return;
	pls_del(prev);
	if (refilled)
		pls_add_last(prev);
	else
		pls_add(prev);
}

/* Whether a task waits that this CPU may run. */
static __always_inline bool pls_schedulable(linux24_task_t *t, s32 cpu)
{
	return lab_glance(t->takeable) && lab_allowed(&t->lab, cpu);
}

/*
 * Looks through the lists from the highest on down to @bottom, which rises with
 * the candidates. False: the loop budget ran out.
 */
static __always_inline bool pls_search(linux24_task_t *prev, s32 cpu, s32 bottom,
				       linux24_task_t **best, s32 *best_value)
{
	s32 level, list, value;
	linux24_task_t *t;
	lab_node_t *pos;

	level = lab_prio_first(&rq.levels);
	while (level != LAB_PRIO_NONE && can_loop) {
		list = PLS_REALTIME - level;
		if (list < bottom)
			return true;
		lab_list_for_each(pos, lab_prio_list(&rq.levels, level)) {
			t = lab_entry(pos, struct linux24_task, lab.node);
			if (t == prev)
				continue;
			examine(t);
			if (!pls_schedulable(t, cpu))
				continue;
			value = linux24_na_goodness(t);
			if (list != PLS_REALTIME)
				value += linux24_cpu_bonus(t, cpu);
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

static __always_inline bool pls_choose(linux24_task_t *prev, s32 cpu, u64 mm, bool recalculated,
				       linux24_task_t **best, s32 *value)
{
	s32 bottom = PLS_EXPIRED + 1;
	linux24_task_t *t;
	lab_node_t *pos;

	if (prev) {
		examine(prev);
		*best = prev;
		if (prev->yielded) {
			*value = -1;
		} else {
			*value = linux24_na_goodness(prev);
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
		t = lab_entry(pos, struct linux24_task, lab.node);
		if (t == prev)
			continue;
		consult(t);
		if (pls_schedulable(t, cpu)) {
			/* It has ticks where another CPU's recalculation has not moved it yet. */
			*value = linux24_na_goodness(t);
			if (*value)
				*best = t;
			return true;
		}
	}
	return lab_list_ended(pos, &rq.lists[pls_level(PLS_EXPIRED)]);
}

/* The counters of all tasks of the system without the lock, then the lists of the runnable ones. */
static __always_inline bool pls_recalculate(void)
{
	lab_unlock(&rq.runqueue_lock);
	if (!linux24_recalculate(sizeof(task_t), base) || !lab_lock(&rq.runqueue_lock))
		return false;
	queue24_refile_all(sizeof(task_t), pls_misfiled, pls_del, pls_add);
	return true;
}

static const struct queue24_hooks pls_lists = {
	.keeps_running	= true,
	.add		= pls_add,
	.del		= pls_del,
	.misfiled	= pls_misfiled,
	.previous	= pls_previous,
	.choose		= pls_choose,
	.recalculate	= pls_recalculate,
};

/*
 * CPUs that a higher class has taken.
 */

static __always_inline u64 pls_nr_stranded(s32 cpu)
{
	return queue24_stranded(cpu) && lab_read(rq.levels.nr);
}

static __always_inline bool pls_rescue(u32 from, u32 to)
{
	return queue24_rescue(&rq.runqueue_lock, from, to);
}

LAB_RESCUE(pls_nr_stranded, queue24_idle, pls_rescue);

/*
 * Ops, in the order of a task's life.
 */

/* fork(): parent and child share the parent's remaining ticks. */
s32 BPF_STRUCT_OPS_SLEEPABLE(pls_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct task_struct *forker = bpf_get_current_task_btf();
	task_t *t = task_new(p);
	linux24_task_t *parent;

	if (!t)
		return -ENOMEM;
	lab_note_higher(p);
	parent = linux24_fork(&t->old, p, args, forker, base);
	if (parent)
		queue24_refile(&rq.runqueue_lock, &pls_lists, parent, false);
	return 0;
}

/* Only the previous CPU: where a task goes is settled under the lock, in enqueue. */
s32 BPF_STRUCT_OPS(pls_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	task_t *t = task_of(p);

	if (t)
		linux24_woken(&t->old, wake_flags);
	return prev_cpu;
}

void BPF_STRUCT_OPS(pls_enqueue, struct task_struct *p, u64 enq_flags)
{
	task_t *t = task_of(p);

	if (t)
		queue24_enqueue(&rq.runqueue_lock, &pls_lists, &t->old, p, enq_flags, threshold, base);
	else
		lab_no_context(p);
}

void BPF_STRUCT_OPS(pls_dequeue, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		queue24_dequeue(&rq.runqueue_lock, &pls_lists, &t->old, deq_flags);
}

void BPF_STRUCT_OPS(pls_dispatch, s32 cpu, struct task_struct *prev)
{
	queue24_schedule(&rq.runqueue_lock, &pls_lists, cpu, prev, charge, base);
}

void BPF_STRUCT_OPS(pls_running, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (t)
		linux24_running(&t->old, p);
}

void BPF_STRUCT_OPS(pls_tick, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	linux24_tick(&t->old, p, charge);
	queue24_refile(&rq.runqueue_lock, &pls_lists, &t->old, false);
}

/* sched_yield(): only if a task waits. No lock is taken. */
bool BPF_STRUCT_OPS(pls_yield, struct task_struct *from, struct task_struct *to)
{
	task_t *t = task_of(from);

	if (!t || to || !linux24_others_wait(lab_read(rq.levels.nr)))
		return false;
	linux24_yield(&t->old, from);
	return true;
}

void BPF_STRUCT_OPS(pls_set_weight, struct task_struct *p, u32 weight)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	linux24_set_nice(&t->old, p);
	queue24_refile(&rq.runqueue_lock, &pls_lists, &t->old, false);
}

void BPF_STRUCT_OPS(pls_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	task_t *t = task_of(p);

	if (t)
		lab_task_refresh(&t->lab, p);
}

void BPF_STRUCT_OPS(pls_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	lab_cpu_release();
}

void BPF_STRUCT_OPS(pls_stopping, struct task_struct *p, bool runnable)
{
	task_t *t = task_of(p);

	if (t)
		linux24_charge_runtime(&t->old, scx_bpf_now(), charge);
}

void BPF_STRUCT_OPS(pls_quiescent, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		queue24_quiescent(&rq.runqueue_lock, &pls_lists, &t->old, deq_flags);
}

/* It leaves for a scheduling class that is not ours. */
void BPF_STRUCT_OPS(pls_disable, struct task_struct *p)
{
	task_t *t = task_of(p);

	lab_note_higher(p);
	if (t)
		queue24_forget(&rq.runqueue_lock, &pls_lists, &t->old);
}

/* exit(): what is left of the ticks goes back to the task that forked it. */
void BPF_STRUCT_OPS(pls_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	task_t *t = task_of(p), *parent;

	if (!t)
		return;
	queue24_forget(&rq.runqueue_lock, &pls_lists, &t->old);
	parent = task_parent(&t->old.parent);
	/* Its place is corrected where it got them. */
	if (linux24_collect(&t->old, (linux24_task_t *)parent))
		lab_unaudited(queue24_refile(&rq.runqueue_lock, &pls_lists, &parent->old, true));
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(pls_init)
{
	int error = queue24_init(&rq.runqueue_lock, threshold);

	if (error)
		return error;
	return lab_prio_init(&rq.levels, rq.lists, PLS_LISTS) ? 0 : -E2BIG;
}

void BPF_STRUCT_OPS(pls_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(pls_ops,
	       .init_task		= (void *)pls_init_task,
	       .select_cpu		= (void *)pls_select_cpu,
	       .enqueue			= (void *)pls_enqueue,
	       .dequeue			= (void *)pls_dequeue,
	       .dispatch		= (void *)pls_dispatch,
	       .running			= (void *)pls_running,
	       .tick			= (void *)pls_tick,
	       .yield			= (void *)pls_yield,
	       .set_weight		= (void *)pls_set_weight,
	       .set_cpumask		= (void *)pls_set_cpumask,
	       .cpu_release		= (void *)pls_cpu_release,
	       .stopping		= (void *)pls_stopping,
	       .quiescent		= (void *)pls_quiescent,
	       .disable			= (void *)pls_disable,
	       .exit_task		= (void *)pls_exit_task,
	       .init			= (void *)pls_init,
	       .exit			= (void *)pls_exit,
	       .name			= "pls");
