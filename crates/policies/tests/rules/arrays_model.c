/* SPDX-License-Identifier: GPL-2.0-only */
/* arrays_model.bpf.c natively; in a virtual machine it is loaded as a policy. */
#define POLICY "arrays_model.bpf.c"
#define OPS arrays_model_ops
#include "script.h"

static void like_a_model(void)
{
	script_start(1);
	EQUAL(model_run.done, 3000);
	CHECK(world.swaps >= 50);
}

static void a_wrong_swap_is_found(void)
{
	script_start(1);
	CHECK(same());
	world.arrays.active = !world.arrays.active;
	CHECK(!same());
}

TESTS(TEST(like_a_model), TEST(a_wrong_swap_is_found))
