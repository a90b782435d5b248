/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The balancer of the kernel's fair schedulers: which tasks move, from where, and
 * how many. <lab/fair.h> includes it after the queues, hooks and placement that it
 * uses.
 */
#ifndef LAB_FAIR_BALANCE_H
#define LAB_FAIR_BALANCE_H

/* Most tasks that one balancing looks at. */
#define FAIR_BALANCE_LOOKS	32

/* Instead of a number of tasks moved: none of those that wait may run there; the policy has ended. */
#define FAIR_ALL_BOUND		(-1)
#define FAIR_ENDED		(-2)

/* A busy CPU balances this many times more rarely. */
#define FAIR_BUSY_FACTOR	16

/*
 * A running task is pushed from a core that it shares to an idle one once that
 * was found so many times in a row: one more than Linux's nr_balance_failed may
 * be, cache_nice_tries + 2, within a cache and beyond it.
 */
#define FAIR_PUSH_LOOKS_LLC	4
#define FAIR_PUSH_LOOKS_FAR	5

/* Takes the lock of @other while @rq's is held, the lower CPU's first: lab_lock_second(). */
#define fair_lock_second(rq, other) \
	lab_lock_second(&(rq)->lock, &(other)->lock, (other)->cpu > (rq)->cpu)

/* Whether the real task may run on @cpu; the cached mask is only a filter. */
static __always_inline bool fair_may_go(task_t *t, s32 cpu)
{
	struct task_struct *p;

	if (!lab_allowed(&t->lab, cpu))
		return false;
	/* In a timer's function no other CPU has taken it. */
	bpf_rcu_read_lock();
	p = lab_task_claim(&t->lab, cpu);
	if (p)
		bpf_task_release(p);
	bpf_rcu_read_unlock();
	return p;
}

/*
 * Moves tasks that have waited for longest, whose weights make up @load, but at
 * most @most; both locks are held. Returns how many went, or FAIR_ALL_BOUND.
 */
LAB_PART s32 fair_move(rq_t *from __arg_arena, rq_t *to __arg_arena, u64 load, u32 most, u64 now)
{
	lab_node_t *pos;
	bool warm_stay, free = false;
	u32 i, moved = 0;
	task_t *t;

	lab_use_arena();
	/* Warm caches stay, unless both have them or nothing else could be moved for long. */
	warm_stay = !lab_share(from->cpu, to->cpu, LAB_LEVEL_CORE) &&
		    to->failed <= LAB_NR_LEVELS && from->refused <= LAB_NR_LEVELS;
	fair_advance(from, now);
	fair_advance(to, now);
	pos = from->waiting.head.prev;
	bpf_for(i, 0, FAIR_BALANCE_LOOKS) {
		(void)i;
		if (pos == &from->waiting.head || moved >= most)
			break;
		t = lab_entry(pos, struct fair_task, lab.node);
		consult(t);
		pos = pos->prev;
		if (lab_allowed(&t->lab, to->cpu))
			free = true;
		if (warm_stay && t->turn_ns && now - t->started_ns < FAIR_MIGRATION_COST_NS)
			continue;
		if (t->weight / 2 > load || !fair_may_go(t, to->cpu))
			continue;
		load -= t->weight < load ? t->weight : load;
		fair_hooks.leave(from, t, now);
		fair_unlink(from, t);
		fair_hooks.place(to, t, now);
		fair_link(to, t);
		moved++;
		if (!load)
			break;
	}
	if (!free && from->waiting.head.prev != &from->waiting.head)
		return FAIR_ALL_BOUND;
	return moved;
}

/*
 * In places [begin, end) of the order but not [but, until): the queue with the
 * greatest load whose tasks wait, other than CPU @except's.
 */
LAB_PART s32 fair_busiest(u32 begin, u32 end, u32 but, u32 until, s32 except)
{
	u64 load, greatest = 0;
	s32 cpu, busiest = -1;
	rq_t *rq;
	u32 i;

	lab_use_arena();
	bpf_for(i, begin, end) {
		if (i >= but && i < until)
			continue;
		cpu = lab_cpu_at(i);
		if (cpu == except)
			continue;
		rq = rq_at(cpu);
		lab_touch(&rq->nr, false);
		if (!lab_read(rq->nr))
			continue;
		load = fair_load_with_higher(rq);
		if (load > greatest) {
			greatest = load;
			busiest = cpu;
		}
	}
	return busiest;
}

/* Takes one task from the queue of @cpu. Returns how many came, FAIR_ALL_BOUND or FAIR_ENDED. */
LAB_PART s32 fair_take(rq_t *rq __arg_arena, s32 cpu, u64 now)
{
	rq_t *from = rq_at(cpu);
	s32 moved;

	lab_use_arena();
	if (!fair_lock_second(rq, from))
		return FAIR_ENDED;
	moved = fair_move(from, rq, ~0ull, 1, now);
	/* In Linux one idle CPU balances for all, so that each of them counts this failure. */
	if (moved > 0)
		from->refused = 0;
	else if (!moved && lab_glance(rq->asked))
		from->refused++;
	lab_unlock(&from->lock);
	return moved;
}

/*
 * The CPU has nothing to do: takes one task from the busiest queue nearby, else
 * farther away; of the next one there if all tasks of the busiest are bound. Its
 * lock is held, and given up meanwhile. False: the policy has ended, no lock is
 * held.
 */
static __noinline bool fair_balance_idle(rq_t *rq, u64 now)
{
	lab_place_t *place;
	s32 busiest, moved;
	u32 level, but, until;

	lab_use_arena();
	place = lab_place_of(rq->cpu);
	but = place->at;
	until = but + 1;
	bpf_for(level, 0, LAB_NR_LEVELS) {
		u32 l = level & (LAB_NR_LEVELS - 1), begin = place->begin[l], end = place->end[l];

		busiest = fair_busiest(begin, end, but, until, -1);
		moved = FAIR_ALL_BOUND;
		if (busiest >= 0) {
			moved = fair_take(rq, busiest, now);
			if (moved == FAIR_ALL_BOUND)
				busiest = fair_busiest(begin, end, but, until, busiest);
			if (moved == FAIR_ALL_BOUND && busiest >= 0)
				moved = fair_take(rq, busiest, now);
		}
		but = begin;
		until = end;
		if (moved == FAIR_ENDED)
			return false;
		/* As in Linux, it is no failure that all are bound, nor that it found nothing when it became idle. */
		if (moved > 0) {
			rq->failed = 0;
			rq->even[l] = false;
		} else if (!moved && lab_glance(rq->asked)) {
			rq->failed++;
		}
		if (moved > 0 || rq->nr)
			break;
	}
	return true;
}

/* Whether of the CPUs that share a level below @level with @cpu it is the one that balances @level. */
static __always_inline bool fair_balances(s32 cpu, u32 level, bool idle)
{
	lab_place_t *place = lab_place_of(cpu);

	/* An idle one comes here when it is woken; a busy one balances if it is the first. */
	return idle || !level || place->at == place->begin[(level - 1) & (LAB_NR_LEVELS - 1)];
}

/*
 * Takes half of what the queue of @cpu has more, if that is out of balance. Returns
 * how many came, FAIR_ALL_BOUND or FAIR_ENDED.
 */
LAB_PART s32 fair_level(rq_t *rq __arg_arena, s32 cpu, u32 level, u64 now)
{
	u32 l = level & (LAB_NR_LEVELS - 1);
	u64 own, other, percent;
	rq_t *from = rq_at(cpu);
	s32 moved = 0;

	lab_use_arena();
	percent = l == LAB_LEVEL_CORE ? FAIR_IMBALANCE_CORE : FAIR_IMBALANCE;
	if (!fair_lock_second(rq, from))
		return FAIR_ENDED;
	own = fair_load(rq);
	other = fair_load_with_higher(from);
	if (other * 100 > own * percent) {
		rq->even[l] = false;
		moved = fair_move(from, rq, (other - own) / 2, FAIR_BALANCE_LOOKS, now);
		if (moved > 0)
			rq->failed = 0;
		else if (!moved)
			rq->failed++;
	}
	lab_unlock(&from->lock);
	return moved;
}

/* The balancer of a busy CPU, once per domain and interval. False: as above. */
static __noinline bool fair_balance_busy(rq_t *rq, u64 now)
{
	u32 level, but, until;
	lab_place_t *place;
	u64 interval, due;
	s32 busiest, moved;

	lab_use_arena();
	place = lab_place_of(rq->cpu);
	but = place->at;
	until = but + 1;
	bpf_for(level, 0, LAB_NR_LEVELS) {
		u32 l = level & (LAB_NR_LEVELS - 1), begin = place->begin[l], end = place->end[l];

		if (end - begin == until - but)
			continue;
		interval = (end - begin) * FAIR_BUSY_FACTOR * 1000000ull;
		due = rq->balance_ns[l] + (rq->even[l] ? interval : 0);
		if (now < due || !fair_balances(rq->cpu, l, false)) {
			but = begin;
			until = end;
			continue;
		}
		rq->balance_ns[l] = now + interval;
		rq->even[l] = true;
		moved = 0;
		busiest = fair_busiest(begin, end, but, until, -1);
		if (busiest >= 0)
			moved = fair_level(rq, busiest, l, now);
		if (moved == FAIR_ALL_BOUND) {
			busiest = fair_busiest(begin, end, but, until, busiest);
			if (busiest >= 0)
				moved = fair_level(rq, busiest, l, now);
		}
		but = begin;
		until = end;
		if (moved == FAIR_ENDED)
			return false;
	}
	return true;
}

/*
 * Active balance: a task that runs alone on its CPU, but shares the core, goes to
 * a core that is idle. Linux lets the idle CPU find it; here its own tick does, as
 * sched_ext has none on idle CPUs.
 */

/* Whether another thread of the core runs a task that is not about to go. */
static __always_inline bool fair_core_shared(s32 cpu)
{
	lab_place_t *place = lab_place_of(cpu);
	u32 i, end = place->end[LAB_LEVEL_CORE];
	rq_t *rq;

	bpf_for(i, place->begin[LAB_LEVEL_CORE], end) {
		rq = rq_at(lab_cpu_at(i));
		if (rq->cpu == cpu)
			continue;
		lab_touch(&rq->nr, false);
		if (lab_read(rq->curr) && !lab_glance(rq->push))
			return true;
	}
	return false;
}

/* The tick of @p, beside which no task waits: the CPU it shall go to, or -1. */
static __noinline s32 fair_push_target(struct task_struct *p, s32 cpu, u64 now)
{
	rq_t *rq = rq_at(cpu);
	u32 level, but, until, begin, end;
	lab_place_t *place;
	s32 idle;

	lab_use_arena();
	place = lab_place_of(cpu);
	but = place->begin[LAB_LEVEL_CORE];
	until = place->end[LAB_LEVEL_CORE];
	if (until - but < 2 || p->nr_cpus_allowed == 1)
		return -1;
	bpf_for(level, LAB_LEVEL_LLC, LAB_NR_LEVELS) {
		u32 l = level & (LAB_NR_LEVELS - 1);

		begin = place->begin[l];
		end = place->end[l];
		if (end - begin == until - but)
			continue;
		but = begin;
		until = end;
		if (now < rq->look_ns[l])
			continue;
		rq->look_ns[l] = now + (end - begin) * 1000000ull;
		idle = fair_core_shared(cpu) ? fair_idle_near(p, cpu, l, false) : -1;
		rq->crowded[l] = idle < 0 ? 0 : rq->crowded[l] + 1;
		if (rq->crowded[l] >= (l == LAB_LEVEL_LLC ? FAIR_PUSH_LOOKS_LLC :
							    FAIR_PUSH_LOOKS_FAR)) {
			rq->crowded[l] = 0;
			return idle;
		}
	}
	return -1;
}

/* Where a task that leaves the CPU is enqueued: at its CPU, or where it is being pushed to, if that is still idle. */
static __always_inline s32 fair_destination(struct task_struct *p, task_t *t)
{
	s32 cpu = t->to - 1;

	if (!t->to)
		return scx_bpf_task_cpu(p);
	t->to = 0;
	if (fair_cpu_idle(cpu) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
		return cpu;
	return scx_bpf_task_cpu(p);
}

/*
 * CPUs that a higher class has taken, see <lab/higher.h>.
 */

static __always_inline u64 fair_nr_waiting(s32 cpu)
{
	return lab_read(rq_at(cpu)->nr);
}

static __noinline bool fair_rescue(u32 from_cpu, u32 to_cpu)
{
	rq_t *from, *to;
	unsigned long flags;
	bool moved, idle;

	lab_use_arena();
	from = rq_at(from_cpu);
	to = rq_at(to_cpu);
	lab_irq_save(flags);
	if (!lab_lock(&from->lock) || !fair_lock_second(from, to)) {
		lab_irq_restore(flags);
		return false;
	}
	moved = fair_move(from, to, ~0ull, 1, scx_bpf_now()) > 0;
	idle = !to->curr;
	lab_unlock(&to->lock);
	lab_unlock(&from->lock);
	lab_irq_restore(flags);
	if (moved && idle)
		scx_bpf_kick_cpu(to_cpu, SCX_KICK_IDLE);
	return moved;
}

LAB_RESCUE(fair_nr_waiting, fair_cpu_idle, fair_rescue);

#endif /* LAB_FAIR_BALANCE_H */
