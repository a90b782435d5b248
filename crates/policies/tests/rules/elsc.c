/* SPDX-License-Identifier: GPL-2.0-only */
/* The rules of docs/schedulers/elsc.md, one test a rule. `elsc NAME` runs one. */
#define POLICY "../../../../policies/elsc.bpf.c"
#define OPS elsc_ops
#define HOOKS elsc_table
#include "script.h"
#include "queue24.h"
#include "pinned.h"

/* Nice levels of the source's priorities: priority is 20 - nice. */
#define P1	19
#define P10	10
#define P20	0
#define P40	-20

static s32 list_of(struct task_struct *p)
{
	CHECK(ctx(p)->old.linked);
	return ctx(p)->list;
}

static bool is_first(struct task_struct *p)
{
	return elsc_at(list_of(p))->head.next == &ctx(p)->lab.node;
}

static bool is_last(struct task_struct *p)
{
	return elsc_at(list_of(p))->head.prev == &ctx(p)->lab.node;
}

/* The list of a task that waits with these fields. */
static s32 filed(s32 counter, s32 nice)
{
	struct task_struct *p = waiting(counter, nice, 0, M1);
	s32 list = list_of(p);

	EQUAL(counter ? rq.top : rq.next_top, list);
	CHECK(counter ? is_first(p) : is_last(p));
	take(p);
	return list;
}

static s32 filed_rt(u32 prio)
{
	s32 list = list_of(put(make_rt(task(0, P20, 0, M1), LAB_SCHED_FIFO, prio)));

	EQUAL(rq.top, list);
	return list;
}

static void t1_index(void)
{
	script_start(2);
	EQUAL(filed(6, P20), 6);
	EQUAL(filed(1, P20), 5);
	EQUAL(filed(20, P20), 10);
	EQUAL(filed(39, P20), 14);
	EQUAL(filed(3, P1), 1);
	EQUAL(filed(1, P1), 0);
	EQUAL(filed(0, P20), 10);
	EQUAL(filed(0, P10), 5);
	EQUAL(filed(0, P1), 0);
	/* Never among the real-time tasks, however well rested. */
	EQUAL(filed(40, P40), 19);
	EQUAL(filed(79, P40), 19);
	EQUAL(filed(0, P40), 19);
	EQUAL(rq.top, ELSC_NONE);
	EQUAL(rq.next_top, ELSC_NONE);
	EQUAL(filed_rt(0), 20);
	EQUAL(filed_rt(9), 20);
	EQUAL(filed_rt(10), 21);
	EQUAL(filed_rt(55), 25);
	EQUAL(filed_rt(99), 29);
	EQUAL(rq.next_top, ELSC_NONE);
}

/* As many as the limit says are looked at in one list, and no more. */
static void looks_at(u32 nr_cpus, u32 limit)
{
	struct task_struct *p[16];
	u32 i;

	script = (struct script) { };
	lab_tasks = (struct lab_tasks) { };
	script_start(nr_cpus);
	for (i = 0; i < 16; i++)
		p[i] = waiting(20, P20, nr_cpus > 1, M2);
	CHECK(script_schedule(0) == p[15]);
	EQUAL(script.probes[LAB_EXAMINED], limit);
}

static void t2_limit(void)
{
	looks_at(1, 5);
	looks_at(2, 6);
	looks_at(4, 7);
	looks_at(8, 9);
	looks_at(16, 13);
}

static void t3_tasks_with_ticks_first(void)
{
	struct task_struct *a, *b, *c;

	script_start(2);
	a = waiting(10, P20, 1, M1);
	b = waiting(0, P20, 1, M2);
	c = waiting(5, P20, 1, M3);
	EQUAL(list_of(a), 7);
	EQUAL(list_of(b), 10);
	EQUAL(list_of(c), 6);
	EQUAL(rq.top, 7);
	EQUAL(rq.next_top, 10);
	CHECK(script_schedule(0) == a);
	EQUAL(script.probes[LAB_RECALCULATIONS], 0);
	EQUAL(rq.top, 6);
	EQUAL(rq.next_top, 10);
	EQUAL(rq.nr, 2);
}

static void t4_recalculation_moves_nobody(void)
{
	struct task_struct *p[3], *sleeper;
	lab_node_t *order[3], *pos;
	u32 i = 0;

	script_start(1);
	for (i = 0; i < 3; i++)
		p[i] = waiting(0, P20, 0, M1 + i);
	sleeper = task(39, P20, 0, M5);
	EQUAL(rq.top, ELSC_NONE);
	EQUAL(rq.next_top, 10);
	i = 0;
	lab_list_for_each(pos, elsc_at(10))
		order[i++] = pos;
	EQUAL(i, 3);
	cpus[0].mm = M1;
	CHECK(script_schedule(0) == p[0]);
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
	for (i = 0; i < 3; i++)
		EQUAL(ctx(p[i])->old.counter, 20);
	EQUAL(ctx(sleeper)->old.counter, 39);
	EQUAL(rq.top, 10);
	EQUAL(rq.next_top, ELSC_NONE);
	/* The one chosen was the first, the others are where they were. */
	CHECK(elsc_at(10)->head.next == order[1] && order[1]->next == order[2]);
}

static void list_10(u32 nr_cpus, struct task_struct **a, struct task_struct **b,
		    struct task_struct **c)
{
	script_start(nr_cpus);
	cpus[0].mm = M1;
	*c = waiting(21, P20, 0, M1);
	*b = waiting(20, P20, 0, M2);
	*a = waiting(20, P20, nr_cpus > 1, M3);
	EQUAL(list_of(*a), 10);
	EQUAL(list_of(*b), 10);
	EQUAL(list_of(*c), 10);
}

static void t5_best_of_the_list(void)
{
	struct task_struct *a, *b, *c;

	list_10(2, &a, &b, &c);
	EQUAL(linux24_goodness(&ctx(a)->old, 0, M1, base), 40);
	EQUAL(linux24_goodness(&ctx(b)->old, 0, M1, base), 55);
	EQUAL(linux24_goodness(&ctx(c)->old, 0, M1, base), 57);
	CHECK(script_schedule(0) == c);
	EQUAL(script.probes[LAB_EXAMINED], 3);
	CHECK(script_schedule(1) == a);
}

/* On one CPU a task of the same address space is taken when it is reached. */
static void t5_uniprocessor(void)
{
	struct task_struct *a, *b, *c, *d;

	list_10(1, &a, &b, &c);
	/* Better than C, and behind it. */
	d = task(23, P20, 0, M4);
	elsc_add(&ctx(d)->old);
	ctx(d)->old.takeable = true;
	script_of(d)->in_custody = script_of(d)->runnable = true;
	lab_list_del(elsc_at(10), &ctx(d)->lab.node);
	lab_list_add_tail(elsc_at(10), &ctx(d)->lab.node);
	CHECK(script_schedule(0) == c);
	EQUAL(script.probes[LAB_EXAMINED], 3);
	/* However many there could be. */
	CHECK(elsc_uniprocessor());
	script.offline = 2;
	script.nr_cpus = 2;
	EQUAL(lab_init(), 0);
	linux24_init_cpus();
	CHECK(elsc_uniprocessor());
	script.nr_cpus = 1;
	/* No such task: the best one, in an SMP kernel on one CPU in any case. */
	cpus[0].mm = M5;
	script_block(0);
	CHECK(script_schedule(0) == d);
	script_block(0);
	cpus[0].mm = M2;
	kernel = KERNEL_SMP;
	ctx(a)->old.counter = 22;
	CHECK(script_schedule(0) == a);
}

/* The previous task is in the table during the search, too. */
static void t5_previous_task_on_one_cpu(void)
{
	struct task_struct *p, *q;

	script_start(1);
	p = running_on(0, 18, P20, M1);
	EQUAL(rq.nr, 0);
	q = waiting(19, P20, 0, M2);
	need_resched(0);
	/* It was put ahead of Q and is of its own address space. */
	CHECK(script_schedule(0) == p);
	EQUAL(script.probes[LAB_EXAMINED], 1);
	CHECK(!ctx(p)->old.linked);
	EQUAL(rq.nr, 1);
	kernel = KERNEL_SMP;
	need_resched(0);
	/* 18 + 20 + 15 + 1 against 19 + 20 + 15: a tie, the first one has it. */
	CHECK(script_schedule(0) == p);
	ctx(q)->old.counter = 20;
	queue24_refile(&rq.runqueue_lock, &elsc_table, &ctx(q)->old, true);
	need_resched(0);
	CHECK(script_schedule(0) == q);
	CHECK(ctx(p)->old.linked && ctx(p)->old.takeable);
	CHECK(!ctx(q)->old.linked);
}

static void t6_only_the_top_list(void)
{
	struct task_struct *x, *y;

	script_start(2);
	x = waiting(18, P20, 1, M2);
	y = waiting(15, P20, 0, M2);
	EQUAL(list_of(x), 9);
	EQUAL(list_of(y), 8);
	EQUAL(linux24_goodness(&ctx(x)->old, 0, M1, base), 38);
	EQUAL(linux24_goodness(&ctx(y)->old, 0, M1, base), 50);
	CHECK(script_schedule(0) == x);
	EQUAL(script.probes[LAB_EXAMINED], 1);
}

static void t7_yielder_beside_another(void)
{
	struct task_struct *p, *q;

	script_start(2);
	p = running_on(0, 20, P20, M1);
	q = waiting(20, P20, 1, M2);
	script_yield(0);
	CHECK(script_schedule(0) == q);
	EQUAL(script.probes[LAB_RECALCULATIONS], 0);
	/* It waits; no task is disturbed. */
	CHECK(!ctx(p)->old.yielded && ctx(p)->old.takeable);
	EQUAL(list_of(p), 10);
	EQUAL(script.nr_kicks[0] + script.nr_kicks[1], 0);
}

static void t7_yielder_alone_in_the_top_list(void)
{
	struct task_struct *p, *r;

	script_start(2);
	p = running_on(0, 20, P20, M1);
	r = waiting(3, P20, 1, M2);
	EQUAL(list_of(r), 5);
	script_yield(0);
	CHECK(script_schedule(0) == p);
	EQUAL(script.probes[LAB_RECALCULATIONS], 0);
	EQUAL(ctx(p)->old.counter, 20);
	CHECK(!ctx(p)->old.yielded && p->scx.slice);
}

/* Alone in the system it runs on, too; the base scheduler would recalculate. */
static void t7_lone_yielder(void)
{
	struct task_struct *p;

	script_start(1);
	p = running_on(0, 7, P20, M1);
	script_yield(0);
	CHECK(ctx(p)->old.yielded);
	CHECK(script_schedule(0) == p);
	EQUAL(script.probes[LAB_RECALCULATIONS], 0);
	EQUAL(ctx(p)->old.counter, 7);
}

/* In a lower list than others a yielder is not even looked at. */
static void yielder_below_the_top(void)
{
	struct task_struct *p, *q;

	script_start(1);
	p = running_on(0, 3, P20, M1);
	q = waiting(20, P20, 0, M2);
	script_yield(0);
	CHECK(script_schedule(0) == q);
	EQUAL(script.probes[LAB_EXAMINED], 1);
	EQUAL(list_of(p), 5);
}

/* A yielder without ticks waits for the recalculation like others. */
static void yielder_expired(void)
{
	struct task_struct *p;

	script_start(1);
	p = running_on(0, 0, P20, M1);
	script_yield(0);
	CHECK(script_schedule(0) == p);
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
	EQUAL(ctx(p)->old.counter, 20);
}

static void t8_beyond_the_limit(void)
{
	struct task_struct *p[8];
	s32 i;

	script_start(2);
	for (i = 7; i >= 0; i--)
		p[i] = waiting(20, P20, i != 6, M2);
	CHECK(script_schedule(0) == p[0]);
	EQUAL(script.probes[LAB_EXAMINED], 6);
	/* Now it is the sixth. */
	script_block(0);
	CHECK(script_schedule(0) == p[6]);
}

static void t9_idle(void)
{
	struct task_struct *p;

	script_start(1);
	CHECK(!script_schedule(0));
	p = running_on(0, 0, P20, M1);
	script_block(0);
	script.now_ns = 5;
	CHECK(!script_schedule(0));
	EQUAL(script.probes[LAB_RECALCULATIONS], 0);
	EQUAL(ctx(p)->old.counter, 0);
	CHECK(!cpus[0].curr && cpus[0].last_schedule_ns == 5);
}

/* Tasks that are leaving another CPU count, and if there is no other the next list has its turn. */
static void leaving_another_cpu(void)
{
	struct task_struct *p[6], *low;
	lab_node_t *last;
	s32 i;

	script_start(2);
	low = waiting(10, P20, 0, M2);
	for (i = 5; i >= 0; i--)
		p[i] = waiting(20, P20, 1, M2);
	for (i = 0; i < 5; i++)
		ctx(p[i])->old.takeable = false;
	CHECK(script_schedule(0) == p[5]);
	EQUAL(script.probes[LAB_EXAMINED], 6);
	script_block(0);
	CHECK(script_schedule(0) == low);
	/* A seventh behind six of them is not seen. */
	script_block(0);
	low = waiting(10, P20, 0, M2);
	ctx(waiting(20, P20, 1, M2))->old.takeable = false;
	last = &ctx(waiting(20, P20, 1, M2))->lab.node;
	lab_list_del(elsc_at(10), last);
	lab_list_add_tail(elsc_at(10), last);
	CHECK(script_schedule(0) == low);
}

/* A yielder is the last resort of its own list only. */
static void yielder_in_its_own_list(void)
{
	struct task_struct *r;

	script_start(2);
	running_on(0, 3, P20, M1);
	ctx(waiting(20, P20, 1, M2))->old.takeable = false;
	r = waiting(10, P20, 1, M2);
	script_yield(0);
	CHECK(script_schedule(0) == r);
}

/* Of the first tasks of a real-time list the most important; no bonus, and leavers do not count. */
static void realtime(void)
{
	struct task_struct *p[8], *high;
	s32 i;

	script_start(2);
	waiting(20, P40, 0, M2);
	high = put(make_rt(task(5, P20, 1, M2), LAB_SCHED_FIFO, 39));
	for (i = 6; i >= 0; i--)
		p[i] = put(make_rt(task(0, P20, 0, M2), LAB_SCHED_FIFO, 30 + i));
	/* The limit is six: 30 to 35. */
	CHECK(script_schedule(0) == p[5]);
	EQUAL(rq.top, 23);
	script_block(0);
	for (i = 0; i < 5; i++)
		ctx(p[i])->old.takeable = false;
	CHECK(script_schedule(0) == high);
	EQUAL(rq.next_top, ELSC_NONE);
}

/* A round-robin task with a new quantum goes behind its equals, and they have their turn. */
static void round_robin(void)
{
	struct task_struct *prev, *peer;

	script_start(1);
	prev = run(make_rt(task(0, P10, 0, M1), LAB_SCHED_RR, 5), 0);
	peer = put(make_rt(task(3, P20, 0, M2), LAB_SCHED_RR, 5));
	need_resched(0);
	CHECK(script_schedule(0) == peer);
	EQUAL(ctx(prev)->old.counter, 10);
	CHECK(is_last(prev));
	/* A FIFO task is put ahead of them. */
	prev = peer;
	prev->policy = ctx(prev)->old.policy = LAB_SCHED_FIFO;
	need_resched(0);
	CHECK(script_schedule(0) == prev);
}

/* Running tasks are out of the table; blocking takes nothing out and needs no lock. */
static void running_tasks_are_out(void)
{
	struct task_struct *p, *q;

	script_start(1);
	q = waiting(6, P20, 0, M2);
	p = waiting(20, P20, 0, M1);
	CHECK(script_schedule(0) == p);
	CHECK(!ctx(p)->old.linked);
	EQUAL(rq.nr, 1);
	EQUAL(rq.top, list_of(q));
	script_block(0);
	EQUAL(script.nr_locks, 1);
	CHECK(script_schedule(0) == q);
	EQUAL(rq.nr, 0);
	EQUAL(rq.top, ELSC_NONE);
}

/* A displaced task is filed before the search and placed after it. */
static void displaced(void)
{
	struct task_struct *p, *q;

	script_start(2);
	p = running_on(0, 3, P20, M1);
	running_on(1, 1, P1, M2);
	q = waiting(20, P20, 0, M3);
	need_resched(0);
	CHECK(script_schedule(0) == q);
	EQUAL(list_of(p), 5);
	CHECK(ctx(p)->old.takeable);
	/* 23 against 1 + 1 + 15 + 1 */
	EQUAL(script.kicks[1], SCX_KICK_PREEMPT);
	EQUAL(script.nr_kicks[0], 0);
}

/* Ticks used up between the search and the switch change where the task belongs. */
static void charged_until_the_switch(s32 counter, u64 ran_ns, s32 list)
{
	struct task_struct *p;

	p = running_on(0, counter, P20, M1);
	waiting(39, P20, 0, M3);
	cpus[0].marked = true;
	script_preempt(0);
	script.cpu = 0;
	OPS.dispatch(0, p);
	EQUAL(list_of(p), list);
	script.inserted = NULL;
	script.now_ns += ran_ns;
	OPS.stopping(p, true);
	EQUAL(ctx(p)->old.counter, 0);
	script_enqueue(p, 0);
	EQUAL(list_of(p), 10);
	EQUAL(rq.next_top, 10);
	EQUAL(rq.top, ELSC_NONE);
	take(p);
}

static void charged_after_the_search(void)
{
	script_start(2);
	charged_until_the_switch(1, 10000000, 5);
	/* The same list, but behind those with ticks. */
	charged_until_the_switch(20, 200000000, 10);
}

/* The fields that decide the index change while the task waits. */
static void refiled(void)
{
	struct task_struct *parent, *child, *q;

	script_start(2);
	parent = task(39, P20, 1, M1);
	run(parent, 1);
	child = script_fork(parent, P20, M1);
	EQUAL(ctx(child)->old.counter, 20);
	EQUAL(ctx(parent)->old.counter, 19);
	script.curr[1] = NULL;
	cpus[1].curr = NULL;
	ctx(parent)->old.on_cpu = false;
	ctx(parent)->old.counter = 0;
	put(parent);
	EQUAL(rq.next_top, 10);
	script_exit_task(child);
	/* 20 ticks, the same list, but now it is ready. */
	EQUAL(ctx(parent)->old.counter, 20);
	EQUAL(list_of(parent), 10);
	EQUAL(rq.top, 10);
	EQUAL(rq.next_top, ELSC_NONE);

	q = waiting(6, P20, 0, M2);
	EQUAL(list_of(q), 6);
	script_change_begin(q);
	q->static_prio = 130;
	OPS.set_weight(q, 10);
	EQUAL(list_of(q), 4);
	script_enqueue(q, 0);
	EQUAL(list_of(q), 4);
	script_change_begin(q);
	q->policy = LAB_SCHED_FIFO;
	q->rt_priority = 50;
	script_enqueue(q, 0);
	EQUAL(list_of(q), 25);
	EQUAL(rq.top, 25);
	EQUAL(rq.nr, 2);
}

/* Ours: masks. Those who may not run here do not count, and do not keep others waiting. */
static struct task_struct *elsewhere(s32 counter, s32 nice)
{
	struct task_struct *p = task(counter, nice, 1, M4);

	script_of(p)->mask.bits[0] = 2;
	lab_task_refresh(&ctx(p)->lab, p);
	return put(p);
}

static void masks_do_not_count(void)
{
	struct task_struct *p;
	u32 i;

	script_start(2);
	p = waiting(20, P20, 0, M2);
	for (i = 0; i < 10; i++)
		elsewhere(20, P20);
	CHECK(script_schedule(0) == p);
	script_block(0);
	CHECK(!script_schedule(0));
	EQUAL(script.probes[LAB_RECALCULATIONS], 0);
}

static void masks_recalculation(void)
{
	struct task_struct *p, *other, *nicer, *rested;

	script_start(2);
	rested = elsewhere(39, P20);
	other = elsewhere(20, P20);
	nicer = elsewhere(39, P10);
	p = waiting(0, P20, 0, M2);
	EQUAL(list_of(nicer), 12);
	CHECK(script_schedule(0) == p);
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
	/* Those that had ticks belong elsewhere now: 30 + 20 and 29 + 10. */
	EQUAL(list_of(other), 12);
	EQUAL(list_of(nicer), 7 + 2);
	EQUAL(rq.next_top, ELSC_NONE);
	EQUAL(list_of(rested), 14);
	CHECK(script_schedule(1) == rested);
	script_block(1);
	CHECK(script_schedule(1) == other);
	EQUAL(rq.top, 9);
}

/* Expired tasks that may run only elsewhere do not make this CPU recalculate. */
static void masks_idle(void)
{
	script_start(2);
	elsewhere(0, P20);
	CHECK(!script_schedule(0));
	EQUAL(script.probes[LAB_RECALCULATIONS], 0);
	CHECK(script_schedule(1));
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
}

static void late_mask(void)
{
	struct task_struct *a, *b;

	script_start(2);
	b = waiting(2, P20, 0, M2);
	a = waiting(9, P20, 0, M1);
	script_of(a)->mask.bits[0] = 2;
	CHECK(script_schedule(0) == b);
	CHECK(script_schedule(1) == a);
}

TESTS(TEST(t1_index), TEST(t2_limit), TEST(t3_tasks_with_ticks_first),
      TEST(t4_recalculation_moves_nobody), TEST(t5_best_of_the_list), TEST(t5_uniprocessor),
      TEST(t5_previous_task_on_one_cpu), TEST(t6_only_the_top_list),
      TEST(t7_yielder_beside_another), TEST(t7_yielder_alone_in_the_top_list),
      TEST(t7_lone_yielder), TEST(yielder_below_the_top), TEST(yielder_expired),
      TEST(t8_beyond_the_limit), TEST(t9_idle), TEST(leaving_another_cpu), TEST(yielder_in_its_own_list), TEST(realtime),
      TEST(round_robin), TEST(running_tasks_are_out), TEST(displaced),
      TEST(charged_after_the_search), TEST(refiled), TEST(masks_do_not_count),
      TEST(masks_recalculation), TEST(masks_idle), TEST(late_mask), TEST(pinned), TEST(pinned_preempts))
