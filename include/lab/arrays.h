/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The pair of priority arrays of the O(1) schedulers: tasks with time left wait
 * in the active one, the others in the expired one. When the active one is
 * empty the two change places, in constant time. An array is named by its
 * index, which a task keeps, since what it is called changes.
 * The caller holds the lock of the pair.
 */
#ifndef LAB_ARRAYS_H
#define LAB_ARRAYS_H

struct lab_arrays {
	struct lab_prio_array array[2];
	u64 active;			/* index of the active one */
} __attribute__((aligned(LAB_CACHELINE)));

typedef struct lab_arrays __arena lab_arrays_t;

/* @lists: 2 * @levels of them. False as lab_prio_init(). */
static __always_inline bool lab_arrays_init(lab_arrays_t *a, lab_list_t *lists, u32 levels)
{
	a->active = 0;
	return lab_prio_init(&a->array[0], lists, levels) &&
	       lab_prio_init(&a->array[1], lists + levels, levels);
}

static __always_inline u32 lab_arrays_active(lab_arrays_t *a)
{
	return a->active & 1;
}

static __always_inline u32 lab_arrays_expired(lab_arrays_t *a)
{
	return !(a->active & 1);
}

static __always_inline lab_prio_array_t *lab_arrays_at(lab_arrays_t *a, u32 index)
{
	return &a->array[index & 1];
}

/* The arrays change places if nobody has time left. True: they did. */
static __always_inline bool lab_arrays_swap_if_empty(lab_arrays_t *a)
{
	lab_touch(&a->active, false);
	if (a->array[a->active & 1].nr || !a->array[!(a->active & 1)].nr)
		return false;
	lab_touch(&a->active, true);
	a->active = !(a->active & 1);
	return true;
}

#endif /* LAB_ARRAYS_H */
