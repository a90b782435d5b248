/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Runs the programs of measure.bpf.c over events made by hand and compares what they count with
 * what was computed by hand. Prints a line for each difference.
 *
 * An event names the CPU and the moment first: at(ms, cpu), then the program of its tracepoint.
 */
#include <scx/common.bpf.h>

/* The constants are set by each case. */
#define const
#include "measure.bpf.c"
#undef const

enum { CPUS = 4, TASKS = 128, MS = 1000000 };

u64 test_now;
u32 test_cpu;
u64 test_record[16];
struct task_struct *test_current;

static struct cpu_counters counted[CPUS];
static u64 latencies[HIST_BUCKETS];
static struct task_struct tasks[TASKS];
static struct task_note task_notes[TASKS];
static struct signal_struct signals[TASKS];
static u32 nr_tasks;
static struct task_struct idle;
static int failed;

void *bpf_map_lookup_elem(void *map, void *key)
{
	if (map == (void *)&counters)
		return &counted[test_cpu];
	if (map == (void *)&wakeup_latency)
		return &latencies[*(u32 *)key];
	return NULL;
}

struct task_note *bpf_task_storage_get(void *map, struct task_struct *p, void *value, u64 flags)
{
	if (!p->note && flags)
		p->note = &task_notes[p - tasks];
	return p->note;
}

#define sum(counter)							\
({									\
	u64 ___sum = 0;							\
									\
	for (int ___i = 0; ___i < CPUS; ___i++)				\
		___sum += counted[___i].counter;			\
	___sum;								\
})

static void expect(const char *what, double got, double low, double high)
{
	if (got >= low && got <= high)
		return;
	printf("%s: %.6f, not %.6f to %.6f\n", what, got, low, high);
	failed++;
}

#define is(what, got, value)	expect(what, got, value, value)
#define about(what, got, value)	expect(what, got, (value) * 0.9999, (value) * 1.0001)

/* Nothing has happened yet. The first process is a command, or the program of a workload. */
static void begin(u32 root, bool is_workload)
{
	static const u32 some_weights[40] = { [0] = 88761, [20] = 1024, [25] = 335, [39] = 15 };

	memset(counted, 0, sizeof(counted));
	memset(latencies, 0, sizeof(latencies));
	memset(tasks, 0, sizeof(tasks));
	memset(task_notes, 0, sizeof(task_notes));
	memset(waits_of, 0, sizeof(waits_of));
	memset(prios_seen, 0, sizeof(prios_seen));
	nr_tasks = 0;
	nr_runnable = nr_live = 0;
	root_exec_ns = root_exit_ns = began_ns = over_ns = done_ns = 0;
	root_pid = root;
	counting = true;
	stream = false;
	tells = is_workload;
	nr_cpus = nr_online = CPUS;
	memcpy((void *)weights, some_weights, sizeof(some_weights));
	for (int i = 0; i < MAX_CPUS; i++)
		places[i] = (struct place){ .core = i };
}

static struct task_struct *task(u32 pid, u32 tgid, int nice)
{
	struct task_struct *p = &tasks[nr_tasks++];

	p->pid = pid;
	p->tgid = tgid;
	p->prio = p->static_prio = p->normal_prio = 120 + nice;
	p->nr_cpus_allowed = CPUS;
	p->signal = &signals[nr_tasks];
	for (u32 i = 0; i < nr_tasks; i++)
		if (tasks[i].tgid == tgid) {
			p->signal = tasks[i].signal ?: p->signal;
			break;
		}
	p->signal->live.counter = p->pid == tgid ? 1 : p->signal->live.counter + 1;
	return p;
}

static void at(double ms, u32 cpu)
{
	test_now = ms * MS;
	test_cpu = cpu;
}

/* A task sleeps or ends (@state) or could go on (0), and the next one runs. */
static void switches(struct task_struct *prev, struct task_struct *next, u32 state)
{
	on_switch(false, prev, next, state);
}

static void wakes(struct task_struct *p)
{
	on_waking(p);
	on_wakeup(p);
}

static void exits(struct task_struct *p)
{
	p->signal->live.counter--;
	on_exit(p);
}

enum { SLEEPS = 1, DEAD = 0x80 };

/* The first process of a command: sets it up and gives it the CPU. */
static struct task_struct *command(void)
{
	struct task_struct *root;

	begin(100, false);
	root = task(100, 100, 0);
	at(1, 0);
	on_exec(root);
	return root;
}

static double jain(void)
{
	double n = sum(tasks_ended), x = sum(service_sum);
	double squares = 4294967296.0 * sum(service_squares_high) + sum(service_squares_low);

	return x * x / (n * squares);
}

static double service(void)
{
	return (double)sum(service_sum) / SERVICE_UNIT;
}

static double makespan_ms(void)
{
	return (double)(root_exit_ns - root_exec_ns) / MS;
}

/* The measured time, less what the run's end adds: what measure.rs makes of it. */
static double idle_ms(u32 cpu)
{
	u64 last = counted[cpu].last_switch_ns, end = ended();

	if (last < began_ns)
		last = began_ns;
	return (double)(counted[cpu].idle_ns +
			(counted[cpu].idle_now && end > last ? end - last : 0)) / MS;
}

static void a_command_is_measured_from_its_first_moment(void)
{
	struct task_struct *root = command();

	at(901, 0), switches(root, &idle, SLEEPS);
	at(902, 0), wakes(root), switches(&idle, root, 0);
	at(1002, 0), exits(root);
	about("command: CPU time of 1000 ms wanted and got", service(), 1);
	is("command: tasks", sum(tasks_ended), 1);
	is("command: ms on a CPU", (double)root->note->served / SERVED_UNIT / MS, 1000);
	is("command: makespan", makespan_ms(), 1001);
	is("command: idle", idle_ms(0), 1);

	root = command();
	at(1001, 0), exits(root);
	is("a command that never leaves its CPU: tasks", sum(tasks_ended), 1);
	about("a command that never leaves its CPU: service", service(), 1);

	root = command();
	at(2, 0), wakes(root);
	is("woken while it runs: waits", root->note->waiting, false);
}

static void the_last_thread_ends_the_run(void)
{
	struct task_struct *root = command(), *thread;

	thread = task(101, 100, 0);
	at(2, 0), on_fork(root, thread), on_wakeup_new(thread);
	at(3, 0), exits(root), switches(root, thread, DEAD);
	is("the first thread's end is no end", root_exit_ns, 0);
	at(1003, 0), exits(thread);
	is("the last thread's end: makespan", makespan_ms(), 1002);
}

static void idle_time_ends_with_the_command(void)
{
	struct task_struct *root, *other;

	begin(100, false);
	root = task(100, 100, 0);
	other = task(7, 7, 0);
	/* Idle before the execve; CPU 1 idles on until another program runs there after the end. */
	at(0, 0), switches(other, &idle, SLEEPS);
	at(0, 1), switches(other, &idle, SLEEPS);
	at(5, 0), switches(&idle, root, 0);
	at(6, 0), on_exec(root);
	at(25, 0), exits(root), switches(root, &idle, DEAD);
	at(26, 0);
	is("idle of a CPU that was busy", idle_ms(0), 0);
	is("idle of one that was not", idle_ms(1), 19);
	at(60, 0), switches(&idle, other, 0);
	at(70, 1), switches(&idle, other, 0);
	is("idle of a CPU that was busy, at the end", idle_ms(0), 0);
	is("idle of one that was not, at the end", idle_ms(1), 19);
}

/*
 * A workload of two tasks in a process that starts them, of two CPUs: before all of them stand at
 * the gate nothing counts, and they begin like new tasks.
 */
static void a_workload_is_its_tasks_from_the_gate_on(bool over)
{
	struct task_struct *root, *starter, *a, *b, *monitor;

	begin(100, true);
	root = task(100, 100, 0);
	monitor = task(9, 9, 0);
	at(0, 0), on_exec(root);
	starter = task(101, 101, 0);
	at(1, 0), on_fork(root, starter), on_wakeup_new(starter);
	at(1, 1), switches(&idle, starter, 0);
	at(2, 1), on_rename(starter, NAME_STARTER);
	a = task(102, 101, 0);
	b = task(103, 101, 0);
	at(3, 1), on_fork(starter, a), on_wakeup_new(a), on_fork(starter, b), on_wakeup_new(b);
	/* Only a first thread starts tasks, and only the first process's lets them begin. */
	at(3, 1), on_rename(a, NAME_STARTER), on_rename(starter, NAME_BEGUN);
	is("a task that calls itself a starter", a->note->starter, false);
	is("another process says that tasks may begin", began_ns, 0);
	at(4, 1), switches(starter, a, SLEEPS);
	at(5, 1), switches(a, b, SLEEPS);
	at(6, 1), switches(b, &idle, SLEEPS);
	is("before the gate: switches", sum(switches_voluntary) + sum(switches_in), 0);

	at(10, 0), on_rename(root, NAME_BEGUN);
	on_waking(a), on_wakeup(a);
	on_waking(b), on_migrate(b, 0), on_wakeup(b);
	at(10, 1), switches(&idle, a, 0);
	at(10, 0), switches(root, b, SLEEPS);
	is("after the gate: runnable", nr_runnable, 2);
	/* Both compute for 20 ms, then a sleeps for 1 ms and waits for another 1 ms. */
	at(30, 1), switches(a, monitor, SLEEPS);
	at(31, 1), wakes(a);
	at(32, 1), switches(monitor, a, 0);
	if (over) {
		at(40, 1), on_rename(a, NAME_OVER);
		wakes(a), switches(a, starter, 0), switches(starter, a, SLEEPS);
		at(45, 1), exits(a), switches(a, &idle, DEAD);
		at(45, 0), exits(b), switches(b, &idle, DEAD);
	} else {
		at(40, 0), exits(b), switches(b, &idle, DEAD);
		at(40, 1), exits(a), switches(a, &idle, DEAD);
	}
	at(50, 1), switches(&idle, starter, 0), exits(starter), switches(starter, &idle, DEAD);
	at(60, 0), switches(&idle, root, 0), exits(root), switches(root, &idle, DEAD);

	is("workload: tasks", sum(tasks_ended), 2);
	/* a: 28 of 29 ms; b: 30 of 30 */
	about("workload: service", service(), 28.0 / 29 + 1);
	about("workload: jain", jain(), (28.0 / 29 + 1) * (28.0 / 29 + 1) /
	      (2 * (28.0 / 29 * 28 / 29 + 1)));
	is("workload: starts", sum(switches_in), 3);
	is("workload: stops", sum(switches_voluntary), over ? 1 : 3);
	is("workload: preemptions", sum(switches_involuntary), 0);
	is("workload: wakeups that were waited for", sum(latency_count), 1);
	is("workload: their latency", sum(latency_sum_ns), MS);
	is("workload: migrations", sum(migrations[0]) + sum(migrations[1]) + sum(migrations[2]) +
	   sum(migrations[3]), 0);
	is("workload: starts elsewhere", sum(elsewhere), 0);
	is("workload: longest queue", counted[0].length_max, 2);
	is("workload: idle of CPU 0", idle_ms(0), 0);
	is("workload: idle of CPU 1", idle_ms(1), 0);
	is("workload: end", ended(), 40 * MS);
}

static void latency_begins_with_the_decision_to_wake(void)
{
	struct task_struct *root = command();

	at(2, 0), switches(root, &idle, SLEEPS);
	at(3, 1), on_waking(root);
	at(4, 0), on_wakeup(root);
	at(6, 0), switches(&idle, root, 0);
	is("latency: wakeups", sum(latency_count), 1);
	is("latency: from sched_waking on", sum(latency_sum_ns), 3 * MS);
	is("latency: in the histogram", latencies[bucket_of(3 * MS)], 1);
	/* A waker decides while it is on its way to sleep: no latency. */
	at(7, 1), on_waking(root), on_wakeup(root);
	at(8, 0), switches(root, &idle, 0), switches(&idle, root, 0);
	is("latency: of one that did not sleep", sum(latency_count), 1);
	/* A waker decides while it is still leaving its CPU: it waits from then on. */
	at(9, 1), on_waking(root);
	at(10, 0), switches(root, &idle, SLEEPS);
	at(11, 1), on_wakeup(root);
	at(12, 0), switches(&idle, root, 0);
	is("latency: wakeups, the second one's too", sum(latency_count), 2);
	is("latency: not before it left its CPU", sum(latency_sum_ns), 5 * MS);
	/* It ran for 1 + 2 + 2 + 1 ms and waited for 3 + 2. */
	at(13, 0), exits(root);
	about("latency: service", service(), 6.0 / 11);
}

/* A task of the command that never waits. */
static void runs(struct task_struct *root, struct task_struct *p, double from, double ms)
{
	at(from, 1), on_fork(root, p), on_wakeup_new(p), switches(&idle, p, 0);
	at(from + ms, 1), exits(p), switches(p, &idle, DEAD);
}

static void short_tasks_count_like_long_ones(void)
{
	struct task_struct *root = command();

	for (int i = 0; i < 100; i++)
		runs(root, task(101 + i, 101 + i, 0), 10 * i + 2, i % 2 ? 1 : 0.0015);
	is("short tasks: tasks", sum(tasks_ended), 100);
	expect("short tasks: jain", jain(), 0.99999, 1.00001);
}

static void a_new_weight_counts_from_then_on(void)
{
	struct task_struct *root = command(), *p;
	double before;

	/* 1 s of weight 1024 and 1 s of 335, which are 3056.7 ms: 2.0284 for 2 s. */
	p = task(101, 101, 0);
	at(2, 1), on_fork(root, p), on_wakeup_new(p), switches(&idle, p, 0);
	at(1002, 0), on_nice(p);
	p->prio = p->static_prio = p->normal_prio = 125;
	after_nice(p);
	at(2002, 1), exits(p), switches(p, &idle, DEAD);
	about("a new weight: service", service(), (1 + 1024.0 / 335) / 2);
	/* The extremes. */
	before = service();
	runs(root, task(102, 102, 19), 3000, 1000);
	about("weight 15: service", service() - before, 1024.0 / 15);
	before = service();
	runs(root, task(103, 103, -20), 5000, 0.002);
	expect("weight 88761: service", service() - before, 0.0115, 0.0116);
}

static void an_idle_task_has_its_own_weight_and_real_time_is_left_out(void)
{
	struct task_struct *root = command(), *p;

	p = task(101, 101, 0);
	p->policy = 5;
	runs(root, p, 2, 1000);
	about("SCHED_IDLE: service", service(), 1024.0 / 3);
	about("SCHED_IDLE: jain of one", jain(), 1);
	p = task(102, 102, 0);
	p->normal_prio = 49;
	runs(root, p, 2000, 1000);
	is("real time: tasks", sum(tasks_ended), 1);
	about("real time: service", service(), 1024.0 / 3);
}

static void sixteen_thousand_tasks_on_a_cpu_are_equal(void)
{
	struct cpu_counters *c = &counted[0];
	struct task_note note = { .served = 1000ULL * MS * SERVED_UNIT, .wanted_ns = 16000000ULL * MS };

	begin(1, false);
	for (int i = 0; i < 16000; i++)
		count_service(c, &note);
	about("16000 equal tasks: jain", jain(), 1);
	expect("16000 equal tasks: service", service(), 0.999, 1);
}

static void a_start_before_a_better_one_is_an_inversion(void)
{
	struct task_struct *root = command(), *better, *worse, *first;

	better = task(101, 101, 0);
	worse = task(102, 102, 19);
	first = task(103, 103, 0);
	on_fork(root, better), on_fork(root, worse), on_fork(root, first);
	at(2, 1), on_wakeup_new(first), switches(&idle, first, 0);
	/* It waits before anybody of a worse priority was seen. */
	at(3, 1), on_wakeup_new(better);
	at(4, 1), on_wakeup_new(worse), switches(first, worse, SLEEPS);
	for (int i = 0; i < 999; i++) {
		at(5 + 2 * i, 1), switches(worse, &idle, SLEEPS);
		at(6 + 2 * i, 1), wakes(worse), switches(&idle, worse, 0);
	}
	is("a better one waits all along: inversions", sum(inversions), 1000);
	/* One whose priority becomes worse while it waits is not better any more. */
	at(3000, 0), on_nice(better);
	better->prio = better->static_prio = better->normal_prio = 139;
	after_nice(better);
	at(3001, 1), switches(worse, &idle, SLEEPS), wakes(worse), switches(&idle, worse, 0);
	is("it is better no more: inversions", sum(inversions), 1000);
}

static void an_idle_task_is_worse_than_any_other(void)
{
	struct task_struct *root = command(), *worst, *other;

	/* Of its nice level it would be better. */
	worst = task(101, 101, 0);
	worst->policy = 5;
	other = task(102, 102, 19);
	on_fork(root, worst), on_fork(root, other);
	at(2, 1), on_wakeup_new(worst), on_wakeup_new(other), switches(&idle, worst, 0);
	is("another one waits: inversions", sum(inversions), 1);
	at(3, 1), switches(worst, other, 0);
	is("one of SCHED_IDLE waits: inversions", sum(inversions), 1);
	/* A lock's waiter lends it a real-time priority. */
	at(4, 1), worst->prio = 50, switches(other, worst, 0);
	is("it is boosted: inversions", sum(inversions), 1);
}

static void every_cpu_means_those_online(void)
{
	struct task_struct *root = command(), *better, *worse[2];

	nr_online = 3;
	better = task(101, 101, 0);
	worse[0] = task(102, 102, 19);
	worse[1] = task(103, 103, 19);
	better->nr_cpus_allowed = worse[0]->nr_cpus_allowed = worse[1]->nr_cpus_allowed = 3;
	on_fork(root, better), on_fork(root, worse[0]), on_fork(root, worse[1]);
	at(2, 1), on_wakeup_new(worse[0]), switches(&idle, worse[0], 0), on_wakeup_new(worse[1]);
	at(3, 1), on_wakeup_new(better);
	for (int i = 0; i < 1000; i++)
		at(4 + i, 1), switches(worse[i % 2], worse[(i + 1) % 2], 0);
	is("one CPU is offline: inversions", sum(inversions), 1000);
}

static void migrations_and_yields_are_counted(void)
{
	struct task_struct *root = command(), *other = task(7, 7, 0);

	places[1].core = 0;
	places[2].llc = 1;
	places[3].llc = places[3].node = 1;
	for (u32 cpu = 1; cpu < CPUS; cpu++) {
		root->thread_info.cpu = 0;
		on_migrate(root, cpu);
		on_migrate(other, cpu);
	}
	is("migrations: within a core", sum(migrations[REACH_SMT]), 1);
	is("migrations: within a cache", sum(migrations[REACH_LLC]), 0);
	is("migrations: within a node", sum(migrations[REACH_NODE]), 1);
	is("migrations: to another node", sum(migrations[REACH_REMOTE]), 1);

	test_current = root;
	at(2, 0), on_yield(), switches(root, other, 0);
	at(3, 2), switches(&idle, root, 0), after_yield();
	at(4, 2), on_switch(true, root, other, 0);
	at(5, 2), switches(other, root, 0);
	is("yields: all that were still runnable", sum(switches_involuntary), 2);
	is("yields: those that yielded", sum(switches_yielded), 1);
	is("yields: starts", sum(switches_in), 2);
	is("yields: starts on another CPU", sum(elsewhere), 1);
	is("yields: starts of any task", sum(switches_all), 4);
}

static void events_tell_who_decided_and_priorities(void)
{
	struct task_struct *root = command(), *other = task(101, 101, -5);
	struct event *e = (struct event *)test_record;

	stream = true;
	at(2, 3), on_fork(root, other);
	is("events: priority of a child", e->prio, 115);
	at(3, 2), on_wakeup_new(other);
	is("events: a new task wakes itself, where", e->from, 2);
	is("events: a new task wakes itself, when", e->since_ns, 3 * MS);
	at(4, 0), on_switch(true, root, other, 0);
	is("events: priority of who is next", e->prio, 115);
	at(5, 0), switches(other, root, SLEEPS);
	is("events: priority of who is next", e->prio, 120);
	at(6, 3), on_waking(other);
	at(7, 1), on_wakeup(other);
	is("events: woken where", e->cpu, 1);
	is("events: decided where", e->from, 3);
	is("events: decided when", e->since_ns, 6 * MS);
	/* A task whose sched_waking was not followed. */
	task_notes[other - tasks].waking_ns = 0;
	at(8, 1), on_wakeup(other);
	is("events: nobody knows who decided, where", e->from, 1);
	is("events: nobody knows who decided, when", e->since_ns, 8 * MS);
}

int main(void)
{
	events_tell_who_decided_and_priorities();
	migrations_and_yields_are_counted();
	a_command_is_measured_from_its_first_moment();
	the_last_thread_ends_the_run();
	idle_time_ends_with_the_command();
	a_workload_is_its_tasks_from_the_gate_on(false);
	a_workload_is_its_tasks_from_the_gate_on(true);
	latency_begins_with_the_decision_to_wake();
	short_tasks_count_like_long_ones();
	a_new_weight_counts_from_then_on();
	an_idle_task_has_its_own_weight_and_real_time_is_left_out();
	sixteen_thousand_tasks_on_a_cpu_are_equal();
	a_start_before_a_better_one_is_an_inversion();
	an_idle_task_is_worse_than_any_other();
	every_cpu_means_those_online();
	return failed != 0;
}
