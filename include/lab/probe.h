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
 * LAB_NR_SHARED are `struct Probes` of crates/engine/src/policy.rs, whose
 * order must be the same; the others are the kernel's only, because the
 * virtual kernel learns them from its own events.
 */
enum lab_probe {
	LAB_EXAMINED,		/* candidates looked at by a choice */
	LAB_RECALCULATIONS,	/* entries into a recalculation of all counters */
	LAB_PICKED_ELSEWHERE,	/* the chosen task last ran on another CPU */
	LAB_FAILED_LOOKUPS,	/* a task or its context was not found */
	LAB_PINNED_LOCAL,	/* tasks that went past the policy to their CPU's local queue */
	LAB_NR_SHARED,

	LAB_SCHEDULES = LAB_NR_SHARED,	/* choices made under the lock */
	LAB_LATE_MASKS,		/* chosen, then found not allowed on the CPU */
	LAB_LOCK_ACQUISITIONS,
	LAB_LOCK_CONTENDED,	/* acquisitions that found the lock held */
	LAB_LOCK_TRY_FAILURES,
	LAB_LOCK_HOLD_NS,	/* sum */
	LAB_LOCK_HOLD_NS_MAX,
	LAB_LOCK_WAIT_NS,	/* sum over contended acquisitions */
	LAB_LOCK_WAIT_NS_MAX,
	LAB_NR_PROBES,
};

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

/*
 * examine - a choice looks at a candidate: counts it and, natively, charges
 * the look and loads the line of its scheduling fields.
 */
#define examine(task)	((void)(task), lab_count(LAB_EXAMINED, 1))

/* consult - as examine, for reads that are no part of a choice: not counted. */
#define consult(task)	((void)(task))

/* lab_recalculated - the policy rewrites a task's counter in a sweep over all tasks. */
#define lab_recalculated(task)	((void)(task))

/* lab_touch - the policy's own data in a line that CPUs share. */
#define lab_touch(pointer, write)	((void)(pointer))

#else /* !__bpf__ */

static __always_inline void lab_count(u32 probe, u64 n)
{
	if (probe < LAB_NR_SHARED)
		lab_host_count(probe, n);
}

#define examine(task)	lab_host_examine((task), (task)->lab.index)
#define consult(task)	lab_host_touch((task), sizeof(*(task)), false)
#define lab_recalculated(task)	lab_host_recalculate((task), (task)->lab.index)
#define lab_touch(pointer, write) \
	lab_host_touch((pointer), sizeof(*(pointer)), (write))

#endif /* __bpf__ */

#endif /* LAB_PROBE_H */
