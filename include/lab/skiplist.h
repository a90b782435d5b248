/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A skip list in the arena: sorted by a key, with eight levels of links, so that
 * adding takes a number of steps that grows with the logarithm of the number of
 * nodes (up to some hundreds of them), the first node is at hand, and taking one
 * out costs at most a step per level. The caller holds the lock of the list.
 *
 * Among equal keys the one added later stands behind. Nodes are touched here.
 *
 * Model: nothing is charged for the node before which the way ends in a level, of
 * which a key is read and a link is written: lab_unaudited().
 */
#ifndef LAB_SKIPLIST_H
#define LAB_SKIPLIST_H

#define LAB_SKIP_LEVELS		8

struct lab_skip_node {
	u64 key;		/* not to be changed while it is linked */
	u32 levels;		/* in how many levels it is linked, from level 0 on */
	u32 pad;
	struct lab_skip_node __arena *next[LAB_SKIP_LEVELS];
	struct lab_skip_node __arena *prev[LAB_SKIP_LEVELS];
} __attribute__((aligned(LAB_CACHELINE)));

typedef struct lab_skip_node __arena lab_skip_node_t;

struct lab_skip_list {
	struct lab_skip_node head;	/* circular: itself where nothing is linked */
	u64 nr;
	u32 levels;			/* levels in use, at least 1 */
	u32 seed;			/* of the heights */
};

typedef struct lab_skip_list __arena lab_skip_list_t;

/* @seed: not 0. */
static __always_inline void lab_skip_init(lab_skip_list_t *list, u32 seed)
{
	u32 i;

	for (i = 0; i < LAB_SKIP_LEVELS; i++) {
		list->head.next[i] = &list->head;
		list->head.prev[i] = &list->head;
	}
	list->nr = 0;
	list->levels = 1;
	list->seed = seed;
}

/* Every second node is higher by one than the rest, as far as there are levels. */
static __always_inline u32 lab_skip_height(lab_skip_list_t *list)
{
	u32 x = list->seed;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	list->seed = x;
	return 1 + __builtin_ctz(x | 1u << (LAB_SKIP_LEVELS - 1));
}

/* Links a node whose key is set. False: the loop budget ran out and it is not linked. */
LAB_PART bool lab_skip_add(lab_skip_list_t *list __arg_arena, lab_skip_node_t *node __arg_arena)
{
	lab_skip_node_t *pos, *after, *head;
	u32 height;
	s32 level;

	lab_use_arena();
	head = &list->head;
	height = lab_skip_height(list);
	/* New nodes raise the list by one level at a time. */
	if (height > list->levels) {
		height = list->levels + 1;
		list->levels = height;
	}
	lab_touch(head, false);
	pos = head;
	for (level = list->levels - 1; level >= 0 && can_loop; level--) {
		u32 l = level & (LAB_SKIP_LEVELS - 1);

		for (after = pos->next[l];
		     after != head && lab_unaudited(after->key) <= node->key && can_loop;
		     after = pos->next[l]) {
			lab_touch(after, false);
			pos = after;
		}
		if (after != head && lab_unaudited(after->key) <= node->key)
			break;
		/* Where it goes; linked below, once every level is known to be found. */
		node->prev[l] = pos;
	}
	if (level >= 0)
		return false;
	lab_touch(node, true);
	node->levels = height;
	for (level = 0; level < LAB_SKIP_LEVELS; level++) {
		if (level >= height)
			break;
		pos = node->prev[level];
		lab_touch(pos, true);
		node->next[level] = pos->next[level];
		lab_unaudited_set(pos->next[level]->prev[level], node);
		pos->next[level] = node;
	}
	list->nr++;
	return true;
}

/* Takes a linked node out. */
LAB_PART int lab_skip_del(lab_skip_list_t *list __arg_arena, lab_skip_node_t *node __arg_arena)
{
	u32 level, levels;

	lab_use_arena();
	lab_touch(node, true);
	levels = node->levels;
	for (level = 0; level < LAB_SKIP_LEVELS; level++) {
		if (level >= levels)
			break;
		lab_touch(node->prev[level], true);
		node->prev[level]->next[level] = node->next[level];
		lab_unaudited_set(node->next[level]->prev[level], node->prev[level]);
	}
	for (level = LAB_SKIP_LEVELS - 1; level > 0; level--) {
		if (list->levels == level + 1 && list->head.next[level] == &list->head)
			list->levels = level;
	}
	node->levels = 0;
	list->nr--;
	return 0;
}

/* The first node, NULL when empty. */
static __always_inline lab_skip_node_t *lab_skip_first(lab_skip_list_t *list)
{
	return list->nr ? list->head.next[0] : NULL;
}

/* The node behind another, NULL at the end. */
static __always_inline lab_skip_node_t *lab_skip_next(lab_skip_list_t *list, lab_skip_node_t *node)
{
	return node->next[0] == &list->head ? NULL : node->next[0];
}

#endif /* LAB_SKIPLIST_H */
