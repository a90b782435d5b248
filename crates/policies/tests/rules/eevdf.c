/* SPDX-License-Identifier: GPL-2.0-only */
/* The rules of docs/schedulers/eevdf.md, one test a rule. `eevdf NAME` runs one. */
#define POLICY "../../../../policies/eevdf.bpf.c"
#define OPS eevdf_ops
#include "script.h"
#include "fair_script.h"

#define MS	1000000ll
#define US	1000ll

/* A task that waits, with this deadline. */
static struct task_struct *waiting_until(s32 nice, s64 v, s64 deadline)
{
	struct task_struct *p = sleeping(0, nice, v);

	join(p);
	ctx(p)->deadline = deadline;
	fair_link(&rqs[0], ctx(p));
	script_of(p)->in_custody = true;
	return p;
}

static struct task_struct *running_until(s32 nice, s64 v, s64 deadline)
{
	struct task_struct *p = running_on(0, nice, v);

	ctx(p)->deadline = ctx(p)->protected = deadline;
	return p;
}

static void t1_eligible(void)
{
	struct task_struct *a;

	script_start(1);
	a = waiting_until(0, 10 * MS, 14 * MS);
	waiting_until(0, 14 * MS, 13 * MS);
	EQUAL(eevdf_average(&rqs[0], 0), 12 * MS);
	CHECK(script_schedule(0) == a);
}

static void t2_join(void)
{
	struct task_struct *c;

	script_start(1);
	EQUAL(eevdf_join(12 * MS, 1 * MS, 2048, 1024), 10500 * US);
	waiting_until(0, 10 * MS, 14 * MS);
	waiting_until(0, 14 * MS, 18 * MS);
	c = sleeping(0, 0, 0);
	ctx(c)->lag = 1 * MS;
	wake(c, 0);
	EQUAL(ctx(c)->vruntime, 10500 * US);
	EQUAL(eevdf_average(&rqs[0], 0), 11500 * US);
	/* Its lag after joining is the one it had. */
	EQUAL(eevdf_average(&rqs[0], 0) - ctx(c)->vruntime, 1 * MS);
}

static void t2_negative_lag(void)
{
	script_start(1);
	EQUAL(eevdf_join(12 * MS, -1 * MS, 2048, 1024), 13500 * US);
	EQUAL(eevdf_join(12 * MS, -1 * MS, 0, 1024), 12 * MS);
	EQUAL(eevdf_divide(-3, 2), -2);
	EQUAL(eevdf_divide(3, 2), 1);
}

static void t3_shorter_request_first(void)
{
	struct task_struct *a, *b;

	script_start(1);
	a = waiting_until(0, 0, eevdf_deadline(0, 3 * MS, 1024));
	b = waiting_until(0, 0, eevdf_deadline(0, 1 * MS, 1024));
	CHECK(script_schedule(0) == b);
	CHECK(a);
}

static void t4_deadline(void)
{
	script_start(1);
	EQUAL((eevdf_deadline(0, 3 * MS, fair_weight(5, 0)) + 500) / US, 9170);
	EQUAL(eevdf_deadline(7 * MS, 3 * MS, 1024), 10 * MS);
}

static void slice(void)
{
	script_start(8);
	EQUAL(eevdf_slice, 3 * MS);
}

static void slice_of_later_kernels(void)
{
	base_slice_us = 700;
	script_start(8);
	EQUAL(eevdf_slice, 2800 * US);
}

/* A request is fulfilled at its deadline; only then, and if others wait, the turn ends. */
static void request_fulfilled(void)
{
	struct task_struct *a, *b;

	script_start(1);
	a = running_until(0, 0, 750 * US);
	b = waiting_until(0, 0, 900 * US);
	script.now_ns += 749 * US;
	script_tick(0);
	CHECK(a->scx.slice);
	script.now_ns += 1 * US;
	script_tick(0);
	CHECK(!a->scx.slice);
	EQUAL(ctx(a)->deadline, 1500 * US);
	CHECK(script_schedule(0) == b);
	script_block(0);
	CHECK(script_schedule(0) == a);
	script.now_ns += 750 * US;
	script_tick(0);
	CHECK(a->scx.slice);
	EQUAL(ctx(a)->deadline, 2250 * US);
}

/* The current task is not replaced before, though another deadline is earlier ... */
static void parity(void)
{
	struct task_struct *a, *p;

	script_start(1);
	a = running_until(0, 0, 5 * MS);
	p = sleeping(0, 0, 0);
	wake(p, 0);
	EQUAL(ctx(p)->deadline, 750 * US);
	EQUAL(script.kicks[0], 0);
	script_preempt(0);
	CHECK(script_schedule(0) == a);
	run_to_parity = false;
	script_preempt(0);
	CHECK(script_schedule(0) == p);
}

/* ... unless it is no longer eligible, having had more than its share. */
static void parity_ends_with_eligibility(void)
{
	struct task_struct *p;

	script_start(1);
	running_until(0, 0, 5 * MS);
	p = waiting_until(0, 0, 6 * MS);
	script.now_ns += 1 * MS;
	script_preempt(0);
	CHECK(script_schedule(0) == p);
}

/* ... or a task with a shorter request wakes. */
static void short_request_preempts(void)
{
	struct task_struct *p;

	script_start(1);
	running_until(0, 0, 750 * US);
	p = sleeping(0, 0, 0);
	ctx(p)->request_ns = 100 * US;
	wake(p, 0);
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
	script_preempt(0);
	CHECK(script_schedule(0) == p);
}

static void short_request_off(void)
{
	struct task_struct *a, *p;

	script_start(1);
	preempt_short = false;
	a = running_until(0, 0, 750 * US);
	p = sleeping(0, 0, 0);
	ctx(p)->request_ns = 100 * US;
	wake(p, 0);
	EQUAL(script.kicks[0], 0);
	script_preempt(0);
	CHECK(script_schedule(0) == a);
}

/* A sleeper keeps its lag, within two requests or ticks of virtual time. */
static void sleep_keeps_lag(void)
{
	struct task_struct *a, *b;

	script_start(1);
	/* Two requests, or a tick if that is longer. */
	EQUAL(eevdf_clamp(100 * MS, 3 * MS, 1024), 6 * MS);
	EQUAL(eevdf_clamp(100 * MS, 750 * US, 1024), 4 * MS);
	EQUAL(eevdf_clamp(-100 * MS, 5 * MS, 1024), -10 * MS);
	EQUAL(eevdf_clamp(1 * MS, 3 * MS, 1024), 1 * MS);
	a = running_until(0, 0, 5 * MS);
	waiting_until(0, 0, 6 * MS);
	script.now_ns += 2 * MS;
	script_block(0);
	/* It was 1 ms ahead of the average of both. */
	EQUAL(ctx(a)->lag, -1 * MS);
	b = script_schedule(0);
	CHECK(b);
	script.now_ns += 10 * MS;
	wake(a, 0);
	EQUAL(eevdf_average(&rqs[0], script.now_ns) - ctx(a)->vruntime, -1 * MS);
}

/* A new task has no lag, and half a request until its first deadline. */
static void fork_(void)
{
	struct task_struct *parent, *child;

	script_start(1);
	parent = running_until(0, 10 * MS, 11 * MS);
	waiting_until(0, 12 * MS, 13 * MS);
	child = script_fork(parent, 0, 1);
	wake(child, 0);
	EQUAL(ctx(child)->vruntime, 11 * MS);
	EQUAL(ctx(child)->deadline, 11 * MS + 375 * US);
}

static void yield_(void)
{
	struct task_struct *a, *b;

	script_start(1);
	a = running_until(0, 0, 750 * US);
	script_yield(0);
	EQUAL(ctx(a)->deadline, 750 * US);
	b = waiting_until(0, 0, 751 * US);
	script_yield(0);
	EQUAL(ctx(a)->deadline, 1500 * US);
	CHECK(script_schedule(0) == b);
}

/* A task that changes queues takes its lag along. */
static void moved(void)
{
	struct task_struct *p;

	script_start(2);
	running_on(1, 0, 500 * MS);
	running_on(0, 0, 10 * MS);
	p = waiting_until(0, 8 * MS, 9 * MS);
	script_change_begin(p);
	EQUAL(ctx(p)->lag, 1 * MS);
	p->__lab_cpu = 1;
	script_enqueue(p, 0);
	EQUAL(eevdf_average(&rqs[1], 0) - ctx(p)->vruntime, 1 * MS);
}

/* Of many, the choice equals a plain search's. */
static void like_a_plain_search(void)
{
	struct task_struct *p[40], *best, *chosen;
	u32 round, i, seed = 1;
	s64 avg;

	script_start(1);
	for (i = 0; i < 40; i++) {
		p[i] = waiting_until((s32)(i % 40) - 20, (i * 7919) % 101 * MS,
				     (i * 104729) % 211 * MS);
	}
	for (round = 0; round < 2000; round++) {
		avg = eevdf_average(&rqs[0], script.now_ns);
		best = NULL;
		for (i = 0; i < 40; i++) {
			task_t *t = ctx(p[i]);

			if (t->queued && t->vruntime <= avg &&
			    (!best || t->deadline < ctx(best)->deadline))
				best = p[i];
		}
		chosen = script_schedule(0);
		CHECK(chosen);
		EQUAL(ctx(chosen)->deadline, ctx(best)->deadline);
		seed = seed * 1664525 + 1013904223;
		script.now_ns += seed % (3 * MS);
		script_block(0);
		chosen->scx.slice = 0;
		script.curr[0] = NULL;
		wake(chosen, 0);
	}
}

/*
 * The bound of fairness: with requests of one length the lag of no task that
 * always wants to run exceeds a request and a tick, either way.
 */
static void fairness_bound(void)
{
	static const s32 nices[] = { 0, 0, -5, 5, 10 };
	u64 ran[5] = {}, load = 0, total = 0;
	struct task_struct *p[5];
	u32 i, step;

	script_start(1);
	for (i = 0; i < 5; i++) {
		p[i] = waiting_until(nices[i], 0, eevdf_deadline(0, eevdf_slice,
								   fair_weight(nices[i], 0)));
		load += ctx(p[i])->weight;
	}
	script_schedule(0);
	for (step = 0; step < 20000; step++) {
		for (i = 0; i < 5; i++) {
			if (script.curr[0] == p[i])
				ran[i] += 1 * MS;
		}
		total += 1 * MS;
		script.now_ns += 1 * MS;
		script_tick(0);
		script_schedule(0);
		for (i = 0; i < 5; i++) {
			s64 lag = (eevdf_average(&rqs[0], script.now_ns) - ctx(p[i])->vruntime) *
				  (s64)ctx(p[i])->weight / 1024;

			CHECK(lag <= (s64)eevdf_slice + 1 * MS);
			CHECK(-lag <= (s64)eevdf_slice + 1 * MS);
		}
	}
	for (i = 0; i < 5; i++) {
		s64 due = total * ctx(p[i])->weight / load;

		CHECK(due - (s64)ran[i] <= (s64)eevdf_slice + 1 * MS);
		CHECK((s64)ran[i] - due <= (s64)eevdf_slice + 1 * MS);
	}
}

static void idle_leaves_warm_caches(void)
{
	check_warm_caches();
}

static void balance_interval(void)
{
	check_balance_interval();
}

static void bound_queue(void)
{
	check_bound_queue();
}

/* A value that would wrap is refused. */
static void option_ranges(void)
{
	AT_MOST(base_slice_us, 1000000, script_start(8));
	AT_MOST(tick_us, 1000000, script_start(8));
}

TESTS(TEST(t1_eligible), TEST(t2_join), TEST(t2_negative_lag), TEST(t3_shorter_request_first),
      TEST(t4_deadline), TEST(slice), TEST(slice_of_later_kernels), TEST(request_fulfilled),
      TEST(parity), TEST(parity_ends_with_eligibility), TEST(short_request_preempts),
      TEST(short_request_off), TEST(sleep_keeps_lag), TEST(fork_), TEST(yield_), TEST(moved),
      TEST(idle_leaves_warm_caches), TEST(balance_interval), TEST(bound_queue),
      TEST(like_a_plain_search), TEST(fairness_bound), TEST(option_ranges))
