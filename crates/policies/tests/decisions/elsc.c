/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ELSC decides differently from the default scheduler by three documented
 * rules. Its table in a situation is built here once more, over plain numbers,
 * and what it chose has to be what its rules say; then the rule is named:
 *
 *   T	the default scheduler's choice is in a lower list than the one searched
 *   L	it is in that list, but behind the search limit
 *   Y	the previous task has yielded: it runs on, without a recalculation, because it
 *	is alone in its list, or does not because it comes last there even after one
 *   U	a uniprocessor kernel took a task of the same address space
 *   X	nothing of that
 */
#define POLICY "../../../../policies/elsc.bpf.c"
#define OPS elsc_ops
#include "../rules/script.h"

static void variant(const char *name)
{
	if (!strcmp(name, "smp"))
		kernel = KERNEL_SMP;
}

struct situation;
struct answer;
static char classify(const struct situation *s, const struct answer *got);

#define CLASSIFY classify
#include "decisions.h"

#define TABLE_LISTS	30

struct table {
	u32 order[TABLE_LISTS][POOL];
	u32 nr[TABLE_LISTS];
};

static s32 list_in_table(const struct actor *a)
{
	s32 counter = a->counter ? a->counter : 20 - a->nice, list;

	if (is_rt(a))
		return 20 + a->rt_priority / 10;
	list = (counter + 20 - a->nice) / 4;
	return list > 19 ? 19 : list;
}

static bool ready(const struct actor *a)
{
	return is_rt(a) || a->counter;
}

static void enter(struct table *table, const struct situation *s, u32 number, bool last)
{
	s32 list = list_in_table(&s->actors[number]);
	u32 *order = table->order[list], i;

	if (last || !ready(&s->actors[number])) {
		order[table->nr[list]++] = number;
		return;
	}
	for (i = table->nr[list]++; i; i--)
		order[i] = order[i - 1];
	order[0] = number;
}

static bool may_run(const struct situation *s, u32 number)
{
	return s->actors[number].mask & 1 || (s32)number == s->prev;
}

/* Position of a task among the tasks of its list that may run here, tasks without ticks not counted. */
static u32 position(const struct table *table, const struct situation *s, s32 list, u32 number)
{
	u32 i, at = 0;

	for (i = 0; i < table->nr[list] && table->order[list][i] != number; i++)
		at += may_run(s, table->order[list][i]) && ready(&s->actors[table->order[list][i]]);
	return at;
}

/* The result of the search of one list, -1: no task. */
static s32 search(const struct table *table, const struct situation *s, s32 list, u32 limit,
		  bool uniprocessor, bool *shortcut)
{
	s32 best = -1, value, best_value = -1000;
	u32 i, looked = 0;
	bool yielder = false;

	for (i = 0; i < table->nr[list] && looked < limit; i++) {
		u32 number = table->order[list][i];
		const struct actor *a = &s->actors[number];

		if (!ready(a))
			break;
		if (!may_run(s, number))
			continue;
		looked++;
		if (s->yielded && (s32)number == s->prev) {
			yielder = true;
			continue;
		}
		if (uniprocessor && !is_rt(a) && (a->mm == s->mm || !a->mm)) {
			*shortcut = true;
			return number;
		}
		value = value_of(s, a);
		if (value > best_value) {
			best = number;
			best_value = value;
		}
	}
	return best >= 0 || !yielder ? best : s->prev;
}

static char classify(const struct situation *original, const struct answer *got)
{
	bool uniprocessor = cpus_there == 1 && kernel == KERNEL_FITTING, shortcut = false, again;
	u32 limit = cpus_there / 2 + 5, i;
	static struct situation s, model_s;
	struct table table = { };
	s32 list, found = -1, base_list;
	struct answer base_choice;

	s = *original;
	refill(&s);
	for (i = 0; i < s.nr_waiting; i++)
		enter(&table, &s, s.waiting[i], false);
	/* A new round-robin quantum: behind its equals. */
	if (runnable(&s))
		enter(&table, &s, s.prev, is_rt(&s.actors[s.prev]) &&
		      s.actors[s.prev].counter != original->actors[s.prev].counter);
	do {
		again = false;
		for (list = TABLE_LISTS - 1; list >= 0 && found < 0; list--)
			found = search(&table, &s, list, limit, uniprocessor, &shortcut);
		list++;
		if (found >= 0)
			break;
		for (i = 0; i < s.nr_waiting; i++)
			again |= may_run(&s, s.waiting[i]);
		again |= runnable(&s);
		if (again)
			recalculate_all(&s);
	} while (again);

	if (found != got->chosen)
		return 'X';
	model_s = *original;
	base_choice = model(&model_s);
	if (s.yielded && (found == s.prev || base_choice.chosen == s.prev))
		return 'Y';
	if (base_choice.chosen < 0 || found < 0 || base_choice.recalculated != got->recalculated)
		return 'X';
	base_list = list_in_table(&s.actors[base_choice.chosen]);
	if (base_list < list)
		return 'T';
	if (base_list > list)
		return 'X';
	if (position(&table, &s, list, base_choice.chosen) >= limit)
		return 'L';
	return shortcut ? 'U' : 'X';
}
