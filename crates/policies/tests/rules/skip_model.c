/* SPDX-License-Identifier: GPL-2.0-only */
/* skip_model.bpf.c natively; crates/kernel/tests/vm.rs loads it in a virtual machine. */
#define POLICY "skip_model.bpf.c"
#define OPS skip_model_ops
#include "model_script.h"

static void like_a_sorted_array(void)
{
	model_holds(3000);
	CHECK(world.highest >= 5);
}

static void a_broken_link_is_found(void)
{
	u32 i;

	model_start();
	CHECK(same());
	for (i = 0; i < world.model.nr; i++) {
		lab_skip_node_t *node = modelled(i), *prev = node->prev[node->levels - 1];

		node->prev[node->levels - 1] = node;
		CHECK(!same());
		node->prev[node->levels - 1] = prev;
	}
	CHECK(same());
}

static u32 touches;

static void count_touches(struct lab_host *h, const volatile void *addr, u32 len, bool write)
{
	touches++;
}

/* Adding behind n nodes looks at few of them; taking out touches one a level at most. */
static void cost(void)
{
	static struct lab_skip_node nodes[512];
	static struct lab_skip_list list;
	u32 i, most = 0, sum = 0;

	model_start();
	script.host.touch = count_touches;
	lab_skip_init(&list, 1);
	for (i = 0; i < 512; i++) {
		nodes[i].key = i;
		touches = 0;
		CHECK(lab_skip_add(&list, &nodes[i]));
		if (i >= 256)
			sum += touches;
	}
	/* 16 levels and links would be the mean of an ideal list of 512; a list without levels takes 384. */
	CHECK(sum / 256 < 40);
	for (i = 0; i < 512; i++) {
		touches = 0;
		lab_skip_del(&list, &nodes[i]);
		most = touches > most ? touches : most;
	}
	CHECK(most <= 1 + LAB_SKIP_LEVELS);
	EQUAL(list.levels, 1);
}

TESTS(TEST(like_a_sorted_array), TEST(a_planted_fault_is_found), TEST(a_broken_link_is_found), TEST(cost))
