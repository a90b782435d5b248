/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The numbers of the kernel's fair schedulers: weights of nice levels, virtual time,
 * and how times grow with the number of CPUs. Functions of numbers alone.
 */
#ifndef LAB_FAIR_WEIGHTS_H
#define LAB_FAIR_WEIGHTS_H

#include "rbtree.h"

#define FAIR_WEIGHT_0		1024
#define FAIR_WEIGHT_IDLE	3

/* A second, the most that options in µs may be, as in Linux: products with weights fit. */
#define FAIR_OPTION_US_MAX	1000000

/* Weight of a nice level: each is worth about a quarter more than the next (sched_prio_to_weight). */
static const u32 fair_weights[40] = {
	88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916,
	9548, 7620, 6100, 4904, 3906, 3121, 2501, 1991, 1586, 1277,
	1024, 820, 655, 526, 423, 335, 272, 215, 172, 137,
	110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
};

static __always_inline u64 fair_weight(s32 nice, u32 policy)
{
	u32 level = nice + 20;

	if (policy == LAB_SCHED_IDLE)
		return FAIR_WEIGHT_IDLE;
	return level < 40 ? fair_weights[level] : FAIR_WEIGHT_0;
}

/* Virtual time of @ns of running. */
static __always_inline s64 fair_virtual(u64 ns, u64 weight)
{
	return weight ? ns * FAIR_WEIGHT_0 / weight : 0;
}

/* Periods of 2^20 ns, of which 32 halve what is remembered (kernel/sched/pelt.c). */
#define FAIR_PERIOD_SHIFT	20
#define FAIR_HALVING		32

/* The whole of a share of time: so much that little is lost where a time is short. */
#define FAIR_ALWAYS_SHIFT	30
#define FAIR_ALWAYS		(1u << FAIR_ALWAYS_SHIFT)

/* 2^32 * 0.5^(i/32) */
static const u32 fair_decays[FAIR_HALVING] = {
	0xffffffff, 0xfa83b2db, 0xf5257d15, 0xefe4b99b, 0xeac0c6e7, 0xe5b906e7,
	0xe0ccdeec, 0xdbfbb797, 0xd744fcca, 0xd2a81d91, 0xce248c15, 0xc9b9bd86,
	0xc5672a11, 0xc12c4cca, 0xbd08a39f, 0xb8fbaf47, 0xb504f333, 0xb123f581,
	0xad583eea, 0xa9a15ab4, 0xa5fed6a9, 0xa2704303, 0x9ef53260, 0x9b8d39b9,
	0x9837f051, 0x94f4efa8, 0x91c3d373, 0x8ea4398b, 0x8b95c1e3, 0x88980e80,
	0x85aac367, 0x82cd8698,
};

/*
 * The rest of @share after @ns (decay_load()). Within a period it falls in a straight
 * line, as the curve nearly is one there.
 */
static __always_inline u32 fair_decay(u32 share, u64 ns)
{
	u64 periods = ns >> FAIR_PERIOD_SHIFT, part = ns & ((1 << FAIR_PERIOD_SHIFT) - 1);
	u64 halvings = periods / FAIR_HALVING, left, later;

	if (!ns || halvings >= 32)
		return ns ? 0 : share;
	left = share >> halvings;
	if (periods % FAIR_HALVING)
		left = left * fair_decays[periods % FAIR_HALVING] >> 32;
	later = left * fair_decays[1] >> 32;
	return left - ((left - later) * part >> FAIR_PERIOD_SHIFT);
}

/* By how much the times grow with the number of CPUs: 1 + log2(CPUs), up to 4. */
static __always_inline u64 fair_factor(u32 nr_cpus)
{
	return nr_cpus >= 8 ? 4 : nr_cpus >= 4 ? 3 : nr_cpus >= 2 ? 2 : 1;
}

static __always_inline s64 fair_later(s64 a, s64 b)
{
	return lab_rb_less(a, b) ? b : a;
}

#endif /* LAB_FAIR_WEIGHTS_H */
