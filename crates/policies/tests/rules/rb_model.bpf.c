/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The library's red-black tree against a plain sorted array, by random
 * operations, in whatever world this policy is loaded (model.h).
 */
#include <lab/lab.bpf.h>
#include <lab/rbtree.h>
#include "model.h"

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
	struct model_array model;	/* the linked items, in order */
	u32 place;		/* of the item that is added; here, as the verifier would follow a local */
	u32 depth, blacks;	/* of the node that was looked at last; likewise */
	u32 deepest;
};

struct world __arena_global world;

static __always_inline lab_rb_node_t *modelled(u32 i)
{
	return &world.items[model_at(&world.model, i) & (NODES - 1)].node;
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
	bpf_for(i, 0, world.model.nr) {
		if (!lab_rb_less(bound, modelled(i)->value))
			return modelled(i);
	}
	return NULL;
}

/* Whether the tree is the model. */
LAB_PART bool same(void)
{
	lab_rb_node_t *pos, *want;
	u32 i, height = 0, nr;
	s64 bound;

	lab_use_arena();
	pos = world.tree.first;
	bpf_for(i, 0, world.model.nr) {
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
	if (pos || world.tree.nr != world.model.nr)
		return false;
	if (lab_rb_last(&world.tree) != (world.model.nr ? modelled(world.model.nr - 1) : NULL))
		return false;
	if (world.tree.root && (world.tree.root->red || world.tree.root->parent))
		return false;
	bound = draw(100);
	return lab_rb_first_within(&world.tree, bound) == model_within(bound) &&
	       world.tree.steps <= world.deepest;
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
		lab_rb_del(&world.tree, &item->node);
		model_remove(&world.model, number);
		item->linked = false;
		return 0;
	}
	/* Keys around the place where numbers wrap; many are equal. */
	item->node.key = (s64)(0x7ffffffffffffff8ull + draw(24));
	item->node.value = draw(100);
	if (!lab_rb_add(&world.tree, &item->node))
		return -1;
	item->linked = true;
	world.place = world.model.nr;
	bpf_for(i, 0, world.model.nr) {
		if (lab_rb_less(item->node.key, modelled(i)->key)) {
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
	world.tree.root->least++;
	return 0;
}

static __always_inline int rb_model_make(void)
{
	lab_rb_init(&world.tree);
	return model_make(rounds, same() && !step());
}

MODEL_OPS(rb_model);
