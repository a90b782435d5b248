/* SPDX-License-Identifier: GPL-2.0-only */
/* Situations for tests of the policies made of <lab/fair.h>. */
#ifndef RULES_FAIR_SCRIPT_H
#define RULES_FAIR_SCRIPT_H

static task_t *ctx(struct task_struct *p)
{
	task_t *t = task_of(p);

	CHECK(t);
	return t;
}

/* A task that sleeps, of this nice level and virtual time. */
static struct task_struct *sleeping(s32 cpu, s32 nice, s64 v)
{
	struct task_struct *p = script_fork(NULL, nice, 1);

	p->__lab_cpu = cpu;
	ctx(p)->home = ctx(p)->lab.cpu = cpu;
	ctx(p)->vruntime = v;
	ctx(p)->fresh = false;
	return p;
}

static void join(struct task_struct *p)
{
	ctx(p)->asleep = false;
	script_of(p)->runnable = true;
	p->scx.flags |= SCX_TASK_QUEUED;
}

/* A task that waits in the queue of `cpu`. */
static struct task_struct *waiting(s32 cpu, s32 nice, s64 v)
{
	struct task_struct *p = sleeping(cpu, nice, v);

	join(p);
	fair_link(&rqs[cpu], ctx(p));
	script_of(p)->in_custody = true;
	return p;
}

/* A task that runs on `cpu`; the queue's clock is at least where it is. */
static struct task_struct *running_on(s32 cpu, s32 nice, s64 v)
{
	struct task_struct *p = sleeping(cpu, nice, v);

	join(p);
	rqs[cpu].curr = ctx(p);
	script.curr[cpu] = p;
	script.cpu = cpu;
	p->scx.slice = 1;
	OPS.running(p);
	EQUAL(script.probes[LAB_PINNED_LOCAL], 0);
	fair_advance(&rqs[cpu], script.now_ns);
	return p;
}

/* It wakes where it was. */
static void wake(struct task_struct *p, s32 cpu)
{
	CHECK(!script_of(p)->runnable);
	script_calm();
	p->__lab_cpu = cpu;
	script_of(p)->runnable = true;
	p->scx.flags |= SCX_TASK_QUEUED;
	script_enqueue(p, SCX_ENQ_WAKEUP);
}

static void need_resched(s32 cpu)
{
	script_preempt(cpu);
}

/* It waits, and was running until just now. */
static struct task_struct *waiting_warm(s32 cpu, s32 nice, s64 v)
{
	struct task_struct *p = waiting(cpu, nice, v);

	ctx(p)->turn_ns = 1;
	ctx(p)->started_ns = script.now_ns;
	return p;
}

/*
 * A CPU without work leaves a task whose cache is warm for 0.5 ms; a task of its core
 * it takes, and any task once it was woken to balance and failed so often.
 */
static void check_warm_caches(void)
{
	struct task_struct *p, *core;
	u32 i;

	script.core_cpus = 2;
	script_start(4);
	script.now_ns = 1000 * 1000000ll;
	running_on(0, 0, 100);
	p = waiting_warm(0, 0, 100);
	script.now_ns += 499999;
	CHECK(!script_schedule(2));
	script.now_ns += 1;
	CHECK(script_schedule(2) == p);
	/* Threads of a core have the caches in common. */
	core = waiting_warm(0, 0, 100);
	CHECK(script_schedule(1) == core);
	/* When it becomes idle it may fail as often as it likes; when it is asked, five times. */
	p = waiting_warm(0, 0, 100);
	for (i = 0; i < 20; i++)
		CHECK(!script_schedule(3));
	for (i = 0; i < 5; i++) {
		rqs[3].asked = true;
		CHECK(!script_schedule(3));
	}
	rqs[3].asked = true;
	CHECK(script_schedule(3) == p);
	EQUAL(rqs[3].failed, 0);
}

/* No waiting task may run on `cpu`. */
static void forbid(s32 cpu)
{
	u32 i;

	for (i = 0; i < script.nr_tasks; i++) {
		if (script.tasks[i]->in_custody) {
			script.tasks[i]->mask.bits[0] &= ~(1ul << cpu);
			lab_task_refresh(&ctx(&script.tasks[i]->p)->lab, &script.tasks[i]->p);
		}
	}
}

/* A queue whose tasks are all bound to other CPUs does not hide the next one. */
static void check_bound_queue(void)
{
	struct task_struct *p;
	u32 i;

	script_start(3);
	running_on(0, 0, 100);
	for (i = 0; i < 4; i++)
		waiting(0, 0, 100);
	forbid(2);
	running_on(1, 0, 100);
	p = waiting(1, 0, 100);
	CHECK(script_schedule(2) == p);
	EQUAL(rqs[0].nr, 4);
	/* Nor does it where both are busier than this CPU. */
	waiting(1, 0, 100);
	waiting(1, 0, 100);
	script.now_ns += 1000 * 1000000ll;
	script_tick(2);
	EQUAL(rqs[0].nr, 4);
	EQUAL(rqs[1].nr, 1);
	EQUAL(rqs[2].nr, 1);
}

/* Ticks of 4 ms on CPU 0 until it balances among the CPUs of its cache. */
static u32 ticks_until_balanced(void)
{
	u64 last = rqs[0].balance_ns[LAB_LEVEL_LLC];
	u32 ticks = 0;

	while (rqs[0].balance_ns[LAB_LEVEL_LLC] == last) {
		script.now_ns += 4000000;
		script_tick(0);
		ticks++;
	}
	return ticks;
}

/* A busy CPU of two balances every 32 ms, but every 64 ms while all is even. */
static void check_balance_interval(void)
{
	u32 i;

	script_start(2);
	running_on(0, 0, 100);
	running_on(1, 0, 100);
	EQUAL(ticks_until_balanced(), 1);
	EQUAL(ticks_until_balanced(), 16);
	EQUAL(ticks_until_balanced(), 16);
	for (i = 0; i < 4; i++)
		waiting(1, 0, 100);
	EQUAL(ticks_until_balanced(), 16);
	EQUAL(rqs[0].nr, 2);
	/* It was not even then, and is now. */
	EQUAL(ticks_until_balanced(), 8);
	EQUAL(ticks_until_balanced(), 16);
	/* Out of balance counts, whether or not something may be moved. */
	for (i = 0; i < 4; i++)
		waiting(1, 0, 100);
	forbid(0);
	EQUAL(ticks_until_balanced(), 16);
	EQUAL(ticks_until_balanced(), 8);
	EQUAL(ticks_until_balanced(), 8);
}

#endif /* RULES_FAIR_SCRIPT_H */
