/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which CPUs are threads of one core. A policy that takes the first CPU that will do
 * includes this after <lab/lab.bpf.h>, calls lab_cores_init() in ops.init(), once it
 * is known which CPUs are online, and goes through them by lab_cpu_spread(): the
 * numbers of CPUs mean nothing, as siblings are numbered side by side on one machine
 * and far apart on another.
 *
 * The kernel has no function that informs a policy about cores and caches: there
 * they are read from its own variables (x86; elsewhere a CPU is a core and a
 * node a cache). The virtual kernel takes them from the machine profile.
 */
#ifndef LAB_CORES_H
#define LAB_CORES_H

#ifdef __bpf__

#ifdef __TARGET_ARCH_x86
extern const struct cpuinfo_x86 cpu_info __ksym __weak;

static __always_inline u64 lab_cpu_core(s32 cpu)
{
	const struct cpuinfo_x86 *info;

	if (!&cpu_info)
		return cpu;
	info = bpf_per_cpu_ptr(&cpu_info, cpu);
	if (!info)
		return cpu;
	return (u64)BPF_CORE_READ(info, topo.pkg_id) << 16 | BPF_CORE_READ(info, topo.core_id);
}

static __always_inline u64 lab_cpu_llc(s32 cpu)
{
	const struct cpuinfo_x86 *info;

	if (!&cpu_info)
		return 0;
	info = bpf_per_cpu_ptr(&cpu_info, cpu);
	return info ? BPF_CORE_READ(info, topo.llc_id) : 0;
}
#else
#define lab_cpu_core(cpu)	((u64)(cpu))
#define lab_cpu_llc(cpu)	((u64)0)
#endif

static __always_inline u64 lab_cpu_node(s32 cpu)
{
	if (!bpf_ksym_exists(scx_bpf_cpu_node))
		return 0;
	return scx_bpf_cpu_node(cpu);
}

#else /* !__bpf__ */

#define lab_cpu_core(cpu)	((u64)lab_host->cpu_place(lab_host, (cpu), 0))
#define lab_cpu_llc(cpu)	((u64)lab_host->cpu_place(lab_host, (cpu), 1))
#define lab_cpu_node(cpu)	((u64)lab_host->cpu_place(lab_host, (cpu), 2))

#endif /* __bpf__ */

/* Model: finding out costs no time, so that a policy that does starts no later than one that does not. */
#ifdef __bpf__
#define lab_cores_for(i)	bpf_for(i, 0, lab_nr_cpus)
#else
#define lab_cores_for(i)	for ((i) = 0; (i) < lab_nr_cpus; (i)++)
#endif

/* Tells cores apart, and orders them by node, cache and number. */
static __always_inline u64 lab_core_key(s32 cpu)
{
	u64 node = lab_cpu_node(cpu) & 0xffff, llc = lab_cpu_llc(cpu) & 0xffff;

	return (node << 16 | llc) << 32 | (lab_cpu_core(cpu) & 0xffffffff);
}

/* All of these are written once. Those of CPUs that are offline mean nothing. */
static u64 lab_core_keys[LAB_MAX_CPUS];
static u32 lab_threads[LAB_MAX_CPUS];		/* which thread of its core a CPU is, from 0 */
static u32 lab_next_threads[LAB_MAX_CPUS];	/* the next one, behind the last the first */
static u32 lab_spread[LAB_MAX_CPUS];		/* first threads of all cores, then second ones */

/*
 * A local variable that the verifier does not follow: each value of a count, and each
 * bound that a comparison shows, would be another state of a loop over all CPUs. In a
 * kernel it is one variable for all calls: for ops.init() alone.
 */
#ifdef __bpf__
#define LAB_UNFOLLOWED	static volatile
#else
#define LAB_UNFOLLOWED
#endif

/* Whether any core has several threads. */
static bool lab_siblings;

/*
 * The CPUs that are online, as many as lab_nr_online: the first threads of all cores
 * first. A part of its own for the verifier: an index of this array is a number that
 * it follows, and a loop over 1,024 such indices is more than it looks at.
 */
LAB_SMALL_PART s32 lab_cpu_spread(u32 at)
{
	return lab_spread[at & (LAB_MAX_CPUS - 1)];
}

/* Which thread of its core a CPU is. */
static __always_inline u32 lab_thread_of(s32 cpu)
{
	return lab_threads[cpu & (LAB_MAX_CPUS - 1)];
}

/* Whether two CPUs are threads of one core. */
static __always_inline bool lab_same_core(s32 a, s32 b)
{
	return lab_core_keys[a & (LAB_MAX_CPUS - 1)] == lab_core_keys[b & (LAB_MAX_CPUS - 1)];
}

/* The next thread of a CPU's core, at the end the CPU itself again. */
static __always_inline s32 lab_next_thread(s32 cpu)
{
	return lab_next_threads[cpu & (LAB_MAX_CPUS - 1)];
}

LAB_PART int lab_cores_cpu(s32 asked)
{
	u64 key = lab_core_keys[asked & (LAB_MAX_CPUS - 1)];
	LAB_UNFOLLOWED u32 thread, next, first;
	LAB_UNFOLLOWED s32 cpu;
	s32 i;

	cpu = asked;
	thread = 0;
	next = asked;
	first = asked;
	lab_cores_for(i) {
		if (i == cpu || !lab_cpu_online(i) || lab_core_keys[i & (LAB_MAX_CPUS - 1)] != key)
			continue;
		if (i < cpu) {
			thread++;
			if (first == cpu)
				first = i;
		} else if (next == cpu) {
			next = i;
		}
	}
	if (thread)
		lab_siblings = true;
	lab_threads[cpu & (LAB_MAX_CPUS - 1)] = thread;
	lab_next_threads[cpu & (LAB_MAX_CPUS - 1)] = next == cpu ? first : next;
	return 0;
}

LAB_PART int lab_spread_cpu(s32 cpu)
{
	u64 key = lab_core_keys[cpu & (LAB_MAX_CPUS - 1)];
	u32 thread = lab_thread_of(cpu);
	LAB_UNFOLLOWED u32 at;
	s32 i;

	at = 0;
	lab_cores_for(i) {
		if (lab_cpu_online(i) &&
		    (lab_thread_of(i) < thread || (lab_thread_of(i) == thread &&
						   lab_core_keys[i & (LAB_MAX_CPUS - 1)] < key)))
			at++;
	}
	lab_spread[at & (LAB_MAX_CPUS - 1)] = cpu;
	return 0;
}

static __always_inline __maybe_unused void lab_cores_init(void)
{
	s32 cpu;

	lab_siblings = false;
	lab_cores_for(cpu)
		lab_core_keys[cpu & (LAB_MAX_CPUS - 1)] = lab_core_key(cpu);
	lab_cores_for(cpu) {
		if (lab_cpu_online(cpu))
			lab_cores_cpu(cpu);
	}
	lab_cores_for(cpu) {
		if (lab_cpu_online(cpu))
			lab_spread_cpu(cpu);
	}
}

#endif /* LAB_CORES_H */
