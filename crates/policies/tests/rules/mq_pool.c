/* SPDX-License-Identifier: GPL-2.0-only */
/* The rules of docs/schedulers/mq-pool.md, one test a rule. */
#define POLICY "../../../../policies/mq-pool.bpf.c"
#define OPS mq_pool_ops
#include "script.h"
#include "mq.h"
#include "pinned.h"

static void in_pools(u32 nr_cpus, u32 cpus_of_a_pool)
{
	size = cpus_of_a_pool;
	script_start(nr_cpus);
}

/* CPU 2 publishes 99, CPU 1 something if it should. */
static struct task_struct *tempting(void)
{
	struct task_struct *p;

	running_on(2, 11, -20, M1);
	p = waiting(59, -20, 2, M2);
	publish(p);
	EQUAL(published(2), 99);
	return p;
}

static void pool_t1_not_from_another_pool(void)
{
	struct task_struct *p;

	in_pools(4, 2);
	tempting();
	CHECK(!script_schedule(0));
	EQUAL(script.nr_locks, 1);
	running_on(1, 11, -20, M1);
	p = waiting(1, 0, 1, M2);
	publish(p);
	CHECK(script_schedule(0) == p);
}

static void pool_t2_all_is_mq(void)
{
	struct task_struct *p;

	in_pools(4, 4);
	p = tempting();
	EQUAL(pools[0].end - pools[0].begin, 4);
	CHECK(script_schedule(0) == p);
}

static void pool_t2_one_is_mq_local(void)
{
	in_pools(4, 1);
	tempting();
	running_on(1, 11, -20, M1);
	publish(waiting(1, 0, 1, M2));
	CHECK(!script_schedule(0));
	EQUAL(pools[3].end - pools[3].begin, 1);
	EQUAL(cpu_in_order(pools[3].begin), 3);
}

static void pools_follow_nodes(void)
{
	script.node_cpus = 3;
	script_start(8);
	EQUAL(pool_of_cpu(2), 0);
	EQUAL(pool_of_cpu(3), 1);
	EQUAL(pool_of_cpu(7), 2);
	EQUAL(pools[1].begin, 3);
	EQUAL(pools[1].end, 6);
	EQUAL(pools[2].end, 8);
	EQUAL(pools[3].begin, pools[3].end);
}

/* A task is placed in its pool only. */
static void placement(void)
{
	struct task_struct *p;

	in_pools(4, 2);
	running_on(0, 11, -20, M1);
	running_on(1, 11, -20, M2);
	p = task(5, 0, 0, M3);
	script_wake(p, 0, 0);
	EQUAL(ctx(p)->home, 0);
	EQUAL(script.nr_kicks[2] + script.nr_kicks[3], 0);
	p = task(5, 0, 2, M3);
	script_wake(p, 0, 0);
	EQUAL(script.kicks[2], SCX_KICK_IDLE);
}

/* Real-time tasks are shared within a pool. */
static void realtime(void)
{
	struct task_struct *r;

	in_pools(4, 2);
	r = make_wait(make_rt(task(0, 0, 0, M1), LAB_SCHED_FIFO, 5));
	CHECK(!script_schedule(2));
	CHECK(script_schedule(1) == r);
}

static void balance(void)
{
	u32 key = 0;

	script.timer_ns = 0;
	EQUAL(script.timer(script.timer_map, &key, script.timer_value), 0);
	EQUAL(script.nr_held, 0);
}

static u32 tasks_in(u32 pool)
{
	u32 i, nr = 0;

	for (i = pools[pool].begin; i < pools[pool].end; i++)
		nr += queue_at(cpu_in_order(i))->list.nr;
	return nr;
}

/* Every half second, again and again. */
static void balance_timer(void)
{
	in_pools(4, 2);
	EQUAL(script.timer_ns, 500000000);
	balance();
	EQUAL(script.timer_ns, 500000000);
}

static void no_balance(void)
{
	balance_ms = 0;
	in_pools(4, 2);
	CHECK(!script.timer);
}

/* Half of the surplus, from the tail of the longest queue to the shortest, which is kicked. */
static void balance_moves(void)
{
	struct task_struct *p[4];
	u32 i;

	in_pools(4, 2);
	running_on(0, 5, 0, M1);
	running_on(1, 5, 0, M1);
	for (i = 0; i < 4; i++)
		p[i] = waiting(5, 0, 0, M2);
	balance();
	EQUAL(tasks_in(0), 3);
	EQUAL(tasks_in(1), 3);
	EQUAL(ctx(p[0])->home, 0);
	EQUAL(ctx(p[3])->home, 2);
	EQUAL(ctx(p[2])->home, 3);
	EQUAL(script.kicks[2], SCX_KICK_IDLE);
	EQUAL(script.kicks[3], SCX_KICK_IDLE);
	EQUAL(queues[0].list.nr, 2);
	CHECK(script_schedule(3) == p[2]);
}

/* With `from` tasks in pool 0 and `to` in pool 1, of one CPU each, so many move. */
static void moves(u32 from, u32 to, u32 moved)
{
	u32 i;

	in_pools(2, 1);
	running_on(0, 5, 0, M1);
	running_on(1, 5, 0, M1);
	for (i = 1; i < from; i++)
		waiting(5, 0, 0, M2);
	for (i = 1; i < to; i++)
		waiting(5, 0, 1, M2);
	balance();
	EQUAL(tasks_in(0), from - moved);
	EQUAL(tasks_in(1), to + moved);
}

static void balance_two_tasks(void) { moves(3, 1, 1); }
static void balance_not_one_task(void) { moves(2, 1, 0); }
static void balance_not_a_quarter(void) { moves(10, 8, 0); }
static void balance_more_than_a_quarter(void) { moves(11, 8, 1); }

/* Loads are tasks per CPU: a pool twice as large may have twice as many. */
static void balance_by_cpus(void)
{
	u32 i;

	script.node_cpus = 2;
	script_start(3);
	for (i = 0; i < 3; i++)
		running_on(i, 5, 0, M1);
	for (i = 0; i < 6; i++)
		waiting(5, 0, i / 3, M2);
	for (i = 0; i < 3; i++)
		waiting(5, 0, 2, M2);
	EQUAL(tasks_in(0), 8);
	EQUAL(tasks_in(1), 4);
	balance();
	EQUAL(tasks_in(0), 8);
	EQUAL(tasks_in(1), 4);
	/* 12 where 8 would be its share. */
	for (i = 0; i < 4; i++)
		waiting(5, 0, i / 2, M2);
	balance();
	EQUAL(tasks_in(0), 10);
	EQUAL(tasks_in(1), 6);
}

/* Running tasks and those that may not go there stay. */
static void balance_not_allowed(void)
{
	struct task_struct *p[3];
	u32 i;

	in_pools(2, 1);
	for (i = 0; i < 3; i++)
		p[i] = waiting(5, 0, 0, M2);
	running_on(0, 5, 0, M1);
	lab_disallow(&ctx(p[2])->lab, 1);
	balance();
	EQUAL(ctx(p[2])->home, 0);
	EQUAL(ctx(p[1])->home, 1);
	EQUAL(ctx(p[0])->home, 1);
}

static void balance_lock_not_free(void)
{
	in_pools(2, 1);
	running_on(0, 5, 0, M1);
	waiting(5, 0, 0, M2);
	waiting(5, 0, 0, M2);
	busy(1);
	balance();
	EQUAL(tasks_in(0), 3);
	EQUAL(script.timer_ns, 500000000);
}

/* Among several pools each pulls from the most loaded. */
static void balance_most_loaded(void)
{
	u32 i;

	in_pools(3, 1);
	for (i = 0; i < 3; i++)
		waiting(5, 0, 1, M2);
	for (i = 0; i < 6; i++)
		waiting(5, 0, 2, M2);
	balance();
	EQUAL(tasks_in(0), 3);
	EQUAL(tasks_in(1), 3);
	EQUAL(tasks_in(2), 3);
	EQUAL(ctx(&script.tasks[8]->p)->home, 0);
}

TESTS(TEST(pool_t1_not_from_another_pool), TEST(pool_t2_all_is_mq), TEST(pool_t2_one_is_mq_local),
      TEST(pools_follow_nodes), TEST(placement), TEST(realtime), TEST(balance_timer),
      TEST(no_balance), TEST(balance_moves), TEST(balance_two_tasks), TEST(balance_not_one_task),
      TEST(balance_not_a_quarter), TEST(balance_more_than_a_quarter), TEST(balance_by_cpus),
      TEST(balance_not_allowed), TEST(balance_lock_not_free), TEST(balance_most_loaded), TEST(pinned), TEST(pinned_preempts))
