/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The library's list against a plain array, by random operations, in whatever
 * world this policy is loaded: ops.init() makes them and fails on the first
 * difference. It schedules by the global queue.
 */
#include <lab/lab.bpf.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

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
	u32 model[NODES];
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

/* Whether the list, walked both ways, is the array. */
static __noinline bool same(void)
{
	lab_node_t *pos, *back;
	u32 i = 0;

	lab_use_arena();
	back = &world.list.head;
	lab_list_for_each(pos, &world.list) {
		if (i >= world.nr || pos->prev != back)
			return false;
		if (lab_entry(pos, struct item, node)->number != world.model[i & (NODES - 1)])
			return false;
		back = pos;
		i++;
	}
	return lab_list_ended(pos, &world.list) && world.list.head.prev == back &&
	       i == world.nr && world.list.nr == world.nr;
}

static __noinline int step(void)
{
	struct item __arena *item;
	u32 number, i;

	lab_use_arena();
	number = draw(NODES);
	item = &world.items[number & (NODES - 1)];
	if (item->linked) {
		lab_list_del(&world.list, &item->node);
		for (i = 0; i < world.nr && world.model[i & (NODES - 1)] != number && can_loop; i++)
			;
		world.nr--;
		for (; i < world.nr && can_loop; i++)
			world.model[i & (NODES - 1)] = world.model[(i + 1) & (NODES - 1)];
	} else if (draw(2)) {
		lab_list_add_tail(&world.list, &item->node);
		world.model[world.nr & (NODES - 1)] = number;
		world.nr++;
	} else {
		lab_list_add_head(&world.list, &item->node);
		for (i = world.nr; i > 0 && can_loop; i--)
			world.model[i & (NODES - 1)] = world.model[(i - 1) & (NODES - 1)];
		world.model[0] = number;
		world.nr++;
	}
	item->linked = !item->linked;
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(list_model_init)
{
	u32 i;
	int error = lab_init();

	if (error)
		return error;
	lab_list_init(&world.list);
	world.seed = 2463534242u;
	bpf_for(i, 0, NODES)
		world.items[i & (NODES - 1)].number = i;
	bpf_for(i, 0, rounds) {
		if (!same()) {
			scx_bpf_error("the list differs from the array after %u operations", i);
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

void BPF_STRUCT_OPS(list_model_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(list_model_ops,
	       .init	= (void *)list_model_init,
	       .exit	= (void *)list_model_exit,
	       .name	= "list_model");
