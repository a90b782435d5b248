/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CO-RE: what is there says so, and lies where it lies here; what is not there says
 * so, whatever the object's own headers have.
 */
#include "kernel.h"

struct sched_ext_entity___future {
	u64 slice;
	u64 gone;
} __core;

struct never_was___x {
	int a;
} __core;

enum scx_enq_flags___x {
	SCX_ENQ_WAKEUP___x = 77,
	SCX_ENQ_OF_2031___x = 1,
};

u32 nr;

SEC("struct_ops/running") s32 k_running(u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];
	struct sched_ext_entity___future *future = (void *)&p->scx;
	u64 there = 0, absent = 0;

	there += __builtin_preserve_field_info(future->slice, 2);
	there += __builtin_preserve_field_info(p->comm, 2);
	there += __builtin_preserve_type_info(*(struct task_struct *)0, 0);
	there += __builtin_preserve_enum_value(*(enum scx_enq_flags___x *)SCX_ENQ_WAKEUP___x, 0);
	absent += __builtin_preserve_field_info(future->gone, 2);
	absent += __builtin_preserve_type_info(*(struct never_was___x *)0, 0);
	absent += __builtin_preserve_enum_value(*(enum scx_enq_flags___x *)SCX_ENQ_OF_2031___x, 0);
	/* Reached by nobody, so it may be of a kernel that is not there. */
	if (absent)
		absent += future->gone;
	if (++nr == 3)
		finish("there %llu absent %llu wakeup %llu weight %llu", there, absent,
		       __builtin_preserve_enum_value(*(enum scx_enq_flags___x *)SCX_ENQ_WAKEUP___x, 1), p->scx.weight);
	return 0;
}

SCHEDULER("questions", .running = (void *)k_running);
