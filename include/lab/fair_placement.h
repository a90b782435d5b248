/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The placement of the kernel's fair schedulers: which CPU a task goes to that is
 * new or wakes. <lab/fair.h> includes it after the loads that it uses.
 */
#ifndef LAB_FAIR_PLACEMENT_H
#define LAB_FAIR_PLACEMENT_H

/* A level below the groups: every CPU by itself. */
#define FAIR_LEVEL_CPU	LAB_NR_LEVELS

/* Of the groups of @level in places [begin, end), where the one with the least load a CPU begins. */
static __noinline u32 fair_idlest(struct task_struct *p, u32 range, u32 level, u32 own)
{
	u32 begin = range >> 16, end = range & 0xffff, best = begin, nr = 0, i;
	u64 load = 0, least = ~0ull, mean;
	bool usable = false;
	s32 cpu;

	lab_use_arena();
	bpf_for(i, begin, end) {
		lab_place_t *place;
		rq_t *rq;
		u32 l = level & (LAB_NR_LEVELS - 1);

		cpu = lab_cpu_at(i);
		rq = rq_at(cpu);
		lab_touch(&rq->nr, false);
		load += fair_load_with_higher(rq);
		nr++;
		if (rq->online && bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			usable = true;
		place = lab_place_of(cpu);
		/* A group of CPUs ends here. */
		if (level != FAIR_LEVEL_CPU && i + 1 < place->end[l])
			continue;
		mean = load * FAIR_IMBALANCE / nr;
		/* The own one stays unless another is clearly better. */
		if (own >= i + 1 - nr && own <= i)
			mean = load * 100 / nr;
		if (usable && mean < least) {
			least = mean;
			best = i + 1 - nr;
		}
		load = 0;
		nr = 0;
		usable = false;
	}
	return best;
}

/* fork: the idlest node, in it the idlest cache, in it the idlest core, of it the idlest CPU. */
static __always_inline s32 fair_select_idlest(struct task_struct *p, s32 cpu)
{
	u32 own = lab_place_of(cpu)->at, at;
	lab_place_t *place;

	at = fair_idlest(p, lab_nr_online, LAB_LEVEL_NODE, own);
	place = lab_place_of(lab_cpu_at(at));
	at = fair_idlest(p, place->begin[LAB_LEVEL_NODE] << 16 | place->end[LAB_LEVEL_NODE],
			 LAB_LEVEL_LLC, own);
	place = lab_place_of(lab_cpu_at(at));
	at = fair_idlest(p, place->begin[LAB_LEVEL_LLC] << 16 | place->end[LAB_LEVEL_LLC],
			 LAB_LEVEL_CORE, own);
	place = lab_place_of(lab_cpu_at(at));
	at = fair_idlest(p, place->begin[LAB_LEVEL_CORE] << 16 | place->end[LAB_LEVEL_CORE],
			 FAIR_LEVEL_CPU, own);
	return lab_cpu_at(at);
}

/* An idle CPU of those that share @level with @target: of an idle core, else any, if that will do; -1: none. */
static __noinline s32 fair_idle_near(struct task_struct *p, s32 target, u32 level, bool any_will_do)
{
	u32 i, begin, end;
	s32 cpu, core = -1, any = -1;
	bool whole = true;
	lab_place_t *place;

	lab_use_arena();
	place = lab_place_of(target);
	begin = place->begin[level & (LAB_NR_LEVELS - 1)];
	end = place->end[level & (LAB_NR_LEVELS - 1)];
	bpf_for(i, begin, end) {
		cpu = lab_cpu_at(i);
		place = lab_place_of(cpu);
		if (i == place->begin[LAB_LEVEL_CORE]) {
			whole = true;
			core = -1;
		}
		if (!fair_cpu_idle(cpu))
			whole = false;
		else if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			core = cpu;
		if (any < 0)
			any = core;
		if (i + 1 == place->end[LAB_LEVEL_CORE] && whole && core >= 0)
			return core;
	}
	return any_will_do ? any : -1;
}

/* Notes whom @waker wakes: one that wakes many in turn shall not gather them around itself. */
static __always_inline void fair_note_wakee(task_t *waker, task_t *t, u64 now)
{
	if (now - waker->flips_ns > 1000000000ull) {
		waker->flips /= 2;
		waker->flips_ns = now;
	}
	if (waker->wakee != t->lab.index) {
		waker->wakee = t->lab.index;
		waker->flips++;
	}
}

/* Whether waker and wakee belong to a crowd larger than a cache's CPUs. */
static __always_inline bool fair_wide(task_t *waker, task_t *t, s32 cpu)
{
	lab_place_t *place = lab_place_of(cpu);
	u32 size = place->end[LAB_LEVEL_LLC] - place->begin[LAB_LEVEL_LLC];
	u32 more = waker->flips, less = t->flips;

	if (more < less) {
		more = t->flips;
		less = waker->flips;
	}
	return less >= size && more >= less * size;
}

/* The waker's CPU or the previous one. */
static __always_inline s32 fair_affine(task_t *t, s32 this_cpu, s32 prev_cpu, bool sync)
{
	rq_t *here = rq_at(this_cpu), *there = rq_at(prev_cpu);
	bool prev_idle = fair_cpu_idle(prev_cpu);
	task_t *curr;
	u64 own, other;

	if (fair_cpu_idle(this_cpu) && lab_share(this_cpu, prev_cpu, LAB_LEVEL_LLC))
		return prev_idle ? prev_cpu : this_cpu;
	if (sync && fair_nr(here) == 1)
		return this_cpu;
	if (prev_idle)
		return prev_cpu;
	own = fair_load_with_higher(here);
	curr = lab_glance(here->curr);
	if (sync && curr)
		own -= lab_glance(curr->weight);
	own = (own + fair_task_load(t, scx_bpf_now())) * 100;
	other = fair_load_with_higher(there) * (100 + (FAIR_IMBALANCE - 100) / 2);
	return own < other ? this_cpu : prev_cpu;
}

static __noinline s32 fair_select_cpu(struct task_struct *p, task_t *t, s32 prev_cpu, u64 wake_flags)
{
	struct task_struct *current_p = bpf_get_current_task_btf();
	s32 this_cpu = bpf_get_smp_processor_id(), target = prev_cpu, cpu;
	bool sync = wake_flags & SCX_WAKE_SYNC;
	task_t *waker = NULL;

	lab_use_arena();
	if (wake_flags & SCX_WAKE_FORK)
		return fair_select_idlest(p, this_cpu);
	if (current_p && current_p->pid)
		waker = task_of(current_p);
	if (waker) {
		fair_note_wakee(waker, t, scx_bpf_now());
		if (this_cpu != prev_cpu && bpf_cpumask_test_cpu(this_cpu, p->cpus_ptr) &&
		    !fair_wide(waker, t, this_cpu))
			target = fair_affine(t, this_cpu, prev_cpu, sync);
	}
	if (fair_cpu_idle(target) && bpf_cpumask_test_cpu(target, p->cpus_ptr))
		return target;
	if (target != prev_cpu && lab_share(target, prev_cpu, LAB_LEVEL_LLC) &&
	    fair_cpu_idle(prev_cpu) && bpf_cpumask_test_cpu(prev_cpu, p->cpus_ptr))
		return prev_cpu;
	cpu = fair_idle_near(p, target, LAB_LEVEL_LLC, true);
	return cpu >= 0 ? cpu : target;
}

#endif /* LAB_FAIR_PLACEMENT_H */
