/* SPDX-License-Identifier: GPL-2.0-only */
/* Situations for tests of the policies made of <lab/deadline.h>. Before: DL(t), LINK(t, cpu). */
#ifndef RULES_DL_SCRIPT_H
#define RULES_DL_SCRIPT_H

#define MS	1000000ll

static task_t *ctx(struct task_struct *p)
{
	task_t *t = task_of(p);

	CHECK(t);
	return t;
}

static struct task_struct *sleeping(s32 cpu, s32 nice, u64 deadline)
{
	struct task_struct *p = script_fork(NULL, nice, 1);

	p->__lab_cpu = cpu;
	ctx(p)->lab.cpu = cpu;
	DL(ctx(p))->home = cpu;
	DL(ctx(p))->deadline = deadline;
	return p;
}

static void join(struct task_struct *p)
{
	DL(ctx(p))->asleep = false;
	script_of(p)->runnable = true;
	p->scx.flags |= SCX_TASK_QUEUED;
}

static void attribute(struct task_struct *p, u32 policy, u32 rt_priority)
{
	p->policy = policy;
	p->rt_priority = rt_priority;
	dl_refresh(DL(ctx(p)), p);
}

static struct task_struct *waiting_as(s32 cpu, u32 policy, u32 rt_priority, u64 deadline)
{
	struct task_struct *p = sleeping(cpu, 0, deadline);

	attribute(p, policy, rt_priority);
	join(p);
	LINK(ctx(p), cpu);
	script_of(p)->in_custody = true;
	return p;
}

/* A normal task that waits; it last ran on `cpu`. */
static struct task_struct *waiting(s32 cpu, u64 deadline)
{
	return waiting_as(cpu, 0, 0, deadline);
}

static struct task_struct *running_on(s32 cpu, u64 deadline)
{
	struct task_struct *p = sleeping(cpu, 0, deadline);

	join(p);
	dl_show(&dl_cpus[cpu], DL(ctx(p)));
	script.curr[cpu] = p;
	script.cpu = cpu;
	p->scx.slice = 1;
	OPS.running(p);
	EQUAL(script.probes[LAB_PINNED_LOCAL], 0);
	return p;
}

/*
 * Idle priority counts as normal with a deadline a second later: on the only CPU
 * one that is due at 1,005 ms runs after a normal task of 1,004 ms and before one
 * of 1,006 ms. Now it runs, and that one waits.
 */
static struct task_struct *running_between_normal_ones(void)
{
	struct task_struct *idle = waiting_as(0, LAB_SCHED_IDLE, 0, 5 * MS);
	struct task_struct *earlier = waiting(0, 1004 * MS);

	waiting(0, 1006 * MS);
	CHECK(script_schedule(0) == earlier);
	script_block(0);
	CHECK(script_schedule(0) == idle);
	return idle;
}

/*
 * A FIFO task that yields goes behind its equals, but not behind lesser tasks; none of its
 * ticks makes it do so, however often it forked.
 */
static void check_fifo_yield(void)
{
	struct task_struct *a, *b;
	u32 i;

	script_start(1);
	a = waiting_as(0, LAB_SCHED_FIFO, 10, 0);
	CHECK(script_schedule(0) == a);
	script_yield(0);
	CHECK(script_schedule(0) == a);
	waiting(0, 1 * MS);
	waiting_as(0, LAB_SCHED_FIFO, 9, 0);
	script_yield(0);
	CHECK(script_schedule(0) == a);
	b = waiting_as(0, LAB_SCHED_FIFO, 10, 0);
	for (i = 0; i < 40; i++)
		script_fork(a, 0, 1);
	for (i = 0; i < 100; i++) {
		script.now_ns += 1 * MS;
		script_tick(0);
		CHECK(script_schedule(0) == a);
	}
	script_yield(0);
	CHECK(script_schedule(0) == b);
	script.now_ns += 1 * MS;
	script_tick(0);
	CHECK(script_schedule(0) == b);
	script_yield(0);
	CHECK(script_schedule(0) == a);
}

/* It wakes where it was. */
static void wake(struct task_struct *p)
{
	script_calm();
	CHECK(!script_of(p)->runnable);
	script_of(p)->runnable = true;
	p->scx.flags |= SCX_TASK_QUEUED;
	script_enqueue(p, SCX_ENQ_WAKEUP);
}

static void allow_only(struct task_struct *p, s32 cpu)
{
	script_of(p)->mask.bits[0] = 1ul << cpu;
	p->nr_cpus_allowed = 1;
	lab_task_refresh(&ctx(p)->lab, p);
}

#endif /* RULES_DL_SCRIPT_H */
