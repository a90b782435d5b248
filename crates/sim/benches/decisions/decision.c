/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Measures the cost of one choice of a policy, compiled for this machine.
 *
 *   PROGRAM TASKS CHOICES	prints the nanoseconds of each choice, a line each
 *
 * One CPU. Its task blocks, ops.dispatch() chooses among TASKS others, and the
 * one that blocked wakes again: that call of ops.dispatch() is what is timed.
 * valgrind --tool=callgrind --toggle-collect=choose counts its instructions.
 *
 * The kernel around it is the scripted one of the rules tests. Probes, loop
 * budgets and synchronisation points, which exist for the simulator and the
 * verifier, cost nothing here; a lock is an atomic operation, as in a kernel.
 * A policy that needs more of a kernel (dispatch queues, for one) ends the
 * program with status 3 and the reason.
 */
#define SCRIPT_TASKS	(1 << 17)
#include <scx/common.bpf.h>

#define lab_host_examine(context, task)		((void)(context))
#define lab_host_look(context, task, write)	((void)(context))
#define lab_host_recalculate(context, task)	((void)(context))
#define lab_host_touch(pointer, bytes, write)	((void)(pointer))
#define lab_host_count(probe, n)		((void)(n))
#define lab_host_sync()				((void)0)
#define lab_host_loop()				true
#undef LAB_ATOMIC
#define LAB_ATOMIC(pointer)			((void)0)

#include "../../../policies/tests/rules/script.h"

long strtol(const char *text, char **end, int numerals);

struct timespec {
	long tv_sec, tv_nsec;
};
int clock_gettime(int clock, struct timespec *now);
#define CLOCK_MONOTONIC	1

/* Choices that go before the first one that counts. */
#define BEFORE		50
/* The time that a choice lets pass before it: a task's turn. */
#define TURN_NS		1000000

static u64 clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void lock_word(struct lab_host *h, void *word, u32 class)
{
	u32 free = 0;

	CHECK(__atomic_compare_exchange_n((u32 *)word, &free, 1, false, __ATOMIC_ACQUIRE,
					  __ATOMIC_RELAXED));
	script.nr_held++;
}

static bool trylock_word(struct lab_host *h, void *word, u32 class)
{
	u32 free = 0;

	if (!__atomic_compare_exchange_n((u32 *)word, &free, 1, false, __ATOMIC_ACQUIRE,
					 __ATOMIC_RELAXED))
		return false;
	script.nr_held++;
	return true;
}

static void unlock_word(struct lab_host *h, void *word)
{
	__atomic_store_n((u32 *)word, 0, __ATOMIC_RELEASE);
	script.nr_held--;
}

static u32 one_node(struct lab_host *h) { return 1; }

static u32 draw(struct lab_host *h)
{
	static u32 state = 0x9e3779b9;

	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state;
}

static void needs_a_kernel(void)
{
	printf("it uses a function of the kernel that is not scripted\n");
	exit(3);
}

/* A function that script.h leaves out reports so, instead of a call of nothing. */
static void fill_the_table(void)
{
	void **slot = (void **)&script.host;
	size_t i;

	for (i = 0; i < sizeof(script.host) / sizeof(*slot); i++) {
		if (!slot[i])
			slot[i] = (void *)needs_a_kernel;
	}
}

__attribute__((noinline)) static void choose(struct task_struct *prev)
{
	OPS.dispatch(0, prev);
	barrier();
}

/* The same, not counted. */
__attribute__((noinline)) static void choose_before(struct task_struct *prev)
{
	OPS.dispatch(0, prev);
	barrier();
}

/* The current task's turn is over: it blocks, the policy chooses another, it wakes. Nanoseconds of the choice. */
static u64 turn(void (*choice)(struct task_struct *))
{
	struct task_struct *prev = script.curr[0], *next;
	u64 before, after;

	script.now_ns += TURN_NS;
	script_block(0);
	prev->scx.slice = 0;
	script.inserted = NULL;
	before = clock_ns();
	choice(prev);
	after = clock_ns();
	script_end_op();

	next = script.inserted;
	CHECK(next && next != prev && script_of(next)->in_custody);
	EQUAL(script.inserted_dsq, SCX_DSQ_LOCAL);
	script_of(next)->in_custody = false;
	OPS.dequeue(next, 0);
	script_end_op();
	script.curr[0] = next;
	OPS.running(next);
	script_end_op();

	script_wake(prev, 0, 0);
	CHECK(!script.local[0] && !script.error);
	script_calm();
	return after - before;
}

int main(int argc, char **argv)
{
	long tasks, choices, i;
	struct task_struct *first = NULL;

	CHECK(argc == 3);
	tasks = strtol(argv[1], NULL, 10);
	choices = strtol(argv[2], NULL, 10);
	CHECK(tasks >= 1 && tasks < SCRIPT_TASKS && choices >= 1);

	script_prepare(1);
	script.host.lock = lock_word;
	script.host.trylock = trylock_word;
	script.host.unlock = unlock_word;
	script.host.nr_node_ids = one_node;
	script.host.random = draw;
	fill_the_table();
	EQUAL(OPS.init(), 0);

	/* Each a process of its own, at nice 0. */
	for (i = 0; i <= tasks; i++) {
		struct task_struct *p = script_fork(NULL, 0, i + 1);

		if (!first)
			first = p;
	}
	script_wake(first, 0, 0);
	CHECK(script_schedule(0) == first);
	for (i = 1; i <= tasks; i++) {
		script_wake(&script.tasks[i]->p, 0, 0);
		CHECK(!script.local[0]);
	}
	script_calm();
	/* Until those who waited from the start have no say any more. */
	for (i = 0; i < BEFORE; i++)
		turn(choose_before);
	for (i = 0; i < choices; i++)
		printf("%llu\n", (unsigned long long)turn(choose));
	/* The time to read the clock twice. */
	for (i = 0; i < 1000; i++) {
		u64 before = clock_ns();

		printf("c %llu\n", (unsigned long long)(clock_ns() - before));
	}
	return 0;
}
