/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Lists indexed by priority, with a bitmap of those that are not empty: adding,
 * taking out and finding the first list in use take a constant number of steps,
 * whatever the number of nodes and levels. Level 0 is the first.
 * The caller holds the lock of the array.
 *
 * The array's own line and the list's are touched here; the nodes are tasks,
 * whose lines the caller touches (examine, consult, alter).
 */
#ifndef LAB_PRIO_ARRAY_H
#define LAB_PRIO_ARRAY_H

#define LAB_PRIO_WORDS		4
/* Most levels of one array. */
#define LAB_PRIO_LEVELS_MAX	(64 * LAB_PRIO_WORDS)

/* No list is in use from there on. */
#define LAB_PRIO_NONE		(-1)

struct lab_prio_array {
	u64 bitmap[LAB_PRIO_WORDS];	/* bit of a level: its list is not empty */
	u64 nr;				/* nodes in all lists */
	u64 levels;			/* lists there are */
	struct lab_list __arena *lists;	/* the owner's memory, one per level */
} __attribute__((aligned(LAB_CACHELINE)));

typedef struct lab_prio_array __arena lab_prio_array_t;

/*
 * lab_prio_init - an array of @levels empty @lists. False if the loop budget
 * ran out or there are more levels than it has bits.
 */
static __always_inline bool lab_prio_init(lab_prio_array_t *array, lab_list_t *lists, u32 levels)
{
	u32 i;

	if (levels > LAB_PRIO_LEVELS_MAX)
		return false;
	for (i = 0; i < LAB_PRIO_WORDS; i++)
		array->bitmap[i] = 0;
	array->nr = 0;
	array->levels = levels;
	array->lists = lists;
	for (i = 0; i < levels && can_loop; i++)
		lab_list_init(&lists[i]);
	return i == levels;
}

static __always_inline void lab_prio_mark(lab_prio_array_t *array, u32 level)
{
	array->bitmap[(level / 64) & (LAB_PRIO_WORDS - 1)] |= 1ull << (level % 64);
	array->nr++;
}

/* The node becomes the first of its level. It must not be linked. */
static __always_inline void lab_prio_add_head(lab_prio_array_t *array, u32 level,
					      lab_node_t *node)
{
	lab_touch(array, true);
	lab_touch(&array->lists[level], true);
	lab_list_add_head(&array->lists[level], node);
	lab_prio_mark(array, level);
}

/* The node becomes the last of its level. It must not be linked. */
static __always_inline void lab_prio_add_tail(lab_prio_array_t *array, u32 level,
					      lab_node_t *node)
{
	lab_touch(array, true);
	lab_touch(&array->lists[level], true);
	lab_list_add_tail(&array->lists[level], node);
	lab_prio_mark(array, level);
}

/* The node becomes the one before @at, which is linked in that level. It must not be linked. */
static __always_inline void lab_prio_add_before(lab_prio_array_t *array, u32 level,
						lab_node_t *node, lab_node_t *at)
{
	lab_touch(array, true);
	lab_touch(&array->lists[level], true);
	lab_list_link(&array->lists[level], node, at->prev, at);
	lab_prio_mark(array, level);
}

/* Takes a linked node out of the level it was added to. */
static __always_inline void lab_prio_del(lab_prio_array_t *array, u32 level, lab_node_t *node)
{
	lab_touch(array, true);
	lab_touch(&array->lists[level], true);
	lab_list_del(&array->lists[level], node);
	if (!array->lists[level].nr)
		array->bitmap[(level / 64) & (LAB_PRIO_WORDS - 1)] &= ~(1ull << (level % 64));
	array->nr--;
}

/* The first level from @level on whose list is not empty, or LAB_PRIO_NONE. */
static __always_inline s32 lab_prio_next(lab_prio_array_t *array, u32 level)
{
	u32 i, first = level / 64;
	u64 word;

	lab_touch(array, false);
	for (i = 0; i < LAB_PRIO_WORDS; i++) {
		if (i < first)
			continue;
		word = array->bitmap[i];
		if (i == first)
			word &= ~0ull << (level % 64);
		if (word)
			return i * 64 + __builtin_ctzll(word);
	}
	return LAB_PRIO_NONE;
}

/* The first level whose list is not empty, or LAB_PRIO_NONE. */
static __always_inline s32 lab_prio_first(lab_prio_array_t *array)
{
	return lab_prio_next(array, 0);
}

/* The list of a level, for walks by lab_list_for_each(). */
static __always_inline lab_list_t *lab_prio_list(lab_prio_array_t *array, u32 level)
{
	return &array->lists[level];
}

#endif /* LAB_PRIO_ARRAY_H */
