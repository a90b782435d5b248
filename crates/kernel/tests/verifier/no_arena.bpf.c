/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * says: arena
 */
#include "wrong.h"

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} contexts SEC(".maps");

void BPF_STRUCT_OPS(arena_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 *context = bpf_task_storage_get(&contexts, p, NULL, 0);
	u64 __arena *place;

	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	if (!context)
		return;
	place = (u64 __arena *)*context;
	*place += 1; /* here */
}

WRONG_OPS(enqueue, arena_enqueue);
