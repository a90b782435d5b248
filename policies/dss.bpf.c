/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The default SMP scheduler of Linux 2.4.
 *
 * Idea: one unordered list of all runnable tasks under one lock. Whoever calls
 * schedule() walks the whole list with the lock held and takes the task with
 * the greatest goodness: ticks left of its quantum, plus its nice level, plus a
 * bonus for having run on this CPU last and for sharing the address space.
 * When everybody's ticks are used up, the counters of all tasks in the system
 * are recalculated; sleepers keep half of what they had left.
 *
 * Good for: few runnable tasks and few CPUs; interactive tasks beside a batch
 * job; showing what one lock held over a linear scan costs.
 *
 * Bad for: many runnable tasks (each choice looks at all of them) and more
 * than about four CPUs (each choice waits for all others).
 *
 * Source: Linux 2.4.3; S. Molloy and P. Honeyman, Scalable Linux Scheduling,
 * 2001; H. Franke et al., PMQS: Scalable Linux Scheduling for High End Servers,
 * 2001; docs/schedulers/dss.md restates the rules.
 *
 * Simplifications: how schedule() maps to sched_ext.
 * - Its choice is ops.dispatch(), under the one lock, the previous task first.
 *   A blocked task leaves the list there too, as in 2.4: ops.quiescent() only
 *   notes it. Where the kernel runs something else without asking dispatch (a
 *   task in the local queue), it leaves the list at the next occasion.
 * - A task that was displaced is placed again in ops.enqueue(), which comes
 *   just before the context switch, not just after it.
 * - need_resched is a word per CPU. An IPI that arrives after its mark was
 *   honoured changes nothing, as in 2.4: dispatch keeps the running task
 *   without taking the lock.
 * - A 10 ms tick of the counter is 10 ms of running time, whatever HZ is.
 *   `charge=ticks` counts timer ticks instead, as 2.4 did; for HZ = 100.
 * - The remaining ticks of a task that has exited go to the task that created
 *   it, if that is still there; in 2.4 to the one that waits for it.
 * - In a real kernel real-time tasks never get here; single-CPU tasks
 *   (where there is more than one CPU) and migration-disabled ones go to their
 *   CPU's local queue, preempting by the same rule. probes count them.
 * - Recalculation does not take the task list's reader lock.
 * - A synchronous wakeup places the task nevertheless if the waker's CPU is
 *   not among its allowed ones (the rule of later 2.4 kernels).
 */
#include <lab/lab.bpf.h>
#include <lab/linux24.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

enum dss_ties { TIES_PREV, TIES_LIST };

/* Who wins among equals: the previous task, or the one nearer the head (2.4.16). */
const volatile enum dss_ties ties = TIES_PREV;

/* Goodness by which a woken task must exceed the running one: 1 up to 2.4.7, 0 in 2.4.13. */
const volatile u32 threshold = 1;

/* Which kernel's arithmetic: 2.4, or 2.3.99, which ELSC was written against. */
const volatile enum linux24_base base = BASE_LINUX_2_4;

/* What uses up a tick of the counter: 10 ms of running time, or a timer tick. */
const volatile enum linux24_charge charge = CHARGE_RUNTIME;

LAB_TASKS(struct linux24_task);

struct dss_queue {
	struct lab_lock runqueue_lock;
	struct lab_list list;		/* all runnable tasks, in no order */
} __attribute__((aligned(LAB_CACHELINE)));

struct dss_queue __arena_global rq;
struct linux24_cpu __arena_global cpus[LAB_MAX_CPUS];

/*
 * The rules of include/lab/linux24.h with this policy's options.
 */

static __always_inline s32 dss_goodness(task_t *t, s32 cpu, u64 mm)
{
	return linux24_goodness(t, cpu, mm, base);
}

static __always_inline void dss_charge(task_t *t, u64 now)
{
	if (charge == CHARGE_RUNTIME)
		linux24_charge(t, now);
}

/*
 * The run queue. The lock is held.
 */

static __always_inline void dss_unlink(task_t *t)
{
	if (t->linked) {
		alter(t);
		lab_touch(&rq.list.head, true);
		lab_list_del(&rq.list, &t->lab.node);
		t->linked = false;
	}
	t->leaving = false;
	t->takeable = false;
}

/* A blocked task leaves the list once; `from` may have forgotten who it was. */
static __always_inline void dss_unlink_leaving(cpu_t *from)
{
	task_t *t = from->leaving;

	from->leaving = NULL;
	if (t && t->leaving)
		dss_unlink(t);
}

/*
 * Recalculates the counters of all tasks of the system, runnable or not. The
 * lock is dropped meanwhile, as 2.4 did. False: the policy has ended.
 */
static __always_inline bool dss_recalculate(void)
{
	lab_unlock(&rq.runqueue_lock);
	if (!linux24_recalculate(sizeof(task_t), base))
		return false;
	return lab_lock(&rq.runqueue_lock);
}

/*
 * Ops, in the order of a task's life.
 */

/* Only the previous CPU: where a task goes is settled under the lock, in enqueue. */
s32 BPF_STRUCT_OPS(dss_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	task_t *t = task_of(p);

	if (t)
		t->sync = wake_flags & SCX_WAKE_SYNC;
	return prev_cpu;
}

/* A task that may run on one CPU only waits there, outside the list. */
static __always_inline void dss_enqueue_pinned(struct task_struct *p, task_t *t, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	cpu_t *c = cpu_at(cpu);
	task_t *curr = c->curr;
	unsigned long flags;

	if (t->linked) {
		if (!lab_lock_irqsave(&rq.runqueue_lock, flags))
			return;
		dss_unlink(t);
		lab_unlock_irqrestore(&rq.runqueue_lock, flags);
	}
	t->on_cpu = false;
	t->yielded = false;
	lab_count(LAB_PINNED_LOCAL, 1);
	if (curr && curr != t &&
	    dss_goodness(t, cpu, c->mm) - dss_goodness(curr, cpu, c->mm) > (s32)threshold)
		enq_flags |= SCX_ENQ_PREEMPT;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, LINUX24_SLICE_NS, enq_flags);
}

void BPF_STRUCT_OPS(dss_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 this_cpu = bpf_get_smp_processor_id();
	task_t *t = task_of(p);
	unsigned long flags;
	bool sync, moved;

	if (!t) {
		scx_bpf_error("%s[%d] has no context", p->comm, p->pid);
		return;
	}
	moved = t->policy != p->policy;
	linux24_refresh(t, p);
	sync = t->sync;
	t->sync = false;
	if (p->nr_cpus_allowed == 1 && lab_nr_cpus > 1) {
		dss_enqueue_pinned(p, t, enq_flags);
		return;
	}
	if (t->yielded && t->linked && t->on_cpu) {
		/* Left the CPU after a yield: waits where it is; nobody is disturbed. */
		alter(t);
		t->yielded = false;
		t->on_cpu = false;
		lab_write(t->takeable, true);
		return;
	}
	if (!lab_lock_irqsave(&rq.runqueue_lock, flags))
		return;
	alter(t);
	t->yielded = false;
	t->on_cpu = false;
	if (t->leaving || (t->linked && moved))
		dss_unlink(t);
	if (!t->linked) {
		lab_touch(&rq.list.head, true);
		lab_list_add_head(&rq.list, &t->lab.node);
		t->linked = true;
	}
	t->takeable = true;
	if (!sync || !lab_allowed(&t->lab, this_cpu))
		linux24_place(t, threshold, base);
	lab_unlock_irqrestore(&rq.runqueue_lock, flags);
}

/*
 * A waiting task is taken away: an attribute of it changes. It keeps its place
 * in the list and cannot be chosen until it is enqueued again.
 */
void BPF_STRUCT_OPS(dss_dequeue, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);
	unsigned long flags;

	/* Tasks that dispatch has chosen come here too; they are no longer takeable. */
	if (!t || !t->takeable)
		return;
	if (!lab_lock_irqsave(&rq.runqueue_lock, flags))
		return;
	t->takeable = false;
	if (deq_flags & SCX_DEQ_SLEEP)
		dss_unlink(t);
	lab_unlock_irqrestore(&rq.runqueue_lock, flags);
}

/* schedule() */
void BPF_STRUCT_OPS(dss_dispatch, s32 cpu, struct task_struct *prev_p)
{
	cpu_t *c = cpu_at(cpu);
	task_t *prev = NULL, *best, *t;
	bool runnable = false, decided = false, yielded = false;
	struct task_struct *p;
	u64 now = scx_bpf_now(), mm;
	s32 value, best_value;
	unsigned long flags;
	lab_node_t *pos;

	lab_use_arena();
	if (prev_p) {
		prev = task_of(prev_p);
		runnable = prev && prev->on_cpu;
	}
	if (runnable) {
		if (!lab_read(c->marked)) {
			/* An IPI that came too late. */
			scx_bpf_task_set_slice(prev_p, LINUX24_SLICE_NS);
			return;
		}
		dss_charge(prev, now);
	}
	if (!lab_lock_irqsave(&rq.runqueue_lock, flags))
		return;
	lab_touch(&c->curr, true);
	lab_count(LAB_SCHEDULES, 1);
	if (runnable && prev->policy == LINUX24_RR && !prev->counter) {
		prev->counter = linux24_recalculated(0, prev->nice, base);
		if (prev->linked) {
			lab_list_del(&rq.list, &prev->lab.node);
			lab_list_add_tail(&rq.list, &prev->lab.node);
		}
	}
	dss_unlink_leaving(c);
	c->marked = false;
	mm = c->mm;

	do {
		best = NULL;
		best_value = LINUX24_IDLE_GOODNESS;
		/* One that is not linked (see enqueue_pinned) has no other chance. */
		if (runnable && (ties == TIES_PREV || !prev->linked)) {
			examine(prev);
			best = prev;
			best_value = dss_goodness(prev, cpu, mm);
			if (base == BASE_2_3_99 && prev->yielded) {
				/* That counts once; after a recalculation it is like the others. */
				prev->yielded = false;
				yielded = true;
			}
		}
		lab_touch(&rq.list.head, false);
		lab_list_for_each(pos, &rq.list) {
			t = lab_entry(pos, struct linux24_task, lab.node);
			if (t == prev && (ties == TIES_PREV || !runnable))
				continue;
			examine(t);
			if (t != prev && (!t->takeable || !lab_allowed(&t->lab, cpu)))
				continue;
			value = dss_goodness(t, cpu, mm);
			if (value > best_value) {
				best = t;
				best_value = value;
			}
		}
		if (!lab_list_ended(pos, &rq.list))
			break;
		if (!best_value) {
			if (!dss_recalculate()) {
				lab_irq_restore(flags);
				return;
			}
			continue;
		}
		if (!best || best == prev) {
			decided = true;
			break;
		}

		p = lab_task_claim(&best->lab, cpu);
		if (!p)
			continue;
		if (best->lab.cpu != cpu)
			lab_count(LAB_PICKED_ELSEWHERE, 1);
		if (yielded)
			prev->yielded = true;
		alter(best);
		best->takeable = false;
		linux24_switch_to(c, cpu, best, now);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, LINUX24_SLICE_NS, 0);
		bpf_task_release(p);
		lab_unlock_irqrestore(&rq.runqueue_lock, flags);
		return;
	} while (can_loop);

	if (!decided) {
		lab_unlock_irqrestore(&rq.runqueue_lock, flags);
		scx_bpf_error("schedule: the loop budget ran out before a choice");
		return;
	}
	if (best) {
		/* The previous task goes on. */
		best->yielded = false;
		lab_unlock_irqrestore(&rq.runqueue_lock, flags);
		if (prev_p)
			scx_bpf_task_set_slice(prev_p, LINUX24_SLICE_NS);
		return;
	}
	if (c->curr)
		c->last_schedule_ns = now;
	c->curr = NULL;
	lab_unlock_irqrestore(&rq.runqueue_lock, flags);
}

void BPF_STRUCT_OPS(dss_running, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (t)
		linux24_running(t, p);
}

void BPF_STRUCT_OPS(dss_stopping, struct task_struct *p, bool runnable)
{
	task_t *t = task_of(p);

	if (t)
		dss_charge(t, scx_bpf_now());
}

void BPF_STRUCT_OPS(dss_quiescent, struct task_struct *p, u64 deq_flags)
{
	cpu_t *c = cpu_at(bpf_get_smp_processor_id());
	task_t *t = task_of(p);
	unsigned long flags;

	if (!t || !(deq_flags & SCX_DEQ_SLEEP))
		return;
	t->on_cpu = false;
	t->yielded = false;
	if (!t->linked)
		return;
	if (c->leaving) {
		/* This CPU has run a task from its local queue since. */
		if (!lab_lock_irqsave(&rq.runqueue_lock, flags))
			return;
		dss_unlink_leaving(c);
		lab_unlock_irqrestore(&rq.runqueue_lock, flags);
	}
	t->leaving = true;
	c->leaving = t;
}

void BPF_STRUCT_OPS(dss_tick, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (t)
		linux24_tick(t, p, charge);
}

/* sched_yield(): from 2.4 on only if somebody waits. The lock is not taken, unless the list decides ties. */
bool BPF_STRUCT_OPS(dss_yield, struct task_struct *from, struct task_struct *to)
{
	task_t *t = task_of(from);
	unsigned long flags;
	s32 cpu, waiting;
	cpu_t *c;

	if (!t || to)
		return false;
	waiting = lab_read(rq.list.nr);
	for (cpu = 0; cpu < lab_nr_cpus && can_loop; cpu++) {
		c = cpu_at(cpu);
		lab_touch(&c->curr, false);
		if (c->curr && c->curr->linked)
			waiting--;
	}
	if (waiting <= 0 && base != BASE_2_3_99)
		return false;
	if (ties == TIES_LIST && t->linked) {
		if (!lab_lock_irqsave(&rq.runqueue_lock, flags))
			return false;
		lab_list_del(&rq.list, &t->lab.node);
		lab_list_add_tail(&rq.list, &t->lab.node);
		lab_unlock_irqrestore(&rq.runqueue_lock, flags);
	}
	if (!linux24_realtime(t->policy))
		t->yielded = true;
	c = cpu_at(bpf_get_smp_processor_id());
	lab_write(c->marked, true);
	scx_bpf_task_set_slice(from, 0);
	return true;
}

/* Nice levels change without any queueing. */
void BPF_STRUCT_OPS(dss_set_weight, struct task_struct *p, u32 weight)
{
	task_t *t = task_of(p);

	if (t)
		t->nice = p->static_prio - 120;
}

void BPF_STRUCT_OPS(dss_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	task_t *t = task_of(p);

	if (t)
		lab_task_refresh(&t->lab, p);
}

/* fork(): parent and child share the parent's remaining ticks. */
s32 BPF_STRUCT_OPS_SLEEPABLE(dss_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct task_struct *forker = bpf_get_current_task_btf();
	task_t *t = task_new(p);

	if (!t)
		return -ENOMEM;
	linux24_fork(t, p, args, forker, base);
	return 0;
}

static __always_inline void dss_forget(task_t *t)
{
	unsigned long flags;

	t->on_cpu = false;
	if (!t->linked)
		return;
	if (!lab_lock_irqsave(&rq.runqueue_lock, flags))
		return;
	dss_unlink(t);
	lab_unlock_irqrestore(&rq.runqueue_lock, flags);
}

/* It leaves for a scheduling class that is not ours. */
void BPF_STRUCT_OPS(dss_disable, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (t)
		dss_forget(t);
}

/* exit(): what is left of the ticks goes back to the task that forked it. */
void BPF_STRUCT_OPS(dss_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	dss_forget(t);
	linux24_collect(t, task_at(t->parent));
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(dss_init)
{
	int error = lab_init();

	if (error)
		return error;
	lab_lock_init(&rq.runqueue_lock, LAB_LOCK_CLASS_RUN_QUEUE);
	lab_list_init(&rq.list);
	linux24_init_cpus();
	return 0;
}

void BPF_STRUCT_OPS(dss_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(dss_ops,
	       .select_cpu		= (void *)dss_select_cpu,
	       .enqueue			= (void *)dss_enqueue,
	       .dequeue			= (void *)dss_dequeue,
	       .dispatch		= (void *)dss_dispatch,
	       .tick			= (void *)dss_tick,
	       .running			= (void *)dss_running,
	       .stopping		= (void *)dss_stopping,
	       .quiescent		= (void *)dss_quiescent,
	       .yield			= (void *)dss_yield,
	       .set_weight		= (void *)dss_set_weight,
	       .set_cpumask		= (void *)dss_set_cpumask,
	       .init_task		= (void *)dss_init_task,
	       .exit_task		= (void *)dss_exit_task,
	       .disable			= (void *)dss_disable,
	       .init			= (void *)dss_init,
	       .exit			= (void *)dss_exit,
	       .name			= "dss");
