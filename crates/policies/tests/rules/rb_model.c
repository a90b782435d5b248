/* SPDX-License-Identifier: GPL-2.0-only */
/* rb_model.bpf.c natively; crates/kernel/tests/vm.rs loads it in a virtual machine. */
#define POLICY "rb_model.bpf.c"
#define OPS rb_model_ops
#include "model_script.h"

static void like_a_sorted_array(void)
{
	model_holds(3000);
	/* Deep enough that both children of an inner node were taken out, too. */
	CHECK(world.deepest >= 5);
}

static void a_wrong_colour_is_found(void)
{
	u32 i, found = 0;

	model_start();
	CHECK(same());
	for (i = 0; i < world.model.nr; i++) {
		modelled(i)->red ^= 1;
		found += !same();
		modelled(i)->red ^= 1;
	}
	EQUAL(found, world.model.nr);
}

static void a_wrong_least_is_found(void)
{
	model_start();
	CHECK(same());
	world.tree.root->least++;
	CHECK(!same());
}

/* The greatest depth of a tree of n nodes is twice the logarithm of n + 1. */
static void depth_is_bounded(void)
{
	static struct lab_rb_node nodes[4095];
	struct lab_rb_tree tree;
	u32 i, depth, deepest = 0;
	lab_rb_node_t *pos;

	model_start();
	lab_rb_init(&tree);
	for (i = 0; i < 4095; i++) {
		nodes[i].key = i;
		CHECK(lab_rb_add(&tree, &nodes[i]));
	}
	for (i = 0; i < 4095; i++) {
		for (depth = 0, pos = &nodes[i]; pos; pos = pos->parent)
			depth++;
		deepest = depth > deepest ? depth : deepest;
	}
	CHECK(deepest >= 12 && deepest <= 24);
}

TESTS(TEST(like_a_sorted_array), TEST(a_planted_fault_is_found), TEST(a_wrong_colour_is_found), TEST(a_wrong_least_is_found),
      TEST(depth_is_bounded))
