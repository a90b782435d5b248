/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The library's priority array against a plain array of (item, level) pairs, by
 * random operations, in whatever world this policy is loaded (model.h).
 */
#include <lab/lab.bpf.h>
#include "model.h"

#define NODES	16
#define LEVELS	140

/* Operations to make. */
const volatile u32 rounds = 2000;

struct item {
	u32 level;
	bool linked;
	struct lab_node node;
};

struct world {
	struct lab_prio_array array;
	struct lab_list lists[LEVELS];
	struct item items[NODES];
	struct model_array model;	/* the linked items; equals of a level in its order */
};

struct world __arena_global world;

/* Levels in which much happens: the ends of the bitmap's words, and any. */
static __noinline u32 draw_level(void)
{
	switch (draw(8)) {
	case 0: return 0;
	case 1: return 63;
	case 2: return 64;
	case 3: return 127;
	case 4: return 128;
	case 5: return LEVELS - 1;
	}
	return draw(LEVELS);
}

static __always_inline struct item __arena *modelled(u32 i)
{
	return &world.items[model_at(&world.model, i) & (NODES - 1)];
}

/* Whether the item at place i of the model has the neighbours it should have. */
static __noinline bool in_place(u32 i)
{
	lab_node_t *before, *after, *head, *node;
	struct item __arena *item;
	lab_list_t *list;
	u64 nr = 0;
	u32 j;

	lab_use_arena();
	item = modelled(i);
	node = &item->node;
	list = lab_prio_list(&world.array, item->level);
	head = &list->head;
	before = head;
	after = head;
	bpf_for(j, 0, world.model.nr) {
		if (modelled(j)->level != item->level)
			continue;
		nr++;
		if (j < i)
			before = &modelled(j)->node;
		if (j > i && after == head)
			after = &modelled(j)->node;
	}
	return node->prev == before && before->next == node && node->next == after &&
	       after->prev == node && list->nr == nr;
}

/* The first level in use from `level` on, by looking at every item. */
static __noinline s32 model_next(u32 level)
{
	s32 best = LAB_PRIO_NONE;
	u32 i;

	lab_use_arena();
	bpf_for(i, 0, world.model.nr) {
		if (modelled(i)->level >= level &&
		    (best == LAB_PRIO_NONE || modelled(i)->level < best))
			best = modelled(i)->level;
	}
	return best;
}

/* Whether the array is the model. */
static __noinline bool same(void)
{
	u64 used = 0, bits[LAB_PRIO_WORDS] = {};
	lab_list_t *list;
	u32 i, level;

	lab_use_arena();
	bpf_for(i, 0, world.model.nr) {
		if (!in_place(i))
			return false;
		level = modelled(i)->level;
		bits[(level / 64) & (LAB_PRIO_WORDS - 1)] |= 1ull << (level % 64);
	}
	for (i = 0; i < LAB_PRIO_WORDS; i++) {
		if (world.array.bitmap[i] != bits[i])
			return false;
	}
	bpf_for(level, 0, LEVELS) {
		list = lab_prio_list(&world.array, level);
		used += list->nr;
		if (!list->nr && (list->head.next != &list->head || list->head.prev != &list->head))
			return false;
	}
	level = draw_level();
	return used == world.model.nr && world.array.nr == world.model.nr &&
	       lab_prio_first(&world.array) == model_next(0) &&
	       lab_prio_next(&world.array, level) == model_next(level) &&
	       lab_prio_next(&world.array, LEVELS) == LAB_PRIO_NONE;
}

static __noinline int step(void)
{
	struct item __arena *item;
	u32 number, place;

	lab_use_arena();
	number = draw(NODES);
	item = &world.items[number & (NODES - 1)];
	if (item->linked) {
		lab_prio_del(&world.array, item->level, &item->node);
		model_remove(&world.model, number);
		item->linked = false;
		return 0;
	}
	item->level = draw_level();
	item->linked = true;
	if (world.model.nr && !draw(3)) {
		place = draw(world.model.nr);
		item->level = modelled(place)->level;
		lab_prio_add_before(&world.array, item->level, &item->node,
				    &modelled(place)->node);
		model_insert(&world.model, place, number);
	} else if (draw(2)) {
		lab_prio_add_tail(&world.array, item->level, &item->node);
		model_insert(&world.model, world.model.nr, number);
	} else {
		lab_prio_add_head(&world.array, item->level, &item->node);
		model_insert(&world.model, 0, number);
	}
	return 0;
}

LAB_PART int plant(void)
{
	lab_use_arena();
	modelled(0)->node.prev = NULL;
	return 0;
}

static __always_inline int prio_model_make(void)
{
	if (lab_prio_init(&world.array, world.lists, LAB_PRIO_LEVELS_MAX + 1) ||
	    !lab_prio_init(&world.array, world.lists, LEVELS)) {
		scx_bpf_error("an array of %u levels is refused, or one of too many is not", LEVELS);
		return -EINVAL;
	}
	return model_make(rounds, same() && !step());
}

MODEL_OPS(prio_model);
