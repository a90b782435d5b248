/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The library's lock for real kernels, `tas`, against a plain model, by random
 * operations of one CPU; others that wait are their mark in its word. Natively
 * the virtual kernel has the locks, so this is for virtual machines only.
 */
#include <lab/lab.bpf.h>
#include "model.h"

/* Operations to make. */
const volatile u32 rounds = 3000;

struct world {
	struct lab_lock lock;
	/* The model. */
	u32 waiting;
	bool held;
};

struct world __arena_global world;

static __noinline bool same(void)
{
	lab_use_arena();
	return world.lock.word ==
	       world.waiting * LAB_TAS_WAITER + (world.held ? LAB_TAS_HELD : 0);
}

/* False: a try succeeded or failed wrongly, or a free lock was not taken. */
static __noinline bool step(void)
{
	lab_use_arena();
	switch (draw(5)) {
	case 0:
		__sync_fetch_and_add(&world.lock.word, LAB_TAS_WAITER);
		world.waiting++;
		return true;
	case 1:
		if (!world.waiting)
			return true;
		__sync_fetch_and_sub(&world.lock.word, LAB_TAS_WAITER);
		world.waiting--;
		return true;
	case 2:
		if (lab_trylock(&world.lock) != (!world.held && !world.waiting))
			return false;
		world.held |= !world.waiting;
		return true;
	case 3:
		/* A new waiter may take a free one before earlier waiters. */
		if (world.held)
			return true;
		world.held = true;
		return lab_lock(&world.lock);
	default:
		if (world.held)
			lab_unlock(&world.lock);
		world.held = false;
		return true;
	}
}

LAB_PART int plant(void)
{
	lab_use_arena();
	world.lock.word += LAB_TAS_WAITER;
	return 0;
}

static __always_inline int lock_model_make(void)
{
	lab_lock_init(&world.lock, LAB_LOCK_CLASS_OTHER);
	return model_make(rounds, same() && step());
}

MODEL_OPS(lock_model);
