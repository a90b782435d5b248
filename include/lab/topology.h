/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which CPUs share a core, a last-level cache, a NUMA node. A policy that asks
 * includes this after <lab/lab.bpf.h> and calls lab_topology_init() in
 * ops.init(). It is written once and then only read.
 */
#ifndef LAB_TOPOLOGY_H
#define LAB_TOPOLOGY_H

#include "cores.h"

/* From the closest to the farthest: what two CPUs have in common. */
enum lab_level {
	LAB_LEVEL_CORE,
	LAB_LEVEL_LLC,
	LAB_LEVEL_NODE,
	LAB_LEVEL_MACHINE,
	LAB_NR_LEVELS,
};

/*
 * The CPUs that are online, in an order in which those of a core, cache and node
 * are neighbours. Others are in no group: one that never booted would have what
 * CPU 0 has, and nobody would do what is left to the first CPU of a group. A
 * task may have run last on one that has gone, so it knows its former neighbours.
 */
struct lab_place {
	u64 key[LAB_NR_LEVELS];		/* equal for CPUs that share it */
	u32 begin[LAB_NR_LEVELS];	/* where those that share it begin in the order */
	u32 end[LAB_NR_LEVELS];		/* and where they have ended */
	u32 at;				/* its own place in the order; LAB_NOWHERE if it is offline */
	u32 pad[7];
} __attribute__((aligned(LAB_CACHELINE)));

#define LAB_NOWHERE	LAB_MAX_CPUS

typedef struct lab_place __arena lab_place_t;

struct lab_place __arena_global lab_places[LAB_MAX_CPUS];
u32 __arena_global lab_order[LAB_MAX_CPUS];

static __always_inline lab_place_t *lab_place_of(s32 cpu)
{
	return &lab_places[cpu & (LAB_MAX_CPUS - 1)];
}

/* The CPU at a place of the order, of lab_nr_online. */
static __always_inline s32 lab_cpu_at(u32 at)
{
	return lab_order[at & (LAB_MAX_CPUS - 1)];
}

/* Whether two CPUs have a level in common. */
static __always_inline bool lab_share(s32 a, s32 b, enum lab_level level)
{
	return lab_place_of(a)->key[level] == lab_place_of(b)->key[level];
}

/* The closest thing that two CPUs have in common. */
static __always_inline enum lab_level lab_distance(s32 a, s32 b)
{
	if (lab_share(a, b, LAB_LEVEL_CORE))
		return LAB_LEVEL_CORE;
	if (lab_share(a, b, LAB_LEVEL_LLC))
		return LAB_LEVEL_LLC;
	return lab_share(a, b, LAB_LEVEL_NODE) ? LAB_LEVEL_NODE : LAB_LEVEL_MACHINE;
}

static __noinline int lab_place_cpu(s32 cpu)
{
	lab_place_t *place, *other;
	u64 own;
	s32 i;
	u32 level, at = 0;

	lab_use_arena();
	place = lab_place_of(cpu);
	for (level = 0; level < LAB_NR_LEVELS; level++) {
		place->begin[level] = 0;
		place->end[level] = 0;
	}
	own = place->key[LAB_LEVEL_CORE];
	bpf_for(i, 0, lab_nr_cpus) {
		if (!lab_cpu_online(i))
			continue;
		other = lab_place_of(i);
		if (other->key[LAB_LEVEL_CORE] < own ||
		    (other->key[LAB_LEVEL_CORE] == own && i < cpu))
			at++;
		for (level = 0; level < LAB_NR_LEVELS; level++) {
			if (other->key[level] < place->key[level])
				place->begin[level]++;
			if (other->key[level] <= place->key[level])
				place->end[level]++;
		}
	}
	place->at = LAB_NOWHERE;
	if (!lab_cpu_online(cpu))
		return 0;
	place->at = at;
	lab_order[at & (LAB_MAX_CPUS - 1)] = cpu;
	return 0;
}

/* Called in ops.init(), once it is known which CPUs are online. */
static __always_inline void lab_topology_init(void)
{
	lab_place_t *place;
	u64 node, llc;
	s32 cpu;

	bpf_for(cpu, 0, lab_nr_cpus) {
		place = lab_place_of(cpu);
		node = lab_cpu_node(cpu) & 0xffff;
		llc = lab_cpu_llc(cpu) & 0xffff;
		place->key[LAB_LEVEL_MACHINE] = 0;
		place->key[LAB_LEVEL_NODE] = node;
		place->key[LAB_LEVEL_LLC] = node << 16 | llc;
		place->key[LAB_LEVEL_CORE] = (node << 16 | llc) << 32 |
					     (lab_cpu_core(cpu) & 0xffffffff);
	}
	bpf_for(cpu, 0, lab_nr_cpus)
		lab_place_cpu(cpu);
}

#endif /* LAB_TOPOLOGY_H */
