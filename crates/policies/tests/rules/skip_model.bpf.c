/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The library's skip list against a plain sorted array, by random operations, in
 * whatever world this policy is loaded: ops.init() makes them and fails on the
 * first difference. It schedules by the global queue.
 */
#include <lab/lab.bpf.h>
#include <lab/skiplist.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

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
	u32 model[NODES];	/* numbers of the linked items, in order */
	u32 nr;
	u32 place;		/* of the item that is added; here, as the verifier would follow a local */
	u32 seed;
	u32 done;
	u32 highest;
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

static __always_inline lab_skip_node_t *modelled(u32 i)
{
	return &world.items[world.model[i & (NODES - 1)] & (NODES - 1)].node;
}

/* Whether level @level holds the model's nodes that are so high, in order. */
static __noinline bool level_is_right(u32 level)
{
	lab_skip_node_t *pos, *node;
	u32 i, l = level & (LAB_SKIP_LEVELS - 1);

	lab_use_arena();
	pos = &world.list.head;
	bpf_for(i, 0, world.nr) {
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
__weak bool same(void)
{
	lab_skip_node_t *pos;
	u32 i, level;

	lab_use_arena();
	bpf_for(level, 0, LAB_SKIP_LEVELS) {
		if (!level_is_right(level))
			return false;
	}
	pos = lab_skip_first(&world.list);
	bpf_for(i, 0, world.nr) {
		if (pos != modelled(i))
			return false;
		pos = lab_skip_next(&world.list, pos);
	}
	return !pos && world.list.nr == world.nr;
}

/* Global, as same() is: the verifier looks at it by itself. */
__weak int step(void)
{
	struct item __arena *item;
	u32 number, i;

	lab_use_arena();
	number = draw(NODES);
	item = &world.items[number & (NODES - 1)];
	if (item->linked) {
		lab_skip_del(&world.list, &item->node);
		for (i = 0; i < world.nr && world.model[i & (NODES - 1)] != number && can_loop; i++)
			;
		world.nr--;
		for (; i < world.nr && can_loop; i++)
			world.model[i & (NODES - 1)] = world.model[(i + 1) & (NODES - 1)];
		item->linked = false;
		return 0;
	}
	/* Many keys are equal; the ends of the range are among them. */
	item->node.key = draw(8) ? draw(24) : ~0ull * draw(2);
	if (!lab_skip_add(&world.list, &item->node))
		return -1;
	item->linked = true;
	world.place = world.nr;
	bpf_for(i, 0, world.nr) {
		if (item->node.key < modelled(i)->key) {
			world.place = i;
			break;
		}
	}
	for (i = world.nr; i > world.place && can_loop; i--)
		world.model[i & (NODES - 1)] = world.model[(i - 1) & (NODES - 1)];
	world.model[world.place & (NODES - 1)] = number;
	world.nr++;
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(skip_model_init)
{
	int error = lab_init();
	u32 i;

	if (error)
		return error;
	lab_skip_init(&world.list, 1);
	world.seed = 2463534242u;
	bpf_for(i, 0, rounds) {
		if (!same() || step()) {
			scx_bpf_error("the list differs from the model after %u operations", i);
			return -EINVAL;
		}
		world.done++;
	}
	if (world.done != rounds) {
		scx_bpf_error("%u of %u operations were made", world.done, rounds);
		return -EINVAL;
	}
	return 0;
}

void BPF_STRUCT_OPS(skip_model_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(skip_model_ops,
	       .init	= (void *)skip_model_init,
	       .exit	= (void *)skip_model_exit,
	       .name	= "skip_model");
