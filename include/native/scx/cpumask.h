/* SPDX-License-Identifier: GPL-2.0-only */
/* CPU masks: the kfuncs of kernel/bpf/cpumask.c and iteration over bits. */
#ifndef SCHEDLAB_SCX_CPUMASK_H
#define SCHEDLAB_SCX_CPUMASK_H

#include "kfuncs.h"

#define LAB_MASK_WORDS_USED	((lab_host->nr_cpu_ids(lab_host) + 63) / 64)

#define bpf_cpumask_create()		lab_host->cpumask_create(lab_host)
#define bpf_cpumask_release(mask)	lab_host->cpumask_release(lab_host, (mask))

LAB_INLINE struct bpf_cpumask *bpf_cpumask_acquire(struct bpf_cpumask *mask)
{
	lab_host->cpumask_acquire(lab_host, mask);
	return mask;
}

LAB_INLINE const struct cpumask *cast_mask(struct bpf_cpumask *mask)
{
	return (const struct cpumask *)mask;
}

/* Bit @cpu of @mask; false for a CPU that is not there, as the kernel's cpu_valid(). */
LAB_INLINE bool lab_mask_has(u32 cpu, const void *mask)
{
	const struct cpumask *m = mask;

	return cpu < lab_host->nr_cpu_ids(lab_host) && (m->bits[cpu / 64] >> cpu % 64 & 1);
}

LAB_INLINE bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask)
{
	lab_host->kfunc(lab_host);
	return lab_mask_has(cpu, mask);
}

LAB_INLINE bool bpf_cpumask_test_and_set_cpu(u32 cpu, struct bpf_cpumask *mask)
{
	bool was;

	lab_host->kfunc(lab_host);
	lab_host_sync();
	was = lab_mask_has(cpu, mask);
	if (cpu < lab_host->nr_cpu_ids(lab_host))
		mask->cpumask.bits[cpu / 64] |= 1UL << cpu % 64;
	return was;
}

LAB_INLINE bool bpf_cpumask_test_and_clear_cpu(u32 cpu, struct bpf_cpumask *mask)
{
	bool was;

	lab_host->kfunc(lab_host);
	lab_host_sync();
	was = lab_mask_has(cpu, mask);
	if (was)
		mask->cpumask.bits[cpu / 64] &= ~(1UL << cpu % 64);
	return was;
}

LAB_INLINE void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *mask)
{
	bpf_cpumask_test_and_set_cpu(cpu, mask);
}

LAB_INLINE void bpf_cpumask_clear_cpu(u32 cpu, struct bpf_cpumask *mask)
{
	bpf_cpumask_test_and_clear_cpu(cpu, mask);
}

/* The bits of word @i that stand for CPUs that are there. */
LAB_INLINE unsigned long lab_mask_valid(u32 i)
{
	u32 rest = lab_host->nr_cpu_ids(lab_host) - i * 64;

	return rest >= 64 ? ~0UL : (1UL << rest) - 1;
}

LAB_INLINE void bpf_cpumask_setall(struct bpf_cpumask *mask)
{
	u32 i;

	lab_host->kfunc(lab_host);
	for (i = 0; i < LAB_MASK_WORDS_USED; i++)
		mask->cpumask.bits[i] = lab_mask_valid(i);
}

LAB_INLINE void bpf_cpumask_clear(struct bpf_cpumask *mask)
{
	u32 i;

	lab_host->kfunc(lab_host);
	for (i = 0; i < LAB_MASK_WORDS_USED; i++)
		mask->cpumask.bits[i] = 0;
}

LAB_INLINE void bpf_cpumask_copy(struct bpf_cpumask *dst, const struct cpumask *src)
{
	u32 i;

	lab_host->kfunc(lab_host);
	for (i = 0; i < LAB_MASK_WORDS_USED; i++)
		dst->cpumask.bits[i] = src->bits[i];
}

LAB_INLINE int bpf_cpumask_populate(struct bpf_cpumask *dst, void *src, size_t size)
{
	u32 words = LAB_MASK_WORDS_USED, i;

	lab_host->kfunc(lab_host);
	if (size < words * 8)
		return -EACCES;
	for (i = 0; i < words; i++) {
		unsigned long word;

		/* It need not be aligned, as on x86. */
		__builtin_memcpy(&word, (char *)src + i * 8, 8);
		dst->cpumask.bits[i] = word & lab_mask_valid(i);
	}
	return 0;
}
#define __COMPAT_bpf_cpumask_populate(dst, src, size) bpf_cpumask_populate(dst, src, size)

LAB_INLINE bool bpf_cpumask_and(struct bpf_cpumask *dst, const struct cpumask *a,
				const struct cpumask *b)
{
	unsigned long any = 0;
	u32 i;

	lab_host->kfunc(lab_host);
	for (i = 0; i < LAB_MASK_WORDS_USED; i++)
		any |= dst->cpumask.bits[i] = a->bits[i] & b->bits[i];
	return any;
}

LAB_INLINE void bpf_cpumask_or(struct bpf_cpumask *dst, const struct cpumask *a,
			       const struct cpumask *b)
{
	u32 i;

	lab_host->kfunc(lab_host);
	for (i = 0; i < LAB_MASK_WORDS_USED; i++)
		dst->cpumask.bits[i] = a->bits[i] | b->bits[i];
}

LAB_INLINE void bpf_cpumask_xor(struct bpf_cpumask *dst, const struct cpumask *a,
				const struct cpumask *b)
{
	u32 i;

	lab_host->kfunc(lab_host);
	for (i = 0; i < LAB_MASK_WORDS_USED; i++)
		dst->cpumask.bits[i] = a->bits[i] ^ b->bits[i];
}

LAB_INLINE bool bpf_cpumask_equal(const struct cpumask *a, const struct cpumask *b)
{
	u32 i;

	lab_host->kfunc(lab_host);
	for (i = 0; i < LAB_MASK_WORDS_USED; i++)
		if (a->bits[i] != b->bits[i])
			return false;
	return true;
}

LAB_INLINE bool bpf_cpumask_intersects(const struct cpumask *a, const struct cpumask *b)
{
	u32 i;

	lab_host->kfunc(lab_host);
	for (i = 0; i < LAB_MASK_WORDS_USED; i++)
		if (a->bits[i] & b->bits[i])
			return true;
	return false;
}

LAB_INLINE bool bpf_cpumask_subset(const struct cpumask *a, const struct cpumask *b)
{
	u32 i;

	lab_host->kfunc(lab_host);
	for (i = 0; i < LAB_MASK_WORDS_USED; i++)
		if (a->bits[i] & ~b->bits[i])
			return false;
	return true;
}

LAB_INLINE u32 bpf_cpumask_weight(const struct cpumask *mask)
{
	u32 i, weight = 0;

	lab_host->kfunc(lab_host);
	for (i = 0; i < LAB_MASK_WORDS_USED; i++)
		weight += __builtin_popcountl(mask->bits[i]);
	return weight;
}

/* Returns the number of CPUs if no bit is set, as the kernel's. */
LAB_INLINE u32 lab_mask_first(const struct cpumask *a, const struct cpumask *b, bool invert)
{
	u32 i;

	lab_host->kfunc(lab_host);
	for (i = 0; i < LAB_MASK_WORDS_USED; i++) {
		unsigned long word = a->bits[i] & b->bits[i];

		if (invert)
			word = ~word & lab_mask_valid(i);
		if (word)
			return i * 64 + __builtin_ctzl(word);
	}
	return lab_host->nr_cpu_ids(lab_host);
}

LAB_INLINE u32 bpf_cpumask_first(const struct cpumask *mask)
{
	return lab_mask_first(mask, mask, false);
}

LAB_INLINE u32 bpf_cpumask_first_zero(const struct cpumask *mask)
{
	return lab_mask_first(mask, mask, true);
}

LAB_INLINE u32 bpf_cpumask_first_and(const struct cpumask *a, const struct cpumask *b)
{
	return lab_mask_first(a, b, false);
}

LAB_INLINE bool bpf_cpumask_empty(const struct cpumask *mask)
{
	return lab_mask_first(mask, mask, false) >= lab_host->nr_cpu_ids(lab_host);
}

LAB_INLINE bool bpf_cpumask_full(const struct cpumask *mask)
{
	return lab_mask_first(mask, mask, true) >= lab_host->nr_cpu_ids(lab_host);
}

#define bpf_cpumask_any_distribute(mask) \
	lab_host->cpumask_any_distribute(lab_host, (mask), (mask))
#define bpf_cpumask_any_and_distribute(a, b) \
	lab_host->cpumask_any_distribute(lab_host, (a), (b))

/* Exchanges a kernel pointer in a map's value. */
#define bpf_kptr_xchg(where, pointer)					\
({									\
	typeof(*(where)) ___old, *___where = (where);			\
	lab_host_sync();						\
	___old = *___where;						\
	*___where = (pointer);						\
	___old;								\
})

/* Goes over words that do not change meanwhile. */
LAB_INLINE int lab_iter_bits_over(struct bpf_iter_bits *it, const u64 *words, u32 nr_words)
{
	it->__words = words;
	it->__bit = -1;
	it->__nr_bits = nr_words * 64;
	return 0;
}

LAB_INLINE int bpf_iter_bits_new(struct bpf_iter_bits *it, const u64 *words, u32 nr_words)
{
	lab_iter_bits_over(it, it->__copy, 0);
	if (!words || !nr_words)
		return -EINVAL;
	if (nr_words > LAB_BITS_WORDS)
		return -E2BIG;
	memcpy(it->__copy, words, nr_words * 8);
	return lab_iter_bits_over(it, it->__copy, nr_words);
}

LAB_INLINE int *bpf_iter_bits_next(struct bpf_iter_bits *it)
{
	u32 bit;

	for (bit = it->__bit + 1; bit < it->__nr_bits; bit++) {
		if (!(it->__words[bit / 64] >> bit % 64)) {
			bit |= 63;
			continue;
		}
		if (it->__words[bit / 64] >> bit % 64 & 1) {
			it->__bit = bit;
			return &it->__bit;
		}
	}
	it->__bit = it->__nr_bits;
	return NULL;
}

LAB_INLINE void bpf_iter_bits_destroy(struct bpf_iter_bits *it)
{
	(void)it;
}

#define LAB_CPU_ITERATOR(name)						\
struct bpf_iter_##name {						\
	struct bpf_iter_bits it;					\
};									\
LAB_INLINE int bpf_iter_##name##_new(struct bpf_iter_##name *it,	\
				     const u64 *words, u32 nr_words)	\
{									\
	return lab_iter_bits_over(&it->it,				\
		(const u64 *)scx_bpf_get_##name##_cpumask(),		\
		sizeof(struct cpumask) / 8);				\
}									\
LAB_INLINE int *bpf_iter_##name##_next(struct bpf_iter_##name *it)	\
{									\
	return bpf_iter_bits_next(&it->it);				\
}									\
LAB_INLINE void bpf_iter_##name##_destroy(struct bpf_iter_##name *it)	\
{									\
	(void)it;							\
}

LAB_CPU_ITERATOR(possible)
LAB_CPU_ITERATOR(online)
#define for_each_possible_cpu(cpu)	bpf_for_each(possible, cpu, NULL, 0)
#define for_each_online_cpu(cpu)	bpf_for_each(online, cpu, NULL, 0)

#endif /* SCHEDLAB_SCX_CPUMASK_H */
