/* SPDX-License-Identifier: GPL-2.0-only */
/* arrays_model.bpf.c natively; crates/kernel/tests/vm.rs loads it in a virtual machine. */
#define POLICY "arrays_model.bpf.c"
#define OPS arrays_model_ops
#include "model_script.h"

static void like_a_model(void)
{
	model_holds(3000);
	CHECK(world.swaps >= 50);
}

static void a_wrong_swap_is_found(void)
{
	model_start();
	CHECK(same());
	world.arrays.active = !world.arrays.active;
	CHECK(!same());
}

TESTS(TEST(like_a_model), TEST(a_planted_fault_is_found), TEST(a_wrong_swap_is_found))
