/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The multi-queue scheduler with pools of CPUs.
 *
 * Idea: mq, but the global phase of a choice, and the search for a CPU, stay
 * inside a pool of CPUs: a NUMA node, unless one says otherwise. Now and then
 * tasks are moved from the most loaded pool to others.
 *
 * Good for: more CPUs than mq can look at in each choice; nodes whose memory
 * is dear to leave; anything between each CPU for itself and all together.
 *
 * Bad for: loads that come and go faster than the balancing.
 *
 * Source: pools: M. Kravetz, H. Franke, S. Nagar and R. Ravindran, Enhancing
 * Linux Scheduler Scalability, 2001; balancing between them: H. Franke et al.,
 * PMQS: Scalable Linux Scheduling for High End Servers, 2001;
 * docs/schedulers/mq-pool.md restates the rules.
 *
 * Simplifications: besides what mq says
 * - When the balancer moves what is not published; the rule is our proposal.
 *   It runs on the CPU that set the timer, for all pools.
 * - New tasks are not placed in the least loaded pool, as a mail of the
 *   authors has it: they start where they were forked.
 * - Memory does not follow a task to another node.
 */
#include <lab/lab.bpf.h>
#include <lab/mq.h>
#include <lab/periodic.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

/* Goodness by which a woken task must exceed the running one (0 to 1073741824). */
const volatile u32 threshold = 1;

/* The unit that uses up a tick of the counter: 10 ms of running time, or a timer tick. */
const volatile enum linux24_charge charge = CHARGE_RUNTIME;

enum mq_repairing { REPAIR_NONE, REPAIR_FIRST };

/* CPUs of a pool, which have consecutive numbers; 0: the CPUs of a NUMA node. */
const volatile u32 size = 0;

/* Time between two balancings of the pools, in milliseconds; 0: they are not balanced. */
const volatile u32 balance_ms = 500;

/* The value that a queue publishes after it was robbed: nothing, or the first task with ticks (later patches). */
const volatile enum mq_repairing repair = REPAIR_NONE;

/* Tasks that a pool must have more than another for some to move, and percent of the load. */
#define POOL_TASKS_MIN		2
#define POOL_PERCENT_MIN	25

/* The pool of a CPU. */
static __always_inline u32 pool_number(s32 cpu)
{
	return size ? cpu / size : __COMPAT_scx_bpf_cpu_node(cpu);
}

/* Runnable tasks in the queues of a pool, and its longest and shortest queue. */
struct pool_load {
	u32 nr;
	u32 cpus;		/* online */
	s32 longest;
	s32 shortest;
	u32 longest_nr;
	u32 shortest_nr;
} __attribute__((aligned(LAB_CACHELINE)));

typedef struct pool_load __arena load_t;

struct pool_load __arena_global loads[LAB_MAX_CPUS];

static __always_inline load_t *load_at(u32 pool)
{
	return &loads[pool & (LAB_MAX_CPUS - 1)];
}

/* Reads the lengths of a pool's queues. */
LAB_PART int pool_measure(u32 number)
{
	load_t *load = load_at(number);
	pool_t *pool = pool_at(number);
	queue_t *q;
	u32 i, nr;
	s32 cpu;

	lab_use_arena();
	load->nr = load->cpus = load->longest_nr = 0;
	load->shortest_nr = ~0u;
	load->longest = load->shortest = -1;
	for (i = pool->begin; i < pool->end && can_loop; i++) {
		cpu = cpu_in_order(i);
		if (!cpu_at(cpu)->online)
			continue;
		q = queue_at(cpu);
		lab_touch(&q->list.nr, false);
		nr = lab_read(q->list.nr);
		load->nr += nr;
		load->cpus++;
		if (nr > load->longest_nr) {
			load->longest_nr = nr;
			load->longest = cpu;
		}
		if (nr < load->shortest_nr) {
			load->shortest_nr = nr;
			load->shortest = cpu;
		}
	}
	return 0;
}

/* How many tasks should go from one pool to another. */
static __always_inline u32 pool_surplus(load_t *from, load_t *to)
{
	u64 share;

	if (!from->cpus || !to->cpus)
		return 0;
	/* The load that `from` would have with the load of `to`. */
	share = (u64)to->nr * from->cpus / to->cpus;
	if (from->nr < share + POOL_TASKS_MIN)
		return 0;
	if ((u64)from->nr * 100 <= share * (100 + POOL_PERCENT_MIN))
		return 0;
	return (from->nr - share) / 2;
}

/* The last task of a queue that waits and may run on another CPU goes there. */
LAB_PART int pool_move(s32 from, s32 to, u32 number)
{
	queue_t *q = queue_at(from);
	cpu_t *c = cpu_at(to);
	linux24_task_t *curr;
	unsigned long flags;
	bool moved = false;
	lab_node_t *pos;
	task_t *t;

	lab_use_arena();
	if (!lab_lock_irqsave(&q->lock, flags))
		return 0;
	if (!lab_trylock(&queue_at(to)->lock)) {
		lab_unlock_irqrestore(&q->lock, flags);
		return 0;
	}
	for (pos = q->list.head.prev; pos != &q->list.head && can_loop; pos = pos->prev) {
		t = lab_entry(pos, struct mq_task, lab.node);
		consult(t);
		if (!lab_glance(t->old.takeable) || !lab_allowed(&t->lab, to))
			continue;
		mq_move(t, to, number);
		moved = true;
		curr = lab_glance(c->curr);
		if (!curr)
			linux24_mark(to, true);
		else if (mq_advantage(t, (task_t *)curr, to, number) > (s32)threshold)
			linux24_mark(to, false);
		break;
	}
	lab_unlock(&queue_at(to)->lock);
	lab_unlock_irqrestore(&q->lock, flags);
	return moved;
}

/* One pool gets what it should have of another. */
LAB_PART int pool_pull(u32 from, u32 to)
{
	u32 surplus = pool_surplus(load_at(from), load_at(to)), number = mq_number();

	lab_use_arena();
	while (surplus-- > 0 && can_loop) {
		if (load_at(from)->longest < 0 || load_at(to)->shortest < 0 ||
		    !pool_move(load_at(from)->longest, load_at(to)->shortest, number))
			break;
		pool_measure(from);
		pool_measure(to);
	}
	return 0;
}

/* The pool with the most tasks per CPU; one without CPUs has no tasks. */
LAB_PART int pool_busiest(u32 pool, u32 nr)
{
	u32 other;

	lab_use_arena();
	bpf_for(other, 0, nr) {
		if ((u64)load_at(other)->nr * load_at(pool)->cpus >
		    (u64)load_at(pool)->nr * load_at(other)->cpus)
			pool = other;
	}
	return pool;
}

/* Balances the pools: each pulls from the most loaded. */
static void pool_balance(void)
{
	u32 pool, busiest, nr = 0;

	bpf_for(pool, 0, lab_nr_cpus) {
		pool_measure(pool);
		if (load_at(pool)->cpus)
			nr = pool + 1;
	}
	bpf_for(pool, 0, nr) {
		busiest = pool_busiest(pool, nr);
		if (busiest != pool)
			pool_pull(busiest, pool);
	}
}

LAB_PERIODIC(pool_balancer, pool_balance, balance_ms * 1000000ull);

/*
 * Ops, in the order of a task's life.
 */

/* fork(): parent and child share the parent's remaining ticks. */
s32 BPF_STRUCT_OPS_SLEEPABLE(mq_pool_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct task_struct *forker = bpf_get_current_task_btf();
	u32 number = mq_number();
	task_t *t = task_new(p);

	if (!t)
		return -ENOMEM;
	lab_note_higher(p);
	mq_fork(t, p, args, forker, number);
	return 0;
}

/* Only the previous CPU: where a task goes is settled under a lock, in enqueue. */
s32 BPF_STRUCT_OPS(mq_pool_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	task_t *t = task_of(p);

	if (t)
		linux24_woken(&t->old, wake_flags);
	return prev_cpu;
}

void BPF_STRUCT_OPS(mq_pool_enqueue, struct task_struct *p, u64 enq_flags)
{
	task_t *t = task_of(p);

	if (t)
		mq_queue(t, p, enq_flags, threshold);
	else
		lab_no_context(p);
}

void BPF_STRUCT_OPS(mq_pool_dequeue, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		mq_take_away(t, deq_flags);
}

void BPF_STRUCT_OPS(mq_pool_dispatch, s32 cpu, struct task_struct *prev)
{
	mq_schedule(cpu, prev, charge, repair == REPAIR_FIRST);
}

void BPF_STRUCT_OPS(mq_pool_running, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (t)
		mq_run(t, p);
}

void BPF_STRUCT_OPS(mq_pool_tick, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (t)
		mq_use_tick(t, p, charge);
}

/* sched_yield(): only if a task waits in the pool. */
bool BPF_STRUCT_OPS(mq_pool_yield, struct task_struct *from, struct task_struct *to)
{
	task_t *t = task_of(from);

	if (!t || to || !mq_others_wait())
		return false;
	linux24_yield(&t->old, from);
	return true;
}

/* Nice levels change without any queueing. */
void BPF_STRUCT_OPS(mq_pool_set_weight, struct task_struct *p, u32 weight)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	mq_catch_up(t, mq_number());
	linux24_set_nice(&t->old, p);
}

void BPF_STRUCT_OPS(mq_pool_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	task_t *t = task_of(p);

	if (t)
		lab_task_refresh(&t->lab, p);
}

void BPF_STRUCT_OPS(mq_pool_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	lab_cpu_release();
}

void BPF_STRUCT_OPS(mq_pool_stopping, struct task_struct *p, bool runnable)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	mq_catch_up(t, mq_number());
	linux24_charge_runtime(&t->old, scx_bpf_now(), charge);
}

void BPF_STRUCT_OPS(mq_pool_quiescent, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		mq_block(t, deq_flags);
}

/* It leaves for a scheduling class that is not ours. */
void BPF_STRUCT_OPS(mq_pool_disable, struct task_struct *p)
{
	task_t *t = task_of(p);

	lab_note_higher(p);
	if (t)
		mq_forget(t);
}

/* exit(): what is left of the ticks goes back to the task that forked it. */
void BPF_STRUCT_OPS(mq_pool_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	mq_forget(t);
	mq_collect(t);
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(mq_pool_init)
{
	int error = mq_init_queues(threshold, pool_number);

	if (error || !balance_ms)
		return error;
	return pool_balancer_start();
}

void BPF_STRUCT_OPS(mq_pool_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(mq_pool_ops,
	       .init_task		= (void *)mq_pool_init_task,
	       .select_cpu		= (void *)mq_pool_select_cpu,
	       .enqueue			= (void *)mq_pool_enqueue,
	       .dequeue			= (void *)mq_pool_dequeue,
	       .dispatch		= (void *)mq_pool_dispatch,
	       .running			= (void *)mq_pool_running,
	       .tick			= (void *)mq_pool_tick,
	       .yield			= (void *)mq_pool_yield,
	       .set_weight		= (void *)mq_pool_set_weight,
	       .set_cpumask		= (void *)mq_pool_set_cpumask,
	       .cpu_release		= (void *)mq_pool_cpu_release,
	       .stopping		= (void *)mq_pool_stopping,
	       .quiescent		= (void *)mq_pool_quiescent,
	       .disable			= (void *)mq_pool_disable,
	       .exit_task		= (void *)mq_pool_exit_task,
	       .init			= (void *)mq_pool_init,
	       .exit			= (void *)mq_pool_exit,
	       .name			= "mq_pool");
