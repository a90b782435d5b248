/* SPDX-License-Identifier: GPL-2.0-only */
/* Tasks that may run on one CPU only, under the heirs of Linux 2.4. Behind their situations. */
#ifndef RULES_PINNED_H
#define RULES_PINNED_H

static void pin(struct task_struct *p, s32 cpu)
{
	p->nr_cpus_allowed = 1;
	script_of(p)->mask.bits[0] = 1ull << cpu;
}

/*
 * They wait like all others. The kernel takes from a CPU's local queue without
 * asking: of two tasks that wait there, neither would ever be charged nor get new
 * ticks, and a task that waits for that CPU elsewhere would starve.
 */
static void pinned(void)
{
	struct task_struct *a, *b;

	script_start(2);
	a = running_on(0, 0, 0, 1);
	pin(a, 0);
	b = task(1, 0, 0, 2);
	pin(b, 0);
	script_wake(b, 1, 0);
	CHECK(!script.inserted && ctx(b)->old.linked);
	CHECK(!script_schedule(1));

	/* B has a tick, then both have none. */
	need_resched(0);
	CHECK(script_schedule(0) == b);
	ctx(b)->old.counter = 0;
	need_resched(0);
	EQUAL(script.probes[LAB_RECALCULATIONS], 0);
	CHECK(script_schedule(0));
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
	CHECK(script.curr[0] == b);
	CHECK(ctx(b)->old.counter > 0);

	/* A task that yields yields to the other one. */
	script_yield(0);
	CHECK(ctx(b)->old.yielded);
	CHECK(script_schedule(0) == a);
	EQUAL(script.probes[LAB_PINNED_LOCAL], 0);
}

/* And preempt by the same rule. */
static void pinned_preempts(void)
{
	struct task_struct *p;

	script_start(2);
	running_on(0, 3, 0, 1);
	p = task(11, -20, 0, 2);
	pin(p, 0);
	script_wake(p, 1, 0);
	CHECK(cpus[0].marked);
}

#endif /* RULES_PINNED_H */
