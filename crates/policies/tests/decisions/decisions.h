/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Random situations for the schedulers that descend from Linux 2.4's. A program
 * with one policy is put into one situation after another by its ops alone, has
 * to choose, and prints what it chose beside what a plain model of the default
 * scheduler (the rules, written down once more and over plain numbers) chooses.
 *
 *   PROGRAM any|one 2.4|2.3.99 CPUS SITUATIONS [VARIANT]
 *
 * any, one: address spaces. Situations depend on these arguments only, not on
 * the policy; those in which two tasks tie for the best are drawn again. Each
 * prints "chosen recalculated model's-choice model-recalculated class"; at the
 * end counts follow, "# count what".
 *
 * Class is =, or X for a difference. Behind script.h and `static void
 * variant(const char *)`, which sets the policy's options, and CLASSIFY(situation,
 * answer) if the policy may differ: a letter that says why.
 */
#ifndef DECISIONS_H
#define DECISIONS_H

unsigned long strtoul(const char *text, char **end, int numerals);

#define POOL		32
#define MOST_WAITING	20
#define MOST_CPUS	4
/* The task that comes and goes before each situation, so that the address space in use is known. */
#define USHER		(POOL - 1)

enum event { BLOCKED, PREEMPTED, YIELDED, WAS_IDLE };

struct actor {
	struct task_struct *p;
	s32 counter, nice, last;
	u32 policy, rt_priority;
	u64 mm;
	u64 mask;		/* allowed CPUs */
};

struct situation {
	struct actor actors[POOL];
	u32 waiting[MOST_WAITING];	/* in the order in which they were queued */
	u32 nr_waiting;
	s32 prev;			/* -1: the CPU was idle */
	s32 elsewhere[MOST_CPUS];	/* runs there; -1: nobody */
	enum event event;
	u64 mm;				/* in use on CPU 0 */
	bool yielded;			/* the previous task has, and it counts */
};

static struct {
	u64 situations, recalculated, expired, yielded, running, kernel, realtime, idle, others;
	u64 masked, ties;
} counts;

static u64 seed = 0x9e3779b97f4a7c15ull;
static bool one_mm;
static enum linux24_base rules;
static u32 cpus_there;

static u32 draw(u32 below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (seed >> 11) % below;
}

/*
 * The rules once more.
 */

static s32 quantum_of(const struct actor *a)
{
	return rules == BASE_2_3_99 ? 20 - a->nice : (20 - a->nice) / 4 + 1;
}

static bool is_rt(const struct actor *a)
{
	return a->policy == 1 || a->policy == 2;
}

static s32 static_value(const struct actor *a)
{
	if (is_rt(a))
		return 1000 + a->rt_priority;
	return a->counter ? a->counter + 20 - a->nice : 0;
}

static s32 value_of(const struct situation *s, const struct actor *a)
{
	s32 value = static_value(a);

	if (!value || is_rt(a))
		return value;
	return value + (a->last ? 0 : 15) + (a->mm == s->mm || !a->mm ? 1 : 0);
}

static bool runnable(const struct situation *s)
{
	return s->event == PREEMPTED || s->event == YIELDED;
}

static void recalculate_all(struct situation *s)
{
	u32 i;

	for (i = 0; i < POOL; i++)
		s->actors[i].counter = s->actors[i].counter / 2 + quantum_of(&s->actors[i]);
}

static void refill(struct situation *s)
{
	struct actor *prev = &s->actors[s->prev];

	if (runnable(s) && prev->policy == 2 && !prev->counter)
		prev->counter = quantum_of(prev);
}

struct answer {
	s32 chosen;		/* -1: idle */
	bool recalculated, tie;
};

/* The default scheduler's choice; changes the counters of `s`. */
static struct answer model(struct situation *s)
{
	struct answer answer = { };
	s32 best, value;
	u32 i;

	refill(s);
	for (;;) {
		best = -1000;
		answer.chosen = -1;
		answer.tie = false;
		if (runnable(s)) {
			answer.chosen = s->prev;
			best = value_of(s, &s->actors[s->prev]);
			if (s->yielded && rules == BASE_LINUX_2_4)
				best = -1;
			else if (s->yielded && !answer.recalculated)
				best = 0;
		}
		for (i = 0; i < s->nr_waiting; i++) {
			struct actor *a = &s->actors[s->waiting[i]];

			if (!(a->mask & 1))
				continue;
			value = value_of(s, a);
			if (value == best)
				answer.tie = true;
			if (value > best) {
				best = value;
				answer.chosen = s->waiting[i];
				answer.tie = false;
			}
		}
		if (best)
			return answer;
		recalculate_all(s);
		answer.recalculated = true;
	}
}

/*
 * Situations.
 */

static void draw_actor(struct actor *a, bool expired, bool realtime)
{
	a->nice = (s32)draw(40) - 20;
	a->policy = realtime && !draw(3) ? 1 + draw(2) : 0;
	a->rt_priority = a->policy ? 1 + draw(99) : 0;
	/* A recalculation ends one tick below two quanta. */
	a->counter = expired || !draw(4) ? 0 : 1 + draw(2 * quantum_of(a) - 1);
	a->mm = draw(6) ? (one_mm ? 1 : 1 + draw(4)) : 0;
	a->last = draw(cpus_there);
	a->mask = (1ull << cpus_there) - 1;
	/* Two CPUs at least: single-CPU tasks never come before a choice. */
	if (cpus_there > 2 && !draw(4))
		a->mask &= ~(1ull << draw(cpus_there));
}

static void draw_situation(struct situation *s)
{
	bool expired = !draw(5), realtime = !draw(8);
	u32 i, cpu, next = 0;

	for (i = 0; i < POOL; i++)
		draw_actor(&s->actors[i], expired, realtime);
	s->event = draw(4);
	s->prev = s->event == WAS_IDLE ? -1 : (s32)next++;
	for (cpu = 1; cpu < MOST_CPUS; cpu++)
		s->elsewhere[cpu] = cpu < cpus_there && draw(3) ? (s32)next++ : -1;
	for (cpu = 0; cpu < cpus_there; cpu++) {
		s32 runs = cpu ? s->elsewhere[cpu] : s->prev;

		if (runs < 0)
			continue;
		s->actors[runs].last = cpu;
		s->actors[runs].mask |= 1ull << cpu;
	}
	s->nr_waiting = draw(8) ? draw(MOST_WAITING + 1) : draw(3);
	for (i = 0; i < s->nr_waiting; i++)
		s->waiting[i] = next++;
	s->mm = one_mm ? 1 : 1 + draw(4);
	s->actors[USHER].mm = s->mm;
	s->actors[USHER].counter = 5;
	s->actors[USHER].policy = 0;
	s->actors[USHER].last = 0;
	s->actors[USHER].mask |= 1;
	if (s->prev >= 0 && s->actors[s->prev].mm)
		s->mm = s->actors[s->prev].mm;
	/* sched_yield() of 2.4 asks whether any task waits. */
	s->yielded = s->event == YIELDED && !is_rt(&s->actors[s->prev]) &&
		     (rules == BASE_2_3_99 || s->nr_waiting);
}

/*
 * The policy in a situation.
 */

#ifndef TICKS_ARE_SET
#define TICKS_ARE_SET(p) do { } while (0)
#endif

static linux24_task_t *ctx24(struct task_struct *p)
{
	return (linux24_task_t *)task_of(p);
}

static void set_ticks(struct task_struct *p, s32 counter)
{
	ctx24(p)->counter = counter;
	TICKS_ARE_SET(p);
}

static void dress(const struct actor *a)
{
	struct task_struct *p = a->p;

	p->static_prio = 120 + a->nice;
	p->policy = a->policy;
	p->rt_priority = a->rt_priority;
	p->mm = (struct mm_struct *)a->mm;
	p->__lab_cpu = a->last;
	ctx24(p)->lab.cpu = a->last;
	set_ticks(p, a->counter);
	script_of(p)->mask.bits[0] = a->mask;
	p->nr_cpus_allowed = cpus_there == 1 ? 1 : __builtin_popcountll(a->mask);
}

/* It runs on a CPU, and no other task would be chosen there. */
static void bring_on(const struct actor *a, u32 cpu)
{
	dress(a);
	/* Whatever its ticks: they are set when it runs. */
	set_ticks(a->p, 5);
	script_wake(a->p, cpu, 0);
	CHECK(script_schedule(cpu) == a->p);
	set_ticks(a->p, a->counter);
}

static void leave(u32 cpu)
{
	script_block(cpu);
	CHECK(!script_schedule(cpu));
}

/* All tasks sleep, all CPUs idle. */
static void clear_stage(void)
{
	u32 i, cpu;

	for (i = 0; i < POOL; i++) {
		struct script_task *task = script.tasks[i];

		if (!task->in_custody)
			continue;
		script.cpu = 0;
		OPS.dequeue(&task->p, SCX_DEQ_SLEEP);
		script_end_op();
		task->in_custody = task->runnable = false;
		task->p.scx.flags &= ~SCX_TASK_QUEUED;
	}
	for (cpu = 0; cpu < cpus_there; cpu++) {
		if (script.curr[cpu])
			leave(cpu);
	}
	script_calm();
}

static s32 number_of(struct task_struct *p)
{
	return p ? (s32)p->__lab_index : -1;
}

/* The policy's choice. */
static struct answer decide(const struct situation *s)
{
	u64 recalculations;
	struct answer answer = { };
	u32 i, cpu;

	clear_stage();
	bring_on(&s->actors[USHER], 0);
	leave(0);
	for (cpu = 1; cpu < cpus_there; cpu++) {
		if (s->elsewhere[cpu] >= 0)
			bring_on(&s->actors[s->elsewhere[cpu]], cpu);
	}
	if (s->prev >= 0)
		bring_on(&s->actors[s->prev], 0);
	for (i = 0; i < s->nr_waiting; i++) {
		dress(&s->actors[s->waiting[i]]);
		script_wake(s->actors[s->waiting[i]].p, 0, 0);
	}
	switch (s->event) {
	case BLOCKED:
		script_block(0);
		break;
	case YIELDED:
		script_yield(0);
		/* fall through: in 2.4 a lone yielder is not even marked */
	case PREEMPTED:
		cpu_at(0)->marked = true;
		script_preempt(0);
		break;
	case WAS_IDLE:
		break;
	}
	recalculations = script.probes[LAB_RECALCULATIONS];
	answer.chosen = number_of(script_schedule(0));
	answer.recalculated = script.probes[LAB_RECALCULATIONS] != recalculations;
	return answer;
}

static void count(const struct situation *s, const struct answer *answer)
{
	u32 expired = 0, kernel = 0, realtime = 0, masked = 0, others = 0, i;

	for (i = 0; i < s->nr_waiting; i++) {
		const struct actor *a = &s->actors[s->waiting[i]];

		expired += !a->counter && !is_rt(a);
		kernel += !a->mm;
		realtime += is_rt(a);
		masked += !(a->mask & 1);
	}
	for (i = 1; i < cpus_there; i++)
		others += s->elsewhere[i] >= 0;
	counts.situations++;
	counts.recalculated += answer->recalculated;
	counts.expired += expired > 0;
	counts.kernel += kernel > 0;
	counts.realtime += realtime > 0;
	counts.masked += masked > 0;
	counts.others += others > 0;
	counts.yielded += s->yielded;
	counts.running += runnable(s);
	counts.idle += answer->chosen < 0;
}

static bool any_steps(struct lab_host *h) { return true; }

#ifndef CLASSIFY
#define CLASSIFY(situation, got) 'X'
#endif

int main(int argc, char **argv)
{
	static struct situation s, model_s;
	struct answer expected, got;
	u64 wanted;
	u32 i;

	CHECK(argc >= 5);
	one_mm = !strcmp(argv[1], "one");
	rules = strcmp(argv[2], "2.4") ? BASE_2_3_99 : BASE_LINUX_2_4;
	cpus_there = strtoul(argv[3], NULL, 10);
	wanted = strtoul(argv[4], NULL, 10);
	CHECK(cpus_there && cpus_there <= MOST_CPUS);
	variant(argc > 5 ? argv[5] : "");
	script_start(cpus_there);
	script.host.loop = any_steps;
	for (i = 0; i < POOL; i++)
		script_fork(NULL, 0, 1);
	while (counts.situations < wanted) {
		draw_situation(&s);
		for (i = 0; i < POOL; i++)
			s.actors[i].p = &script.tasks[i]->p;
		model_s = s;
		expected = model(&model_s);
		if (expected.tie) {
			counts.ties++;
			continue;
		}
		got = decide(&s);
		CHECK(!script.error);
		count(&s, &expected);
		printf("%d %d %d %d %c\n", got.chosen, got.recalculated, expected.chosen,
		       expected.recalculated,
		       got.chosen == expected.chosen &&
		       got.recalculated == expected.recalculated ? '=' : CLASSIFY(&s, &got));
	}
	printf("# %llu situations\n", counts.situations);
	printf("# %llu recalculated\n", counts.recalculated);
	printf("# %llu with expired tasks waiting\n", counts.expired);
	printf("# %llu with a yielder\n", counts.yielded);
	printf("# %llu with a running task\n", counts.running);
	printf("# %llu with tasks running elsewhere\n", counts.others);
	printf("# %llu with kernel threads waiting\n", counts.kernel);
	printf("# %llu with real-time tasks waiting\n", counts.realtime);
	printf("# %llu with tasks that may not run here\n", counts.masked);
	printf("# %llu end idle\n", counts.idle);
	printf("# %llu drawn again: a tie\n", counts.ties);
	return 0;
}

#endif /* DECISIONS_H */
