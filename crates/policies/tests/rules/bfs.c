/* SPDX-License-Identifier: GPL-2.0-only */
/* The rules of docs/schedulers/bfs.md, one test a rule. `bfs NAME` runs one. */
#define POLICY "../../../../policies/bfs.bpf.c"
#define OPS bfs_ops
#include "script.h"
#define DL(t)		(t)
#define LINK(t, cpu)	bfs_link(t)
#include "dl_script.h"

static void t1_ratios(void)
{
	u32 i, ratio = 128;

	script_start(1);
	EQUAL(dl_ratios[0], 128);
	EQUAL(dl_ratios[1], 140);
	EQUAL(dl_ratios[2], 154);
	EQUAL(dl_ratios[10], 324);
	EQUAL(dl_ratios[20], 836);
	EQUAL(dl_ratios[30], 2161);
	EQUAL(dl_ratios[39], 5089);
	for (i = 0; i < 40; i++) {
		EQUAL(dl_ratios[i], ratio);
		ratio = ratio * 11 / 10;
	}
}

static void t2_distances(void)
{
	script_start(1);
	EQUAL(dl_distance(-20, rr_interval), 5999616);
	EQUAL(dl_distance(-10, rr_interval), 15186528);
	EQUAL(dl_distance(0, rr_interval), 39184992);
	EQUAL(dl_distance(10, rr_interval), 101290392);
	EQUAL(dl_distance(19, rr_interval), 238531608);
	rr_interval = 1;
	EQUAL(dl_distance(0, rr_interval), 39184992 / 6);
}

static void t3_passed_deadline(void)
{
	struct task_struct *a;

	script_start(1);
	script.now_ns = 95 * MS;
	a = waiting(0, 90 * MS);
	waiting(0, 80 * MS);
	waiting(0, 100 * MS);
	CHECK(script_schedule(0) == a);
	/* The search ended there. */
	EQUAL(script.probes[LAB_EXAMINED], 1);
}

static void t4_sleeper_keeps_its_deadline(void)
{
	struct task_struct *p;
	s64 left;

	script_start(1);
	running_on(0, 90 * MS);
	waiting(0, 90 * MS);
	p = sleeping(0, 0, 50 * MS);
	ctx(p)->left_ns = left = 2 * MS;
	script.now_ns = 20 * MS;
	wake(p);
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
	script_preempt(0);
	CHECK(script_schedule(0) == p);
	EQUAL(ctx(p)->deadline, 50 * MS);
	EQUAL(ctx(p)->left_ns, left);
}

static void earliest_deadline(void)
{
	struct task_struct *a, *b, *c;

	script_start(1);
	a = waiting(0, 90 * MS);
	b = waiting(0, 70 * MS);
	c = waiting(0, 80 * MS);
	CHECK(script_schedule(0) == b);
	EQUAL(script.probes[LAB_EXAMINED], 3);
	script_block(0);
	CHECK(script_schedule(0) == c);
	/* Interrupted, it goes on: its deadline is the earliest. */
	script_preempt(0);
	CHECK(script_schedule(0) == c);
	EQUAL(ctx(c)->deadline, 80 * MS);
	CHECK(a);
}

/* A slice is 6 ms for everybody; below 100 us it counts as used up: a new one, a new deadline. */
static void slice(void)
{
	struct task_struct *a, *b;

	script_start(1);
	a = running_on(0, 30 * MS);
	b = waiting(0, 41 * MS);
	EQUAL(ctx(a)->left_ns, 6 * MS);
	script.now_ns += 5 * MS + 900000;
	script_tick(0);
	CHECK(a->scx.slice);
	script.now_ns += 1;
	script_tick(0);
	CHECK(!a->scx.slice);
	CHECK(script_schedule(0) == b);
	EQUAL(ctx(a)->left_ns, 6 * MS);
	EQUAL(ctx(a)->deadline, script.now_ns + 39184992);
}

static void alone(void)
{
	struct task_struct *a;

	script_start(1);
	a = running_on(0, 30 * MS);
	script.now_ns += 6 * MS;
	script_tick(0);
	CHECK(script_schedule(0) == a);
	CHECK(a->scx.slice);
	EQUAL(ctx(a)->left_ns, 6 * MS);
}

/* One queue: any CPU takes the earliest deadline; the farther its cache, the later it counts. */
static void one_queue(void)
{
	struct task_struct *p;

	script_start(4);
	p = waiting(3, 50 * MS);
	waiting(0, 60 * MS);
	CHECK(script_schedule(0) == p);
	EQUAL(script.probes[LAB_PICKED_ELSEWHERE], 1);
	EQUAL(bfs_seen(50 * MS, 40 * MS, LAB_LEVEL_LLC), 50 * MS);
	EQUAL(bfs_seen(50 * MS, 40 * MS, LAB_LEVEL_NODE), 60 * MS);
	EQUAL(bfs_seen(50 * MS, 40 * MS, LAB_LEVEL_MACHINE), 80 * MS);
}

static void cache_distance(void)
{
	struct task_struct *far, *near;

	script_start(2);
	/* Two nodes. */
	lab_places[1].key[LAB_LEVEL_CORE] = lab_places[1].key[LAB_LEVEL_LLC] = 1;
	lab_places[1].key[LAB_LEVEL_NODE] = 1;
	lab_places[0].key[LAB_LEVEL_CORE] = 0;
	far = waiting(1, 10 * MS);
	near = waiting(0, 39 * MS);
	CHECK(script_schedule(0) == near);
	script_block(0);
	CHECK(script_schedule(0) == far);
}

static void levels(void)
{
	struct task_struct *rt, *iso, *normal, *idle;

	script_start(1);
	idle = waiting_as(0, LAB_SCHED_IDLE, 0, 1 * MS);
	normal = waiting_as(0, 0, 0, 10 * MS);
	iso = waiting_as(0, LAB_SCHED_ISO, 0, 20 * MS);
	rt = waiting_as(0, LAB_SCHED_FIFO, 50, 30 * MS);
	CHECK(script_schedule(0) == rt);
	script_block(0);
	CHECK(script_schedule(0) == iso);
	script_block(0);
	CHECK(script_schedule(0) == normal);
	script_block(0);
	CHECK(script_schedule(0) == idle);
}

/* A normal task with a deadline a second later: for the choice and for the displaced task. */
static void idle_priority(void)
{
	struct task_struct *p, *idle;

	script_start(1);
	idle = running_between_normal_ones();
	p = sleeping(0, 0, 1006 * MS);
	wake(p);
	EQUAL(script.kicks[0], 0);
	p = sleeping(0, 0, 1004 * MS);
	wake(p);
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
	script_preempt(0);
	CHECK(script_schedule(0) == p);
	/* Displaced, it keeps its deadline. */
	EQUAL(dl_due(ctx(idle)), 1005 * MS);
}

/* The time that it has slept does not make it due. */
static void idle_priority_wakes(void)
{
	struct task_struct *p, *idle;

	script_start(1);
	script.now_ns = 3000 * MS;
	idle = sleeping(0, 0, 5 * MS);
	attribute(idle, LAB_SCHED_IDLE, 0);
	wake(idle);
	EQUAL(dl_due(ctx(idle)), 4000 * MS);
	p = waiting(0, 3999 * MS);
	CHECK(script_schedule(0) == p);
	script_block(0);
	CHECK(script_schedule(0) == idle);
}

/* However many of them are due, a normal task gets on, and they do. */
static void idle_priority_bound(void)
{
	struct task_struct *p[20];
	u64 ran[20] = {};
	u32 i, step;

	script_start(1);
	rr_interval = 100;
	p[0] = waiting(0, dl_distance(0, rr_interval));
	for (i = 1; i < 20; i++)
		p[i] = waiting_as(0, LAB_SCHED_IDLE, 0, dl_distance(0, rr_interval));
	script_schedule(0);
	for (step = 0; step < 20000; step++) {
		for (i = 0; i < 20; i++)
			ran[i] += script.curr[0] == p[i];
		script.now_ns += 1 * MS;
		script_tick(0);
		script_schedule(0);
	}
	CHECK(ran[0] >= 20000 / 20);
	for (i = 1; i < 20; i++)
		CHECK(ran[i] >= 100 && ran[i] < ran[0]);
}

static void realtime_in_order(void)
{
	struct task_struct *a, *b, *better;

	script_start(1);
	a = waiting_as(0, LAB_SCHED_RR, 50, 90 * MS);
	b = waiting_as(0, LAB_SCHED_RR, 50, 10 * MS);
	better = waiting_as(0, LAB_SCHED_FIFO, 51, 90 * MS);
	CHECK(script_schedule(0) == better);
	script_block(0);
	CHECK(script_schedule(0) == a);
	/* Only a used slice lets its equal run. */
	script_preempt(0);
	CHECK(script_schedule(0) == a);
	script.now_ns += 6 * MS;
	script_tick(0);
	CHECK(script_schedule(0) == b);
	EQUAL(ctx(a)->left_ns, 6 * MS);
}

/* An idle CPU, the last one first; else the one with the latest deadline, if that is later. */
static void placement(void)
{
	struct task_struct *p;

	script_start(3);
	running_on(0, 60 * MS);
	running_on(2, 80 * MS);
	p = sleeping(0, 0, 70 * MS);
	wake(p);
	EQUAL(script.kicks[1], SCX_KICK_IDLE);
	CHECK(script_schedule(1) == p);
	p = sleeping(0, 0, 75 * MS);
	wake(p);
	EQUAL(script.kicks[2], SCX_KICK_PREEMPT);
	EQUAL(script.kicks[0] | script.kicks[1], 0);
	p = sleeping(0, 0, 81 * MS);
	wake(p);
	EQUAL(script.kicks[0] | script.kicks[1] | script.kicks[2], 0);
}

static void placement_by_level(void)
{
	struct task_struct *a, *p;

	script_start(2);
	a = running_on(0, 10 * MS);
	running_on(1, 90 * MS);
	attribute(a, LAB_SCHED_IDLE, 0);
	dl_show(&dl_cpus[0], ctx(a));
	p = sleeping(1, 0, 50 * MS);
	wake(p);
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
	EQUAL(script.kicks[1], 0);
}

static void affinity(void)
{
	struct task_struct *p;

	script_start(2);
	p = waiting(0, 10 * MS);
	allow_only(p, 0);
	CHECK(!script_schedule(1));
	CHECK(script_schedule(0) == p);
}

static void fork_(void)
{
	struct task_struct *parent, *child;

	script_start(1);
	parent = running_on(0, 33 * MS);
	child = script_fork(parent, 0, 1);
	EQUAL(ctx(child)->deadline, 33 * MS);
	EQUAL(ctx(child)->left_ns, 3 * MS);
	EQUAL(ctx(parent)->left_ns, 3 * MS);
}

static void yield_(void)
{
	struct task_struct *a, *b;

	script_start(1);
	a = running_on(0, 30 * MS);
	b = waiting(0, 38 * MS);
	script_yield(0);
	CHECK(script_schedule(0) == b);
	EQUAL(ctx(a)->deadline, 39184992);
	EQUAL(ctx(a)->left_ns, 6 * MS);
}

/* Soft real-time tasks that had 70 % of the CPUs' time within five seconds count as normal. */
static void iso_limit(void)
{
	struct task_struct *p, *normal;
	u32 i;

	/* The share is one of the CPUs that are online. */
	script.offline = 2;
	script_start(2);
	p = running_on(0, 0);
	attribute(p, LAB_SCHED_ISO, 0);
	dl_show(&dl_cpus[0], ctx(p));
	normal = waiting(0, 1);
	for (i = 0; i < 20000 && script_schedule(0) == p; i++) {
		script.now_ns += 1 * MS;
		script_tick(0);
	}
	/* A moving average reaches 70 % after 5 s * ln(1 / 0.3). */
	CHECK(i > 5900 && i < 6150);
	CHECK(script.curr[0] == normal);
	CHECK(dl_iso_refused());
	/* And again below 63 %. */
	script.now_ns += 600 * MS;
	dl_iso_account(0, script.now_ns, iso_cpu);
	CHECK(!dl_iso_refused());
}

/* The bound: with n tasks of one nice level no task waits longer than n slices; shares are equal. */
static void bound_of_waiting(void)
{
	struct task_struct *p[8];
	u64 ran[8] = {}, since[8] = {};
	u32 i, step;

	script_start(1);
	for (i = 0; i < 8; i++)
		p[i] = waiting(0, dl_distance(0, rr_interval));
	script_schedule(0);
	for (step = 0; step < 20000; step++) {
		for (i = 0; i < 8; i++) {
			if (script.curr[0] == p[i]) {
				ran[i] += 1 * MS;
				since[i] = script.now_ns + 1 * MS;
			}
			CHECK(script.now_ns - (since[i] < script.now_ns ? since[i] : script.now_ns) <=
			      8 * 6 * MS);
		}
		script.now_ns += 1 * MS;
		script_tick(0);
		script_schedule(0);
	}
	for (i = 0; i < 8; i++)
		CHECK(ran[i] >= 20000 * MS / 8 - 6 * MS && ran[i] <= 20000 * MS / 8 + 6 * MS);
}

static void attribute_change(void)
{
	struct task_struct *p;

	script_start(1);
	running_on(0, 30 * MS);
	p = waiting(0, 38 * MS);
	script_change_begin(p);
	EQUAL(grq.array.nr, 0);
	p->policy = LAB_SCHED_IDLE;
	script_enqueue(p, 0);
	EQUAL(dl_due(ctx(p)), 1038 * MS);
	EQUAL(ctx(p)->deadline, 38 * MS);
}

static void fifo_yield(void)
{
	check_fifo_yield();
}

/* A value that would wrap is refused. */
static void option_ranges(void)
{
	AT_MOST(rr_interval, 1000, script_start(2));
	AT_MOST(iso_cpu, 100, script_start(2));
	rr_interval = 0;
	EQUAL(OPS.init(), -EINVAL);
	CHECK(script.error);
	script.error = false;
}

TESTS(TEST(t1_ratios), TEST(t2_distances), TEST(t3_passed_deadline),
      TEST(t4_sleeper_keeps_its_deadline), TEST(earliest_deadline), TEST(slice), TEST(alone),
      TEST(one_queue), TEST(cache_distance), TEST(levels), TEST(idle_priority),
      TEST(idle_priority_wakes), TEST(idle_priority_bound),      TEST(realtime_in_order), TEST(placement), TEST(placement_by_level), TEST(affinity),
      TEST(fork_), TEST(yield_), TEST(iso_limit), TEST(bound_of_waiting), TEST(attribute_change),
      TEST(fifo_yield), TEST(option_ranges))
