/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The library's priority array against a plain array of (item, level) pairs, by
 * random operations, in whatever world this policy is loaded: ops.init() makes
 * them and fails on the first difference. It schedules by the global queue.
 */
#include <lab/lab.bpf.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

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
	u32 model[NODES];	/* numbers of the linked items; equals of a level in its order */
	u32 nr;
	u32 seed;
	u32 done;
};

struct world __arena_global world;

static __noinline u32 draw(u32 below)
{
	u32 x;

	lab_use_arena();
	x = world.seed;
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	world.seed = x;
	return x % below;
}

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
	return &world.items[world.model[i & (NODES - 1)] & (NODES - 1)];
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
	bpf_for(j, 0, world.nr) {
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
	bpf_for(i, 0, world.nr) {
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
	bpf_for(i, 0, world.nr) {
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
	return used == world.nr && world.array.nr == world.nr &&
	       lab_prio_first(&world.array) == model_next(0) &&
	       lab_prio_next(&world.array, level) == model_next(level) &&
	       lab_prio_next(&world.array, LEVELS) == LAB_PRIO_NONE;
}

static __noinline int step(void)
{
	struct item __arena *item;
	u32 number, place, i;

	lab_use_arena();
	number = draw(NODES);
	item = &world.items[number & (NODES - 1)];
	if (item->linked) {
		lab_prio_del(&world.array, item->level, &item->node);
		for (i = 0; i < world.nr && world.model[i & (NODES - 1)] != number && can_loop; i++)
			;
		world.nr--;
		for (; i < world.nr && can_loop; i++)
			world.model[i & (NODES - 1)] = world.model[(i + 1) & (NODES - 1)];
		item->linked = false;
		return 0;
	}
	item->level = draw_level();
	item->linked = true;
	if (world.nr && !draw(3)) {
		place = draw(world.nr);
		item->level = modelled(place)->level;
		lab_prio_add_before(&world.array, item->level, &item->node,
				    &modelled(place)->node);
		for (i = world.nr; i > place && can_loop; i--)
			world.model[i & (NODES - 1)] = world.model[(i - 1) & (NODES - 1)];
		world.model[place & (NODES - 1)] = number;
	} else if (draw(2)) {
		lab_prio_add_tail(&world.array, item->level, &item->node);
		world.model[world.nr & (NODES - 1)] = number;
	} else {
		lab_prio_add_head(&world.array, item->level, &item->node);
		for (i = world.nr; i > 0 && can_loop; i--)
			world.model[i & (NODES - 1)] = world.model[(i - 1) & (NODES - 1)];
		world.model[0] = number;
	}
	world.nr++;
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(prio_model_init)
{
	u32 i;
	int error = lab_init();

	if (error)
		return error;
	if (lab_prio_init(&world.array, world.lists, LAB_PRIO_LEVELS_MAX + 1) ||
	    !lab_prio_init(&world.array, world.lists, LEVELS)) {
		scx_bpf_error("an array of %u levels is refused, or one of too many is not", LEVELS);
		return -EINVAL;
	}
	world.seed = 2463534242u;
	bpf_for(i, 0, rounds) {
		if (!same()) {
			scx_bpf_error("the array differs from the model after %u operations", i);
			return -EINVAL;
		}
		step();
		world.done++;
	}
	if (world.done != rounds) {
		scx_bpf_error("%u of %u operations were made", world.done, rounds);
		return -EINVAL;
	}
	return 0;
}

void BPF_STRUCT_OPS(prio_model_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(prio_model_ops,
	       .init	= (void *)prio_model_init,
	       .exit	= (void *)prio_model_exit,
	       .name	= "prio_model");
