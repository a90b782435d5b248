/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * MuQSS, the multiple queue skip list scheduler of C. Kolivas: BFS's successor.
 *
 * Idea: slices and virtual deadlines as in BFS, but a queue and a lock for each
 * group of CPUs, and each queue a skip list sorted by deadline: the first is at
 * hand, and adding does not look at all that wait. A CPU looks at the first task
 * of every queue without a lock, the nearest queues first, and takes the earliest
 * deadline if it gets that queue's lock at once; if not, it does without.
 *
 * Good for: the latency of BFS with more tasks and more CPUs than it can bear.
 *
 * Bad for: caches, as a task goes wherever its deadline is the earliest
 * (`interactive=false` helps); very many CPUs, since each choice looks at all queues.
 *
 * Source: C. Kolivas, the design document and patches of MuQSS, 2016 to 2021, as
 * described in sched-MuQSS.txt; docs/schedulers/muqss.md restates the rules.
 *
 * Simplifications: as in bfs. What a queue shows is its first task's key; that the
 * task may not run on the CPU that looks is found out under the lock.
 */
#include <lab/lab.bpf.h>
#include <lab/deadline.h>
#include <lab/skiplist.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

/* Slice of every task and the unit of deadlines, in ms (1 to 1000). */
const volatile u32 rr_interval = 6;

/* Percentage of all CPU time that soft real-time tasks may have, over five seconds (0 to 100). */
const volatile u32 iso_cpu = 70;

enum muqss_share { SHARE_NONE, SHARE_SMT, SHARE_MC };

/* The CPUs that share a queue: none, the threads of a core, or the CPUs of a last-level cache. */
const volatile enum muqss_share rqshare = SHARE_MC;

/* Whether a CPU takes the earliest deadline of all; otherwise only from queues with more tasks. */
const volatile bool interactive = true;

/* First tasks of another queue that are looked at for one that may run on the CPU. */
#define MUQSS_LOOKS		8

/* Nothing waits in a queue. */
#define MUQSS_NONE		(~0ull)

struct muqss_task {
	union {
		struct lab_task lab;
		struct dl_task dl;
	};
	struct lab_skip_node node;
};

LAB_TASKS(struct muqss_task);

struct muqss_queue {
	struct lab_lock lock;
	/* Others read this line without the lock. */
	u64 first __attribute__((aligned(LAB_CACHELINE)));	/* least key, MUQSS_NONE: nothing waits */
	u64 nr;			/* tasks that wait */
	struct lab_skip_list list __attribute__((aligned(LAB_CACHELINE)));
} __attribute__((aligned(LAB_CACHELINE)));

typedef struct muqss_queue __arena queue_t;

/* Of a group of CPUs that share one, it is the first one's, in the order of <lab/topology.h>. */
struct muqss_queue __arena_global queues[LAB_MAX_CPUS];

/*
 * Keys: by class, then by deadline.
 */

static __always_inline u64 muqss_key(u32 level, u64 deadline)
{
	if (level <= DL_LEVEL_ISO)
		return level;
	return (deadline & ((1ull << 62) - 1)) | 1ull << 62;
}

static __always_inline u64 muqss_key_of(task_t *t)
{
	return muqss_key(t->dl.level, dl_due(&t->dl));
}

/*
 * Queues.
 */

static __always_inline enum lab_level muqss_level(void)
{
	return rqshare == SHARE_MC ? LAB_LEVEL_LLC : LAB_LEVEL_CORE;
}

/* The first CPU of those that share a CPU's queue. */
static __always_inline s32 muqss_leader(s32 cpu)
{
	if (rqshare == SHARE_NONE)
		return cpu;
	return lab_cpu_at(lab_place_of(cpu)->begin[muqss_level()]);
}

static __always_inline queue_t *queue_at(s32 cpu)
{
	return &queues[cpu & (LAB_MAX_CPUS - 1)];
}

/* Tasks that wait in the queue that a CPU looks into first. */
static __always_inline u64 muqss_nr_waiting(s32 cpu)
{
	return lab_read(queue_at(muqss_leader(cpu))->nr);
}

LAB_RESCUE(muqss_nr_waiting, dl_cpu_idle, dl_rescue);

/* Lock held: shows what waits. */
static __always_inline void muqss_show(queue_t *q)
{
	lab_skip_node_t *first = lab_skip_first(&q->list);

	lab_touch(&q->first, true);
	lab_write(q->nr, q->list.nr);
	/* Model: nothing is charged for a look at the first. */
	lab_write(q->first, first ? lab_unaudited(first->key) : MUQSS_NONE);
}

static __always_inline void muqss_link(queue_t *q, task_t *t)
{
	alter(t);
	t->node.key = muqss_key_of(t);
	if (!lab_skip_add(&q->list, &t->node)) {
		scx_bpf_error("a queue of %llu tasks: the loop budget ran out", q->list.nr);
		return;
	}
	t->dl.queued = true;
	muqss_show(q);
}

static __always_inline void muqss_unlink(queue_t *q, task_t *t)
{
	alter(t);
	lab_skip_del(&q->list, &t->node);
	t->dl.queued = false;
	muqss_show(q);
}

/* A task leaves its queue if it waits. It never moves from queue to queue while it does. */
static __noinline int muqss_remove(task_t *t)
{
	unsigned long flags;
	queue_t *q;

	lab_use_arena();
	if (!lab_read(t->dl.queued))
		return 0;
	q = queue_at(t->dl.home);
	if (!lab_lock_irqsave(&q->lock, flags))
		return 0;
	if (t->dl.queued)
		muqss_unlink(q, t);
	lab_unlock_irqrestore(&q->lock, flags);
	return 0;
}

/* The result of a choice. In the arena, so that the verifier follows no values. */
struct muqss_choice {
	task_t *task;		/* NULL: none, or the previous one */
	queue_t *from;		/* where it waits; locked */
	u64 key;		/* to be beaten */
	task_t *found;		/* of the queue that was looked at last */
	u64 looks;		/* that are left there */
} __attribute__((aligned(LAB_CACHELINE)));

struct muqss_choice __arena_global choices[LAB_MAX_CPUS];

/*
 * The first task of a queue that may run on the CPU, among the first @looks, if
 * its key is less than @below; lock held. The CPU's choice receives where it is.
 */
LAB_PART int muqss_find(queue_t *q __arg_arena, s32 cpu, u64 below, u64 looks)
{
	struct muqss_choice __arena *choice;
	lab_skip_node_t *pos;
	task_t *t;

	lab_use_arena();
	choice = &choices[cpu & (LAB_MAX_CPUS - 1)];
	choice->found = NULL;
	choice->looks = looks;
	/* Model: nothing is charged for a look at the one whose key ends the walk. */
	for (pos = lab_skip_first(&q->list); pos && lab_unaudited(pos->key) < below && can_loop;
	     pos = lab_skip_next(&q->list, pos)) {
		t = lab_entry(pos, struct muqss_task, node);
		examine(t);
		if (lab_allowed(&t->lab, cpu)) {
			choice->found = t;
			break;
		}
		if (!--choice->looks)
			break;
	}
	return 0;
}

static __always_inline task_t *muqss_best(queue_t *q, s32 cpu, u64 below, u64 looks)
{
	muqss_find(q, cpu, below, looks);
	return choices[cpu & (LAB_MAX_CPUS - 1)].found;
}

/* Looks at the queue of another group. Its lock is kept if it has the best task so far. */
static __noinline int muqss_look(s32 cpu, s32 other, u64 nr)
{
	struct muqss_choice __arena *choice;
	queue_t *q, *own;
	task_t *t;

	lab_use_arena();
	choice = &choices[cpu & (LAB_MAX_CPUS - 1)];
	own = queue_at(muqss_leader(cpu));
	q = queue_at(other);
	lab_touch(&q->first, false);
	if (lab_read(q->first) >= choice->key)
		return 0;
	/* For throughput, tasks leave only where more wait, or where a higher class runs. */
	if (!interactive && lab_read(q->nr) <= nr && !lab_cpu_taken(other))
		return 0;
	if (!lab_trylock(&q->lock))
		return 0;
	t = muqss_best(q, cpu, choice->key, MUQSS_LOOKS);
	if (!t) {
		lab_unlock(&q->lock);
		return 0;
	}
	if (choice->from && choice->from != own)
		lab_unlock(&choice->from->lock);
	choice->task = t;
	choice->from = q;
	choice->key = t->node.key;
	return 0;
}

/*
 * The task with the least key: of the own queue, whose lock is held, or of
 * another, the nearest first; NULL if @prev has it or nobody waits.
 */
static __noinline int muqss_choose(s32 cpu, task_t *prev)
{
	u32 level, i, begin, end, but, until;
	struct muqss_choice __arena *choice;
	lab_place_t *place;
	queue_t *own;
	s32 other;
	task_t *t;
	u64 nr;

	lab_use_arena();
	choice = &choices[cpu & (LAB_MAX_CPUS - 1)];
	own = queue_at(muqss_leader(cpu));
	choice->task = NULL;
	choice->from = NULL;
	choice->key = MUQSS_NONE;
	if (prev) {
		examine(prev);
		choice->key = muqss_key_of(prev);
	}
	/* Among equals of real time those that wait come first if the slice is used up. */
	t = muqss_best(own, cpu, prev && dl_used_up(&prev->dl) ? choice->key + 1 : choice->key, ~0ull);
	if (t) {
		choice->task = t;
		choice->from = own;
		choice->key = t->node.key;
	}
	nr = own->list.nr + !!prev;
	place = lab_place_of(cpu);
	but = place->at;
	until = but + 1;
	bpf_for(level, 0, LAB_NR_LEVELS) {
		begin = place->begin[level & (LAB_NR_LEVELS - 1)];
		end = place->end[level & (LAB_NR_LEVELS - 1)];
		bpf_for(i, begin, end) {
			if (i >= but && i < until)
				continue;
			other = lab_cpu_at(i);
			/* Each queue once, and not the own one. */
			if (muqss_leader(other) == other && queue_at(other) != own)
				muqss_look(cpu, other, nr);
		}
		but = begin;
		until = end;
	}
	return 0;
}

/*
 * Ops, in the order of a task's life.
 */

s32 BPF_STRUCT_OPS_SLEEPABLE(muqss_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	task_t *t = task_new(p);

	if (!t)
		return -ENOMEM;
	lab_note_higher(p);
	dl_init_task(&t->dl, p, dl_forker(args), rr_interval);
	return 0;
}

/* The closest idle CPU, else the one it last ran on: others look into its queue anyway. */
s32 BPF_STRUCT_OPS(muqss_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	task_t *t = task_of(p);
	s32 cpu;

	if (!t)
		return prev_cpu;
	cpu = dl_idle_cpu(&t->dl);
	return cpu >= 0 ? cpu : prev_cpu;
}

void BPF_STRUCT_OPS(muqss_enqueue, struct task_struct *p, u64 enq_flags)
{
	task_t *t = task_of(p);
	unsigned long flags;
	queue_t *q;
	bool woken;
	s32 home;

	if (!t) {
		lab_no_context(p);
		return;
	}
	muqss_remove(t);
	/* It was chosen, but the choice came to nothing. */
	dl_forget(&t->dl);
	home = muqss_leader(scx_bpf_task_cpu(p));
	q = queue_at(home);
	if (!lab_lock_irqsave(&q->lock, flags))
		return;
	woken = t->dl.asleep;
	t->dl.home = home;
	dl_refresh(&t->dl, p);
	if (woken)
		dl_wake(&t->dl);
	muqss_link(q, t);
	lab_unlock_irqrestore(&q->lock, flags);
	dl_tell(&t->dl, woken);
}

/* A waiting task is taken away, or an attribute of it changes; then it is enqueued again. */
void BPF_STRUCT_OPS(muqss_dequeue, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	/* Tasks that dispatch has chosen come here too; they are no longer in a queue. */
	if (t)
		muqss_remove(t);
}

/* schedule() */
void BPF_STRUCT_OPS(muqss_dispatch, s32 cpu, struct task_struct *prev_p)
{
	struct muqss_choice __arena *choice;
	queue_t *own, *from;
	task_t *prev = NULL, *t = NULL;
	dl_cpu_t *c = dl_cpu_at(cpu);
	u64 now = scx_bpf_now();
	struct task_struct *p;
	unsigned long flags;
	bool settled = false;

	lab_use_arena();
	choice = &choices[cpu & (LAB_MAX_CPUS - 1)];
	own = queue_at(muqss_leader(cpu));
	if (prev_p && (prev_p->scx.flags & SCX_TASK_QUEUED))
		prev = task_of(prev_p);
	if (!lab_lock_irqsave(&own->lock, flags))
		return;
	lab_count(LAB_SCHEDULES, 1);
	if (prev) {
		dl_charge(&prev->dl, now, iso_cpu);
		prev->dl.level = dl_level(prev->dl.policy, prev->dl.rt_priority, dl_iso_refused());
		if (prev->dl.level >= DL_LEVEL_NORMAL && dl_used_up(&prev->dl))
			dl_renew(&prev->dl, now, rr_interval);
	}
	while (can_loop) {
		muqss_choose(cpu, prev);
		t = choice->task;
		from = choice->from;
		if (!t) {
			settled = true;
			break;
		}
		p = lab_task_claim(&t->lab, cpu);
		/* If not, whatever made it so enqueues it again. */
		muqss_unlink(from, t);
		if (from != own)
			lab_unlock(&from->lock);
		if (!p)
			continue;
		if (t->lab.cpu != cpu)
			lab_count(LAB_PICKED_ELSEWHERE, 1);
		if (prev && dl_used_up(&prev->dl))
			dl_refill(&prev->dl, rr_interval);
		t->lab.cpu = cpu;
		t->dl.started_ns = now;
		dl_show(c, &t->dl);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, LAB_LONG_SLICE_NS, 0);
		bpf_task_release(p);
		lab_unlock_irqrestore(&own->lock, flags);
		return;
	}
	if (!settled) {
		lab_unlock_irqrestore(&own->lock, flags);
		scx_bpf_error("the loop budget ran out before a choice");
		return;
	}
	if (prev && dl_used_up(&prev->dl))
		dl_refill(&prev->dl, rr_interval);
	dl_show(c, prev ? &prev->dl : NULL);
	lab_unlock_irqrestore(&own->lock, flags);
	if (prev && prev_p)
		scx_bpf_task_set_slice(prev_p, LAB_LONG_SLICE_NS);
}

void BPF_STRUCT_OPS(muqss_running, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	muqss_remove(t);
	dl_running(&t->dl);
}

void BPF_STRUCT_OPS(muqss_tick, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (t)
		dl_tick(&t->dl, p, iso_cpu);
}

bool BPF_STRUCT_OPS(muqss_yield, struct task_struct *from, struct task_struct *to)
{
	task_t *t = task_of(from);

	if (!t || to)
		return false;
	return dl_yield(&t->dl, from);
}

/* A nice level counts from the next deadline on. */
void BPF_STRUCT_OPS(muqss_set_weight, struct task_struct *p, u32 weight)
{
	task_t *t = task_of(p);

	if (t)
		t->dl.nice = p->static_prio - 120;
}

void BPF_STRUCT_OPS(muqss_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	task_t *t = task_of(p);

	if (t)
		lab_task_refresh(&t->lab, p);
}

void BPF_STRUCT_OPS(muqss_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	lab_cpu_release();
}

void BPF_STRUCT_OPS(muqss_stopping, struct task_struct *p, bool runnable)
{
	task_t *t = task_of(p);
	unsigned long flags;

	if (!t)
		return;
	lab_irq_save(flags);
	dl_charge(&t->dl, scx_bpf_now(), iso_cpu);
	lab_irq_restore(flags);
}

void BPF_STRUCT_OPS(muqss_quiescent, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		dl_quiescent(&t->dl, deq_flags);
}

/* It leaves for a scheduling class that is not ours. */
void BPF_STRUCT_OPS(muqss_disable, struct task_struct *p)
{
	task_t *t = task_of(p);

	lab_note_higher(p);
	if (!t)
		return;
	muqss_remove(t);
	dl_forget(&t->dl);
}

void BPF_STRUCT_OPS(muqss_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	muqss_remove(t);
	dl_forget(&t->dl);
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(muqss_init)
{
	int error = lab_init();
	queue_t *q;
	s32 cpu;

	if (!error)
		error = dl_init(rr_interval, iso_cpu);
	if (error)
		return error;
	bpf_for(cpu, 0, lab_nr_cpus) {
		q = queue_at(cpu);
		lab_lock_init(&q->lock, LAB_LOCK_CLASS_RUN_QUEUE);
		lab_skip_init(&q->list, cpu + 1);
		q->first = MUQSS_NONE;
		q->nr = 0;
	}
	return 0;
}

void BPF_STRUCT_OPS(muqss_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(muqss_ops,
	       .init_task		= (void *)muqss_init_task,
	       .select_cpu		= (void *)muqss_select_cpu,
	       .enqueue			= (void *)muqss_enqueue,
	       .dequeue			= (void *)muqss_dequeue,
	       .dispatch		= (void *)muqss_dispatch,
	       .running			= (void *)muqss_running,
	       .tick			= (void *)muqss_tick,
	       .yield			= (void *)muqss_yield,
	       .set_weight		= (void *)muqss_set_weight,
	       .set_cpumask		= (void *)muqss_set_cpumask,
	       .cpu_release		= (void *)muqss_cpu_release,
	       .stopping		= (void *)muqss_stopping,
	       .quiescent		= (void *)muqss_quiescent,
	       .disable			= (void *)muqss_disable,
	       .exit_task		= (void *)muqss_exit_task,
	       .init			= (void *)muqss_init,
	       .exit			= (void *)muqss_exit,
	       .name			= "muqss");
