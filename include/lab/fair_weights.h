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
