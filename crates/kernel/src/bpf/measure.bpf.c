/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Measures what a scheduler does to a workload, from the kernel's own tracepoints.
 *
 * The workload is the process that the runner names in root_pid and everything it starts. What
 * tasks do is followed from its execve on. It counts from there, too, if it is any command; if it
 * is the program of one of our workloads, from when that says that all its tasks may begin, and
 * without the tasks that only start and await others.
 *
 * Counters are kept per CPU, so that measuring shares no cache line between CPUs except
 * the number of runnable tasks and the waiting tasks; events are streamed only if the runner asks for them.
 */
#include <scx/common.bpf.h>
#include "measure.h"

char _license[] SEC("license") = "GPL";

/* Whether events are written to the ring buffer. */
const volatile bool stream;
/* Whether on_allowed() is attached, so that a change of a reported mask is reported, too. */
const volatile bool follows_masks;
/* How many possible CPUs there are, and how many of them are online. */
const volatile u32 nr_cpus = 1;
const volatile u32 nr_online = 1;
/* Whether the first process is the program of a workload, which announces its actions by names. */
const volatile bool tells;
/* Load weights by nice level from -20 on. */
const volatile u32 weights[40];
const volatile struct place places[MAX_CPUS];

/* The workload's first process; 0: not started yet. */
u32 root_pid;
/* Counting begins when the runner sets this. */
bool counting;
/* The first process' execve and the end of its last thread; 0: not yet. */
u64 root_exec_ns;
u64 root_exit_ns;
/* From when on things count; 0: not yet. */
u64 began_ns;
/* When a workload stopped its tasks because its time was over: nothing counts from then on. */
u64 over_ns;
/* When a workload's last task ended. */
u64 done_ns;

/* Of each task of the workload. Times are of what happened since began_ns. */
struct task_note {
	u64 since_ns;	/* up to when it was charged for what it is: running, waiting to run, or neither */
	u64 served;	/* CPU time times 1024 / weight, in 1 / SERVED_UNIT ns */
	u64 wanted_ns;	/* runnable, running included */
	u64 waking_ns;	/* when somebody last decided to wake it; while it waits, since when */
	u32 waking_cpu;	/* where that was */
	u32 last_cpu;
	/* Which element of waits_of counts this task; 0: none. */
	u32 counted_at;
	bool starter;	/* only starts and awaits tasks: it is in no count */
	bool begun;	/* seen since began_ns */
	bool fresh;	/* did not run at began_ns: its first wakeup is like a new task's */
	bool ran;	/* has been on a CPU */
	bool running;
	bool waiting;	/* runnable and not running */
	bool woken;	/* waiting since a wakeup from sleep */
	bool yielding;	/* inside sched_yield() */
	bool runnable;	/* counted in nr_runnable */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_note);
} notes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HIST_BUCKETS);
	__type(key, u32);
	__type(value, u64);
} wakeup_latency SEC(".maps");

/* Addresses of all rq locks; filled once by find_rq_locks(). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, u64);
	__type(value, u32);
} rq_locks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 * 1024 * 1024);
} events SEC(".maps");

/*
 * Tasks of the workload that wait, by the CPUs they may run on and by prio (the lower, the better;
 * 0 to 139 as in the kernel, then PRIO_IDLE). Row 0: every CPU that is online; row n + 1: CPU n
 * alone. Others are not counted.
 */
enum { PRIO_IDLE = 140, PRIOS, WAIT_ROWS = MAX_CPUS + 1, PRIO_WORDS = 3 };
u32 waits_of[WAIT_ROWS * PRIOS] SEC(".bss.waits");
/* Bit p % 64 of word p / 64: a task of that prio was counted. */
u64 prios_seen[PRIO_WORDS] SEC(".bss.waits");

/* Runnable tasks of the workload, running ones included. */
u64 nr_runnable SEC(".bss.waits");
/* Tasks of the workload that have not ended. */
u64 nr_live SEC(".bss.waits");

/* The names by which the program of a workload announces its actions: crates/programs/src/sys.rs. */
static const char starts_tasks[] = NAME_STARTER;
static const char tasks_begin[] = NAME_BEGUN;
static const char time_is_over[] = NAME_OVER;

extern struct rq runqueues __ksym __weak;

static struct cpu_counters *mine(void)
{
	u32 zero = 0;

	return counting ? bpf_map_lookup_elem(&counters, &zero) : NULL;
}

static struct task_note *note_of(struct task_struct *p)
{
	return bpf_task_storage_get(&notes, p, NULL, 0);
}

/* Whether what happens now is counted. */
static bool counts(void)
{
	return began_ns && !over_ns;
}

/* Whether it is counted for the task of @note. */
static bool counts_for(struct task_note *note)
{
	return note && !note->starter && counts();
}

/* Until when idle time counts, as far as that is known; 0: not yet. */
static u64 ended(void)
{
	if (over_ns)
		return over_ns;
	return done_ns ?: root_exit_ns;
}

/* The part of a time from @since to @until in which things count. */
static u64 counted_ns(u64 since, u64 until, u64 end)
{
	if (!began_ns)
		return 0;
	if (since < began_ns)
		since = began_ns;
	if (end && until > end)
		until = end;
	return until > since ? until - since : 0;
}

/* Of include/uapi/linux/sched.h and kernel/sched/sched.h: no BTF has them. */
enum { POLICY_IDLE = 5, WEIGHT_IDLEPRIO = 3, MAX_RT_PRIO = 100 };

/* @ns of CPU time of @p by its weight. */
static u64 served(struct task_struct *p, u64 ns)
{
	u32 nice = p->static_prio - MAX_RT_PRIO;
	u64 weight = p->policy == POLICY_IDLE ? WEIGHT_IDLEPRIO : nice < 40 ? weights[nice] : 0;

	if (!weight)
		return 0;
	/* Without a product that overflows within a month. */
	return ns / weight * SERVED_UNIT * 1024 + ns % weight * SERVED_UNIT * 1024 / weight;
}

/* Adds up what it was until @now. */
static void charge(struct task_struct *p, struct task_note *note, u64 now)
{
	u64 ns = counted_ns(note->since_ns, now, over_ns);

	note->since_ns = now;
	/* Real-time tasks are outside of fairness. */
	if (p->normal_prio < MAX_RT_PRIO)
		return;
	if (note->running)
		note->served += served(p, ns);
	if (note->running || note->waiting)
		note->wanted_ns += ns;
}

static void becomes_runnable(struct task_note *note)
{
	if (note->runnable || note->starter)
		return;
	note->runnable = true;
	__sync_fetch_and_add(&nr_runnable, 1);
}

static void is_runnable_no_more(struct task_note *note)
{
	if (!note->runnable)
		return;
	note->runnable = false;
	__sync_fetch_and_add(&nr_runnable, -1);
}

static void ends(u64 now)
{
	if (__sync_fetch_and_add(&nr_live, -1) == 1 && tells && began_ns)
		done_ns = now;
}

/* Before anything that happens to a task: the first time that it counts. */
static void begins(struct task_note *note)
{
	if (note->begun || !began_ns)
		return;
	note->begun = true;
	note->fresh = !note->runnable;
	note->ran = note->running;
}

/* The note of a task to which something happens while that is of interest; NULL: it is not. */
static struct task_note *concerned(struct task_struct *p)
{
	struct task_note *note = counting && !over_ns ? note_of(p) : NULL;

	if (note)
		begins(note);
	return note;
}

/* A switch finds this many; the task that leaves is not removed yet. */
static void count_runnable(struct cpu_counters *c)
{
	u64 nr = nr_runnable;

	c->lengths++;
	c->length_sum += nr;
	if (nr > c->length_max)
		c->length_max = nr;
}

/* Of a task of SCHED_IDLE, worse than any other, the kernel keeps the prio of its nice level. */
static u32 prio_of(struct task_struct *p)
{
	/* That of a deadline task is -1: it counts as the highest real-time one. */
	if (p->prio < 0)
		return 0;
	return p->policy == POLICY_IDLE && p->prio >= MAX_RT_PRIO ? PRIO_IDLE : p->prio;
}

static void begins_to_wait(struct task_struct *p, struct task_note *note)
{
	u32 prio = prio_of(p), row, at;

	if (note->counted_at || note->starter || prio >= PRIOS)
		return;
	if (p->nr_cpus_allowed >= nr_online)
		row = 0;
	else if (p->nr_cpus_allowed == 1 && p->thread_info.cpu < MAX_CPUS)
		row = p->thread_info.cpu + 1;
	else
		return;
	at = row * PRIOS + prio;
	if (at >= WAIT_ROWS * PRIOS)
		return;
	__sync_fetch_and_add(&waits_of[at], 1);
	if (!(prios_seen[prio / 64] & (1ULL << (prio % 64))))
		__sync_fetch_and_or(&prios_seen[prio / 64], 1ULL << (prio % 64));
	note->counted_at = at + 1;
}

static void waits_no_more(struct task_note *note)
{
	u32 at = note->counted_at - 1;

	if (at >= WAIT_ROWS * PRIOS)
		return;
	__sync_fetch_and_add(&waits_of[at], -1);
	note->counted_at = 0;
}

/* Whether a task that is better than @prio waits and may run on @cpu. */
static bool better_one_waits(u32 prio, u32 cpu)
{
	u32 word, bit, better, at;
	u64 bits;

	bpf_for(word, 0, PRIO_WORDS) {
		bits = prios_seen[word];
		bpf_for(bit, 0, 64) {
			if (!bits)
				break;
			better = word * 64 + __builtin_ctzll(bits);
			if (better >= prio || better >= PRIOS)
				return false;
			if (waits_of[better])
				return true;
			at = (cpu + 1) * PRIOS + better;
			if (at < WAIT_ROWS * PRIOS && waits_of[at])
				return true;
			bits &= bits - 1;
		}
	}
	return false;
}

/* The histogram bucket of @ns, the inverse of measure.rs' bucket(). */
static u32 bucket_of(u64 ns)
{
	u32 octave;

	if (ns < (1 << HIST_STEP_BITS))
		return ns;
	if (ns >> 40)
		return HIST_BUCKETS - 1;
	octave = 63 - __builtin_clzll(ns);
	return ((octave - HIST_STEP_BITS + 1) << HIST_STEP_BITS) +
	       ((ns >> (octave - HIST_STEP_BITS)) & ((1 << HIST_STEP_BITS) - 1));
}

static struct event *new_event(struct cpu_counters *c, u32 kind, u64 now)
{
	struct event *e;

	if (!stream)
		return NULL;
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		c->lost++;
		return NULL;
	}
	__builtin_memset(e, 0, sizeof(*e));
	e->at_ns = now;
	e->kind = kind;
	e->cpu = bpf_get_smp_processor_id();
	return e;
}

/* What the event tells of @p, whose task it is, or who is switched to. */
static void tell_task(struct event *e, struct task_struct *p)
{
	e->prio = p->prio;
	e->flags = p->policy == POLICY_IDLE ? FLAG_IDLE_POLICY : 0;
	bpf_probe_read_kernel_str(e->comm, sizeof(e->comm), p->comm);
}

/* An event that tells nothing but its task. */
static void tell(struct cpu_counters *c, u32 kind, struct task_struct *p, u64 now)
{
	struct event *e = new_event(c, kind, now);

	if (!e)
		return;
	e->pid = p->pid;
	tell_task(e, p);
	bpf_ringbuf_submit(e, 0);
}

/* The CPUs that @p may use: the first MAX_CPUS of @mask. */
static void tell_allowed(struct cpu_counters *c, struct task_struct *p, const struct cpumask *mask)
{
	struct allowed_event *e;

	if (!stream || !follows_masks)
		return;
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		c->lost++;
		return;
	}
	__builtin_memset(e, 0, sizeof(*e));
	e->event.at_ns = bpf_ktime_get_ns();
	e->event.kind = EVENT_ALLOWED;
	e->event.cpu = bpf_get_smp_processor_id();
	e->event.pid = p->pid;
	/* The kernel's mask may be shorter or longer: who reads it knows how many CPUs there are. */
	bpf_probe_read_kernel(e->cpus, sizeof(e->cpus) < sizeof(*mask) ? sizeof(e->cpus) : sizeof(*mask), mask);
	bpf_ringbuf_submit(e, 0);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	struct cpu_counters *c = mine();
	struct event *e;

	if (!c || !root_pid)
		return 0;
	if (parent->tgid != root_pid && !note_of(parent))
		return 0;
	if (!bpf_task_storage_get(&notes, child, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE)) {
		c->lost++;
		return 0;
	}
	__sync_fetch_and_add(&nr_live, 1);
	e = new_event(c, EVENT_FORK, bpf_ktime_get_ns());
	if (e) {
		e->pid = child->pid;
		e->other = parent->pid;
		tell_task(e, child);
		bpf_ringbuf_submit(e, 0);
	}
	if (child->nr_cpus_allowed < nr_online)
		tell_allowed(c, child, &child->cpus_mask);
	return 0;
}

/*
 * The first process existed before the measurement: it is known from its execve on, which
 * follows root_pid being set.
 */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *p)
{
	struct cpu_counters *c = mine();
	struct task_note *note;
	u64 now;

	if (!c || !root_pid || p->tgid != root_pid || root_exec_ns)
		return 0;
	now = bpf_ktime_get_ns();
	root_exec_ns = now;
	note = bpf_task_storage_get(&notes, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!note) {
		c->lost++;
		return 0;
	}
	note->since_ns = now;
	note->ran = true;
	note->running = true;
	note->last_cpu = bpf_get_smp_processor_id();
	tell(c, EVENT_EXEC, p, now);
	if (p->nr_cpus_allowed < nr_online)
		tell_allowed(c, p, &p->cpus_mask);
	if (tells) {
		note->starter = true;
		tell(c, EVENT_STARTER, p, now);
		return 0;
	}
	note->begun = true;
	began_ns = now;
	tell(c, EVENT_BEGIN, p, now);
	becomes_runnable(note);
	__sync_fetch_and_add(&nr_live, 1);
	return 0;
}

/*
 * The program of a workload announces by its processes' names what no other event shows:
 * which of them only start and await tasks, when the tasks may begin, and when their time is over.
 */
SEC("tp_btf/task_rename")
int BPF_PROG(on_rename, struct task_struct *p, const char *comm)
{
	struct cpu_counters *c = mine();
	struct task_note *note;
	char name[16] = {};
	u64 now;

	if (!c || !tells)
		return 0;
	note = note_of(p);
	if (!note)
		return 0;
	now = bpf_ktime_get_ns();
	bpf_probe_read_kernel_str(name, sizeof(name), comm);
	if (!bpf_strncmp(name, sizeof(time_is_over), time_is_over)) {
		if (began_ns && !over_ns)
			over_ns = now;
		return 0;
	}
	if (p->pid != p->tgid)
		return 0;
	if (!bpf_strncmp(name, sizeof(starts_tasks), starts_tasks)) {
		if (note->starter)
			return 0;
		is_runnable_no_more(note);
		note->starter = true;
		tell(c, EVENT_STARTER, p, now);
		ends(now);
	} else if (!bpf_strncmp(name, sizeof(tasks_begin), tasks_begin)) {
		if (p->pid == root_pid && !began_ns) {
			began_ns = now;
			tell(c, EVENT_BEGIN, p, now);
		}
	}
	return 0;
}

/* The share that a task which ends got of the time that it wanted, in 1 / SERVICE_UNIT. */
static void count_service(struct cpu_counters *c, struct task_note *note)
{
	u64 got = note->served, wanted = note->wanted_ns, service, high, low;

	if (!wanted)
		return;
	/* Days need no nanoseconds, and the products must not overflow. */
	if (wanted >> 44) {
		wanted >>= 12;
		got >>= 12;
	}
	service = got / wanted * (SERVICE_UNIT / SERVED_UNIT) +
		  got % wanted * (SERVICE_UNIT / SERVED_UNIT) / wanted;
	/* The least weight makes more of it than 32 bits hold. */
	high = service >> 32;
	low = (u32)service;
	c->tasks_ended++;
	c->service_sum += service;
	c->service_squares_high += (high * high << 32) + 2 * high * low + (low * low >> 32);
	c->service_squares_low += (u32)(low * low);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *p)
{
	struct cpu_counters *c = mine();
	struct task_note *note;
	struct event *e;
	u64 now;

	if (!c)
		return 0;
	note = note_of(p);
	if (!note)
		return 0;
	now = bpf_ktime_get_ns();
	begins(note);
	charge(p, note, now);
	if (began_ns && !note->starter)
		count_service(c, note);
	if (!note->starter)
		ends(now);
	/* Its first thread may end long before the others. */
	if (p->tgid == root_pid && !p->signal->live.counter)
		root_exit_ns = now;
	e = over_ns ? NULL : new_event(c, EVENT_EXIT, now);
	if (e) {
		e->pid = p->pid;
		bpf_ringbuf_submit(e, 0);
	}
	return 0;
}

/* Its weight and its priority are about to change. */
SEC("fentry/set_user_nice")
int BPF_PROG(on_nice, struct task_struct *p)
{
	struct task_note *note = concerned(p);

	if (!note)
		return 0;
	charge(p, note, bpf_ktime_get_ns());
	waits_no_more(note);
	return 0;
}

SEC("fexit/set_user_nice")
int BPF_PROG(after_nice, struct task_struct *p)
{
	struct task_note *note = concerned(p);
	struct cpu_counters *c = mine();

	if (!note || !c)
		return 0;
	if (note->waiting)
		begins_to_wait(p, note);
	tell(c, EVENT_PRIO, p, bpf_ktime_get_ns());
	return 0;
}

/* Its CPUs are about to change, under the lock of its run queue. */
SEC("fentry/set_cpus_allowed_common")
int BPF_PROG(on_allowed, struct task_struct *p, struct affinity_context *change)
{
	struct cpu_counters *c = mine();

	if (c && stream && !over_ns && note_of(p))
		tell_allowed(c, p, change->new_mask);
	return 0;
}

/* A waker decides to wake it. sched_wakeup follows once it is runnable, maybe on another CPU. */
SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *p)
{
	struct task_note *note = concerned(p);

	if (note) {
		note->waking_ns = bpf_ktime_get_ns();
		note->waking_cpu = bpf_get_smp_processor_id();
	}
	return 0;
}

static int woken(struct task_struct *p, u32 kind)
{
	struct task_note *note = concerned(p);
	struct cpu_counters *c = mine();
	struct event *e;
	u64 now;

	if (!c)
		return 0;
	if (!note)
		return 0;
	now = bpf_ktime_get_ns();
	/* No waker is known for a new task, or before the events were followed. */
	if (kind != EVENT_WAKEUP || !note->waking_ns) {
		note->waking_ns = now;
		note->waking_cpu = bpf_get_smp_processor_id();
	}
	e = new_event(c, kind, now);
	if (e) {
		e->pid = p->pid;
		e->other = p->thread_info.cpu;
		e->since_ns = note->waking_ns;
		e->from = note->waking_cpu;
		bpf_ringbuf_submit(e, 0);
	}
	becomes_runnable(note);
	/* One that is woken before it has left its CPU does not wait. */
	if (!note->running && !note->waiting) {
		note->waiting = true;
		note->woken = kind == EVENT_WAKEUP && !note->fresh;
		/* From the decision on, but not before it had left its CPU. */
		if (note->waking_ns < note->since_ns)
			note->waking_ns = note->since_ns;
		note->since_ns = note->waking_ns;
		begins_to_wait(p, note);
	}
	note->fresh = false;
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *p)
{
	return woken(p, EVENT_WAKEUP);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *p)
{
	return woken(p, EVENT_WAKEUP_NEW);
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_migrate, struct task_struct *p, int dest_cpu)
{
	u32 from = p->thread_info.cpu, to = dest_cpu;
	struct task_note *note = concerned(p);
	struct cpu_counters *c = mine();
	struct event *e;

	if (!c)
		return 0;
	if (!note)
		return 0;
	/* Where a task begins is no migration. */
	if (!counts_for(note) || note->fresh) {
		/* Told, but not counted. */
	} else if (from < MAX_CPUS && to < MAX_CPUS) {
		const volatile struct place *a, *b;

		/* The verifier loses the comparison; the compiler must not drop the masks for it. */
		barrier_var(from);
		barrier_var(to);
		a = &places[from & (MAX_CPUS - 1)];
		b = &places[to & (MAX_CPUS - 1)];
		if (a->core == b->core)
			c->migrations[REACH_SMT]++;
		else if (a->llc == b->llc)
			c->migrations[REACH_LLC]++;
		else if (a->node == b->node)
			c->migrations[REACH_NODE]++;
		else
			c->migrations[REACH_REMOTE]++;
	} else {
		c->lost++;
	}
	e = new_event(c, EVENT_MIGRATE, bpf_ktime_get_ns());
	if (e) {
		e->pid = p->pid;
		e->from = from;
		e->other = to;
		bpf_ringbuf_submit(e, 0);
	}
	return 0;
}

/* Tells a yield from a preemption; without it both are involuntary. */
SEC("fentry/do_sched_yield")
int BPF_PROG(on_yield)
{
	struct task_note *note;

	if (!counting)
		return 0;
	note = note_of(bpf_get_current_task_btf());
	if (note)
		note->yielding = true;
	return 0;
}

SEC("fexit/do_sched_yield")
int BPF_PROG(after_yield)
{
	struct task_note *note;

	if (!counting)
		return 0;
	note = note_of(bpf_get_current_task_btf());
	if (note)
		note->yielding = false;
	return 0;
}

/* How the task of @note leaves its CPU. */
static enum left_as left_as(struct task_note *note, bool preempted, u32 state)
{
	if (preempted || (!state && !note->yielding))
		return LEFT_PREEMPTED;
	if (!state)
		return LEFT_YIELDED;
	/* TASK_DEAD, EXIT_DEAD, EXIT_ZOMBIE: kernel's include/linux/sched.h */
	return state & (0x80 | 0x10 | 0x20) ? LEFT_EXITED : LEFT_BLOCKED;
}

static void leaves(struct cpu_counters *c, struct task_struct *p, struct task_note *note,
		   enum left_as left, u64 now)
{
	charge(p, note, now);
	note->running = false;
	note->woken = false;
	note->waiting = left == LEFT_PREEMPTED || left == LEFT_YIELDED;
	if (note->waiting)
		begins_to_wait(p, note);
	else
		is_runnable_no_more(note);
	if (!counts_for(note))
		return;
	if (!note->waiting)
		c->switches_voluntary++;
	else
		c->switches_involuntary++;
	if (left == LEFT_YIELDED)
		c->switches_yielded++;
}

static void count_latency(struct cpu_counters *c, u64 ns)
{
	u32 bucket = bucket_of(ns);
	u64 *count = bpf_map_lookup_elem(&wakeup_latency, &bucket);

	c->latency_count++;
	c->latency_sum_ns += ns;
	if (ns > c->latency_max_ns)
		c->latency_max_ns = ns;
	if (count)
		(*count)++;
	else
		c->lost++;
}

static void starts(struct cpu_counters *c, struct task_struct *p, struct task_note *note, u64 now)
{
	u32 cpu = bpf_get_smp_processor_id();

	charge(p, note, now);
	waits_no_more(note);
	if (counts_for(note)) {
		c->switches_in++;
		if (better_one_waits(prio_of(p), cpu))
			c->inversions++;
		if (note->ran && note->last_cpu != cpu)
			c->elsewhere++;
		if (note->woken)
			count_latency(c, now - note->waking_ns);
	}
	note->last_cpu = cpu;
	note->ran = true;
	note->running = true;
	note->waiting = false;
	note->woken = false;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	struct cpu_counters *c = mine();
	struct task_note *from, *to;
	enum left_as left = LEFT_BLOCKED;
	struct event *e;
	u64 now;

	if (!c)
		return 0;
	now = bpf_ktime_get_ns();
	if (!prev->pid)
		c->idle_ns += counted_ns(c->last_switch_ns, now, ended());
	c->last_switch_ns = now;
	c->idle_now = !next->pid;
	if (over_ns)
		return 0;
	if (next->pid && counts())
		c->switches_all++;

	from = prev->pid ? note_of(prev) : NULL;
	to = next->pid ? note_of(next) : NULL;
	if (from)
		begins(from);
	if (to)
		begins(to);
	if (counts_for(from) || counts_for(to))
		count_runnable(c);
	if (from) {
		left = left_as(from, preempt, prev_state);
		leaves(c, prev, from, left, now);
	}
	if (to)
		starts(c, next, to, now);
	if (!from && !to)
		return 0;
	e = new_event(c, EVENT_SWITCH, now);
	if (e) {
		e->pid = from ? prev->pid : 0;
		e->other = to ? next->pid : 0;
		e->left_as = left;
		tell_task(e, next);
		bpf_ringbuf_submit(e, 0);
	}
	return 0;
}

/* A reschedule interrupt is the one IPI without a function to call (smp_send_reschedule()). */
SEC("tp_btf/ipi_send_cpu")
int BPF_PROG(on_ipi, unsigned int cpu, unsigned long callsite, void *callback)
{
	struct cpu_counters *c = mine();
	struct event *e;

	if (!c || callback || !counts())
		return 0;
	c->reschedule_ipis++;
	e = new_event(c, EVENT_IPI, bpf_ktime_get_ns());
	if (e) {
		e->other = cpu;
		bpf_ringbuf_submit(e, 0);
	}
	return 0;
}

/* LCB_F_* of the kernel's include/trace/events/lock.h */
enum { F_SPIN = 1, F_RT = 8, F_PERCPU = 16, F_MUTEX = 32 };

SEC("tp_btf/contention_begin")
int BPF_PROG(on_contention, void *lock, unsigned int flags)
{
	struct cpu_counters *c = mine();
	u32 depth;

	if (!c || !counts() || !(flags & F_SPIN) || (flags & (F_RT | F_PERCPU | F_MUTEX)))
		return 0;
	depth = c->depth;
	if (depth >= WAIT_DEPTH) {
		c->lost++;
		return 0;
	}
	c->waits[depth].lock = (u64)lock;
	c->waits[depth].since_ns = bpf_ktime_get_ns();
	c->depth = depth + 1;
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(on_contention_end, void *lock, int ret)
{
	struct cpu_counters *c = mine();
	u64 address = (u64)lock;
	u64 waited;
	u32 depth;

	if (!c || !counts())
		return 0;
	depth = c->depth - 1;
	if (depth >= WAIT_DEPTH || c->waits[depth].lock != address)
		return 0;
	c->depth = depth;
	waited = bpf_ktime_get_ns() - c->waits[depth].since_ns;
	if (bpf_map_lookup_elem(&rq_locks, &address)) {
		c->rq_contentions++;
		c->rq_wait_sum_ns += waited;
		if (waited > c->rq_wait_max_ns)
			c->rq_wait_max_ns = waited;
	} else {
		c->spin_contentions++;
		c->spin_wait_sum_ns += waited;
		if (waited > c->spin_wait_max_ns)
			c->spin_wait_max_ns = waited;
	}
	return 0;
}

/* Run once, before counting: notes where the rq locks are. Returns how many. */
SEC("syscall")
int find_rq_locks(void *ctx)
{
	u32 cpu, found = 0;
	struct rq *rq;
	u64 address;

	if (!&runqueues)
		return 0;
	bpf_for(cpu, 0, nr_cpus) {
		rq = (void *)bpf_per_cpu_ptr(&runqueues, cpu);
		if (!rq)
			continue;
		address = (u64)&rq->__lock;
		if (!bpf_map_update_elem(&rq_locks, &address, &cpu, BPF_ANY))
			found++;
	}
	return found;
}
