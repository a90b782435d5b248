/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the fixtures of this folder.
 *
 * Each fixture is a policy that judges one rule of sched_ext from the inside. It ends its run in one
 * of three ways, and tests/misbehave/rules.toml says which one is expected:
 *  - rule_holds(): enough was seen and nothing contradicts the rule (exit kind 65, code RULE_HOLDS);
 *  - rule_broken(): the rule does not hold (exit kind 1025);
 *  - the kernel ejects the policy, where that is the rule.
 * A run that merely ends proves nothing unless rules.toml says so.
 */
#ifndef RULE_H
#define RULE_H

#include <scx/common.bpf.h>

#define RULE_HOLDS 1000

#define rule_holds(fmt, args...) scx_bpf_exit(RULE_HOLDS, fmt, ##args)
#define rule_broken(fmt, args...) scx_bpf_error("rule broken: " fmt, ##args)

/* Every fixture leaves what ended it where user space can read it. */
UEI_DEFINE(uei);

#define rule_exit_record(ei) UEI_RECORD(uei, ei)

#ifndef RULE_OWN_EXIT
void BPF_STRUCT_OPS(rule_exit, struct scx_exit_info *ei)
{
	rule_exit_record(ei);
}
#endif

/*
 * A real kernel has other tasks and other CPUs that act between two steps of a fixture. Where what they
 * do looks like a broken rule, and nothing shows that it was them, it is forgiven this often; a rule that
 * does not hold is broken every time. The virtual kernel forgives nothing.
 */
const volatile u32 rule_races;
u32 rule_nr_races;

#define rule_broken_or_raced(fmt, args...) do {						\
	if (__sync_add_and_fetch(&rule_nr_races, 1) > rule_races)			\
		rule_broken(fmt, ##args);						\
} while (0)

/* A task that ends (include/linux/sched.h). It goes past ops.enqueue() unless SCX_OPS_ENQ_EXITING is set. */
#ifndef PF_EXITING
#define PF_EXITING 0x4
#endif

/* Whether it is a task of the workload `half`, whose tasks may run on CPUs 1 and 2 alone. */
static inline bool rule_is_half(const struct task_struct *p)
{
	return p->comm[0] == 'h' && p->comm[1] == 'a' && p->comm[2] == 'l' && p->comm[3] == 'f';
}

/* Pids map to these many slots: as many as a kernel gives away before it begins anew (PID_MAX_DEFAULT). */
#define RULE_TASKS 32768
#define slot_of(p) ((u32)(p)->pid % RULE_TASKS)

/*
 * A queue of pids that several CPUs share without a lock: producers reserve a place by adding to
 * `tail`, consumers by a compare-and-swap of `head`. A place whose pid has not been written yet
 * reads as empty.
 */
#define RULE_RING 4096

struct rule_ring {
	u32 head, tail;
	s32 pid[RULE_RING];
};

static inline void rule_ring_push(struct rule_ring *ring, s32 pid)
{
	u32 at = __sync_fetch_and_add(&ring->tail, 1);

	ring->pid[at % RULE_RING] = pid;
}

/* The oldest pid, or 0. */
static inline s32 rule_ring_pop(struct rule_ring *ring)
{
	u32 head = ring->head;
	s32 pid = ring->pid[head % RULE_RING];

	if (head == ring->tail || !pid)
		return 0;
	if (__sync_val_compare_and_swap(&ring->head, head, head + 1) != head)
		return 0;
	ring->pid[head % RULE_RING] = 0;
	return pid;
}

#endif
