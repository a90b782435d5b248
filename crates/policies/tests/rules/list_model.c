/* SPDX-License-Identifier: GPL-2.0-only */
/* list_model.bpf.c natively; in a virtual machine it is loaded as a policy. */
#define POLICY "list_model.bpf.c"
#define OPS list_model_ops
#include "script.h"

static void like_an_array(void)
{
	script_start(1);
	EQUAL(model_run.done, 2000);
}

static void a_broken_link_is_found(void)
{
	script_start(1);
	CHECK(same());
	world.items[model_at(&world.model, 0)].node.prev = NULL;
	CHECK(!same());
}

TESTS(TEST(like_an_array), TEST(a_broken_link_is_found))
