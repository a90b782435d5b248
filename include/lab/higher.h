/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPUs that a scheduling class above sched_ext has taken: real time, deadline,
 * stop. Such a CPU runs nothing of the policy, but it is not idle: it takes no task
 * until the higher class gives it back, and ops.tick() does not come there. A
 * policy needs all three of these:
 *
 * - lab_cpu_release(), in ops.cpu_release(). The kernel puts the task that loses its
 *   CPU, which has most of its slice left, into the CPU's local queue, from where
 *   no other CPU takes it. This gives it back to ops.enqueue(), with
 *   SCX_ENQ_REENQ.
 * - lab_cpu_taken(), wherever it asks whether a CPU is idle.
 * - LAB_RESCUE(), if tasks may wait where only that CPU looks for them.
 *
 * A policy that does without the rest of the library includes this file alone, for
 * the first.
 */
#ifndef LAB_HIGHER_H
#define LAB_HIGHER_H

#ifdef __bpf__
/* Set by a test that follows each turn: a task that loses its CPU to a higher class keeps its place in the local queue. */
const volatile bool lab_keeps_place;
#else
#define lab_keeps_place	false
#endif

/* Wakes an idle CPU that may run the task, for what waits in a queue of all CPUs. */
static __always_inline __maybe_unused bool lab_kick_idle(struct task_struct *p)
{
	s32 cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);

	if (cpu < 0)
		return false;
	scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	return true;
}

/* ops.cpu_release: the task that lost the CPU goes back to ops.enqueue(). */
static __always_inline __maybe_unused void lab_cpu_release(void)
{
	if (!lab_keeps_place)
		scx_bpf_reenqueue_local();
}

/*
 * The same for a policy whose tasks wait in the one queue @dsq of all CPUs. A task that
 * loses its CPU when its slice is over comes to that queue without SCX_ENQ_REENQ, and
 * idle CPUs have no reason to look there: one is woken.
 */
static __always_inline __maybe_unused void lab_cpu_release_of(u64 dsq)
{
	const struct cpumask *idle;
	struct task_struct *p;
	bool none;

	if (lab_keeps_place)
		return;
	scx_bpf_reenqueue_local();
	idle = scx_bpf_get_idle_cpumask();
	none = bpf_cpumask_empty(idle);
	scx_bpf_put_idle_cpumask(idle);
	if (none)
		return;
	bpf_for_each(scx_dsq, p, dsq, 0) {
		if (lab_kick_idle(p))
			break;
	}
}

#ifdef LAB_LAB_BPF_H

#include "periodic.h"

/* Priorities of the higher classes are below this (MAX_RT_PRIO). */
#define LAB_PRIO_HIGHER_END	100

/* Whether a task of a higher class has been seen; until then no CPU is asked what it runs. */
static u32 lab_higher_seen __maybe_unused;

/*
 * Whether the CPU runs a task of a higher class. A part of its own for the verifier:
 * asked for each CPU of a loop, its branches would be more than it follows.
 */
LAB_SMALL_PART bool lab_cpu_taken(s32 cpu)
{
	struct task_struct *curr;
	bool taken;

	if (!lab_higher_seen)
		return false;
	/* In a timer's function there is no such section yet. */
	bpf_rcu_read_lock();
	curr = __COMPAT_scx_bpf_cpu_curr(cpu);
	/*
	 * A real-time task may be the policy's in the virtual kernel. Linux need not look
	 * at the task: its run queues count the tasks of higher classes.
	 */
	taken = curr && lab_unaudited(curr->prio < LAB_PRIO_HIGHER_END &&
				      !(curr->scx.flags & SCX_TASK_QUEUED));
	bpf_rcu_read_unlock();
	return taken;
}

/* How often CPUs are asked: Linux looks at each tick (trigger_load_balance()). */
#define LAB_RESCUE_NS		4000000ull

/* Looks in a row that found a CPU taken and none idle, after which a task goes to a busy one. */
#define LAB_RESCUE_LOOKS	4

/*
 * LAB_RESCUE(nr_of, is_idle, move) - defines a timer that gives the tasks that
 * wait on a taken CPU to others: to idle ones at once, to a busy one if that lasts.
 * It starts with the first task of a higher class.
 *
 * nr_of(cpu): tasks of that CPU's queue. is_idle(cpu): whether it could
 * begin with a task now, so not if it is taken. move(from, to): gives a task to @to
 * and kicks that CPU; false: none may run there.
 */
#define LAB_RESCUE(nr_of, is_idle, move)				\
static u32 lab_rescue_looks[LAB_MAX_CPUS];				\
									\
static __noinline u32 lab_rescue_to_idle(u32 cpu, u32 waiting)		\
{									\
	u32 i, to;							\
									\
	lab_use_arena();						\
	bpf_for(i, 1, lab_nr_cpus) {					\
		if (!waiting)						\
			break;						\
		to = (cpu + i) % lab_nr_cpus;				\
		if (is_idle(to) && move(cpu, to))			\
			waiting--;					\
	}								\
	return waiting;							\
}									\
									\
static __noinline int lab_rescue_to_busy(u32 cpu)			\
{									\
	u64 nr, least = ~0ull;						\
	u32 i, to, best = cpu;						\
									\
	lab_use_arena();						\
	bpf_for(i, 1, lab_nr_cpus) {					\
		to = (cpu + i) % lab_nr_cpus;				\
		nr = nr_of(to);						\
		if (lab_cpu_online(to) && nr < least && !lab_cpu_taken(to)) { \
			least = nr;					\
			best = to;					\
		}							\
	}								\
	if (best == cpu || move(cpu, best))				\
		return 0;						\
	bpf_for(i, 1, lab_nr_cpus) {					\
		to = (cpu + i) % lab_nr_cpus;				\
		if (lab_cpu_online(to) && !lab_cpu_taken(to) && move(cpu, to)) \
			break;						\
	}								\
	return 0;							\
}									\
									\
static void lab_rescue_all(void)					\
{									\
	u32 cpu, looks, waiting;					\
									\
	bpf_for(cpu, 0, lab_nr_cpus) {					\
		looks = lab_rescue_looks[cpu & (LAB_MAX_CPUS - 1)] + 1;	\
		if (!lab_cpu_online(cpu) || !lab_cpu_taken(cpu))	\
			looks = 0;					\
		lab_rescue_looks[cpu & (LAB_MAX_CPUS - 1)] = looks;	\
		if (!looks)						\
			continue;					\
		/* It was given a task and taken before it began with it. */ \
		if (__COMPAT_has_generic_reenq() &&			\
		    scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu) > 0)	\
			scx_bpf_dsq_reenq(SCX_DSQ_LOCAL_ON | cpu, 0);	\
		waiting = nr_of(cpu);					\
		if (waiting)						\
			waiting = lab_rescue_to_idle(cpu, waiting);	\
		if (waiting && looks >= LAB_RESCUE_LOOKS)		\
			lab_rescue_to_busy(cpu);			\
	}								\
}									\
									\
LAB_PERIODIC(lab_rescue, lab_rescue_all, LAB_RESCUE_NS)

/*
 * lab_note_higher - notes a new task, or one that leaves for another class; called
 * in ops.init_task() and ops.disable(), behind LAB_RESCUE().
 */
#define lab_note_higher(p)						\
do {									\
	if ((p)->prio < LAB_PRIO_HIGHER_END && !lab_higher_seen &&	\
	    !__sync_val_compare_and_swap(&lab_higher_seen, 0, 1))	\
		lab_rescue_start();					\
} while (0)

#endif /* LAB_LAB_BPF_H */

#endif /* LAB_HIGHER_H */
