/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Probes: what a policy counts about itself. One definition for both worlds:
 * in the kernel they are per-CPU counters, in the virtual kernel the same
 * calls also charge time and touch the cache model.
 */
#ifndef LAB_PROBE_H
#define LAB_PROBE_H

/*
 * The counters, one u64 each per CPU, in this order in the map lab_probes.
 * This is the one place where the order is written down: the first
 * LAB_NR_SHARED are `struct Probes` of crates/engine/src/contract/this_cpu.rs, whose
 * order must be the same; the others are the kernel's only, because the
 * virtual kernel learns them from its own events.
 */
enum lab_probe {
	LAB_EXAMINED,		/* candidates looked at by a choice */
	LAB_RECALCULATIONS,	/* entries into a recalculation of all counters */
	LAB_PICKED_ELSEWHERE,	/* the chosen task last ran on another CPU */
	LAB_FAILED_LOOKUPS,	/* a task or its context was not found */
	LAB_PINNED_LOCAL,	/* tasks that came to run past the policy, by their CPU's local queue */
	LAB_NR_SHARED,

	LAB_SCHEDULES = LAB_NR_SHARED,	/* choices made under the lock */
	LAB_LATE_MASKS,		/* chosen, then found not allowed on the CPU */
	LAB_LOCK_ACQUISITIONS,	/* of locks of run queues, as all that follow */
	LAB_LOCK_CONTENDED,	/* acquisitions that found the lock held */
	LAB_LOCK_TRY_FAILURES,
	LAB_LOCK_HOLD_NS,	/* sum */
	LAB_LOCK_HOLD_NS_MAX,
	LAB_LOCK_WAIT_NS,	/* sum over contended acquisitions */
	LAB_LOCK_WAIT_NS_MAX,
	LAB_NR_PROBES,
};

/*
 * On a task's context `t`, whose scheduling fields lie in one line:
 *   examine(t)	a choice looks at a candidate; counted
 *   consult(t)	its fields are read for anything else
 *   alter(t)	its fields are written
 *   lab_recalculated(t)	its counter is rewritten in a sweep over all tasks
 * On the policy's own data that several CPUs use:
 *   lab_touch(pointer, write)	what the pointer points to is read or written
 * In the kernel only examine() does something, because memory costs by itself.
 *
 * An op that accesses the context of another task than those it is handed calls
 * one of the first four before; `schedlab sim --audit` ends a run where one does
 * not. What is without charge on purpose says so, with the reason beside it:
 *   lab_unaudited(expression)	the expression, as it is
 *   lab_unaudited_set(lvalue, value)	an assignment
 *   lab_unaudited_block();	the rest of the block, behind its declarations
 */
#ifdef __bpf__

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LAB_NR_PROBES);
	__type(key, u32);
	__type(value, u64);
} lab_probes SEC(".maps");

static __always_inline void lab_count(u32 probe, u64 n)
{
	u64 *counter = bpf_map_lookup_elem(&lab_probes, &probe);

	if (counter)
		*counter += n;
}

static __always_inline void lab_count_max(u32 probe, u64 value)
{
	u64 *counter = bpf_map_lookup_elem(&lab_probes, &probe);

	if (counter && *counter < value)
		*counter = value;
}

#define examine(task)		((void)(task), lab_count(LAB_EXAMINED, 1))
#define consult(task)		((void)(task))
#define alter(task)		((void)(task))
#define lab_recalculated(task)	((void)(task))
#define lab_touch(pointer, write)	((void)(pointer))
#define lab_unaudited(expression)	(expression)
#define lab_unaudited_set(lvalue, value)	((void)((lvalue) = (value)))
#define lab_unaudited_block()		((void)0)

#else /* !__bpf__ */

static __always_inline void lab_count(u32 probe, u64 n)
{
	if (probe < LAB_NR_SHARED)
		lab_host_count(probe, n);
}

/*
 * The virtual kernel's side, of <scx/common.bpf.h>:
 *   void lab_host_count(u32 probe, u64 n);
 *	counts one of the first LAB_NR_SHARED probes.
 *   void lab_host_examine(const volatile void *context, u32 task);
 *	counts LAB_EXAMINED, charges policy.examine_ps and reads the line of
 *	the task's scheduling fields (task_layout of the machine profile).
 *   void lab_host_look(const volatile void *context, u32 task, bool write);
 *	reads or writes that line, nothing else.
 *   void lab_host_recalculate(const volatile void *context, u32 task);
 *	charges policy.recalculate_ps and writes that line.
 *   void lab_host_touch(const volatile void *address, u32 bytes, bool write);
 *	reads or writes lines of the policy's own data.
 */
#define examine(t)		lab_host_examine((t), lab_number(t))
#define consult(t)		lab_host_look((t), lab_number(t), false)
#define alter(t)		lab_host_look((t), lab_number(t), true)
#define lab_recalculated(t)	lab_host_recalculate((t), lab_number(t))
#define lab_touch(pointer, write) \
	lab_host_touch((pointer), sizeof(*(pointer)), (write))

#define lab_unaudited(expression)	lab_host_unaudited(expression)
#define lab_unaudited_set(lvalue, value)				\
do {									\
	lab_unaudited_block();						\
	(lvalue) = (value);						\
} while (0)
#define lab_unaudited_block()		lab_host_unaudited_block()

/* The number that a probe receives; not a field of the scheduler's. */
#define lab_number(t)		lab_unaudited(lab_host_once((t)->lab.task))

#endif /* __bpf__ */

#endif /* LAB_PROBE_H */
