/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The native side of the tests of the library's structures against plain
 * models: a test file includes this in place of script.h.
 */
#ifndef RULES_MODEL_SCRIPT_H
#define RULES_MODEL_SCRIPT_H

#include "script.h"

static void script_exit(struct lab_host *h, s64 code, const char *fmt, const u64 *args, u32 bytes)
{
	CHECK(!script.exit_code);
	script.exit_code = code;
}

static int model_init(void)
{
	script_prepare(1);
	script.host.exit = script_exit;
	return OPS.init();
}

static void model_start(void)
{
	EQUAL(model_init(), 0);
}

/* All operations are made, and the loader of the policy gets their number. */
static void model_holds(u32 operations)
{
	model_start();
	EQUAL(model_run.done, operations);
	EQUAL(script.exit_code, operations);
}

/* plant() is seen by the comparison behind it. */
static void a_planted_fault_is_found(void)
{
	fault_before = 1000;
	EQUAL(model_init(), -EINVAL);
	CHECK(script.error);
	EQUAL(script.exit_code, 0);
	EQUAL(model_run.done, fault_before);
	script.error = false;
}

#endif /* RULES_MODEL_SCRIPT_H */
