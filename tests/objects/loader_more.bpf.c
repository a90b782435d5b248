/* SPDX-License-Identifier: GPL-2.0-only */
/* The other half of loader.bpf.c: neither is a scheduler alone. */
typedef unsigned long long u64;

#define SEC(name)	__attribute__((section(name), used))

u64 more_before = 1;
u64 more_count = 2;

/* The other half has no such function, so this one counts. */
__attribute__((weak, noinline)) u64 more(u64 value)
{
	more_count++;
	return value * 10 + more_before;
}

char LICENSE[] SEC("license") = "GPL";
