/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The library's list against a plain array, by random operations, in whatever
 * world this policy is loaded (model.h).
 */
#include <lab/lab.bpf.h>
#include "model.h"

#define NODES	16

/* Operations to make. */
const volatile u32 rounds = 2000;

struct item {
	u32 number;
	bool linked;
	struct lab_node node;
};

struct world {
	struct lab_list list;
	struct item items[NODES];
	struct model_array model;
};

struct world __arena_global world;

/* Whether the list, walked both ways, is the array. */
static __noinline bool same(void)
{
	lab_node_t *pos, *back;
	u32 i = 0;

	lab_use_arena();
	back = &world.list.head;
	lab_list_for_each(pos, &world.list) {
		if (i >= world.model.nr || pos->prev != back)
			return false;
		if (lab_entry(pos, struct item, node)->number != model_at(&world.model, i))
			return false;
		back = pos;
		i++;
	}
	return lab_list_ended(pos, &world.list) && world.list.head.prev == back &&
	       i == world.model.nr && world.list.nr == world.model.nr;
}

static __noinline int step(void)
{
	struct item __arena *item;
	u32 number;

	lab_use_arena();
	number = draw(NODES);
	item = &world.items[number & (NODES - 1)];
	if (item->linked) {
		lab_list_del(&world.list, &item->node);
		model_remove(&world.model, number);
	} else if (draw(2)) {
		lab_list_add_tail(&world.list, &item->node);
		model_insert(&world.model, world.model.nr, number);
	} else {
		lab_list_add_head(&world.list, &item->node);
		model_insert(&world.model, 0, number);
	}
	item->linked = !item->linked;
	return 0;
}

LAB_PART int plant(void)
{
	lab_use_arena();
	world.items[model_at(&world.model, 0) & (NODES - 1)].node.prev = NULL;
	return 0;
}

static __always_inline int list_model_make(void)
{
	u32 i;

	lab_list_init(&world.list);
	bpf_for(i, 0, NODES)
		world.items[i & (NODES - 1)].number = i;
	return model_make(rounds, same() && !step());
}

MODEL_OPS(list_model);
