/* SPDX-License-Identifier: GPL-2.0-only */
/* Loops without end. */
#include "kernel.h"

volatile u64 turns;

SEC("struct_ops/running") s32 k_running(u64 *ctx)
{
	while (1)
		turns++;
	return 0;
}

SCHEDULER("endless", .running = (void *)k_running);
