/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * BFS, the scheduler of C. Kolivas: one queue, earliest virtual deadline first.
 *
 * Idea: a task gets the same slice as every other, and with it a deadline that is
 * the farther away the less important its nice level is. Slice and deadline stay
 * as they are while it sleeps, so a task that sleeps much has an early deadline
 * when it wakes and runs at once, without any estimate of how interactive it is.
 * All CPUs share one queue, so none is idle or runs a later deadline while an
 * earlier one waits.
 *
 * Good for: desktops with few CPUs; low latency under load; no balancing at all.
 *
 * Bad for: many tasks (the search looks at all that wait) and many CPUs (one lock).
 *
 * Source: C. Kolivas, the design document and patches of BFS, 2009 to 2016, as
 * described in sched-BFS.txt; docs/schedulers/bfs.md restates the rules.
 *
 * Simplifications:
 * - Soft real-time tasks (SCHED_ISO) are scheduled as the design says, but no
 *   kernel lets a task ask for that. Real-time tasks never get here either.
 * - Idle-priority tasks are not raised while they hold resources of the kernel,
 *   which cannot be seen: they are normal tasks with deadlines a second later.
 * - Of the ways in which versions kept tasks near their caches there is the one of
 *   the design document: a deadline counts as farther away, twice where no cache is
 *   shared, four times on another node.
 * - The slice does not grow with the number of CPUs; set `rr_interval`.
 */
#include <lab/lab.bpf.h>
#include <lab/deadline.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

/* Slice of every task and the unit of deadlines, in ms (1 to 1000). */
const volatile u32 rr_interval = 6;

/* Percentage of all CPU time that soft real-time tasks may have, over five seconds (0 to 100). */
const volatile u32 iso_cpu = 70;

LAB_TASKS(struct dl_task);

struct bfs_queue {
	struct lab_lock lock;
	struct lab_prio_array array;	/* a list per level, of tasks that wait */
	struct lab_list lists[DL_LEVELS];
} __attribute__((aligned(LAB_CACHELINE)));

struct bfs_queue __arena_global grq;

/* Tasks that wait in the queue that a CPU looks into first. */
static __always_inline u64 bfs_nr_waiting(s32 cpu)
{
	return lab_read(grq.array.nr);
}

LAB_RESCUE(bfs_nr_waiting, dl_cpu_idle, dl_rescue);

/*
 * The queue. Its lock is held.
 */

static __always_inline void bfs_link(task_t *t)
{
	alter(t);
	lab_prio_add_tail(&grq.array, t->level, &t->lab.node);
	t->queued = true;
}

static __always_inline void bfs_unlink(task_t *t)
{
	alter(t);
	lab_prio_del(&grq.array, t->level, &t->lab.node);
	t->queued = false;
}

/* A task leaves the queue if it waits. */
static __noinline int bfs_remove(task_t *t)
{
	unsigned long flags;

	lab_use_arena();
	if (!lab_read(t->queued) || !lab_lock_irqsave(&grq.lock, flags))
		return 0;
	if (t->queued)
		bfs_unlink(t);
	lab_unlock_irqrestore(&grq.lock, flags);
	return 0;
}

/* A deadline as a CPU sees it: farther away if the task's cache is. */
static __always_inline u64 bfs_seen(u64 deadline, u64 now, enum lab_level distance)
{
	u32 shift = distance == LAB_LEVEL_MACHINE ? 2 : distance == LAB_LEVEL_NODE ? 1 : 0;

	return now + ((deadline - now) << shift);
}

/* Of a level's list the task to run: the first, or that with the earliest deadline. */
static __noinline task_t *bfs_best(u32 level, s32 cpu, u64 now)
{
	u64 seen, earliest = 0;
	task_t *best = NULL, *t;
	lab_node_t *pos;
	lab_list_t *list;

	lab_use_arena();
	list = lab_prio_list(&grq.array, level);
	lab_list_for_each(pos, list) {
		t = lab_entry(pos, struct dl_task, lab.node);
		examine(t);
		if (!lab_allowed(&t->lab, cpu))
			continue;
		/* No deadlines there; and one that has passed cannot wait for the end of the search. */
		if (level < DL_LEVEL_NORMAL || dl_before(dl_due(t), now))
			return t;
		seen = bfs_seen(dl_due(t), now, lab_distance(t->lab.cpu, cpu));
		if (!best || dl_before(seen, earliest)) {
			best = t;
			earliest = seen;
		}
	}
	return best;
}

/* Returns the next task of a CPU: one that waits, or @prev, if it is still runnable, or NULL. */
static __always_inline task_t *bfs_choose(s32 cpu, task_t *prev, u64 now)
{
	task_t *t = NULL;
	s32 level;

	for (level = lab_prio_first(&grq.array); level >= 0 && can_loop;
	     level = lab_prio_next(&grq.array, level + 1)) {
		if (prev && level > prev->level)
			break;
		t = bfs_best(level, cpu, now);
		if (t)
			break;
	}
	if (!prev)
		return t;
	examine(prev);
	if (!t)
		return prev;
	if (t->level != prev->level)
		return t;
	/* It would stand at the end of the list. */
	if (prev->level < DL_LEVEL_NORMAL)
		return dl_used_up(prev) ? t : prev;
	if (dl_before(dl_due(t), now) && !dl_before(dl_due(prev), dl_due(t)))
		return t;
	return dl_before(dl_due(prev),
			 bfs_seen(dl_due(t), now, lab_distance(t->lab.cpu, cpu))) ? prev : t;
}

/*
 * Ops, in the order of a task's life.
 */

s32 BPF_STRUCT_OPS_SLEEPABLE(bfs_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	task_t *t = task_new(p);

	if (!t)
		return -ENOMEM;
	lab_note_higher(p);
	dl_init_task(t, p, dl_forker(args), rr_interval);
	return 0;
}

s32 BPF_STRUCT_OPS(bfs_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	/* The first CPU to look takes it: enqueue kicks one. */
	return prev_cpu;
}

void BPF_STRUCT_OPS(bfs_enqueue, struct task_struct *p, u64 enq_flags)
{
	task_t *t = task_of(p);
	unsigned long flags;
	bool woken;

	if (!t) {
		lab_no_context(p);
		return;
	}
	bfs_remove(t);
	/* It was chosen, but the choice came to nothing. */
	dl_forget(t);
	if (!lab_lock_irqsave(&grq.lock, flags))
		return;
	woken = t->asleep;
	dl_refresh(t, p);
	if (woken)
		dl_wake(t);
	bfs_link(t);
	dl_tell(t, woken);
	lab_unlock_irqrestore(&grq.lock, flags);
}

/* A waiting task is taken away, or an attribute of it changes; then it is enqueued again. */
void BPF_STRUCT_OPS(bfs_dequeue, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	/* Tasks that dispatch has chosen come here too; they are no longer in the queue. */
	if (t)
		bfs_remove(t);
}

/* schedule() */
void BPF_STRUCT_OPS(bfs_dispatch, s32 cpu, struct task_struct *prev_p)
{
	task_t *prev = NULL, *t = NULL;
	dl_cpu_t *c = dl_cpu_at(cpu);
	u64 now = scx_bpf_now();
	struct task_struct *p;
	unsigned long flags;

	lab_use_arena();
	if (prev_p && (prev_p->scx.flags & SCX_TASK_QUEUED))
		prev = task_of(prev_p);
	if (!lab_lock_irqsave(&grq.lock, flags))
		return;
	lab_count(LAB_SCHEDULES, 1);
	if (prev) {
		dl_charge(prev, now, iso_cpu);
		prev->level = dl_level(prev->policy, prev->rt_priority, dl_iso_refused());
		if (prev->level >= DL_LEVEL_NORMAL && dl_used_up(prev))
			dl_renew(prev, now, rr_interval);
	}
	while (can_loop) {
		t = bfs_choose(cpu, prev, now);
		if (!t || t == prev)
			break;
		p = lab_task_claim(&t->lab, cpu);
		/* If not, whatever made it so enqueues it again. */
		bfs_unlink(t);
		if (!p)
			continue;
		if (t->lab.cpu != cpu)
			lab_count(LAB_PICKED_ELSEWHERE, 1);
		if (prev && dl_used_up(prev))
			dl_refill(prev, rr_interval);
		t->lab.cpu = cpu;
		t->started_ns = now;
		dl_show(c, t);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, LAB_LONG_SLICE_NS, 0);
		bpf_task_release(p);
		lab_unlock_irqrestore(&grq.lock, flags);
		return;
	}
	if (t != prev) {
		lab_unlock_irqrestore(&grq.lock, flags);
		scx_bpf_error("the loop budget ran out before a choice");
		return;
	}
	if (prev && dl_used_up(prev))
		dl_refill(prev, rr_interval);
	dl_show(c, prev);
	lab_unlock_irqrestore(&grq.lock, flags);
	if (prev && prev_p)
		scx_bpf_task_set_slice(prev_p, LAB_LONG_SLICE_NS);
}

void BPF_STRUCT_OPS(bfs_running, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	bfs_remove(t);
	dl_running(t);
}

void BPF_STRUCT_OPS(bfs_tick, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (t)
		dl_tick(t, p, iso_cpu);
}

bool BPF_STRUCT_OPS(bfs_yield, struct task_struct *from, struct task_struct *to)
{
	task_t *t = task_of(from);

	if (!t || to)
		return false;
	return dl_yield(t, from);
}

/* A nice level counts from the next deadline on. */
void BPF_STRUCT_OPS(bfs_set_weight, struct task_struct *p, u32 weight)
{
	task_t *t = task_of(p);

	if (t)
		t->nice = p->static_prio - 120;
}

void BPF_STRUCT_OPS(bfs_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	task_t *t = task_of(p);

	if (t)
		lab_task_refresh(&t->lab, p);
}

void BPF_STRUCT_OPS(bfs_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	lab_cpu_release();
}

void BPF_STRUCT_OPS(bfs_stopping, struct task_struct *p, bool runnable)
{
	task_t *t = task_of(p);
	unsigned long flags;

	if (!t)
		return;
	lab_irq_save(flags);
	dl_charge(t, scx_bpf_now(), iso_cpu);
	lab_irq_restore(flags);
}

void BPF_STRUCT_OPS(bfs_quiescent, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		dl_quiescent(t, deq_flags);
}

/* It leaves for a scheduling class that is not ours. */
void BPF_STRUCT_OPS(bfs_disable, struct task_struct *p)
{
	task_t *t = task_of(p);

	lab_note_higher(p);
	if (!t)
		return;
	bfs_remove(t);
	dl_forget(t);
}

void BPF_STRUCT_OPS(bfs_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	bfs_remove(t);
	dl_forget(t);
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(bfs_init)
{
	int error = lab_init();

	if (!error)
		error = dl_init(rr_interval, iso_cpu);
	if (error)
		return error;
	lab_lock_init(&grq.lock, LAB_LOCK_CLASS_RUN_QUEUE);
	return lab_prio_init(&grq.array, grq.lists, DL_LEVELS) ? 0 : -EINVAL;
}

void BPF_STRUCT_OPS(bfs_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(bfs_ops,
	       .init_task		= (void *)bfs_init_task,
	       .select_cpu		= (void *)bfs_select_cpu,
	       .enqueue			= (void *)bfs_enqueue,
	       .dequeue			= (void *)bfs_dequeue,
	       .dispatch		= (void *)bfs_dispatch,
	       .running			= (void *)bfs_running,
	       .tick			= (void *)bfs_tick,
	       .yield			= (void *)bfs_yield,
	       .set_weight		= (void *)bfs_set_weight,
	       .set_cpumask		= (void *)bfs_set_cpumask,
	       .cpu_release		= (void *)bfs_cpu_release,
	       .stopping		= (void *)bfs_stopping,
	       .quiescent		= (void *)bfs_quiescent,
	       .disable			= (void *)bfs_disable,
	       .exit_task		= (void *)bfs_exit_task,
	       .init			= (void *)bfs_init,
	       .exit			= (void *)bfs_exit,
	       .name			= "bfs");
