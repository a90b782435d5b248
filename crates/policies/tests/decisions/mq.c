/* SPDX-License-Identifier: GPL-2.0-only */
#define POLICY "../../../../policies/mq.bpf.c"
#define OPS mq_ops
/* A task's ticks are as of the last recalculation: it has missed none. */
#define TICKS_ARE_SET(p) (task_of(p)->number = sweeps.number)
#include "../rules/script.h"

static void variant(const char *name) { }

#include "decisions.h"
