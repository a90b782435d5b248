/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The library's red-black tree against a plain sorted array, by random
 * operations, in whatever world this policy is loaded: ops.init() makes them and
 * fails on the first difference. It schedules by the global queue.
 */
#include <lab/lab.bpf.h>
#include <lab/rbtree.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

#define NODES	32

/* Operations to make. */
const volatile u32 rounds = 3000;

struct item {
	struct lab_rb_node node;
	u64 linked;
};

struct world {
	struct lab_rb_tree tree;
	struct item items[NODES];
	u32 model[NODES];	/* numbers of the linked items, in order */
	u32 nr;
	u32 place;		/* of the item that is added; here, as the verifier would follow a local */
	u32 depth, blacks;	/* of the node that was looked at last; likewise */
	u32 seed;
	u32 done;
	u32 deepest;
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

static __always_inline lab_rb_node_t *modelled(u32 i)
{
	return &world.items[world.model[i & (NODES - 1)] & (NODES - 1)].node;
}

/* Whether @node's children, colour and least value are as they must be. */
static __noinline bool sound(lab_rb_node_t *node)
{
	lab_rb_node_t *child;
	s64 least;
	u32 i;

	lab_use_arena();
	least = node->value;
	for (i = 0; i < 2; i++) {
		child = node->child[i];
		if (!child)
			continue;
		if (child->parent != node || (node->red && child->red))
			return false;
		if (lab_rb_less(child->least, least))
			least = child->least;
	}
	return node->least == least;
}

/* Black nodes from @node up to the root, or 0 if its depth exceeds what the colours allow. */
static __noinline u32 blacks(lab_rb_node_t *node)
{
	lab_use_arena();
	world.depth = 0;
	world.blacks = 0;
	for (; node && can_loop; node = node->parent) {
		world.blacks += !node->red;
		world.depth++;
	}
	if (world.depth > world.deepest)
		world.deepest = world.depth;
	return world.depth > 2 * world.blacks ? 0 : world.blacks;
}

/* The first of the model's nodes whose value is at most @bound. */
static __noinline lab_rb_node_t *model_within(s64 bound)
{
	u32 i;

	lab_use_arena();
	bpf_for(i, 0, world.nr) {
		if (!lab_rb_less(bound, modelled(i)->value))
			return modelled(i);
	}
	return NULL;
}

/* Whether the tree is the model. */
__weak bool same(void)
{
	lab_rb_node_t *pos, *want;
	u32 i, height = 0, nr;
	s64 bound;

	lab_use_arena();
	pos = world.tree.first;
	bpf_for(i, 0, world.nr) {
		want = modelled(i);
		if (pos != want || !sound(want))
			return false;
		if (!want->child[0] || !want->child[1]) {
			/* Every way from the root to an empty place has as many black nodes. */
			nr = blacks(want);
			if (!nr || (height && nr != height))
				return false;
			height = nr;
		}
		pos = lab_rb_next(want);
		if (lab_rb_prev(want) != (i ? modelled(i - 1) : NULL))
			return false;
	}
	if (pos || world.tree.nr != world.nr)
		return false;
	if (lab_rb_last(&world.tree) != (world.nr ? modelled(world.nr - 1) : NULL))
		return false;
	if (world.tree.root && (world.tree.root->red || world.tree.root->parent))
		return false;
	bound = draw(100);
	return lab_rb_first_within(&world.tree, bound) == model_within(bound) &&
	       world.tree.steps <= world.deepest;
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
		lab_rb_del(&world.tree, &item->node);
		for (i = 0; i < world.nr && world.model[i & (NODES - 1)] != number && can_loop; i++)
			;
		world.nr--;
		for (; i < world.nr && can_loop; i++)
			world.model[i & (NODES - 1)] = world.model[(i + 1) & (NODES - 1)];
		item->linked = false;
		return 0;
	}
	/* Keys around the place where numbers wrap; many are equal. */
	item->node.key = (s64)(0x7ffffffffffffff8ull + draw(24));
	item->node.value = draw(100);
	if (!lab_rb_add(&world.tree, &item->node))
		return -1;
	item->linked = true;
	world.place = world.nr;
	bpf_for(i, 0, world.nr) {
		if (lab_rb_less(item->node.key, modelled(i)->key)) {
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

s32 BPF_STRUCT_OPS_SLEEPABLE(rb_model_init)
{
	int error = lab_init();
	u32 i;

	if (error)
		return error;
	lab_rb_init(&world.tree);
	world.seed = 2463534242u;
	bpf_for(i, 0, rounds) {
		if (!same() || step()) {
			scx_bpf_error("the tree differs from the model after %u operations", i);
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

void BPF_STRUCT_OPS(rb_model_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(rb_model_ops,
	       .init	= (void *)rb_model_init,
	       .exit	= (void *)rb_model_exit,
	       .name	= "rb_model");
