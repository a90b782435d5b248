/* SPDX-License-Identifier: GPL-2.0-only */
/* The rules of docs/schedulers/mq-local.md, one test a rule. */
#define POLICY "../../../../policies/mq-local.bpf.c"
#define OPS mq_local_ops
#include "script.h"
#include "mq.h"
#include "pinned.h"

static void rmq_t1_idle_beside_a_queue(void)
{
	u32 i;

	script_start(2);
	running_on(1, 5, 0, M1);
	for (i = 0; i < 5; i++)
		publish(waiting(20, 0, 1, M2));
	CHECK(!script_schedule(0));
	EQUAL(script.nr_locks, 1);
	EQUAL(queues[1].list.nr, 6);
	EQUAL(script.nr_kicks[0], 0);
}

static void rmq_t2_inversion(void)
{
	struct task_struct *p;

	script_start(2);
	running_on(1, 5, 0, M1);
	publish(waiting(30, -20, 1, M2));
	EQUAL(published(1), 70);
	p = waiting(1, 16, 0, M3);
	ctx(p)->old.counter = 1;
	CHECK(script_schedule(0) == p);
}

/* A task wakes on its last CPU, also if another one is idle. */
static void wakeup(void)
{
	struct task_struct *p;

	script_start(2);
	running_on(0, 3, 0, M1);
	p = task(4, 0, 0, M2);
	script_wake(p, 1, 0);
	EQUAL(ctx(p)->home, 0);
	EQUAL(script.nr_kicks[0] + script.nr_kicks[1], 0);
	p = task(6, 0, 0, M1);
	script_wake(p, 1, 0);
	EQUAL(ctx(p)->home, 0);
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
	EQUAL(script.nr_kicks[1], 0);
	p = task(6, 0, 1, M1);
	script_wake(p, 0, 0);
	EQUAL(script.kicks[1], SCX_KICK_IDLE);
	EQUAL(queues[0].list.nr, 3);
}

/* The waker's choice does not see another CPU's queue: a hint that it is about to sleep has no effect. */
static void sync_from_another_cpu(void)
{
	struct task_struct *p;

	script_start(2);
	running_on(0, 6, 0, M1);
	p = task(6, 0, 1, M1);
	script_wake(p, 0, SCX_WAKE_SYNC);
	EQUAL(script.kicks[1], SCX_KICK_IDLE);
	p = task(20, 0, 0, M1);
	script_wake(p, 0, SCX_WAKE_SYNC);
	EQUAL(script.nr_kicks[0], 0);
}

static void fork_stays(void)
{
	struct task_struct *p, *child;

	script_start(2);
	p = running_on(1, 7, 0, M1);
	child = script_fork(p, 0, M1);
	child->__lab_cpu = 1;
	script_wake(child, 1, 0);
	EQUAL(ctx(child)->home, 1);
	EQUAL(ctx(child)->old.counter, 4);
	EQUAL(ctx(p)->old.counter, 3);
	CHECK(!script_schedule(0));
}

/* Real-time tasks wait for their CPU only. */
static void realtime(void)
{
	struct task_struct *r;

	script_start(2);
	running_on(0, 11, 0, M1);
	r = make_rt(task(0, 0, 0, M1), LAB_SCHED_FIFO, 5);
	script_wake(r, 0, 0);
	EQUAL(ctx(r)->home, -1);
	EQUAL(script.nr_kicks[1], 0);
	CHECK(!script_schedule(1));
	script_preempt(0);
	CHECK(script_schedule(0) == r);
	r = make_wait(make_rt(task(0, 0, 1, M1), LAB_SCHED_FIFO, 5));
	EQUAL(ctx(r)->home, -2);
	CHECK(script_schedule(1) == r);
}

/* Only the tasks of the own queue count. */
static void yield_locally(void)
{
	struct task_struct *p;

	script_start(2);
	p = running_on(0, 3, 0, M1);
	running_on(1, 3, 0, M2);
	waiting(5, 0, 1, M3);
	script.cpu = 0;
	script_yield(0);
	CHECK(!ctx(p)->old.yielded);
	waiting(5, 0, 0, M3);
	script_yield(0);
	CHECK(ctx(p)->old.yielded);
}

/* One CPU's tasks have expired: everybody's counters are recalculated. */
static void recalculation(void)
{
	struct task_struct *p, *other;

	script_start(2);
	p = waiting(0, 0, 0, M1);
	other = waiting(5, 0, 1, M2);
	CHECK(script_schedule(0) == p);
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
	EQUAL(script.altered, 2);
	CHECK(script_schedule(1) == other);
	EQUAL(ctx(other)->old.counter, 8);
}

TESTS(TEST(rmq_t1_idle_beside_a_queue), TEST(rmq_t2_inversion), TEST(wakeup), TEST(sync_from_another_cpu), TEST(fork_stays),
      TEST(realtime), TEST(yield_locally), TEST(recalculation), TEST(pinned), TEST(pinned_preempts))
