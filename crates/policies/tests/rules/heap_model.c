/* SPDX-License-Identifier: GPL-2.0-only */
/* heap_model.bpf.c natively; crates/kernel/tests/vm.rs loads it in a virtual machine. */
#define POLICY "heap_model.bpf.c"
#define OPS heap_model_ops
#include "model_script.h"

static void like_an_array(void)
{
	model_holds(1500);
}

static void a_broken_tree_is_found(void)
{
	u32 i;

	model_start();
	CHECK(same());
	for (i = 0; i < NODES; i++) {
		if (!world.model[i])
			continue;
		world.items[i].node.rank++;
		CHECK(!same());
		world.items[i].node.rank--;
		world.items[i].node.key++;
		CHECK(!same());
		world.items[i].node.key--;
	}
	CHECK(same());
	world.heap.root = world.heap.root->left;
	CHECK(!same());
}

#define MANY 4096

static struct lab_heap heap;
static struct lab_heap_node many[MANY];
static u32 steps;

static bool count_steps(struct lab_host *h)
{
	steps++;
	return true;
}

/* Steps grow with the logarithm of the number of nodes, in whatever order they come and go. */
static void logarithmic(void)
{
	static const u32 strides[] = { 1, MANY - 1, 1597 };
	u32 i, j, most;

	model_start();
	script.host.loop = count_steps;
	for (j = 0; j < sizeof(strides) / sizeof(strides[0]); j++) {
		lab_heap_init(&heap);
		most = 0;
		for (i = 0; i < MANY; i++) {
			steps = 0;
			CHECK(lab_heap_add(&heap, &many[i], 1 + (u64)i * strides[j] % MANY));
			most = steps > most ? steps : most;
		}
		/* Any nodes, then the greatest again and again. */
		for (i = 0; i < MANY; i += 2) {
			steps = 0;
			CHECK(lab_heap_del(&heap, &many[i]));
			most = steps > most ? steps : most;
		}
		for (i = 0; i < MANY / 2; i++) {
			u64 key = lab_heap_first(&heap)->key;

			steps = 0;
			CHECK(lab_heap_del(&heap, lab_heap_first(&heap)));
			CHECK(!heap.root || heap.root->key < key);
			most = steps > most ? steps : most;
		}
		EQUAL(heap.nr, 0);
		/* Two right ways of at most 12 nodes, down and up, and the ranks above. */
		CHECK(most <= 5 * 12);
	}
}

/* A budget that runs out is reported. */
static bool no_steps(struct lab_host *h) { return false; }

static void budget(void)
{
	model_start();
	lab_heap_init(&heap);
	CHECK(lab_heap_add(&heap, &many[0], 7));
	script.host.loop = no_steps;
	CHECK(!lab_heap_add(&heap, &many[1], 9));
}

TESTS(TEST(like_an_array), TEST(a_planted_fault_is_found), TEST(a_broken_tree_is_found), TEST(logarithmic), TEST(budget))
