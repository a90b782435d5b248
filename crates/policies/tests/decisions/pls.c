/* SPDX-License-Identifier: GPL-2.0-only */
#define POLICY "../../../../policies/pls.bpf.c"
#define OPS pls_ops
#include "../rules/script.h"

static void variant(const char *name) { }

#include "decisions.h"
