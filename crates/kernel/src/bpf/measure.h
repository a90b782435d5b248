/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Data that measure.bpf.c shares with the program that reads it (crates/kernel/src/measure.rs,
 * which mirrors these layouts and checks their sizes against BTF).
 */
#ifndef SCHEDLAB_MEASURE_H
#define SCHEDLAB_MEASURE_H

/*
 * Log-linear histogram: 128 linear steps per power of two, so a bucket is at most 1/128 of its
 * values wide. The last bucket also takes what is 2^40 ns (18 minutes) or longer.
 */
enum { HIST_STEP_BITS = 7, HIST_BUCKETS = 34 << 7 };

/* Spinning lock waits that interrupts may nest on one CPU. Deeper ones are counted as lost. */
enum { WAIT_DEPTH = 8 };

/* How far a migration goes, in the order of schedlab_trace::MigrationReach. */
enum reach { REACH_SMT, REACH_LLC, REACH_NODE, REACH_REMOTE, NR_REACHES };

/* Where a CPU is; equal numbers mean the same core, cache or node. */
struct place {
	__u32 core;
	__u32 llc;
	__u32 node;
};

/* CPUs whose place can be recorded. */
enum { MAX_CPUS = 1024 };

/*
 * A task's service is its CPU time per weight in proportion to the time it wanted a CPU, in
 * 1 / SERVICE_UNIT: 67 at most (nice 19), and fine enough for a task of 16,000 on one CPU. The CPU
 * time per weight is kept in 1 / SERVED_UNIT ns, so that a switch rounds off less than 0.02 ns.
 */
enum { SERVICE_UNIT = 1 << 24, SERVED_UNIT = 64 };

/*
 * Names that threads of a workload's processes take (prctl(PR_SET_NAME)): this process only starts
 * and awaits tasks (set by its first thread); all tasks may begin (set by the first thread of the
 * first process); the time is over (set by each thread as it notices; the first counts). The same are
 * in crates/programs/src/sys.rs.
 */
#define NAME_STARTER	"load:starter"
#define NAME_BEGUN	"load:begun"
#define NAME_OVER	"load:over"

struct waiting {
	__u64 lock;
	__u64 since_ns;
};

/* Of one CPU. Counts are of the workload's tasks unless they say otherwise. */
struct cpu_counters {
	__u64 switches_voluntary;	/* away from a workload task that blocked or ended */
	__u64 switches_involuntary;	/* away from one that was still runnable */
	__u64 switches_yielded;		/* the part of those that had called sched_yield() */
	__u64 switches_in;		/* to a workload task */
	__u64 elsewhere;		/* the part of those that last ran on another CPU */
	__u64 inversions;		/* the part of those while a better one waited that may run there */
	__u64 lengths;			/* switches from or to a workload task */
	__u64 length_sum;		/* over those: how many workload tasks were runnable */
	__u64 length_max;
	__u64 switches_all;		/* to any task but the idle task */
	__u64 migrations[NR_REACHES];
	__u64 reschedule_ipis;		/* sent by this CPU, whatever caused them */
	__u64 latency_count;		/* sched_waking of a task that slept to running; new tasks are not counted */
	__u64 latency_sum_ns;
	__u64 latency_max_ns;
	__u64 rq_contentions;		/* waits for some CPU's rq lock, by any CPU */
	__u64 rq_wait_sum_ns;
	__u64 rq_wait_max_ns;
	__u64 spin_contentions;		/* waits for any other spinning lock of the kernel */
	__u64 spin_wait_sum_ns;
	__u64 spin_wait_max_ns;
	__u64 tasks_ended;		/* that are not real-time and ever wanted a CPU */
	__u64 service_sum;		/* over those: service, see above */
	__u64 service_squares_high;	/* sum of its squares' upper 32 bits */
	__u64 service_squares_low;	/* and of the lower ones */
	__u64 idle_ns;
	__u64 last_switch_ns;
	__u64 lost;			/* could not be recorded; then the measures it touches are absent */
	__u32 idle_now;
	__u32 depth;
	struct waiting waits[WAIT_DEPTH];
};

enum event_kind {
	EVENT_SWITCH = 1,
	EVENT_WAKEUP = 2,
	EVENT_WAKEUP_NEW = 3,
	EVENT_MIGRATE = 4,
	EVENT_FORK = 5,
	EVENT_EXIT = 6,
	EVENT_EXEC = 7,		/* the first process, which runs */
	EVENT_BEGIN = 8,	/* from now on things count */
	EVENT_STARTER = 9,	/* this task only starts and awaits others */
	EVENT_PRIO = 10,	/* it has another nice level */
	EVENT_IPI = 11,		/* a reschedule interrupt */
	EVENT_ALLOWED = 12,	/* the CPUs it may use: struct allowed_event */
};

/* Of struct event. */
enum event_flags { FLAG_IDLE_POLICY = 1 };

/* How the previous task left the CPU. */
enum left_as {
	LEFT_BLOCKED = 0,
	LEFT_EXITED = 1,
	LEFT_PREEMPTED = 2,
	LEFT_YIELDED = 3,
};

struct event {
	__u64 at_ns;
	__u32 kind;
	__u32 cpu;
	__u32 pid;		/* switch: the previous task; fork: the child. 0: idle, or none of the workload's */
	__u32 other;		/* switch: the next task; migrate, IPI: the new CPU; wakeup: its CPU; fork: the parent */
	__u32 left_as;		/* switch only */
	__u32 from;		/* migrate: the old CPU; wakeup: where somebody decided so */
	char comm[16];		/* fork: the child's name; switch: the next task's; exec: its own */
	__u64 since_ns;		/* wakeup: when somebody decided so */
	__u32 prio;		/* fork: the child's, switch: the next task's; as in the kernel */
	__u32 flags;		/* of whom prio is: enum event_flags */
};

struct allowed_event {
	struct event event;
	__u64 cpus[MAX_CPUS / 64];
};

#endif /* SCHEDLAB_MEASURE_H */
