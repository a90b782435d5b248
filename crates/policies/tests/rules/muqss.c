/* SPDX-License-Identifier: GPL-2.0-only */
/* The rules of docs/schedulers/muqss.md, one test a rule. `muqss NAME` runs one. */
#define POLICY "../../../../policies/muqss.bpf.c"
#define OPS muqss_ops
#include "script.h"
#define DL(t)		(&(t)->dl)
#define LINK(t, cpu)	muqss_link(queue_at(muqss_leader(cpu)), t)
#include "dl_script.h"

/* CPUs with a queue each. */
static void start_apart(u32 nr_cpus)
{
	rqshare = SHARE_NONE;
	script_start(nr_cpus);
}

static void t1_earliest_of_all(void)
{
	struct task_struct *p;

	start_apart(3);
	waiting(0, 120 * MS);
	waiting(1, 100 * MS);
	p = waiting(2, 90 * MS);
	CHECK(script_schedule(0) == p);
	EQUAL(script.probes[LAB_PICKED_ELSEWHERE], 1);
	EQUAL(queue_at(2)->first, MUQSS_NONE);
}

/* Another CPU holds the lock of a CPU's queue during the choice. */
static struct task_struct *schedule_without(s32 a, s32 b)
{
	struct task_struct *next;
	u32 held = script.nr_held;
	struct task_struct *prev = script.curr[0];

	CHECK(!held && !prev);
	script.cpu = 0;
	if (a >= 0)
		script.held[script.nr_held++] = &queue_at(a)->lock.word;
	if (b >= 0)
		script.held[script.nr_held++] = &queue_at(b)->lock.word;
	script.inserted = NULL;
	OPS.dispatch(0, NULL);
	/* No other lock is left. */
	EQUAL(script.nr_held, (a >= 0) + (b >= 0));
	script.nr_held = 0;
	next = script.inserted;
	return next;
}

static void t1_lock_not_free(void)
{
	struct task_struct *p;

	start_apart(3);
	waiting(0, 120 * MS);
	p = waiting(1, 100 * MS);
	waiting(2, 90 * MS);
	CHECK(schedule_without(2, -1) == p);
}

static void t1_no_lock_free(void)
{
	struct task_struct *p;

	start_apart(3);
	p = waiting(0, 120 * MS);
	waiting(1, 100 * MS);
	waiting(2, 90 * MS);
	CHECK(schedule_without(1, 2) == p);
}

static void t1_previous_task(void)
{
	struct task_struct *prev;

	start_apart(2);
	prev = running_on(0, 80 * MS);
	waiting(1, 90 * MS);
	script_preempt(0);
	CHECK(script_schedule(0) == prev);
}

static void t2_not_interactive(void)
{
	struct task_struct *p;

	start_apart(2);
	interactive = false;
	p = waiting(0, 120 * MS);
	waiting(1, 100 * MS);
	CHECK(script_schedule(0) == p);
}

/* ... but from a longer queue it is taken. */
static void t2_longer_queue(void)
{
	struct task_struct *p;

	start_apart(2);
	interactive = false;
	waiting(0, 120 * MS);
	waiting(1, 110 * MS);
	p = waiting(1, 100 * MS);
	CHECK(script_schedule(0) == p);
}

static void t3_order(void)
{
	struct task_struct *rt, *iso, *normal, *idle;

	start_apart(1);
	idle = waiting_as(0, LAB_SCHED_IDLE, 0, 1);
	normal = waiting_as(0, 0, 0, 10);
	iso = waiting_as(0, LAB_SCHED_ISO, 0, 20);
	rt = waiting_as(0, LAB_SCHED_FIFO, 50, 30);
	CHECK(script_schedule(0) == rt);
	script_block(0);
	CHECK(script_schedule(0) == iso);
	script_block(0);
	CHECK(script_schedule(0) == normal);
	script_block(0);
	CHECK(script_schedule(0) == idle);
}

/* A normal task with a deadline a second later, but not before it woke. */
static void idle_priority(void)
{
	struct task_struct *p, *idle;

	start_apart(1);
	idle = running_between_normal_ones();
	script_block(0);
	p = script_schedule(0);
	CHECK(p && p != idle);
	script_block(0);
	script.now_ns = 3000 * MS;
	wake(idle);
	EQUAL(queue_at(0)->first, muqss_key(DL_LEVEL_NORMAL, 4000 * MS));
}

/* A queue's published head is verified: under the lock the task may be gone or not allowed. */
static void recheck(void)
{
	struct task_struct *p, *own;

	start_apart(2);
	own = waiting(0, 120 * MS);
	p = waiting(1, 100 * MS);
	allow_only(p, 1);
	CHECK(script_schedule(0) == own);
	CHECK(script_schedule(1) == p);
	/* A line that is out of date. */
	script_block(0);
	queue_at(1)->first = 5;
	CHECK(!script_schedule(0));
}

/* The first is taken, without a look at the others. */
static void first_at_hand(void)
{
	struct task_struct *first;
	u32 i;

	start_apart(1);
	for (i = 0; i < 100; i++)
		waiting(0, (200 + i * 37 % 100) * MS);
	first = waiting(0, 100 * MS);
	CHECK(script_schedule(0) == first);
	EQUAL(script.probes[LAB_EXAMINED], 1);
}

/* CPUs that share a cache share a queue; threads of a core do, if asked for. */
static void shared_queues(void)
{
	script_start(4);
	EQUAL(muqss_leader(3), 0);
	rqshare = SHARE_SMT;
	EQUAL(muqss_leader(3), 3);
	rqshare = SHARE_NONE;
	EQUAL(muqss_leader(3), 3);
}

static void placement(void)
{
	struct task_struct *p;

	start_apart(3);
	running_on(0, 60 * MS);
	running_on(2, 80 * MS);
	p = sleeping(0, 0, 70 * MS);
	script.cpu = 2;
	EQUAL(OPS.select_cpu(p, 0, 0), 1);
	running_on(1, 50 * MS);
	EQUAL(OPS.select_cpu(p, 0, 0), 0);
	/* It waits with its last CPU, and the one with the latest deadline is kicked. */
	wake(p);
	EQUAL(script.kicks[2], SCX_KICK_PREEMPT);
	EQUAL(script.kicks[0] | script.kicks[1], 0);
	script_preempt(2);
	CHECK(script_schedule(2) == p);
}

static void sleeper_keeps_its_deadline(void)
{
	struct task_struct *p;

	start_apart(1);
	running_on(0, 90 * MS);
	p = sleeping(0, 0, 50 * MS);
	script.now_ns = 20 * MS;
	wake(p);
	script_preempt(0);
	CHECK(script_schedule(0) == p);
	EQUAL(ctx(p)->dl.deadline, 50 * MS);
}

static void slice(void)
{
	struct task_struct *a, *b;

	start_apart(1);
	a = running_on(0, 30 * MS);
	b = waiting(0, 41 * MS);
	script.now_ns += 5 * MS + 900001;
	script_tick(0);
	CHECK(script_schedule(0) == b);
	EQUAL(ctx(a)->dl.deadline, script.now_ns + 39184992);
}

static void round_robin(void)
{
	struct task_struct *a, *b;

	start_apart(1);
	a = waiting_as(0, LAB_SCHED_RR, 50, 0);
	b = waiting_as(0, LAB_SCHED_RR, 50, 0);
	CHECK(script_schedule(0) == a);
	script_preempt(0);
	CHECK(script_schedule(0) == a);
	script.now_ns += 6 * MS;
	script_tick(0);
	CHECK(script_schedule(0) == b);
}

static void attribute_change(void)
{
	struct task_struct *p;

	start_apart(1);
	running_on(0, 30 * MS);
	p = waiting(0, 38 * MS);
	script_change_begin(p);
	EQUAL(queue_at(0)->nr, 0);
	p->policy = LAB_SCHED_IDLE;
	script_enqueue(p, 0);
	EQUAL(queue_at(0)->first, muqss_key(DL_LEVEL_NORMAL, 1038 * MS));
}

static void fifo_yield(void)
{
	check_fifo_yield();
}

TESTS(TEST(t1_earliest_of_all), TEST(t1_lock_not_free), TEST(t1_no_lock_free),
      TEST(t1_previous_task), TEST(t2_not_interactive), TEST(t2_longer_queue), TEST(t3_order),
      TEST(idle_priority), TEST(recheck), TEST(first_at_hand),
      TEST(shared_queues), TEST(placement), TEST(sleeper_keeps_its_deadline), TEST(slice),
      TEST(round_robin), TEST(attribute_change), TEST(fifo_yield))
