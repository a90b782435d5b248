/* SPDX-License-Identifier: GPL-2.0-only */
/* list_model.bpf.c natively; crates/kernel/tests/vm.rs loads it in a virtual machine. */
#define POLICY "list_model.bpf.c"
#define OPS list_model_ops
#include "model_script.h"

static void like_an_array(void)
{
	model_holds(2000);
}

static void a_broken_link_is_found(void)
{
	model_start();
	CHECK(same());
	world.items[model_at(&world.model, 0)].node.prev = NULL;
	CHECK(!same());
}

TESTS(TEST(like_an_array), TEST(a_planted_fault_is_found), TEST(a_broken_link_is_found))
