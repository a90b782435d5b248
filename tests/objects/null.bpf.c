/* SPDX-License-Identifier: GPL-2.0-only */
/* Follows a NULL pointer, in a subprogram. */
#include "kernel.h"

u64 *nowhere;

static noinline u64 follow(void)
{
	return *nowhere; /* here */
}

SEC("struct_ops/running") s32 k_running(u64 *ctx)
{
	return follow();
}

SCHEDULER("null", .running = (void *)k_running);
