/* SPDX-License-Identifier: GPL-2.0-only */
/* prio_model.bpf.c natively; crates/kernel/tests/vm.rs loads it in a virtual machine. */
#define POLICY "prio_model.bpf.c"
#define OPS prio_model_ops
#include "model_script.h"

static void like_a_model(void)
{
	model_holds(2000);
}

static void a_broken_link_is_found(void)
{
	model_start();
	CHECK(same());
	modelled(0)->node.prev = NULL;
	CHECK(!same());
}

static void a_wrong_bit_is_found(void)
{
	u32 word, bit;

	model_start();
	/* A bit too many counts at once: a choice would take the head of an empty list. */
	for (word = 0; word < LAB_PRIO_WORDS; word++) {
		for (bit = 0; bit < 64 && word * 64 + bit < LEVELS; bit++) {
			u64 old = world.array.bitmap[word];
			u32 i, found = 0;

			world.array.bitmap[word] ^= 1ull << bit;
			for (i = 0; i < LEVELS; i++)
				found += lab_prio_next(&world.array, i) != model_next(i);
			CHECK(found);
			world.array.bitmap[word] = old;
		}
	}
	CHECK(same());
}

/* Reading the first level costs the same however many nodes and levels are in use. */
static u32 touches;

static void count_touches(struct lab_host *h, const volatile void *addr, u32 len, bool write)
{
	touches++;
}

static void constant_cost(void)
{
	u32 i;

	model_start();
	script.host.touch = count_touches;
	for (i = 0; i < NODES; i++) {
		if (!world.items[i].linked)
			lab_prio_add_tail(&world.array, i, &world.items[i].node);
		touches = 0;
		lab_prio_first(&world.array);
		EQUAL(touches, 1);
	}
}

TESTS(TEST(like_a_model), TEST(a_planted_fault_is_found), TEST(a_broken_link_is_found), TEST(a_wrong_bit_is_found),
      TEST(constant_cost))
