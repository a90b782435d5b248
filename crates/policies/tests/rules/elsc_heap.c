/* SPDX-License-Identifier: GPL-2.0-only */
/* The rules of docs/schedulers/elsc-heap.md, one test a rule. `elsc_heap NAME` runs one. */
#define POLICY "../../../../policies/elsc-heap.bpf.c"
#define OPS elsc_heap_ops
#define HOOKS heap_hooks
#include "script.h"
#include "queue24.h"
#include "pinned.h"

/* Every heap in use is found by its CPU and address space and has its tasks, and nothing is lost. */
static void check_heaps(void)
{
	u32 chain, chained = 0, tasks = 0, i;
	lab_node_t *pos;
	heap_t *h;

	EQUAL(rq.aside.nr, 0);
	lab_list_for_each(pos, &rq.heaps) {
		h = heap_entry(pos);
		CHECK(lab_heap_first(&h->heap));
		tasks += h->heap.nr;
	}
	EQUAL(tasks, rq.nr);
	for (chain = 0; chain < HEAP_CHAINS; chain++) {
		for (h = rq.chains[chain]; h; h = h->next) {
			EQUAL(heap_chain(h->mm, h->cpu), chain);
			chained++;
		}
	}
	EQUAL(chained, rq.heaps.nr);
	EQUAL(rq.heaps.nr + rq.spare.nr, rq.room);
	for (i = 0; i < script.nr_tasks; i++) {
		task_t *t;

		if (!script.tasks[i]->stored)
			continue;
		t = task_of(&script.tasks[i]->p);
		if (!t->old.linked)
			continue;
		EQUAL(t->node.key >> HEAP_AGE_BITS, linux24_na_goodness(&t->old));
		CHECK(t->heap->mm == t->lab.mm && t->heap->cpu == t->lab.cpu);
	}
}

static void a_heap_for_each_cpu_and_address_space(void)
{
	struct task_struct *a, *b, *c, *d;

	script_start(2);
	a = waiting(6, 0, 0, M1);
	b = waiting(5, 0, 0, M1);
	EQUAL(rq.heaps.nr, 1);
	c = waiting(5, 0, 1, M1);
	d = waiting(5, 0, 1, M0);
	EQUAL(rq.heaps.nr, 3);
	CHECK(ctx(a)->heap == ctx(b)->heap);
	CHECK(ctx(c)->heap != ctx(a)->heap && ctx(c)->heap != ctx(d)->heap);
	check_heaps();
	/* One that has no tasks left is given back. */
	take(d);
	EQUAL(rq.heaps.nr, 2);
	check_heaps();
}

/* Only the first of each heap is looked at, however many there are. */
static void the_firsts_only(void)
{
	struct task_struct *best;
	s32 i;

	script_start(2);
	for (i = 1; i <= 20; i++) {
		waiting(i, 0, 1, M1);
		waiting(i, 0, 1, M2);
	}
	best = waiting(7, 0, 0, M2);
	/* 20 + 20 + 1, 20 + 20, 7 + 20 + 15 */
	cpus[0].mm = M1;
	CHECK(script_schedule(0) == best);
	EQUAL(script.probes[LAB_EXAMINED], 3);
	check_heaps();
}

/* The values of DSS-T2: bonuses decide as in Linux 2.4. */
static void t2_choice(void)
{
	struct task_struct *b, *d;

	script_start(2);
	running_on(0, 6, 0, M1);
	waiting(6, 0, 1, M2);
	b = waiting(4, 0, 0, M2);
	waiting(10, 0, 1, M1);
	d = make_rt(running_on(1, 6, 0, M3), LAB_SCHED_FIFO, 5);
	script_block(0);
	CHECK(script_schedule(0) == b);
	/* Running tasks are in no heap. */
	EQUAL(script.probes[LAB_EXAMINED], 3);
	CHECK(script.curr[1] == d && !ctx(d)->old.linked);
	CHECK(!ctx(b)->old.linked);
	EQUAL(rq.nr, 2);
}

static void t3_previous_task_first(void)
{
	struct task_struct *a, *p;

	script_start(2);
	a = waiting(8, -10, 1, M2);
	p = running_on(0, 2, 0, M1);
	need_resched(0);
	CHECK(script_schedule(0) == p);
	EQUAL(linux24_goodness(&ctx(p)->old, 0, M1, base),
	      linux24_goodness(&ctx(a)->old, 0, M1, base));
	CHECK(!ctx(p)->old.linked);
}

/* Of equals the one that was queued last, in one heap or several. */
static void the_newest_of_equals(void)
{
	struct task_struct *p[3];
	s32 i;

	script_start(1);
	for (i = 0; i < 3; i++)
		p[i] = waiting(6, 0, 0, M1);
	for (i = 2; i >= 0; i--) {
		CHECK(script_schedule(0) == p[i]);
		script_block(0);
	}
	CHECK(!script_schedule(0));
	cpus[0].mm = M5;
	for (i = 0; i < 3; i++) {
		p[i] = waiting(6, 0, 0, M1 + i % 2);
	}
	CHECK(script_schedule(0) == p[2]);
	cpus[0].mm = M5;
	script_block(0);
	CHECK(script_schedule(0) == p[1]);
}

static void t4_recalculation(void)
{
	struct task_struct *x, *y, *z, *u;

	script_start(1);
	x = waiting(0, 0, 0, M1);
	y = waiting(0, 10, 0, M1);
	z = waiting(0, -20, 0, M1);
	u = task(21, -20, 0, M6);
	CHECK(script_schedule(0) == z);
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
	EQUAL(ctx(x)->old.counter, 6);
	EQUAL(ctx(y)->old.counter, 3);
	EQUAL(ctx(u)->old.counter, 21);
	check_heaps();
	script_block(0);
	CHECK(script_schedule(0) == x);
	check_heaps();
}

/* Those that have ticks but may not run here get their places among the others, too. */
static void t4_recalculation_beside_others(void)
{
	struct task_struct *p, *q;

	script_start(2);
	p = task(21, -20, 0, M1);
	script_of(p)->mask.bits[0] = 2;
	lab_task_refresh(&ctx(p)->lab, p);
	put(p);
	q = waiting(0, 0, 0, M1);
	CHECK(script_schedule(0) == q);
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
	EQUAL(ctx(p)->old.counter, 21);
	check_heaps();
	CHECK(script_schedule(1) == p);
}

static void t6_yield(void)
{
	struct task_struct *p, *x;

	script_start(1);
	p = running_on(0, 4, 0, M1);
	x = waiting(0, 0, 0, M2);
	script_yield(0);
	CHECK(script_schedule(0) == x);
	EQUAL(ctx(p)->old.counter, 8);
	EQUAL(ctx(x)->old.counter, 6);
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
	CHECK(ctx(p)->old.linked && ctx(p)->old.takeable && !ctx(p)->old.yielded);
	EQUAL(script.nr_kicks[0], 0);
	check_heaps();
}

static void t6_only_yielders(void)
{
	struct task_struct *p, *x;

	script_start(1);
	p = running_on(0, 4, 0, M1);
	x = waiting(6, 0, 0, M2);
	script_yield(0);
	take(x);
	CHECK(script_schedule(0) == p);
	EQUAL(script.probes[LAB_RECALCULATIONS], 0);
	CHECK(!ctx(p)->old.yielded);
	script_yield(0);
	CHECK(!ctx(p)->old.yielded);
}

static void realtime(void)
{
	struct task_struct *high;

	script_start(2);
	running_on(0, 21, -20, M1);
	put(make_rt(task(9, 0, 0, M1), LAB_SCHED_FIFO, 1));
	high = put(make_rt(task(0, 0, 1, M2), LAB_SCHED_RR, 99));
	waiting(21, -20, 0, M1);
	need_resched(0);
	CHECK(script_schedule(0) == high);
	check_heaps();
}

/* Those that may not run here do not hide the next one of their heap, and keep their place. */
static void not_schedulable(void)
{
	struct task_struct *p[6];
	s32 i;

	script_start(2);
	for (i = 0; i < 6; i++) {
		p[i] = task(4 + i, 0, 0, M1);
		if (i > 1)
			script_of(p[i])->mask.bits[0] = 2;
		lab_task_refresh(&ctx(p[i])->lab, p[i]);
		put(p[i]);
	}
	CHECK(script_schedule(0) == p[1]);
	EQUAL(script.probes[LAB_EXAMINED], 5);
	check_heaps();
	CHECK(script_schedule(1) == p[5]);
	script_block(1);
	CHECK(script_schedule(1) == p[4]);
	check_heaps();
}

static void nobody_schedulable(void)
{
	struct task_struct *p;

	script_start(2);
	p = task(4, 0, 0, M1);
	script_of(p)->mask.bits[0] = 2;
	lab_task_refresh(&ctx(p)->lab, p);
	put(p);
	CHECK(!script_schedule(0));
	EQUAL(script.probes[LAB_RECALCULATIONS], 0);
	check_heaps();
}

static void refiled(void)
{
	struct task_struct *parent, *child, *q;

	script_start(2);
	parent = running_on(1, 8, 0, M1);
	child = script_fork(parent, 0, M2);
	script.curr[1] = NULL;
	cpus[1].curr = NULL;
	ctx(parent)->old.on_cpu = false;
	put(parent);
	EQUAL(ctx(parent)->node.key >> HEAP_AGE_BITS, 24);
	script_exit_task(child);
	EQUAL(ctx(parent)->node.key >> HEAP_AGE_BITS, 28);
	check_heaps();

	q = waiting(6, 0, 0, M2);
	script_change_begin(q);
	q->static_prio = 130;
	OPS.set_weight(q, 10);
	EQUAL(ctx(q)->node.key >> HEAP_AGE_BITS, 16);
	/* exec(): another address space. */
	q->mm = (struct mm_struct *)M4;
	script_enqueue(q, 0);
	EQUAL(ctx(q)->heap->mm, M4);
	check_heaps();
	script_change_begin(q);
	q->policy = LAB_SCHED_FIFO;
	q->rt_priority = 50;
	script_enqueue(q, 0);
	EQUAL(ctx(q)->node.key >> HEAP_AGE_BITS, 1050);
	check_heaps();
}

/* Each task of its own address space, and more of them than the first chunk has heaps. */
static void room_for_all(void)
{
	u32 i;

	script_start(1);
	waiting(6, 0, 0, 99);
	EQUAL(rq.room, HEAPS_PER_CHUNK);
	while (rq.spare.nr > 10) {
		lab_list_del(&rq.spare, rq.spare.head.next);
		rq.room--;
	}
	for (i = 0; i < SCRIPT_TASKS - 2; i++)
		waiting(6, 0, 0, 100 + i);
	EQUAL(rq.room, 11 + HEAPS_PER_CHUNK);
	EQUAL(rq.heaps.nr, SCRIPT_TASKS - 1);
	check_heaps();
	for (i = 0; i < SCRIPT_TASKS - 1; i++)
		take(&script.tasks[i]->p);
	check_heaps();
	EQUAL(rq.heaps.nr, 0);
	for (i = 0; i < HEAP_CHAINS; i++)
		CHECK(!rq.chains[i]);
}

/* Heaps that share a chain are distinguished, and leave it in any order. */
static void one_chain(void)
{
	struct task_struct *p[4];
	u64 mm = 1;
	u32 i, j;

	script_start(2);
	for (i = 0; i < 4; i++) {
		while (heap_chain(mm, 0) != heap_chain(1, 0))
			mm++;
		p[i] = task(6, 0, 0, mm++);
	}
	for (i = 0; i < 4; i++) {
		for (j = 0; j < 4; j++)
			put(p[j]);
		EQUAL(rq.heaps.nr, 4);
		check_heaps();
		for (j = 0; j < 4; j++) {
			take(p[(i + 3 * j) % 4]);
			check_heaps();
		}
	}
}

static u32 steps_left;

static bool steps(struct lab_host *h)
{
	return steps_left && steps_left--;
}

/* A chain whose walk ends early loses no task: the policy ends. */
static void one_chain_budget(void)
{
	struct task_struct *p[4];
	u64 mm = 1;
	u32 i;

	script_start(2);
	for (i = 0; i < 4; i++) {
		while (heap_chain(mm, 0) != heap_chain(1, 0))
			mm++;
		p[i] = waiting(6, 0, 0, mm++);
	}
	script.host.loop = steps;
	steps_left = 2;
	take(p[0]);
	CHECK(script.error);
	script.error = false;
	EQUAL(rq.heaps.nr, 4);
	steps_left = 3;
	take(p[1]);
	CHECK(!script.error);
	EQUAL(rq.heaps.nr, 3);
}

static void late_mask(void)
{
	struct task_struct *a, *b;

	script_start(2);
	b = waiting(2, 0, 0, M2);
	a = waiting(9, 0, 0, M1);
	script_of(a)->mask.bits[0] = 2;
	CHECK(script_schedule(0) == b);
	check_heaps();
	CHECK(script_schedule(1) == a);
}

static void displaced(void)
{
	struct task_struct *p, *q;

	script_start(2);
	p = running_on(0, 3, 0, M1);
	running_on(1, 1, 19, M2);
	q = waiting(20, 0, 0, M3);
	need_resched(0);
	CHECK(script_schedule(0) == q);
	CHECK(ctx(p)->old.linked && ctx(p)->old.takeable);
	EQUAL(script.kicks[1], SCX_KICK_PREEMPT);
	check_heaps();
}

TESTS(TEST(a_heap_for_each_cpu_and_address_space), TEST(the_firsts_only), TEST(t2_choice),
      TEST(t3_previous_task_first), TEST(the_newest_of_equals), TEST(t4_recalculation),
      TEST(t4_recalculation_beside_others), TEST(t6_yield), TEST(t6_only_yielders),
      TEST(realtime), TEST(not_schedulable), TEST(nobody_schedulable), TEST(refiled),
      TEST(room_for_all), TEST(one_chain), TEST(one_chain_budget),
      TEST(late_mask), TEST(displaced), TEST(pinned), TEST(pinned_preempts))
