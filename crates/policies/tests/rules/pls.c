/* SPDX-License-Identifier: GPL-2.0-only */
/* The rules of docs/schedulers/pls.md, one test a rule. `pls NAME` runs one. */
#define POLICY "../../../../policies/pls.bpf.c"
#define OPS pls_ops
#define HOOKS pls_lists
#include "script.h"
#include "queue24.h"
#include "pinned.h"

static u32 list_of(struct task_struct *p)
{
	CHECK(ctx(p)->old.linked);
	return ctx(p)->list;
}

static struct task_struct *head(u32 list)
{
	lab_list_t *l = &rq.lists[pls_level(list)];

	CHECK(l->head.next != &l->head);
	return &script.tasks[lab_entry(l->head.next, struct pls_task, lab.node)->lab.task]->p;
}

static void t1_affinity_wins_and_ends_the_search(void)
{
	struct task_struct *t1, *t2;

	script_start(2);
	running_on(0, 2, 0, M1);
	t1 = waiting(13, 0, 1, M1);
	t2 = waiting(10, 0, 0, M2);
	waiting(9, 0, 0, M3);
	EQUAL(list_of(script.curr[0]), 22);
	EQUAL(list_of(t1), 33);
	EQUAL(list_of(t2), 30);
	need_resched(0);
	CHECK(script_schedule(0) == t2);
	/* The previous task, T1 and T2; not the one in list 29. */
	EQUAL(script.probes[LAB_EXAMINED], 3);
}

/* T2 in lists 30, 25 and 24 beside a candidate of list 40. */
static struct task_struct *beside_list_40(s32 counter, struct task_struct **t3)
{
	struct task_struct *t2;

	script_start(2);
	running_on(0, 2, 0, M1);
	*t3 = waiting(20, 0, 1, M2);
	t2 = waiting(counter, 0, 0, M3);
	EQUAL(list_of(*t3), 40);
	need_resched(0);
	CHECK(script_schedule(0));
	return t2;
}

static void t2_within_the_bonus(void)
{
	struct task_struct *t3, *t2 = beside_list_40(10, &t3);

	EQUAL(list_of(t2), 30);
	CHECK(script.curr[0] == t2);
	EQUAL(script.probes[LAB_EXAMINED], 3);
}

static void t2_equal_is_not_better(void)
{
	struct task_struct *t3, *t2 = beside_list_40(5, &t3);

	EQUAL(list_of(t2), 25);
	CHECK(script.curr[0] == t3);
	EQUAL(script.probes[LAB_EXAMINED], 3);
}

static void t2_below_the_bonus(void)
{
	struct task_struct *t3, *t2 = beside_list_40(4, &t3);

	EQUAL(list_of(t2), 24);
	CHECK(script.curr[0] == t3);
	EQUAL(script.probes[LAB_EXAMINED], 2);
}

static void t3_recalculation(void)
{
	struct task_struct *p, *x, *y, *z;

	script_start(1);
	p = running_on(0, 3, 0, M1);
	y = waiting(0, 10, 0, M3);
	x = waiting(0, 0, 0, M2);
	z = task(11, 0, 0, M4);
	EQUAL(list_of(x), 0);
	EQUAL(list_of(y), 0);
	script_block(0);
	CHECK(script_schedule(0) == x);
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
	EQUAL(ctx(x)->old.counter, 6);
	EQUAL(ctx(y)->old.counter, 3);
	EQUAL(ctx(z)->old.counter, 11);
	EQUAL(list_of(x), 26);
	EQUAL(list_of(y), 13);
	/* Expired tasks are not inspected, X is; P has left. */
	EQUAL(script.probes[LAB_EXAMINED], 1);
	CHECK(!ctx(p)->old.linked);
	EQUAL(rq.levels.nr, 2);
}

static void t3_idle(void)
{
	script_start(1);
	CHECK(!script_schedule(0));
	running_on(0, 0, 0, M1);
	script_block(0);
	CHECK(!script_schedule(0));
	EQUAL(script.probes[LAB_RECALCULATIONS], 0);
	EQUAL(script.probes[LAB_EXAMINED], 0);
}

/* Expired tasks that run elsewhere or may not run here ask for nothing. */
static void t3_idle_beside_expired(void)
{
	struct task_struct *p;

	script_start(2);
	running_on(1, 0, 0, M1);
	p = task(0, 0, 1, M2);
	script_of(p)->mask.bits[0] = 2;
	lab_task_refresh(&ctx(p)->lab, p);
	put(p);
	CHECK(!script_schedule(0));
	EQUAL(script.probes[LAB_RECALCULATIONS], 0);
	need_resched(1);
	CHECK(script_schedule(1));
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
}

/* The running task is out of ticks and no task is better: all get new ones. */
static void t3_expired_alone(void)
{
	struct task_struct *p;

	script_start(1);
	p = running_on(0, 0, 0, M1);
	need_resched(0);
	CHECK(script_schedule(0) == p);
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
	EQUAL(list_of(p), 26);
}

static void t4_yielder_last(void)
{
	struct task_struct *p, *x;

	script_start(1);
	p = running_on(0, 10, 0, M1);
	x = waiting(1, 19, 0, M2);
	EQUAL(list_of(x), 2);
	script_yield(0);
	CHECK(ctx(p)->old.yielded);
	/* It stays in the list of its goodness. */
	EQUAL(list_of(p), 30);
	CHECK(script_schedule(0) == x);
	EQUAL(script.probes[LAB_RECALCULATIONS], 0);
	EQUAL(list_of(p), 30);
	CHECK(ctx(p)->old.takeable && !ctx(p)->old.yielded);
	EQUAL(script.nr_kicks[0], 0);
}

static void t4_yielder_alone(void)
{
	struct task_struct *p, *x;

	script_start(1);
	p = running_on(0, 10, 0, M1);
	x = waiting(1, 19, 0, M2);
	script_yield(0);
	/* X vanishes before the choice. */
	take(x);
	CHECK(script_schedule(0) == p);
	EQUAL(script.probes[LAB_RECALCULATIONS], 0);
	EQUAL(ctx(p)->old.counter, 10);
	CHECK(!ctx(p)->old.yielded);
	/* Without a waiting task the mark is not even set. */
	script_yield(0);
	CHECK(!ctx(p)->old.yielded && !cpus[0].marked);
}

/* As in dss: a yielder's rivals without ticks cause a recalculation, and then one of them is it. */
static void yielder_and_expired(void)
{
	struct task_struct *p, *x;

	script_start(1);
	p = running_on(0, 4, 0, M1);
	x = waiting(0, 0, 0, M2);
	script_yield(0);
	CHECK(script_schedule(0) == x);
	EQUAL(ctx(p)->old.counter, 8);
	EQUAL(list_of(p), 28);
	EQUAL(list_of(x), 26);
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
}

static void t5_no_bonus_for_the_address_space(void)
{
	struct task_struct *a, *b;

	script_start(2);
	running_on(0, 2, 0, M1);
	a = waiting(6, 0, 1, M1);
	b = waiting(6, 0, 1, M2);
	EQUAL(list_of(a), 26);
	EQUAL(list_of(b), 26);
	CHECK(head(26) == b);
	EQUAL(linux24_goodness(&ctx(a)->old, 0, M1, base), 27);
	EQUAL(linux24_goodness(&ctx(b)->old, 0, M1, base), 26);
	script_block(0);
	CHECK(script_schedule(0) == b);
}

static void t6_fork(void)
{
	struct task_struct *parent, *child;

	script_start(2);
	parent = running_on(1, 7, 0, M1);
	EQUAL(list_of(parent), 27);
	child = script_fork(parent, 0, M2);
	EQUAL(ctx(parent)->old.counter, 3);
	EQUAL(list_of(parent), 23);
	EQUAL(ctx(child)->old.counter, 4);
	script_wake(child, 1, 0);
	EQUAL(list_of(child), 24);
	EQUAL(rq.levels.nr, 2);
}

/* The previous task is the candidate, and only lists that can beat it are searched. */
static void previous_task_first(void)
{
	struct task_struct *p;

	script_start(2);
	p = running_on(0, 6, 0, M1);		/* list 26, 41 */
	waiting(6, 0, 1, M2);			/* list 26, 26 */
	waiting(5, 0, 0, M3);			/* list 25: below the previous task's */
	waiting(20, 0, 1, M4);			/* list 40, 40 */
	need_resched(0);
	CHECK(script_schedule(0) == p);
	EQUAL(script.probes[LAB_EXAMINED], 3);
}

/* A task that cannot run here does not end the search, nor does it count as candidate. */
static void not_schedulable(void)
{
	struct task_struct *a, *b;

	script_start(2);
	b = waiting(3, 0, 1, M3);		/* list 23 */
	a = task(20, 0, 0, M2);			/* list 40, last ran here */
	script_of(a)->mask.bits[0] = 2;
	lab_task_refresh(&ctx(a)->lab, a);
	put(a);
	running_on(1, 21, -20, M4);		/* list 61, runs elsewhere */
	CHECK(script_schedule(0) == b);
	EQUAL(script.probes[LAB_EXAMINED], 3);
}

static void realtime_on_top(void)
{
	struct task_struct *p, *low, *high;

	script_start(2);
	p = running_on(0, 21, -20, M1);
	EQUAL(list_of(p), 61);
	low = make_rt(task(0, 0, 0, M2), LAB_SCHED_FIFO, 1);
	put(low);
	high = put(make_rt(task(0, 0, 1, M3), LAB_SCHED_RR, 40));
	put(make_rt(task(5, 0, 0, M4), LAB_SCHED_FIFO, 39));
	waiting(21, -20, 1, M5);
	EQUAL(list_of(low), PLS_REALTIME);
	need_resched(0);
	CHECK(script_schedule(0) == high);
	/* P, and the three of the top list, whichever ran here. */
	EQUAL(script.probes[LAB_EXAMINED], 4);
	EQUAL(script.probes[LAB_RECALCULATIONS], 0);
	EQUAL(PLS_LISTS, 63);
}

/* A round-robin task with a new quantum is behind its equals, and yet goes first: prev first. */
static void round_robin(void)
{
	struct task_struct *prev, *peer;

	script_start(1);
	prev = run(make_rt(task(0, 0, 0, M1), LAB_SCHED_RR, 5), 0);
	peer = put(make_rt(task(3, 0, 0, M2), LAB_SCHED_RR, 5));
	need_resched(0);
	CHECK(script_schedule(0) == prev);
	EQUAL(ctx(prev)->old.counter, 6);
	CHECK(head(PLS_REALTIME) == peer);
	CHECK(rq.lists[pls_level(PLS_REALTIME)].head.prev == &ctx(prev)->lab.node);
}

/* Ticks used up move the running task down, under the lock. */
static void tick_moves(void)
{
	struct task_struct *p;

	script_start(1);
	charge = CHARGE_TICKS;
	p = running_on(0, 2, 0, M1);
	EQUAL(list_of(p), 22);
	script_tick(0);
	EQUAL(list_of(p), 21);
	EQUAL(script.nr_locks, 1);
	script_tick(0);
	EQUAL(list_of(p), 0);
	CHECK(cpus[0].marked);
	/* Without a change there is no lock. */
	script_tick(0);
	EQUAL(script.nr_locks, 2);
}

/* Time that was used up since the last tick counts when the CPU chooses. */
static void choice_moves(void)
{
	struct task_struct *p, *q;

	script_start(1);
	p = running_on(0, 9, 0, M1);
	q = waiting(6, 0, 0, M2);
	script.now_ns += 40000000;
	need_resched(0);
	CHECK(script_schedule(0) == q);
	EQUAL(list_of(p), 25);
}

/* The ticks that a child leaves behind move its parent up, running or waiting. */
static void exit_moves(void)
{
	struct task_struct *parent, *child;

	script_start(2);
	parent = running_on(1, 8, 0, M1);
	child = script_fork(parent, 0, M2);
	EQUAL(list_of(parent), 24);
	script.cpu = 0;
	script_exit_task(child);
	EQUAL(list_of(parent), 28);
}

/* Nice levels move waiting and running tasks. */
static void nice_moves(void)
{
	struct task_struct *p, *q;

	script_start(1);
	p = running_on(0, 6, 0, M1);
	q = waiting(6, 0, 0, M2);
	p->static_prio = 130;
	OPS.set_weight(p, 10);
	EQUAL(list_of(p), 16);
	script_change_begin(q);
	q->static_prio = 100;
	OPS.set_weight(q, 1000);
	EQUAL(list_of(q), 46);
	CHECK(!ctx(q)->old.takeable);
	script_enqueue(q, 0);
	EQUAL(list_of(q), 46);
	EQUAL(rq.levels.nr, 2);
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
}

/* Becoming a real-time task moves to the top list, and back. */
static void policy_moves(void)
{
	struct task_struct *q;

	script_start(1);
	q = waiting(6, 0, 0, M2);
	script_change_begin(q);
	q->policy = LAB_SCHED_FIFO;
	q->rt_priority = 7;
	script_enqueue(q, 0);
	EQUAL(list_of(q), PLS_REALTIME);
	script_change_begin(q);
	q->policy = 0;
	script_enqueue(q, 0);
	EQUAL(list_of(q), 26);
	EQUAL(rq.levels.nr, 1);
}

/* A woken task goes to the head of its list and is placed as in dss, address space included. */
static void wakeup(void)
{
	struct task_struct *a, *b;

	script_start(2);
	running_on(0, 6, 0, M1);		/* 42 */
	running_on(1, 6, 0, M2);
	a = waiting(8, 0, 1, M3);
	b = task(8, 0, 1, M3);			/* 43 on CPU 1: not more than 1 above 42 */
	script_wake(b, 0, 0);
	CHECK(head(28) == b && list_of(a) == 28);
	EQUAL(script.nr_kicks[0] + script.nr_kicks[1], 0);
	script_wake(task(8, 0, 1, M2), 0, 0);	/* 44 with the address space */
	EQUAL(script.kicks[1], SCX_KICK_PREEMPT);
}

/* A blocked task leaves its list in the next choice of its CPU. */
static void blocking(void)
{
	struct task_struct *p;

	script_start(1);
	p = running_on(0, 3, 0, M1);
	script_block(0);
	EQUAL(rq.levels.nr, 1);
	CHECK(!script_schedule(0));
	EQUAL(rq.levels.nr, 0);
	EQUAL(script.nr_locks, 1);
	CHECK(lab_prio_first(&rq.levels) == LAB_PRIO_NONE);
	script_wake(p, 0, 0);
	CHECK(script_schedule(0) == p);
}

static void late_mask(void)
{
	struct task_struct *a, *b;

	script_start(2);
	b = waiting(2, 0, 0, M2);
	a = waiting(9, 0, 0, M1);
	script_of(a)->mask.bits[0] = 2;
	CHECK(script_schedule(0) == b);
	CHECK(script_schedule(1) == a);
}

TESTS(TEST(t1_affinity_wins_and_ends_the_search), TEST(t2_within_the_bonus),
      TEST(t2_equal_is_not_better), TEST(t2_below_the_bonus), TEST(t3_recalculation),
      TEST(t3_idle), TEST(t3_idle_beside_expired), TEST(t3_expired_alone),
      TEST(t4_yielder_last), TEST(t4_yielder_alone), TEST(yielder_and_expired),
      TEST(t5_no_bonus_for_the_address_space), TEST(t6_fork), TEST(previous_task_first),
      TEST(not_schedulable), TEST(realtime_on_top), TEST(round_robin), TEST(tick_moves),
      TEST(choice_moves), TEST(exit_moves), TEST(nice_moves), TEST(policy_moves), TEST(wakeup),
      TEST(blocking), TEST(late_mask), TEST(pinned), TEST(pinned_preempts))
