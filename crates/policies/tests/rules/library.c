/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The policy library against plain models, by random operations: the list
 * against an array, the free list of contexts against a set.
 */
#define POLICY "library.bpf.c"
#define OPS library_ops
/* The free list's lock, which the virtual kernel has not: what another CPU does before one gets it. */
static int other_cpu_first(void);
#define lab_tasks_lock(flags)	((void)(flags), other_cpu_first())
#define lab_tasks_unlock(flags)	((void)(flags))
#include "script.h"

static u64 seed = 88172645463325252ull;

static u32 draw(u32 below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % below;
}

#define NODES 40

static struct lab_list list;
static struct item {
	u32 number;
	struct lab_node node;
} items[NODES];

static void compare(const u32 *model, u32 nr)
{
	lab_node_t *pos, *back = &list.head;
	u32 i = 0;

	lab_list_for_each(pos, &list) {
		CHECK(i < nr);
		EQUAL(lab_entry(pos, struct item, node)->number, model[i]);
		CHECK(pos->prev == back);
		back = pos;
		i++;
	}
	CHECK(lab_list_ended(pos, &list));
	CHECK(list.head.prev == back);
	EQUAL(i, nr);
	EQUAL(list.nr, nr);
}

static void list_like_an_array(void)
{
	u32 model[NODES] = { }, nr = 0, round, i, number;
	bool linked[NODES] = { };

	script_start(1);
	lab_list_init(&list);
	for (i = 0; i < NODES; i++)
		items[i].number = i;
	compare(model, nr);
	for (round = 0; round < 20000; round++) {
		number = draw(NODES);
		if (linked[number]) {
			lab_list_del(&list, &items[number].node);
			for (i = 0; model[i] != number; i++)
				;
			for (nr--; i < nr; i++)
				model[i] = model[i + 1];
		} else if (draw(2)) {
			lab_list_add_tail(&list, &items[number].node);
			model[nr++] = number;
		} else {
			lab_list_add_head(&list, &items[number].node);
			for (i = nr++; i; i--)
				model[i] = model[i - 1];
			model[0] = number;
		}
		linked[number] = !linked[number];
		compare(model, nr);
	}
}

/* A walk whose budget runs out does not pretend to have seen the end. */
static bool no_more(struct lab_host *h)
{
	static u32 left = 5;

	return left && left--;
}

static void list_budget(void)
{
	lab_node_t *pos;
	u32 i, seen = 0;

	script_start(1);
	lab_list_init(&list);
	for (i = 0; i < NODES; i++)
		lab_list_add_tail(&list, &items[i].node);
	script.host.loop = no_more;
	lab_list_for_each(pos, &list)
		seen++;
	EQUAL(seen, 5);
	CHECK(!lab_list_ended(pos, &list));
}

static void contexts_like_a_set(void)
{
	struct task_struct *live[SCRIPT_TASKS];
	u32 nr = 0, round, i, j, most = 0;

	script_start(70);
	for (round = 0; round < SCRIPT_TASKS / 2; round++) {
		if (nr && draw(3) == 0) {
			i = draw(nr);
			script_exit_task(live[i]);
			CHECK(!script_of(live[i])->stored);
			live[i] = live[--nr];
		} else {
			live[nr++] = script_fork(NULL, 0, 1 + draw(5));
		}
		most = nr > most ? nr : most;
		for (i = 0; i < nr; i++) {
			task_t *t = task_of(live[i]);

			EQUAL(t->lab.pid, live[i]->pid);
			EQUAL(t->lab.task, live[i]->__lab_index);
			EQUAL(t->mine, 0);
			CHECK(task_at(t->lab.index) == t);
			CHECK(lab_allowed(&t->lab, 0) && lab_allowed(&t->lab, 69));
			CHECK(!lab_allowed(&t->lab, 70));
			for (j = 0; j < i; j++)
				CHECK(task_of(live[j]) != t);
		}
		if (nr) {
			/* The data that one task leaves behind is invisible to the next. */
			task_t *t = task_of(live[nr - 1]);

			t->mine = 1;
			script_exit_task(live[nr - 1]);
			live[nr - 1] = script_fork(NULL, 0, 1);
			CHECK(task_of(live[nr - 1]) == t);
			EQUAL(t->mine, 0);
		}
	}
	/* Contexts are used again: there are as many as were ever needed at once. */
	EQUAL(lab_tasks.nr, most);
}

static void cached_mask(void)
{
	struct task_struct *p;
	task_t *t;
	u32 cpu;

	script_start(70);
	p = script_fork(NULL, 0, 1);
	t = task_of(p);
	script_of(p)->mask.bits[1] = 1 << 3;
	CHECK(lab_allowed(&t->lab, 66));
	lab_task_refresh(&t->lab, p);
	for (cpu = 64; cpu < 70; cpu++)
		EQUAL(lab_allowed(&t->lab, cpu), cpu == 67);
	lab_disallow(&t->lab, 67);
	CHECK(!lab_allowed(&t->lab, 67) && lab_allowed(&t->lab, 3));
}

/*
 * A task that its old CPU is still putting away, in ops.enqueue() of this very
 * policy, has its count of disabled migrations raised by the BPF program. It is
 * in the policy's custody and may go anywhere.
 */
static void claimed_while_put_away(void)
{
	struct task_struct *p;
	task_t *t;

	script_start(2);
	p = script_fork(NULL, 0, 1);
	t = task_of(p);
	script.nr_held = 1;
	p->migration_disabled = 1;
	CHECK(lab_task_claim(&t->lab, 1) == p);
	CHECK(lab_task_claim(&t->lab, 0) == p);
	CHECK(lab_allowed(&t->lab, 1));

	/* Not so the real mask. */
	script_of(p)->mask.bits[0] = 1;
	CHECK(!lab_task_claim(&t->lab, 1));
	CHECK(!lab_allowed(&t->lab, 1));
	script.nr_held = 0;
}

/* execve() of a thread gives it another number. */
static void claimed_by_its_new_number(void)
{
	struct task_struct *p;
	task_t *t;

	script_start(1);
	p = script_fork(NULL, 0, 1);
	t = task_of(p);
	t->lab.pid = p->pid + 1;
	script.nr_held = 1;
	CHECK(!lab_task_claim(&t->lab, 0));
	EQUAL(script.probes[LAB_FAILED_LOOKUPS], 1);
	lab_task_refresh(&t->lab, p);
	CHECK(lab_task_claim(&t->lab, 0) == p);
	script.nr_held = 0;
}

static void *no_pages(struct lab_host *h, const void *map, void *addr, u32 pages)
{
	return NULL;
}

/* Without a context a task is not let in. */
static void no_context_left(void)
{
	struct script_task task = { .p.pid = 1, .p.cpus_ptr = &task.mask };
	struct scx_init_task_args args = { };

	script_start(1);
	script.host.arena_alloc = no_pages;
	EQUAL(OPS.init_task(&task.p, &args), -ENOMEM);
	CHECK(script.error);
	script.error = false;
	CHECK(!task_of(&task.p));
	EQUAL(script.probes[LAB_FAILED_LOOKUPS], 1);
}

/* Contexts that another CPU takes as soon as the list's lock is asked for. */
static u32 other_takes;
static u32 pages_kept;

static int other_cpu_first(void)
{
	u32 takes = other_takes;

	other_takes = 0;
	for (; takes; takes--)
		CHECK(lab_task_take(sizeof(task_t)));
	return true;
}

static void *counted_pages(struct lab_host *h, const void *map, void *addr, u32 pages)
{
	pages_kept += pages;
	return script_arena_alloc(h, map, addr, pages);
}

static void counted_pages_free(struct lab_host *h, const void *map, void *addr, u32 pages)
{
	pages_kept -= pages;
	script_arena_free(h, map, addr, pages);
}

/* Takes one, before which another CPU takes @others. */
static task_t *take_behind(u32 others)
{
	task_t *t;

	other_takes = others;
	t = (task_t *)lab_task_take(sizeof(task_t));
	EQUAL(other_takes, 0);
	CHECK(t);
	CHECK(task_at(t->lab.index) == t);
	/* An allocation that another CPU made superfluous is given back. */
	EQUAL(pages_kept, (lab_tasks.nr + LAB_CHUNK_BYTES / sizeof(task_t) - 1) /
			  (LAB_CHUNK_BYTES / sizeof(task_t)) * LAB_CHUNK_PAGES);
	return t;
}

/* An item that a CPU saw may be taken by another one before it gets the lock. */
static void last_context_taken_by_another_cpu(void)
{
	u32 per_chunk = LAB_CHUNK_BYTES / sizeof(task_t);
	task_t *t;

	script_start(2);
	script.host.arena_alloc = counted_pages;
	script.host.arena_free = counted_pages_free;
	/* Both saw that a chunk is needed, and both bring one. */
	EQUAL(take_behind(1)->lab.index, 1);
	/* The last one of the chunk, and all that there were. */
	while (lab_tasks.nr < per_chunk - 1)
		take_behind(0);
	EQUAL(take_behind(1)->lab.index, per_chunk);
	while (lab_tasks.nr < 2 * per_chunk - 3)
		take_behind(0);
	EQUAL(take_behind(3)->lab.index, 2 * per_chunk);
	/* The last one of the free list, at the end of a chunk. */
	t = take_behind(0);
	while (lab_tasks.nr < 3 * per_chunk)
		take_behind(0);
	lab_task_give(&t->lab);
	EQUAL(take_behind(1)->lab.index, 3 * per_chunk);
}

static void too_many_cpus(void)
{
	script_start(1);
	script.nr_cpus = LAB_MAX_CPUS + 1;
	EQUAL(lab_init(), -EINVAL);
	CHECK(script.error);
	script.error = false;
	script.nr_cpus = LAB_MAX_CPUS;
	EQUAL(lab_init(), 0);
}

TESTS(TEST(list_like_an_array), TEST(list_budget), TEST(contexts_like_a_set),
      TEST(cached_mask), TEST(claimed_while_put_away),
      TEST(claimed_by_its_new_number), TEST(no_context_left), TEST(last_context_taken_by_another_cpu),
      TEST(too_many_cpus))
