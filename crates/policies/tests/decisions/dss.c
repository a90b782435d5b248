/* SPDX-License-Identifier: GPL-2.0-only */
#define POLICY "../../../../policies/dss.bpf.c"
#define OPS dss_ops
#include "../rules/script.h"

static void variant(const char *name)
{
	if (!strcmp(name, "2_3_99"))
		base = BASE_2_3_99;
}

#include "decisions.h"
