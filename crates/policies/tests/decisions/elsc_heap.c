/* SPDX-License-Identifier: GPL-2.0-only */
#define POLICY "../../../../policies/elsc-heap.bpf.c"
#define OPS elsc_heap_ops
#include "../rules/script.h"

static void variant(const char *name) { }

#include "decisions.h"
