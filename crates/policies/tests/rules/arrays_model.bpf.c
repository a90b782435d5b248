/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The library's pair of priority arrays against two plain queues of numbers, by
 * random operations, in whatever world this policy is loaded: ops.init() makes
 * them and fails on the first difference. It schedules by the global queue.
 */
#include <lab/lab.bpf.h>
#include <lab/arrays.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

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
	u32 seed;
	u32 done;
	u32 swaps;
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

s32 BPF_STRUCT_OPS_SLEEPABLE(arrays_model_init)
{
	u32 i;
	int error = lab_init();

	if (error)
		return error;
	if (!lab_arrays_init(&world.arrays, world.lists, LEVELS))
		return -EINVAL;
	world.seed = 2463534242u;
	bpf_for(i, 0, NODES)
		world.items[i & (NODES - 1)].number = i;
	bpf_for(i, 0, rounds) {
		if (step() || !same()) {
			scx_bpf_error("the arrays differ from the model after %u operations", i);
			return -EINVAL;
		}
		world.done++;
	}
	if (world.done != rounds || world.swaps < 50) {
		scx_bpf_error("%u of %u operations were made, %u swaps", world.done, rounds,
			      world.swaps);
		return -EINVAL;
	}
	return 0;
}

void BPF_STRUCT_OPS(arrays_model_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(arrays_model_ops,
	       .init	= (void *)arrays_model_init,
	       .exit	= (void *)arrays_model_exit,
	       .name	= "arrays_model");
