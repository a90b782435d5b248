/* SPDX-License-Identifier: GPL-2.0-only */
/* Accesses memory as its options say, in two passes. The time of the fifth op's passes, or of its second one, is reported. */
#include "kernel.h"

#define LINES 64

const volatile u32 lines, writes, between, second, stack, fields;

struct line {
	u64 word, rest[7];
};
static volatile struct line table[LINES] __attribute__((aligned(64)));
u64 nr, sum;

static u64 pass(void)
{
	u64 seen = 0;

	for (u32 i = 0; i < lines && i < LINES; i++) {
		if (writes)
			table[i].word = i;
		else
			seen += table[i].word;
	}
	return seen;
}

SEC("struct_ops/running") s32 k_running(u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];
	volatile u64 own[16];
	u64 seen, begun;

	begun = bpf_ktime_get_ns();
	seen = pass();
	if (between) {
		u64 now = bpf_ktime_get_ns();

		if (second)
			begun = now;
	}
	seen += pass();
	begun = bpf_ktime_get_ns() - begun;
	for (u32 i = 0; i < stack && i < 16; i++) {
		own[i] = i;
		seen += own[i];
	}
	if (fields)
		seen += p->pid;
	sum = seen;
	if (++nr == 5)
		finish("%llu", begun);
	return 0;
}

SCHEDULER("prices", .running = (void *)k_running);
