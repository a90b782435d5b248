/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The library's heap against a plain array of keys, by random operations, in
 * whatever world this policy is loaded (model.h).
 */
#include <lab/lab.bpf.h>
#include <lab/heap.h>
#include "model.h"

#define NODES	64

/* Operations to make. */
const volatile u32 rounds = 1500;

struct item {
	u64 linked;
	struct lab_heap_node node;
};

struct world {
	struct lab_heap heap;
	struct item items[NODES];
	u64 model[NODES];	/* keys; 0: the item is not in the heap */
	u64 greatest;
	u32 counted;
	u32 nr;
};

struct world __arena_global world;

static __always_inline u64 rank_of(lab_heap_node_t *node)
{
	return node ? node->rank : 0;
}

/* Whether the node of an item is where a node of such a tree can be. */
LAB_PART bool in_order(u32 i)
{
	lab_heap_node_t *node, *parent;
	u64 left, right;
	u32 steps;

	lab_use_arena();
	node = &world.items[i & (NODES - 1)].node;
	left = rank_of(node->left);
	right = rank_of(node->right);
	if (node->key != world.model[i & (NODES - 1)] || left < right || node->rank != right + 1)
		return false;
	/* All ways lead to the root, through greater keys and true parents. */
	for (steps = 0; steps < NODES && can_loop; steps++) {
		parent = node->parent;
		if (!parent)
			break;
		if (parent->key < node->key || (parent->left != node && parent->right != node))
			return false;
		node = parent;
	}
	return node == world.heap.root;
}

LAB_PART bool same(void)
{
	u32 i;

	lab_use_arena();
	/* In the arena, where the verifier does not follow them. */
	world.counted = 0;
	world.greatest = 0;
	bpf_for(i, 0, NODES) {
		if (!world.model[i & (NODES - 1)])
			continue;
		world.counted++;
		if (world.model[i & (NODES - 1)] > world.greatest)
			world.greatest = world.model[i & (NODES - 1)];
		if (!in_order(i))
			return false;
	}
	if (world.counted != world.nr || world.heap.nr != world.nr)
		return false;
	if (!world.nr)
		return !lab_heap_first(&world.heap);
	return lab_heap_first(&world.heap)->key == world.greatest;
}

/* Adds or takes out an item; every other time the greatest. False: the heap gave up. */
LAB_PART bool step(void)
{
	lab_heap_node_t *first;
	u32 i, n;

	lab_use_arena();
	n = draw(NODES);
	first = lab_heap_first(&world.heap);
	if (first && draw(3) == 0) {
		/* The keys are few, so there are equals: which of them is the heap's choice. */
		bpf_for(i, 0, NODES) {
			if (first == &world.items[i & (NODES - 1)].node)
				n = i;
		}
	}
	if (world.model[n & (NODES - 1)]) {
		world.model[n & (NODES - 1)] = 0;
		world.nr--;
		return lab_heap_del(&world.heap, &world.items[n & (NODES - 1)].node);
	}
	world.model[n & (NODES - 1)] = 1 + draw(40);
	world.nr++;
	return lab_heap_add(&world.heap, &world.items[n & (NODES - 1)].node,
			    world.model[n & (NODES - 1)]);
}

LAB_PART int plant(void)
{
	lab_use_arena();
	world.heap.root->rank++;
	return 0;
}

static __always_inline int heap_model_make(void)
{
	lab_heap_init(&world.heap);
	return model_make(rounds, same() && step());
}

MODEL_OPS(heap_model);
