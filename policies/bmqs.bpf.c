/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Balanced multi-queue scheduler, first version, for Linux 2.4.13.
 *
 * Idea: a run queue, a lock and a list of all its tasks for each CPU. A choice
 * looks at the own queue only and, when everybody's ticks are used up,
 * recalculates the own tasks only. What a task is worth on its CPU for having
 * run there is not a constant: the longer it ran the more, and less with each
 * tick since. Forks go to the shortest queue. A CPU that becomes idle asks the
 * longest queue for a task by marking it; that queue's CPU hands it over when
 * it would run it next.
 *
 * Good for: many CPUs, as no two of them need one lock at the same time; caches
 * that need time to fill.
 *
 * Bad for: wakeups while another CPU is idle: the task waits for its own.
 *
 * Source: D. Libenzi, xsched, patch and description for Linux 2.4.13, 29
 * October 2001; docs/schedulers/bmqs.md restates the rules.
 *
 * Simplifications: besides what dss says about sched_ext, ticks and exits
 * - Version 1. Of the version of December 2001 nothing is here.
 * - A tick of the history is 10 ms since the policy was loaded.
 * - A CPU balances when it becomes idle. There is no idle loop that could do so
 *   again: every 10 ms as many idle CPUs are woken as tasks wait behind others.
 *   One that has asked and got nothing yet does not ask the same queue again.
 * - If the queue of the CPU that a task is to be handed to is locked, the task
 *   runs once more where it is.
 * - A task that may no longer run on its CPU is placed as a new one. Its history
 *   goes with it, as with one that is handed over: the source has no rule.
 */
#include <lab/lab.bpf.h>
#include <lab/linux24.h>
#include <lab/idle.h>
#include <lab/periodic.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

/* Goodness by which a woken task must exceed the running one (0 to 1073741824). */
const volatile u32 threshold = 0;

/* The unit that uses up a tick of the counter: 10 ms of running time, or a timer tick. */
const volatile enum linux24_charge charge = CHARGE_RUNTIME;

/* No CPU wants the task. */
#define BMQS_NOBODY	(-1)

struct bmqs_task {
	union {
		struct lab_task lab;
		struct linux24_task old;
	};
	struct lab_node member;	/* in the list of all tasks of its CPU */
	s64 horizon;		/* tick at which its history is worth nothing */
	u64 in_ns;		/* when it was switched in */
	s32 home;		/* CPU it belongs to */
	s32 wanted;		/* CPU that asks for it, or BMQS_NOBODY; under the lock of home */
	bool is_member;
	bool pad[7];
};

LAB_TASKS(struct bmqs_task);

struct bmqs_queue {
	struct lab_lock lock;
	struct lab_list list;		/* runnable tasks, the running one included */
	struct lab_list members;	/* all tasks that belong to the CPU */
} __attribute__((aligned(LAB_CACHELINE)));

typedef struct bmqs_queue __arena queue_t;

/* Data that the parts of a choice exchange; its CPU's, under the lock of its queue. */
struct bmqs_choice {
	task_t *best;
	s32 value;
} __attribute__((aligned(LAB_CACHELINE)));

typedef struct bmqs_choice __arena choice_t;

struct bmqs_queue __arena_global queues[LAB_MAX_CPUS];
struct linux24_cpu __arena_global cpus[LAB_MAX_CPUS];
struct bmqs_choice __arena_global choices[LAB_MAX_CPUS];

static __always_inline queue_t *queue_at(s32 cpu)
{
	return &queues[cpu & (LAB_MAX_CPUS - 1)];
}

static __always_inline choice_t *choice_at(s32 cpu)
{
	return &choices[cpu & (LAB_MAX_CPUS - 1)];
}

/*
 * The rules. Ticks last as long as LINUX24_HZ says.
 */

/* The horizon of a task that ran from one tick to another. */
static __always_inline s64 bmqs_horizon(s64 horizon, s64 in, s64 out)
{
	s64 residual = horizon > in ? (horizon - in) / 2 : 0;

	return residual + (out - in) + out;
}

/* The bonus at a tick for having run here. */
static __always_inline s32 bmqs_weight(s64 horizon, s64 tick)
{
	return horizon > tick ? horizon - tick : 0;
}

static __always_inline s32 bmqs_goodness(task_t *t, u64 mm, s64 tick)
{
	s32 value;

	if (lab_glance(t->old.yielded))
		return -1;
	value = linux24_na_goodness(&t->old);
	if (!value || lab_realtime(lab_glance(t->old.policy)))
		return value;
	return value + bmqs_weight(lab_glance(t->horizon), tick) + linux24_mm_bonus(&t->old, mm);
}

/*
 * Queues. The lock of the task's CPU is held.
 */

static __always_inline void bmqs_link(task_t *t)
{
	queue_t *q = queue_at(t->home);

	if (!t->old.linked) {
		lab_touch(&q->list.head, true);
		lab_list_add_head(&q->list, &t->lab.node);
		t->old.linked = true;
	}
	lab_post(t->old.takeable, true);
}

static __always_inline void bmqs_unlink(task_t *t)
{
	/* alter() pays for what is known of it, if there is anything to do. */
	queue_t *q = queue_at(lab_unaudited(t->home));

	if (lab_unaudited(t->old.linked)) {
		alter(t);
		lab_touch(&q->list.head, true);
		lab_list_del(&q->list, &t->lab.node);
		t->old.linked = false;
	}
	lab_unaudited_set(t->old.leaving, false);
	lab_unaudited(lab_post(t->old.takeable, false));
	lab_unaudited_set(t->wanted, BMQS_NOBODY);
}

/* The task belongs to a CPU from now on. */
static __always_inline void bmqs_join(task_t *t, s32 cpu)
{
	queue_t *q = queue_at(cpu);

	t->home = cpu;
	lab_post(t->lab.cpu, cpu);
	t->wanted = BMQS_NOBODY;
	lab_touch(&q->members.head, true);
	lab_list_add_head(&q->members, &t->member);
	t->is_member = true;
}

/* The task belongs to no CPU. */
static __always_inline void bmqs_part(task_t *t)
{
	queue_t *q = queue_at(t->home);

	bmqs_unlink(t);
	if (t->is_member) {
		lab_touch(&q->members.head, true);
		lab_list_del(&q->members, &t->member);
		t->is_member = false;
	}
}

/*
 * Takes the lock of the CPU that a task belongs to, which may change until one
 * has it. Unlike lab_lock_home() it pays for no round of a loop before the first try.
 */
static __always_inline lab_lock_t *bmqs_lock_home(task_t *t)
{
	lab_lock_t *lock;
	s32 home;

	do {
		home = lab_read(t->home);
		lock = &queue_at(home)->lock;
		if (!lab_lock(lock))
			return NULL;
		if (lab_glance(t->home) == home)
			return lock;
		lab_unlock(lock);
	} while (can_loop);
	scx_bpf_error("a task changed its CPU again and again");
	return NULL;
}

/* The task leaves its CPU's lists: the run queue's, or also the list of all its tasks. No lock is held. */
LAB_PART int bmqs_leave(task_t *t __arg_arena, bool part)
{
	unsigned long flags;
	lab_lock_t *lock;

	lab_use_arena();
	lab_irq_save(flags);
	lock = bmqs_lock_home(t);
	if (lock) {
		if (part)
			bmqs_part(t);
		else
			bmqs_unlink(t);
		lab_unlock(lock);
	}
	lab_irq_restore(flags);
	return 0;
}

/* A blocked task leaves its queue once. */
static __always_inline void bmqs_unlink_leaving(cpu_t *c, s32 cpu)
{
	task_t *t = (task_t *)c->leaving;

	c->leaving = NULL;
	/* In the original it takes itself out: only what unlinking writes is charged. */
	if (t && lab_unaudited(t->old.leaving && t->home == cpu))
		bmqs_unlink(t);
}

/*
 * Where a new task goes: the CPU with the fewest runnable tasks, then that with the
 * fewest tasks, then one of this core: so numbers of CPUs do not decide.
 */
LAB_PART int bmqs_shortest(task_t *t __arg_arena, s32 this_cpu)
{
	u64 nr, members, least = ~0ull, least_members = ~0ull;
	s32 cpu, best = this_cpu;
	queue_t *q;
	u32 at;

	lab_use_arena();
	for (at = 0; at < lab_nr_online && can_loop; at++) {
		cpu = lab_cpu_spread(at);
		if (!lab_allowed(&t->lab, cpu))
			continue;
		q = queue_at(cpu);
		lab_touch(&q->list.nr, false);
		nr = lab_read(q->list.nr) + lab_cpu_taken(cpu);
		members = lab_read(q->members.nr);
		if (nr < least || (nr == least && members < least_members) ||
		    (nr == least && members == least_members && lab_same_core(cpu, this_cpu))) {
			least = nr;
			least_members = members;
			best = cpu;
		}
	}
	return best;
}

/* The task belongs to a CPU it may run on. No lock is held. */
LAB_PART int bmqs_settle(task_t *t __arg_arena, s32 cpu)
{
	unsigned long flags;

	lab_use_arena();
	if (t->is_member)
		bmqs_leave(t, true);
	if (!lab_lock_irqsave(&queue_at(cpu)->lock, flags))
		return 0;
	bmqs_join(t, cpu);
	lab_unlock_irqrestore(&queue_at(cpu)->lock, flags);
	return 0;
}

/*
 * The choice. The lock of the CPU is held.
 */

/* The best of the own queue, the previous task first if it may go on. False: the budget ran out. */
LAB_PART int bmqs_choose(s32 cpu, task_t *prev __arg_arena, s64 tick)
{
	choice_t *choice = choice_at(cpu);
	queue_t *q = queue_at(cpu);
	lab_node_t *pos;
	s32 value;
	task_t *t;
	u64 mm;

	lab_use_arena();
	mm = lab_glance(cpu_at(cpu)->mm);
	choice->best = NULL;
	choice->value = LINUX24_IDLE_GOODNESS;
	if (prev) {
		examine(prev);
		choice->best = prev;
		choice->value = bmqs_goodness(prev, mm, tick);
	}
	lab_touch(&q->list.head, false);
	lab_list_for_each(pos, &q->list) {
		t = lab_entry(pos, struct bmqs_task, lab.node);
		if (t == prev)
			continue;
		examine(t);
		if (!lab_glance(t->old.takeable) || !lab_allowed(&t->lab, cpu))
			continue;
		value = bmqs_goodness(t, mm, tick);
		if (value > choice->value) {
			choice->best = t;
			choice->value = value;
		}
	}
	return lab_list_ended(pos, &q->list);
}

/* The counters of all tasks that belong to the CPU. False: the policy has ended. */
LAB_PART int bmqs_recalculate(s32 cpu)
{
	queue_t *q = queue_at(cpu);
	lab_node_t *pos;
	task_t *t;

	lab_use_arena();
	lab_count(LAB_RECALCULATIONS, 1);
	lab_list_for_each(pos, &q->members) {
		t = lab_entry(pos, struct bmqs_task, member);
		lab_recalculated(t);
		lab_post(t->old.counter, linux24_recalculated(lab_glance(t->old.counter),
							      lab_glance(t->old.nice),
							      BASE_LINUX_2_4));
	}
	if (lab_list_ended(pos, &q->members))
		return true;
	scx_bpf_error("recalculation: the loop budget ran out");
	return false;
}

/* The task goes to the CPU that asks for it. False: that CPU's queue is locked. */
LAB_PART int bmqs_hand_over(task_t *t __arg_arena, s64 tick)
{
	s32 to = t->wanted;
	cpu_t *c = cpu_at(to);
	queue_t *q = queue_at(to);
	task_t *curr;
	u64 mm;

	lab_use_arena();
	if (!lab_trylock(&q->lock))
		return false;
	bmqs_part(t);
	bmqs_join(t, to);
	alter(t);
	bmqs_link(t);
	curr = (task_t *)lab_glance(c->curr);
	mm = lab_glance(c->mm);
	if (curr)
		consult(curr);
	if (!curr)
		linux24_mark(to, true);
	else if (bmqs_goodness(t, mm, tick) - bmqs_goodness(curr, mm, tick) > (s32)threshold)
		linux24_mark(to, false);
	lab_unlock(&q->lock);
	return true;
}

/*
 * An idle CPU asks the longest queue for its first task that may come and that
 * no other CPU wants; @again: it was idle before. No lock is held.
 */
LAB_PART int bmqs_balance(s32 cpu, bool again)
{
	u64 nr, most = lab_read(queue_at(cpu)->list.nr) + 1;
	unsigned long flags;
	s32 other, longest = -1;
	lab_node_t *pos;
	queue_t *q;
	task_t *t;
	u32 at;

	lab_use_arena();
	/* Of equals the first one counts: in an order that numbers of CPUs do not decide. */
	for (at = 0; at < lab_nr_online && can_loop; at++) {
		other = lab_cpu_spread(at);
		q = queue_at(other);
		lab_touch(&q->list.nr, false);
		nr = lab_read(q->list.nr);
		if (nr > most) {
			most = nr;
			longest = other;
		}
	}
	if (longest < 0)
		return 0;
	q = queue_at(longest);
	if (!lab_lock_irqsave(&q->lock, flags))
		return 0;
	lab_list_for_each(pos, &q->list) {
		t = lab_entry(pos, struct bmqs_task, lab.node);
		consult(t);
		if (again && t->wanted == cpu)
			break;
		if (lab_glance(t->old.takeable) && t->wanted == BMQS_NOBODY && lab_allowed(&t->lab, cpu)) {
			t->wanted = cpu;
			break;
		}
	}
	lab_unlock_irqrestore(&q->lock, flags);
	return 0;
}

static __always_inline u64 bmqs_nr_of(s32 cpu)
{
	return lab_read(queue_at(cpu)->list.nr);
}

static __always_inline bool bmqs_idle_cpu(s32 cpu)
{
	return cpu_at(cpu)->online && linux24_free(cpu, lab_read(cpu_at(cpu)->curr));
}

/* In place of the loop of idle CPUs: they choose again, find nothing and balance. */
static __always_inline void bmqs_wake_idle(void)
{
	lab_wake_idle(bmqs_nr_of, bmqs_idle_cpu);
}

LAB_PERIODIC(bmqs_idle, bmqs_wake_idle, LINUX24_TICK_NS);

/*
 * CPUs that a higher class has taken, see <lab/higher.h>.
 */

static __always_inline bool bmqs_idle_for_rescue(s32 cpu)
{
	return bmqs_idle_cpu(cpu) && !bmqs_nr_of(cpu);
}

/* The first task of a queue that may go to another is handed over. */
LAB_PART int bmqs_rescue(s32 from, s32 to)
{
	queue_t *q = queue_at(from);
	unsigned long flags;
	bool moved = false;
	lab_node_t *pos;
	task_t *t;

	lab_use_arena();
	if (!lab_lock_irqsave(&q->lock, flags))
		return false;
	lab_list_for_each(pos, &q->list) {
		t = lab_entry(pos, struct bmqs_task, lab.node);
		consult(t);
		if (!lab_glance(t->old.takeable) || !lab_allowed(&t->lab, to))
			continue;
		t->wanted = to;
		moved = bmqs_hand_over(t, scx_bpf_now() / LINUX24_TICK_NS);
		break;
	}
	lab_unlock_irqrestore(&q->lock, flags);
	return moved;
}

LAB_RESCUE(bmqs_nr_of, bmqs_idle_for_rescue, bmqs_rescue);

/*
 * Ops, in the order of a task's life.
 */

/* fork(): parent and child share the parent's remaining ticks; the child goes to the shortest queue. */
s32 BPF_STRUCT_OPS_SLEEPABLE(bmqs_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct task_struct *forker = bpf_get_current_task_btf();
	task_t *t = task_new(p);
	s32 cpu;

	if (!t)
		return -ENOMEM;
	lab_note_higher(p);
	linux24_fork(&t->old, p, args, forker, BASE_LINUX_2_4);
	cpu = args->fork ? bmqs_shortest(t, t->lab.cpu) : t->lab.cpu;
	bmqs_settle(t, cpu);
	return 0;
}

/* Only the previous CPU: where a task goes is settled under a lock, in enqueue. */
s32 BPF_STRUCT_OPS(bmqs_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	task_t *t = task_of(p);

	if (t)
		linux24_woken(&t->old, wake_flags);
	return prev_cpu;
}

void BPF_STRUCT_OPS(bmqs_enqueue, struct task_struct *p, u64 enq_flags)
{
	s64 tick = scx_bpf_now() / LINUX24_TICK_NS;
	s32 this_cpu = bpf_get_smp_processor_id();
	task_t *t = task_of(p), *curr;
	bool quiet, moved;
	unsigned long flags;
	lab_lock_t *lock;
	cpu_t *c;
	u64 mm;

	if (!t) {
		lab_no_context(p);
		return;
	}
	moved = t->old.policy != p->policy;
	linux24_refresh(&t->old, p);
	/* A displaced task is not placed, nor one whose waker is about to sleep. */
	quiet = t->old.sync || t->old.on_cpu;
	t->old.sync = false;
	if (!lab_allowed(&t->lab, lab_glance(t->home)))
		bmqs_settle(t, bmqs_shortest(t, this_cpu));
	lab_irq_save(flags);
	lock = bmqs_lock_home(t);
	if (!lock) {
		lab_irq_restore(flags);
		return;
	}
	alter(t);
	if (enq_flags & SCX_ENQ_REENQ)
		linux24_not_current(&t->old);
	t->old.yielded = false;
	t->old.on_cpu = false;
	if (t->old.leaving || (t->old.linked && moved))
		bmqs_unlink(t);
	bmqs_link(t);
	c = cpu_at(t->home);
	lab_touch(&c->curr, false);
	curr = (task_t *)lab_glance(c->curr);
	mm = lab_glance(c->mm);
	if (!curr) {
		linux24_mark(t->home, true);
	} else if (!quiet && curr != t) {
		consult(curr);
		if (bmqs_goodness(t, mm, tick) - bmqs_goodness(curr, mm, tick) > (s32)threshold)
			linux24_mark(t->home, false);
	}
	lab_unlock_irqrestore(lock, flags);
}

/*
 * A waiting task is taken away: an attribute of it changes. It keeps its place
 * in the list and cannot be chosen until it is enqueued again.
 */
void BPF_STRUCT_OPS(bmqs_dequeue, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);
	unsigned long flags;
	lab_lock_t *lock;

	/* Tasks that dispatch has chosen come here too; they are no longer takeable. */
	if (!t || !lab_read(t->old.takeable))
		return;
	lab_irq_save(flags);
	lock = bmqs_lock_home(t);
	if (lock) {
		lab_post(t->old.takeable, false);
		if (deq_flags & SCX_DEQ_SLEEP)
			bmqs_unlink(t);
		lab_unlock(lock);
	}
	lab_irq_restore(flags);
}

/* schedule() */
void BPF_STRUCT_OPS(bmqs_dispatch, s32 cpu, struct task_struct *prev_p)
{
	choice_t *choice = choice_at(cpu);
	cpu_t *c = cpu_at(cpu);
	queue_t *q = queue_at(cpu);
	u64 now = scx_bpf_now();
	task_t *prev = NULL, *best = NULL;
	s64 tick = now / LINUX24_TICK_NS;
	struct task_struct *p;
	bool decided = false, idle;
	unsigned long flags;

	lab_use_arena();
	if (!linux24_previous(c, prev_p, (linux24_task_t **)&prev))
		return;
	if (prev) {
		if (charge == CHARGE_RUNTIME)
			linux24_charge(&prev->old, now);
	}
	if (!lab_lock_irqsave(&q->lock, flags))
		return;
	lab_touch(&c->curr, true);
	lab_count(LAB_SCHEDULES, 1);
	lab_post(c->marked, false);
	if (prev && prev->old.policy == LAB_SCHED_RR && !lab_glance(prev->old.counter)) {
		lab_post(prev->old.counter, linux24_quantum(prev->old.nice, LINUX24_HZ));
		if (prev->old.linked) {
			lab_list_del(&q->list, &prev->lab.node);
			lab_list_add_tail(&q->list, &prev->lab.node);
		}
	}
	bmqs_unlink_leaving(c, cpu);

	do {
		if (!bmqs_choose(cpu, prev, tick))
			break;
		best = choice->best;
		if (best && !choice->value) {
			if (!bmqs_recalculate(cpu)) {
				lab_unlock_irqrestore(&q->lock, flags);
				return;
			}
			continue;
		}
		if (!best || best == prev) {
			decided = true;
			break;
		}
		/* Another CPU has asked for it: it runs there, another one here. */
		if (best->wanted != BMQS_NOBODY && lab_allowed(&best->lab, best->wanted) &&
		    bmqs_hand_over(best, tick))
			continue;
		p = lab_task_claim(&best->lab, cpu);
		if (!p)
			continue;
		if (best->lab.cpu != cpu)
			lab_count(LAB_PICKED_ELSEWHERE, 1);
		alter(best);
		best->wanted = BMQS_NOBODY;
		linux24_dispatch(c, cpu, &best->old, p, now);
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
		lab_unlock_irqrestore(&q->lock, flags);
		if (prev_p)
			scx_bpf_task_set_slice(prev_p, LAB_LONG_SLICE_NS);
		return;
	}
	idle = !c->curr;
	if (!idle)
		lab_post(c->last_schedule_ns, now);
	lab_write(c->curr, NULL);
	lab_unlock_irqrestore(&q->lock, flags);
	bmqs_balance(cpu, idle);
}

void BPF_STRUCT_OPS(bmqs_running, struct task_struct *p)
{
	cpu_t *c = cpu_at(bpf_get_smp_processor_id());
	task_t *t = task_of(p);

	if (!t)
		return;
	/* It came by the local queue; it may still be linked where it blocked. */
	if (lab_glance(c->curr) != &t->old && lab_glance(t->old.linked))
		bmqs_leave(t, false);
	linux24_running(&t->old, p);
	t->in_ns = t->old.started_ns;
}

void BPF_STRUCT_OPS(bmqs_tick, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (t)
		linux24_tick(&t->old, p, charge);
}

/* sched_yield(): only if another task waits on this CPU. */
bool BPF_STRUCT_OPS(bmqs_yield, struct task_struct *from, struct task_struct *to)
{
	s32 cpu = bpf_get_smp_processor_id();
	task_t *t = task_of(from);

	if (!t || to)
		return false;
	if (lab_read(queue_at(cpu)->list.nr) <= (lab_glance(t->old.linked) ? 1 : 0))
		return false;
	if (!lab_realtime(t->old.policy))
		t->old.yielded = true;
	lab_write(cpu_at(cpu)->marked, true);
	scx_bpf_task_set_slice(from, 0);
	return true;
}

/* Nice levels change without any queueing. */
void BPF_STRUCT_OPS(bmqs_set_weight, struct task_struct *p, u32 weight)
{
	task_t *t = task_of(p);

	if (t)
		lab_post(t->old.nice, p->static_prio - 120);
}

void BPF_STRUCT_OPS(bmqs_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	task_t *t = task_of(p);

	if (t)
		lab_task_refresh(&t->lab, p);
}

void BPF_STRUCT_OPS(bmqs_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	lab_cpu_release();
}

void BPF_STRUCT_OPS(bmqs_stopping, struct task_struct *p, bool runnable)
{
	u64 now = scx_bpf_now();
	task_t *t = task_of(p);

	if (!t)
		return;
	if (charge == CHARGE_RUNTIME)
		linux24_charge(&t->old, now);
	t->horizon = bmqs_horizon(t->horizon, t->in_ns / LINUX24_TICK_NS, now / LINUX24_TICK_NS);
}

void BPF_STRUCT_OPS(bmqs_quiescent, struct task_struct *p, u64 deq_flags)
{
	s32 cpu = bpf_get_smp_processor_id();
	queue_t *q = queue_at(cpu);
	cpu_t *c = cpu_at(cpu);
	task_t *t = task_of(p);
	unsigned long flags;

	if (!t || !linux24_blocks(&t->old, deq_flags))
		return;
	if (c->leaving) {
		/* This CPU has run a task from its local queue since. */
		if (!lab_lock_irqsave(&q->lock, flags))
			return;
		bmqs_unlink_leaving(c, cpu);
		lab_unlock_irqrestore(&q->lock, flags);
	}
	linux24_leaves(c, &t->old);
}

/* It leaves for a scheduling class that is not ours. */
void BPF_STRUCT_OPS(bmqs_disable, struct task_struct *p)
{
	task_t *t = task_of(p);

	lab_note_higher(p);
	if (!t)
		return;
	t->old.on_cpu = false;
	if (lab_glance(t->old.linked))
		bmqs_leave(t, false);
}

/* exit(): what is left of the ticks goes back to the task that forked it. */
void BPF_STRUCT_OPS(bmqs_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	t->old.on_cpu = false;
	if (t->is_member)
		bmqs_leave(t, true);
	linux24_collect(&t->old, (linux24_task_t *)task_parent(&t->old.parent));
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(bmqs_init)
{
	int error;
	s32 cpu;

	if (!lab_at_most(threshold, LAB_THRESHOLD_MAX))
		return -EINVAL;
	error = lab_init();
	if (error)
		return error;
	linux24_init_cpus();
	for (cpu = 0; cpu < lab_nr_cpus && can_loop; cpu++) {
		lab_lock_init(&queue_at(cpu)->lock, LAB_LOCK_CLASS_RUN_QUEUE);
		lab_list_init(&queue_at(cpu)->list);
		lab_list_init(&queue_at(cpu)->members);
	}
	return bmqs_idle_start();
}

void BPF_STRUCT_OPS(bmqs_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(bmqs_ops,
	       .init_task		= (void *)bmqs_init_task,
	       .select_cpu		= (void *)bmqs_select_cpu,
	       .enqueue			= (void *)bmqs_enqueue,
	       .dequeue			= (void *)bmqs_dequeue,
	       .dispatch		= (void *)bmqs_dispatch,
	       .running			= (void *)bmqs_running,
	       .tick			= (void *)bmqs_tick,
	       .yield			= (void *)bmqs_yield,
	       .set_weight		= (void *)bmqs_set_weight,
	       .set_cpumask		= (void *)bmqs_set_cpumask,
	       .cpu_release		= (void *)bmqs_cpu_release,
	       .stopping		= (void *)bmqs_stopping,
	       .quiescent		= (void *)bmqs_quiescent,
	       .disable			= (void *)bmqs_disable,
	       .exit_task		= (void *)bmqs_exit_task,
	       .init			= (void *)bmqs_init,
	       .exit			= (void *)bmqs_exit,
	       .name			= "bmqs");
