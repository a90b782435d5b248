/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A scripted kernel for tests of a policy's rules: it calls the ops of one
 * policy in the order in which Linux does, one at a time, and keeps what the
 * policy asked for. Time stands still unless a test moves it; nothing happens
 * concurrently.
 *
 * The policy is compiled into the test, so that its pure functions and its
 * state can be looked at. Its tunables, read-only in a policy, are variables
 * here. Before including this file: POLICY, the source file, and OPS, its
 * table; RECALCULATES_LOCKED if it keeps its lock while it recalculates.
 */
#ifndef RULES_SCRIPT_H
#define RULES_SCRIPT_H

#include <scx/common.bpf.h>
/* The name of a variable and of a structure here: no stack is examined. */
#undef lab_host

int printf(const char *format, ...);
void exit(int status) __attribute__((noreturn));
void *calloc(size_t nmemb, size_t size);
void free(void *memory);
int strcmp(const char *a, const char *b);
char *strstr(const char *text, const char *part);

#define const
#include POLICY
#undef const

#define CHECK(condition)						\
do {									\
	if (!(condition)) {						\
		printf("%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
		exit(1);						\
	}								\
} while (0)

#define EQUAL(left, right)						\
do {									\
	long long ___left = (long long)(left), ___right = (long long)(right); \
									\
	if (___left != ___right) {					\
		printf("%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, \
		       #left, ___left, ___right);			\
		exit(1);						\
	}								\
} while (0)

#define SCRIPT_CPUS	LAB_MAX_CPUS
#ifndef SCRIPT_TASKS
#define SCRIPT_TASKS	1024
#endif

struct script_task {
	struct task_struct p;
	struct cpumask mask;
	void *stored;		/* value of the one task storage map */
	bool runnable;
	bool in_custody;	/* between ops.enqueue and leaving it */
};

struct script {
	struct lab_host host;		/* first: the policy hands it back */
	u64 now_ns;
	s32 cpu;			/* which executes */
	u32 nr_cpus, nr_tasks;
	u32 node_cpus;			/* CPUs of a NUMA node; 0 = there is one node */
	u32 core_cpus;			/* CPUs of a core; 0 = each is a core */
	u64 offline;			/* bit n: CPU n of the first 64 has never booted */
	struct script_task *tasks[SCRIPT_TASKS];
	struct task_struct *curr[SCRIPT_CPUS];	/* NULL = idle */
	struct task_struct *local[SCRIPT_CPUS];	/* local queue of at most one task */
	u64 kicks[SCRIPT_CPUS];		/* flags of kicks since script_calm() */
	u32 nr_kicks[SCRIPT_CPUS];
	struct task_struct *forking;
	struct task_struct *inserted;	/* by the op under way */
	u64 inserted_dsq, inserted_flags;
	void *held[SCRIPT_CPUS + 2];	/* words of the locks that are held */
	u32 nr_held;
	u32 nr_locks;			/* acquisitions */
	u64 probes[LAB_NR_SHARED];
	u64 altered;
	bool error;
	const char *said;		/* with the error, before its numbers are filled in */
	u64 said_number;		/* the first of them */
	s64 exit_code;			/* of scx_bpf_exit() */
	bool fail_lookups;		/* bpf_task_from_pid() finds nothing */
	bool fail_trylocks;		/* every lock is held by somebody else */
	int (*timer)(void *map, void *key, void *value);	/* callback of the one timer */
	void *timer_map;
	struct bpf_timer *timer_value;
	u64 timer_ns;			/* delay it was started with; 0 = it is not under way */
};

static struct script script;

static struct script_task *script_of(struct task_struct *p)
{
	return container_of(p, struct script_task, p);
}

static void script_sync(struct lab_host *h) { }
static void script_atomic(struct lab_host *h, const volatile void *address) { }

static bool script_holds(void *word)
{
	u32 i;

	for (i = 0; i < script.nr_held; i++) {
		if (script.held[i] == word)
			return true;
	}
	return false;
}

static void script_lock(struct lab_host *h, void *word, u32 class, const void *code)
{
	CHECK(!script_holds(word));
	CHECK(script.nr_held < SCRIPT_CPUS + 2);
	script.held[script.nr_held++] = word;
	script.nr_locks++;
}

static void script_unlock(struct lab_host *h, void *word)
{
	u32 i;

	CHECK(script_holds(word));
	for (i = 0; script.held[i] != word; i++)
		;
	script.held[i] = script.held[--script.nr_held];
}

static bool script_trylock(struct lab_host *h, void *word, u32 class, const void *code)
{
	if (script_holds(word) || script.fail_trylocks)
		return false;
	script_lock(h, word, class, code);
	return true;
}

static void script_touch(struct lab_host *h, const volatile void *addr, u32 len, bool write) { }

static void script_examine(struct lab_host *h, const volatile void *ctx, u32 index)
{
	CHECK(index < script.nr_tasks);
	script.probes[LAB_EXAMINED]++;
}

static void script_look(struct lab_host *h, const volatile void *ctx, u32 index, bool write)
{
	CHECK(index < script.nr_tasks);
}

static void script_recalculate(struct lab_host *h, const volatile void *ctx, u32 index)
{
#ifdef RECALCULATES_LOCKED
	CHECK(script.nr_held == 1);
#else
	CHECK(!script.nr_held);
#endif
	script.altered++;
}

static void script_count(struct lab_host *h, u32 probe, u64 n)
{
	CHECK(probe < LAB_NR_SHARED);
	script.probes[probe] += n;
}

static bool script_loop(struct lab_host *h)
{
	static u32 steps;

	CHECK(steps++ < 1000000);
	return true;
}

static void script_kfunc(struct lab_host *h) { }
static bool script_ksym_exists(struct lab_host *h, const char *name) { return true; }

static bool script_dsq_insert(struct lab_host *h, struct task_struct *p, u64 dsq, u64 slice, u64 flags,
			      const void *code)
{
	CHECK(!script.inserted);
	script.inserted = p;
	script.inserted_dsq = dsq;
	script.inserted_flags = flags;
	if (slice)
		p->scx.slice = slice;
	return true;
}

static void script_kick_cpu(struct lab_host *h, s32 cpu, u64 flags)
{
	CHECK(cpu >= 0 && cpu < script.nr_cpus);
	script.kicks[cpu] |= flags;
	script.nr_kicks[cpu]++;
}

static bool script_offline(u32 cpu)
{
	return cpu < 64 && script.offline >> cpu & 1;
}

static const struct cpumask *script_online_mask(struct lab_host *h)
{
	static struct cpumask mask;
	u32 cpu;

	mask = (struct cpumask){ };
	for (cpu = 0; cpu < script.nr_cpus; cpu++) {
		if (!script_offline(cpu))
			mask.bits[cpu / 64] |= 1ul << (cpu % 64);
	}
	return &mask;
}

static void script_put_mask(struct lab_host *h, const struct cpumask *mask) { }
static u32 script_nr_cpu_ids(struct lab_host *h) { return script.nr_cpus; }
static s32 script_cpu_node(struct lab_host *h, s32 cpu) { return script.node_cpus ? cpu / script.node_cpus : 0; }
/* The CPUs of a node share a cache. One that never booted knows nothing: all zero. */
static u32 script_cpu_place(struct lab_host *h, s32 cpu, u32 level)
{
	if (level < 2 && script_offline(cpu))
		return 0;
	if (level)
		return script_cpu_node(h, cpu);
	return script.core_cpus ? cpu / script.core_cpus : cpu;
}

/* None that the kernel knows to be idle. */
static s32 script_pick_cpu(struct lab_host *h, const struct cpumask *allowed, bool on_node, s32 node,
			   u64 flags, bool any)
{
	return -1;
}
static u32 script_smp_processor_id(struct lab_host *h) { return script.cpu; }

static struct task_struct *script_current_task(struct lab_host *h)
{
	return script.forking ? script.forking : script.curr[script.cpu];
}

static struct task_struct *script_task_from_pid(struct lab_host *h, s32 pid)
{
	CHECK(script.nr_held);
	if (script.fail_lookups || pid < 1 || pid > script.nr_tasks)
		return NULL;
	return &script.tasks[pid - 1]->p;
}

static bool script_task_set_slice(struct lab_host *h, struct task_struct *p, u64 slice)
{
	p->scx.slice = slice;
	return true;
}

static void *script_storage_get(struct lab_host *h, const void *map, struct task_struct *p,
				const void *init, u64 flags)
{
	struct script_task *task = script_of(p);

	CHECK(map == &lab_task_refs);
	if (!task->stored && (flags & BPF_LOCAL_STORAGE_GET_F_CREATE))
		task->stored = calloc(1, sizeof(struct lab_task_ref));
	return task->stored;
}

static long script_storage_delete(struct lab_host *h, const void *map, struct task_struct *p)
{
	free(script_of(p)->stored);
	script_of(p)->stored = NULL;
	return 0;
}

static void *script_arena_alloc(struct lab_host *h, const void *map, void *addr, u32 pages)
{
	CHECK(!script.nr_held);
	return calloc(pages, 4096);
}

static void script_arena_free(struct lab_host *h, const void *map, void *addr, u32 pages)
{
	free(addr);
}

static u64 script_now(struct lab_host *h) { return script.now_ns; }

static long script_timer_init(struct lab_host *h, struct bpf_timer *timer, const void *map, u64 flags)
{
	script.timer_map = (void *)map;
	script.timer_value = timer;
	return 0;
}

static long script_timer_set_callback(struct lab_host *h, struct bpf_timer *timer, void *callback)
{
	script.timer = callback;
	return 0;
}

static long script_timer_start(struct lab_host *h, struct bpf_timer *timer, u64 nsecs, u64 flags)
{
	CHECK(timer == script.timer_value && script.timer);
	script.timer_ns = nsecs;
	return 0;
}

/* The element that holds the one timer: at the start of its value. */
static void *script_map_lookup(struct lab_host *h, const void *map, const void *key)
{
	static u64 value[8];

	CHECK(!script.timer_map || map == script.timer_map);
	return value;
}

static void script_error(struct lab_host *h, const char *fmt, const u64 *args, u32 bytes)
{
	if (!script.error)
		printf("scx_bpf_error: %s\n", fmt);
	script.error = true;
	script.said = fmt;
	script.said_number = bytes ? args[0] : 0;
}

/* The table and the CPUs; a test may add to the table before it calls ops.init(). */
static void script_prepare(u32 nr_cpus)
{
	/* A function that is missing here is NULL: a policy that needs it ends the test. */
	script.host = (struct lab_host){
		.sync = script_sync,
		.atomic = script_atomic,
		.lock = script_lock,
		.unlock = script_unlock,
		.trylock = script_trylock,
		.touch = script_touch,
		.examine = script_examine,
		.look = script_look,
		.recalculate = script_recalculate,
		.count = script_count,
		.loop = script_loop,
		.kfunc = script_kfunc,
		.ksym_exists = script_ksym_exists,
		.dsq_insert = script_dsq_insert,
		.kick_cpu = script_kick_cpu,
		.online_mask = script_online_mask,
		.put_mask = script_put_mask,
		.nr_cpu_ids = script_nr_cpu_ids,
		.cpu_node = script_cpu_node,
		.cpu_place = script_cpu_place,
		.pick_cpu = script_pick_cpu,
		.smp_processor_id = script_smp_processor_id,
		.current_task = script_current_task,
		.task_from_pid = script_task_from_pid,
		.task_set_slice = script_task_set_slice,
		.storage_get = script_storage_get,
		.storage_delete = script_storage_delete,
		.arena_alloc = script_arena_alloc,
		.arena_free = script_arena_free,
		.now = script_now,
		.timer_init = script_timer_init,
		.timer_set_callback = script_timer_set_callback,
		.timer_start = script_timer_start,
		.map_lookup = script_map_lookup,
		.error = script_error,
	};
	script.nr_cpus = nr_cpus;
	lab_host = &script.host;
}

static void script_start(u32 nr_cpus)
{
	script_prepare(nr_cpus);
	EQUAL(OPS.init(), 0);
}

/* An option may be @most, with which `begin` starts; more is refused by ops.init(), which says so. */
#define AT_MOST(option, most, begin)					\
do {									\
	typeof(option) ___was = (option);				\
									\
	(option) = (most);						\
	begin;								\
	(option)++;							\
	EQUAL(OPS.init(), -EINVAL);					\
	CHECK(script.error);						\
	CHECK(strstr(script.said, ": " #option " must be at most %llu")); \
	EQUAL(script.said_number, (most));				\
	(option) = ~(typeof(option))0;					\
	EQUAL(OPS.init(), -EINVAL);					\
	script.error = false;						\
	(option) = ___was;						\
} while (0)

/* No kick is remembered. */
static void script_calm(void)
{
	u32 cpu;

	for (cpu = 0; cpu < script.nr_cpus; cpu++)
		script.kicks[cpu] = script.nr_kicks[cpu] = 0;
}

static void script_end_op(void)
{
	CHECK(!script.nr_held);
}

/* A task is created; `parent` forks it, or it was there before. */
static struct task_struct *script_fork(struct task_struct *parent, int nice, u64 mm)
{
	struct scx_init_task_args args = { .fork = parent != NULL };
	struct script_task *task = calloc(1, sizeof(*task));
	u32 cpu;

	CHECK(script.nr_tasks < SCRIPT_TASKS);
	task->p.__lab_index = script.nr_tasks;
	script.tasks[script.nr_tasks++] = task;
	task->p.pid = task->p.tgid = script.nr_tasks;
	/* All tasks are the policy's, real-time ones, too. */
	task->p.prio = task->p.static_prio = 120 + nice;
	task->p.mm = (struct mm_struct *)mm;
	task->p.cpus_ptr = &task->mask;
	task->p.nr_cpus_allowed = script.nr_cpus;
	for (cpu = 0; cpu < script.nr_cpus; cpu++)
		task->mask.bits[cpu / 64] |= 1ul << (cpu % 64);
	script.forking = parent;
	EQUAL(OPS.init_task(&task->p, &args), 0);
	script.forking = NULL;
	script_end_op();
	return &task->p;
}

static void script_exit_task(struct task_struct *p)
{
	struct scx_exit_task_args args = { };

	OPS.exit_task(p, &args);
	script_end_op();
}

/* The part of do_enqueue_task() after the policy's answer. */
static void script_enqueue(struct task_struct *p, u64 flags)
{
	script.inserted = NULL;
	OPS.enqueue(p, flags);
	script_end_op();
	script_of(p)->in_custody = !script.inserted;
	if (script.inserted) {
		CHECK(script.inserted == p);
		EQUAL(script.inserted_dsq, SCX_DSQ_LOCAL);
		script.local[p->__lab_cpu] = p;
	}
}

/* try_to_wake_up() on CPU `waker`. */
static void script_wake(struct task_struct *p, s32 waker, u64 wake_flags)
{
	CHECK(!script_of(p)->runnable);
	script.cpu = waker;
	if (p->nr_cpus_allowed > 1)
		p->__lab_cpu = OPS.select_cpu(p, p->__lab_cpu, wake_flags);
	script_of(p)->runnable = true;
	p->scx.flags |= SCX_TASK_QUEUED;
	script_enqueue(p, SCX_ENQ_WAKEUP);
}

/* An attribute of a waiting task changes: dequeue, change, enqueue. */
static void script_change_begin(struct task_struct *p)
{
	if (script_of(p)->in_custody) {
		script_of(p)->in_custody = false;
		OPS.dequeue(p, 0);
		script_end_op();
	}
}

/* The current task of the CPU blocks at the next schedule(). */
static void script_block(s32 cpu)
{
	struct task_struct *p = script.curr[cpu];

	script.cpu = cpu;
	CHECK(p);
	OPS.stopping(p, false);
	if (OPS.quiescent)
		OPS.quiescent(p, SCX_DEQ_SLEEP);
	script_end_op();
	p->scx.flags &= ~SCX_TASK_QUEUED;
	script_of(p)->runnable = false;
}

/*
 * schedule(): what __schedule(), balance_one() and put_prev_set_next_task() do
 * with a sched_ext task. Returns the next task, NULL = idle.
 */
static struct task_struct *script_schedule(s32 cpu)
{
	struct task_struct *prev = script.curr[cpu], *next = NULL;
	bool runnable = prev && script_of(prev)->runnable;

	script.cpu = cpu;
	if (runnable && prev->scx.slice)
		return prev;
	next = script.local[cpu];
	if (!next) {
		script.inserted = NULL;
		OPS.dispatch(cpu, prev);
		script_end_op();
		next = script.inserted;
		if (next) {
			/* Leaves the policy's custody for a local queue. */
			CHECK(script_of(next)->in_custody);
			CHECK(next->cpus_ptr->bits[cpu / 64] >> (cpu % 64) & 1);
			EQUAL(script.inserted_dsq, SCX_DSQ_LOCAL);
			script_of(next)->in_custody = false;
			next->__lab_cpu = cpu;
			OPS.dequeue(next, 0);
			script_end_op();
		}
	}
	script.local[cpu] = NULL;
	if (runnable && (!next || prev->scx.slice)) {
		CHECK(!next);
		if (prev->scx.slice || !(OPS.flags & SCX_OPS_ENQ_LAST))
			return prev;
	}
	if (prev && runnable) {
		OPS.stopping(prev, true);
		script_enqueue(prev, next ? 0 : SCX_ENQ_LAST);
	}
	script.curr[cpu] = next;
	if (next) {
		CHECK(next->scx.slice);
		OPS.running(next);
	}
	script_end_op();
	return next;
}

static void script_tick(s32 cpu)
{
	script.cpu = cpu;
	OPS.tick(script.curr[cpu]);
	script_end_op();
}

static void script_yield(s32 cpu)
{
	script.cpu = cpu;
	OPS.yield(script.curr[cpu], NULL);
	script_end_op();
}

/* The timer expires, on `cpu`. */
static void script_timer_expires(s32 cpu)
{
	u32 key = 0;

	CHECK(script.timer_ns);
	script.now_ns += script.timer_ns;
	script.timer_ns = 0;
	script.cpu = cpu;
	script.timer(script.timer_map, &key, script.timer_value);
	script_end_op();
}

/* A kick with SCX_KICK_PREEMPT has arrived. */
static void script_preempt(s32 cpu)
{
	if (script.curr[cpu])
		script.curr[cpu]->scx.slice = 0;
}

/* The tests of a file: without an argument it names them, with one it runs that one. */
#define TEST(name) { #name, name }
#define TESTS(list...)							\
static const struct {							\
	const char *name;						\
	void (*run)(void);						\
} tests[] = { list };							\
									\
int main(int argc, char **argv)						\
{									\
	u32 i;								\
									\
	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {	\
		if (argc < 2) {						\
			printf("%s\n", tests[i].name);			\
		} else if (!strcmp(argv[1], tests[i].name)) {		\
			tests[i].run();					\
			CHECK(!script.error);				\
			return 0;					\
		}							\
	}								\
	return argc < 2 ? 0 : 2;					\
}

#endif /* RULES_SCRIPT_H */
