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
#include <lab/linux24_queue.h>

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
 * The table. Its lock is held.
 */

/* It has to wait for the next recalculation. */
static __always_inline bool elsc_expired(linux24_task_t *t)
{
	return !lab_glance(t->counter) && !lab_realtime(lab_glance(t->policy));
}

/* Where a task belongs: one without ticks where the recalculation puts it. */
static __always_inline s32 elsc_list(linux24_task_t *t)
{
	s32 counter = lab_glance(t->counter), list;

	if (lab_realtime(lab_glance(t->policy))) {
		list = ELSC_REALTIME + lab_glance(t->rt_priority) / ELSC_RT_PER_LIST;
		return list < ELSC_LISTS ? list : ELSC_LISTS - 1;
	}
	if (!counter)
		counter = linux24_recalculated(0, lab_glance(t->nice), base);
	list = (counter + 20 - lab_glance(t->nice)) / ELSC_PER_LIST;
	return list < ELSC_REALTIME ? list : ELSC_REALTIME - 1;
}

static __always_inline lab_list_t *elsc_at(s32 list)
{
	return &rq.lists[list & (ELSC_ROOM - 1)];
}

static __always_inline linux24_task_t *elsc_entry(lab_node_t *node)
{
	return lab_entry(node, struct linux24_task, lab.node);
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
LAB_PART s32 elsc_ready_from(s32 list)
{
	lab_use_arena();
	for (; list >= 0 && can_loop; list--) {
		if (elsc_has_ready(list))
			break;
	}
	return list;
}

/* The highest list with a task that has none. */
LAB_PART s32 elsc_expired_from(s32 list)
{
	lab_use_arena();
	for (; list >= 0 && can_loop; list--) {
		if (elsc_has_expired(list))
			break;
	}
	return list;
}

/* Into its section of its list, which is at the end of it if `last`. */
static __always_inline void elsc_file(linux24_task_t *old, bool last)
{
	task_t *t = (task_t *)old;
	s32 list = elsc_list(old);

	lab_touch(&rq.top, true);
	lab_touch(elsc_at(list), true);
	t->list = list;
	t->behind = elsc_expired(old);
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

static __always_inline void elsc_add(linux24_task_t *t)
{
	elsc_file(t, false);
}

static __always_inline void elsc_del(linux24_task_t *old)
{
	task_t *t = (task_t *)old;
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
static __always_inline bool elsc_misfiled(linux24_task_t *old)
{
	task_t *t = (task_t *)old;

	return lab_glance(t->list) != elsc_list(old) ||
	       (elsc_expired(old) && !lab_glance(t->behind));
}

/* A task that could go on is in the table like the others while the search lasts. */
static __always_inline void elsc_previous(linux24_task_t *prev, bool refilled)
{
	if (prev->linked)
		elsc_del(prev);
	elsc_file(prev, refilled);
}

static __always_inline bool elsc_uniprocessor(void)
{
	return lab_nr_online == 1 && kernel == KERNEL_FITTING;
}

/* The best of the first tasks of a list. False: the loop budget ran out. */
static __always_inline bool elsc_search(linux24_task_t *prev, s32 cpu, u64 mm, s32 list,
					linux24_task_t **best, s32 *best_value)
{
	s32 value, left = lab_nr_online / 2 + 5;
	bool ordinary = list < ELSC_REALTIME;
	lab_list_t *l = elsc_at(list);
	linux24_task_t *t;
	lab_node_t *pos;

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
			if (prev->yielded)
				continue;
		} else {
			if (!lab_allowed(&t->lab, cpu))
				continue;
			if (ordinary || lab_glance(t->takeable))
				left--;
			/* Still leaving another CPU. */
			if (!lab_glance(t->takeable))
				continue;
		}
		value = linux24_na_goodness(t);
		if (ordinary) {
			value += linux24_mm_bonus(t, mm);
			if (!elsc_uniprocessor())
				value += linux24_cpu_bonus(t, cpu);
			else if (linux24_mm_bonus(t, mm)) {
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
static __always_inline bool elsc_expired_here(linux24_task_t *prev, s32 cpu)
{
	linux24_task_t *t;
	lab_node_t *pos;
	lab_list_t *l;
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

static __always_inline bool elsc_choose(linux24_task_t *prev, s32 cpu, u64 mm, bool recalculated,
					linux24_task_t **best, s32 *value)
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
		if (prev && prev->yielded && ((task_t *)prev)->list == list &&
		    !elsc_expired(prev)) {
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
static __always_inline bool elsc_recalculate(void)
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
		queue24_refile_all(sizeof(task_t), elsc_misfiled, elsc_del, elsc_add);
	return true;
}

static const struct queue24_hooks elsc_table = {
	.keeps_running	= false,
	.add		= elsc_add,
	.del		= elsc_del,
	.misfiled	= elsc_misfiled,
	.previous	= elsc_previous,
	.choose		= elsc_choose,
	.recalculate	= elsc_recalculate,
};

/*
 * CPUs that a higher class has taken.
 */

static __always_inline u64 elsc_nr_stranded(s32 cpu)
{
	return queue24_stranded(cpu) && lab_read(rq.nr);
}

static __always_inline bool elsc_rescue(u32 from, u32 to)
{
	return queue24_rescue(&rq.runqueue_lock, from, to);
}

LAB_RESCUE(elsc_nr_stranded, queue24_idle, elsc_rescue);

/*
 * Ops, in the order of a task's life.
 */

/* fork(): parent and child share the parent's remaining ticks. */
s32 BPF_STRUCT_OPS_SLEEPABLE(elsc_init_task, struct task_struct *p,
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
		queue24_refile(&rq.runqueue_lock, &elsc_table, parent, false);
	return 0;
}

/* Only the previous CPU: where a task goes is settled under the lock, in enqueue. */
s32 BPF_STRUCT_OPS(elsc_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	task_t *t = task_of(p);

	if (t)
		linux24_woken(&t->old, wake_flags);
	return prev_cpu;
}

void BPF_STRUCT_OPS(elsc_enqueue, struct task_struct *p, u64 enq_flags)
{
	task_t *t = task_of(p);

	if (t)
		queue24_enqueue(&rq.runqueue_lock, &elsc_table, &t->old, p, enq_flags, threshold, base);
	else
		lab_no_context(p);
}

void BPF_STRUCT_OPS(elsc_dequeue, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		queue24_dequeue(&rq.runqueue_lock, &elsc_table, &t->old, deq_flags);
}

void BPF_STRUCT_OPS(elsc_dispatch, s32 cpu, struct task_struct *prev)
{
	queue24_schedule(&rq.runqueue_lock, &elsc_table, cpu, prev, charge, base);
}

void BPF_STRUCT_OPS(elsc_running, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	linux24_running(&t->old, p);
	queue24_take_out(&rq.runqueue_lock, &elsc_table, &t->old);
}

void BPF_STRUCT_OPS(elsc_tick, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	linux24_tick(&t->old, p, charge);
	queue24_refile(&rq.runqueue_lock, &elsc_table, &t->old, false);
}

/* sched_yield(): as in 2.3.99, whether a task waits or not. No lock is taken. */
bool BPF_STRUCT_OPS(elsc_yield, struct task_struct *from, struct task_struct *to)
{
	task_t *t = task_of(from);

	if (!t || to)
		return false;
	linux24_yield(&t->old, from);
	return true;
}

void BPF_STRUCT_OPS(elsc_set_weight, struct task_struct *p, u32 weight)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	linux24_set_nice(&t->old, p);
	queue24_refile(&rq.runqueue_lock, &elsc_table, &t->old, false);
}

void BPF_STRUCT_OPS(elsc_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	task_t *t = task_of(p);

	if (t)
		lab_task_refresh(&t->lab, p);
}

void BPF_STRUCT_OPS(elsc_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	lab_cpu_release();
}

void BPF_STRUCT_OPS(elsc_stopping, struct task_struct *p, bool runnable)
{
	task_t *t = task_of(p);

	if (t)
		linux24_charge_runtime(&t->old, scx_bpf_now(), charge);
}

void BPF_STRUCT_OPS(elsc_quiescent, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		queue24_quiescent(&rq.runqueue_lock, &elsc_table, &t->old, deq_flags);
}

/* It leaves for a scheduling class that is not ours. */
void BPF_STRUCT_OPS(elsc_disable, struct task_struct *p)
{
	task_t *t = task_of(p);

	lab_note_higher(p);
	if (t)
		queue24_forget(&rq.runqueue_lock, &elsc_table, &t->old);
}

/* exit(): what is left of the ticks goes back to the task that forked it. */
void BPF_STRUCT_OPS(elsc_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	task_t *t = task_of(p), *parent;

	if (!t)
		return;
	queue24_forget(&rq.runqueue_lock, &elsc_table, &t->old);
	parent = task_parent(&t->old.parent);
	/* Its place is corrected where it got them. */
	if (linux24_collect(&t->old, (linux24_task_t *)parent))
		lab_unaudited(queue24_refile(&rq.runqueue_lock, &elsc_table, &parent->old, true));
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(elsc_init)
{
	int error = queue24_init(&rq.runqueue_lock, threshold);
	s32 i;

	if (error)
		return error;
	rq.top = ELSC_NONE;
	rq.next_top = ELSC_NONE;
	bpf_for(i, 0, ELSC_LISTS)
		lab_list_init(elsc_at(i));
	return 0;
}

void BPF_STRUCT_OPS(elsc_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(elsc_ops,
	       .init_task		= (void *)elsc_init_task,
	       .select_cpu		= (void *)elsc_select_cpu,
	       .enqueue			= (void *)elsc_enqueue,
	       .dequeue			= (void *)elsc_dequeue,
	       .dispatch		= (void *)elsc_dispatch,
	       .running			= (void *)elsc_running,
	       .tick			= (void *)elsc_tick,
	       .yield			= (void *)elsc_yield,
	       .set_weight		= (void *)elsc_set_weight,
	       .set_cpumask		= (void *)elsc_set_cpumask,
	       .cpu_release		= (void *)elsc_cpu_release,
	       .stopping		= (void *)elsc_stopping,
	       .quiescent		= (void *)elsc_quiescent,
	       .disable			= (void *)elsc_disable,
	       .exit_task		= (void *)elsc_exit_task,
	       .init			= (void *)elsc_init,
	       .exit			= (void *)elsc_exit,
	       .name			= "elsc");
