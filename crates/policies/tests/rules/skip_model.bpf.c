/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The library's skip list against a plain sorted array, by random operations, in
 * whatever world this policy is loaded (model.h).
 */
#include <lab/lab.bpf.h>
#include <lab/skiplist.h>
#include "model.h"

#define NODES	32

/* Operations to make. */
const volatile u32 rounds = 3000;

struct item {
	struct lab_skip_node node;
	u64 linked;
};

struct world {
	struct lab_skip_list list;
	struct item items[NODES];
	struct model_array model;	/* the linked items, in order */
	u32 place;		/* of the item that is added; here, as the verifier would follow a local */
	u32 highest;
};

struct world __arena_global world;

static __always_inline lab_skip_node_t *modelled(u32 i)
{
	return &world.items[model_at(&world.model, i) & (NODES - 1)].node;
}

/* Whether level @level holds the model's nodes that are so high, in order. */
static __noinline bool level_is_right(u32 level)
{
	lab_skip_node_t *pos, *node;
	u32 i, l = level & (LAB_SKIP_LEVELS - 1);

	lab_use_arena();
	pos = &world.list.head;
	bpf_for(i, 0, world.model.nr) {
		node = modelled(i);
		if (node->levels < 1 || node->levels > world.list.levels)
			return false;
		if (node->levels <= level)
			continue;
		if (pos->next[l] != node || node->prev[l] != pos)
			return false;
		pos = node;
	}
	if (pos != &world.list.head && level + 1 > world.highest)
		world.highest = level + 1;
	/* Levels above those in use are empty, and the highest in use is not. */
	if ((pos == &world.list.head) != (level >= world.list.levels) && level)
		return false;
	return pos->next[l] == &world.list.head && world.list.head.prev[l] == pos;
}

/* Whether the list is the model. */
LAB_PART bool same(void)
{
	lab_skip_node_t *pos;
	u32 i, level;

	lab_use_arena();
	bpf_for(level, 0, LAB_SKIP_LEVELS) {
		if (!level_is_right(level))
			return false;
	}
	pos = lab_skip_first(&world.list);
	bpf_for(i, 0, world.model.nr) {
		if (pos != modelled(i))
			return false;
		pos = lab_skip_next(&world.list, pos);
	}
	return !pos && world.list.nr == world.model.nr;
}

/* Global, as same() is: the verifier looks at it by itself. */
LAB_PART int step(void)
{
	struct item __arena *item;
	u32 number, i;

	lab_use_arena();
	number = draw(NODES);
	item = &world.items[number & (NODES - 1)];
	if (item->linked) {
		lab_skip_del(&world.list, &item->node);
		model_remove(&world.model, number);
		item->linked = false;
		return 0;
	}
	/* Many keys are equal; the ends of the range are among them. */
	item->node.key = draw(8) ? draw(24) : ~0ull * draw(2);
	if (!lab_skip_add(&world.list, &item->node))
		return -1;
	item->linked = true;
	world.place = world.model.nr;
	bpf_for(i, 0, world.model.nr) {
		if (item->node.key < modelled(i)->key) {
			world.place = i;
			break;
		}
	}
	model_insert(&world.model, world.place, number);
	return 0;
}

LAB_PART int plant(void)
{
	lab_use_arena();
	modelled(0)->prev[0] = NULL;
	return 0;
}

static __always_inline int skip_model_make(void)
{
	lab_skip_init(&world.list, 1);
	return model_make(rounds, same() && !step());
}

MODEL_OPS(skip_model);
