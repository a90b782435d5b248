/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The library's pair of priority arrays against two plain queues of numbers, by
 * random operations, in whatever world this policy is loaded (model.h).
 */
#include <lab/lab.bpf.h>
#include <lab/arrays.h>
#include "model.h"

#define NODES	4
#define LEVELS	70

/* Operations to make. */
const volatile u32 rounds = 3000;

struct item {
	struct lab_node node;
	u32 number;
	u32 level;
	u32 array;
	bool linked;
	/* The model's: */
	bool expired;
	u64 since;		/* earlier is nearer to the head */
};

struct world {
	struct lab_arrays arrays;
	struct lab_list lists[2 * LEVELS];
	struct item items[NODES];
	u64 clock;
	u32 swaps;
};

struct world __arena_global world;

/* Number of the item that comes next in the active or the expired queue, NODES = none. */
static __noinline u32 model_first(bool expired)
{
	struct item __arena *a, *best = NULL;
	u32 i;

	lab_use_arena();
	bpf_for(i, 0, NODES) {
		a = &world.items[i & (NODES - 1)];
		if (!a->linked || a->expired != expired)
			continue;
		if (!best || a->level < best->level ||
		    (a->level == best->level && a->since < best->since))
			best = a;
	}
	return best ? best->number : NODES;
}

static __noinline u32 array_first(bool expired)
{
	lab_prio_array_t *array;
	lab_list_t *list;
	s32 level;

	lab_use_arena();
	array = lab_arrays_at(&world.arrays, expired ? lab_arrays_expired(&world.arrays) :
						       lab_arrays_active(&world.arrays));
	level = lab_prio_first(array);
	if (level < 0)
		return NODES;
	list = lab_prio_list(array, level);
	return lab_entry(list->head.next, struct item, node)->number;
}

static __noinline bool same(void)
{
	return array_first(false) == model_first(false) && array_first(true) == model_first(true);
}

static __always_inline void link(struct item __arena *item, bool expired)
{
	item->level = draw(3) ? draw(LEVELS) : 5;
	item->array = expired ? lab_arrays_expired(&world.arrays) :
				lab_arrays_active(&world.arrays);
	lab_prio_add_tail(lab_arrays_at(&world.arrays, item->array), item->level, &item->node);
	item->linked = true;
	item->expired = expired;
	item->since = world.clock++;
}

static __always_inline void take_out(struct item __arena *item)
{
	lab_prio_del(lab_arrays_at(&world.arrays, item->array), item->level, &item->node);
	item->linked = false;
}

static __noinline int step(void)
{
	struct item __arena *item;
	bool was;
	u32 i;

	lab_use_arena();
	item = &world.items[draw(NODES) & (NODES - 1)];
	if (!item->linked) {
		link(item, false);
	} else if (!item->expired && draw(4)) {
		take_out(item);
		link(item, true);
	} else {
		take_out(item);
	}
	was = model_first(false) == NODES && model_first(true) != NODES;
	if (lab_arrays_swap_if_empty(&world.arrays) != was)
		return -EINVAL;
	if (!was)
		return 0;
	world.swaps++;
	bpf_for(i, 0, NODES)
		world.items[i & (NODES - 1)].expired = false;
	return 0;
}

LAB_PART int plant(void)
{
	lab_use_arena();
	world.arrays.active = !world.arrays.active;
	return 0;
}

static __always_inline int arrays_model_make(void)
{
	int error;
	u32 i;

	if (!lab_arrays_init(&world.arrays, world.lists, LEVELS))
		return -EINVAL;
	bpf_for(i, 0, NODES)
		world.items[i & (NODES - 1)].number = i;
	error = model_make(rounds, !step() && same());
	if (!error && world.swaps < 50) {
		scx_bpf_error("only %u swaps", world.swaps);
		error = -EINVAL;
	}
	return error;
}

MODEL_OPS(arrays_model);
