/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Measures what a scheduler does to a workload, from the kernel's own tracepoints.
 *
 * The workload is the process that the runner names in root_pid and everything it starts.
 * Counters are kept per CPU, so that measuring shares no cache line between CPUs; events are
 * streamed only where the runner asks for them.
 */
#include <scx/common.bpf.h>
#include "measure.h"

char _license[] SEC("license") = "GPL";

/* Whether events are written to the ring buffer. */
const volatile bool stream;
/* How many possible CPUs there are. */
const volatile u32 nr_cpus = 1;

/* The workload's first process; 0: not started yet. */
u32 root_pid;
/* Counting begins when the runner sets this. */
bool counting;

/* Of each task of the workload. */
struct task_note {
	u64 woken_ns;	/* 0: not waiting to run after a wakeup */
	bool yielding;	/* inside sched_yield() */
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

/* The histogram bucket of @ns, and its inverse is measure.rs' bucket_range(). */
static u32 bucket_of(u64 ns)
{
	u32 octave;

	if (ns < (1 << HIST_STEP_BITS))
		return ns;
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
	e = new_event(c, EVENT_FORK, bpf_ktime_get_ns());
	if (e) {
		e->pid = child->pid;
		e->other = parent->pid;
		bpf_probe_read_kernel_str(e->comm, sizeof(e->comm), child->comm);
		bpf_ringbuf_submit(e, 0);
	}
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

	if (!c || !root_pid || p->tgid != root_pid)
		return 0;
	if (!bpf_task_storage_get(&notes, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE))
		c->lost++;
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *p)
{
	struct cpu_counters *c = mine();
	struct event *e;

	if (!c || !note_of(p))
		return 0;
	e = new_event(c, EVENT_EXIT, bpf_ktime_get_ns());
	if (e) {
		e->pid = p->pid;
		bpf_ringbuf_submit(e, 0);
	}
	return 0;
}

static int woken(struct task_struct *p, u32 kind)
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
	c->wakeups++;
	note->woken_ns = now;
	e = new_event(c, kind, now);
	if (e) {
		e->pid = p->pid;
		e->other = p->thread_info.cpu;
		bpf_ringbuf_submit(e, 0);
	}
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
	struct cpu_counters *c = mine();
	struct event *e;

	if (!c || !note_of(p))
		return 0;
	c->migrations++;
	e = new_event(c, EVENT_MIGRATE, bpf_ktime_get_ns());
	if (e) {
		e->pid = p->pid;
		e->from = p->thread_info.cpu;
		e->other = dest_cpu;
		bpf_ringbuf_submit(e, 0);
	}
	return 0;
}

/* Tells a yield from a preemption; without it both are involuntary. */
SEC("fentry/__x64_sys_sched_yield")
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

SEC("fexit/__x64_sys_sched_yield")
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

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	struct cpu_counters *c = mine();
	struct task_note *from, *to;
	u32 left = LEFT_BLOCKED;
	struct event *e;
	u64 now, waited;
	u32 bucket;
	u64 *count;

	if (!c)
		return 0;
	now = bpf_ktime_get_ns();
	if (!prev->pid)
		c->idle_ns += now - c->last_switch_ns;
	c->last_switch_ns = now;
	c->idle_now = !next->pid;
	if (next->pid)
		c->switches_all++;

	from = prev->pid ? note_of(prev) : NULL;
	to = next->pid ? note_of(next) : NULL;
	if (from) {
		if (preempt || !prev_state) {
			c->switches_involuntary++;
			left = LEFT_PREEMPTED;
			if (from->yielding && !preempt) {
				c->switches_yielded++;
				left = LEFT_YIELDED;
			}
		} else {
			c->switches_voluntary++;
			/* TASK_DEAD, EXIT_DEAD, EXIT_ZOMBIE: kernel's include/linux/sched.h */
			if (prev_state & (0x80 | 0x10 | 0x20))
				left = LEFT_EXITED;
		}
	}
	if (to) {
		c->switches_in++;
		if (to->woken_ns) {
			waited = now - to->woken_ns;
			to->woken_ns = 0;
			c->latency_count++;
			c->latency_sum_ns += waited;
			if (waited > c->latency_max_ns)
				c->latency_max_ns = waited;
			bucket = bucket_of(waited);
			count = bpf_map_lookup_elem(&wakeup_latency, &bucket);
			if (count)
				(*count)++;
			else
				c->lost++;
		}
	}
	if (!from && !to)
		return 0;
	e = new_event(c, EVENT_SWITCH, now);
	if (e) {
		e->pid = prev->pid;
		e->other = next->pid;
		e->left_as = left;
		bpf_probe_read_kernel_str(e->comm, sizeof(e->comm), next->comm);
		bpf_ringbuf_submit(e, 0);
	}
	return 0;
}

/* A reschedule interrupt is the one IPI without a function to call (smp_send_reschedule()). */
SEC("tp_btf/ipi_send_cpu")
int BPF_PROG(on_ipi, unsigned int cpu, unsigned long callsite, void *callback)
{
	struct cpu_counters *c = mine();

	if (c && !callback)
		c->reschedule_ipis++;
	return 0;
}

/* LCB_F_* of the kernel's include/trace/events/lock.h */
enum { F_SPIN = 1, F_RT = 8, F_PERCPU = 16, F_MUTEX = 32 };

SEC("tp_btf/contention_begin")
int BPF_PROG(on_contention, void *lock, unsigned int flags)
{
	struct cpu_counters *c = mine();
	u32 depth;

	if (!c || !(flags & F_SPIN) || (flags & (F_RT | F_PERCPU | F_MUTEX)))
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

	if (!c)
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

	bpf_for(cpu, 0, nr_cpus) {
		rq = bpf_per_cpu_ptr(&runqueues, cpu);
		if (!rq)
			continue;
		address = (u64)&rq->__lock;
		if (!bpf_map_update_elem(&rq_locks, &address, &cpu, BPF_ANY))
			found++;
	}
	return found;
}
