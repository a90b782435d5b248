/* SPDX-License-Identifier: GPL-2.0-only */
/* Division by zero gives 0 in BPF, and the rest is the dividend. */
#include "kernel.h"

u64 nr, divisor, divided, rest;
u32 divided32, rest32;

SEC("struct_ops/running") s32 k_running(u64 *ctx)
{
	divided += 100 / divisor;
	rest += 7 % divisor;
	divided32 += 100 / (u32)divisor;
	rest32 += 9 % (u32)divisor;
	if (++nr == 5)
		finish("%llu %llu %llu %llu", divided, rest, divided32, rest32);
	return 0;
}

SCHEDULER("division", .running = (void *)k_running);
