/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the fixtures that misuse the locks of include/lab. Apart from that they schedule in the
 * order of arrival. No verifier sees these mistakes: an arena lock is a word of memory to it. The
 * virtual kernel ends such a policy at once, a real kernel when somebody waits in vain.
 */
#ifndef LOCK_RULE_H
#define LOCK_RULE_H

#include <lab/lab.bpf.h>
#include <lab/periodic.h>

#include "rule.h"

/* Enqueues before the mistake, so that all CPUs are at work. */
#define LOCK_RULE_WARM_UP 200

/*
 * After the end of the policy each attempt must fail within this time, three quarters of the longest wait. An
 * emulated CPU may stand still for seconds where its host has other work.
 */
#define LOCK_RULE_LATE_NS 3000000000ull

struct lab_lock __arena_global lock_a;
struct lab_lock __arena_global lock_b;

u32 nr_enqueued;
/* When the policy ended; 0 = it has not. */
u64 ended_ns;
/* Attempts that took the lock after that, or failed late. */
u32 nr_late;

static inline bool warmed_up(void)
{
	return __sync_add_and_fetch(&nr_enqueued, 1) > LOCK_RULE_WARM_UP;
}

/* An attempt has ended. */
static inline void judge_attempt(bool taken)
{
	u64 ended = lab_read(ended_ns);

	if (ended && (taken || bpf_ktime_get_ns() > ended + LOCK_RULE_LATE_NS))
		__sync_fetch_and_add(&nr_late, 1);
}

/* Takes and releases @lock as a policy without a mistake does. */
#define use_lock(lock)								\
({										\
	unsigned long ___flags;							\
	bool ___used;								\
										\
	___used = lab_lock_irqsave(lock, ___flags);				\
	judge_attempt(___used);							\
	if (___used)								\
		lab_unlock_irqrestore(lock, ___flags);				\
	___used;								\
})

/* Some time passes, in which other CPUs act. */
static inline void pass_time(u64 ns)
{
	u64 until = bpf_ktime_get_ns() + ns;
	u32 i;

	bpf_for(i, 0, 1 << 22) {
		if (bpf_ktime_get_ns() > until)
			break;
	}
}

static inline s32 lock_rule_init(void)
{
	s32 err = lab_init();

	if (err)
		return err;
	lab_lock_init(&lock_a, LAB_LOCK_CLASS_RUN_QUEUE);
	lab_lock_init(&lock_b, LAB_LOCK_CLASS_RUN_QUEUE);
	return 0;
}

#endif
