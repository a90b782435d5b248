/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which idle CPUs are woken to look for tasks. A policy with a queue for each CPU
 * includes this after <lab/lab.bpf.h> and calls lab_cores_init() in ops.init().
 */
#ifndef LAB_IDLE_H
#define LAB_IDLE_H

#include "cores.h"

/* Where lab_wake_idle() begins to look, so that no CPU is always the first. */
static u32 lab_idle_rotor __maybe_unused;

/* Whether a CPU is the first thread of a core on which nothing is queued. */
#define lab_first_of_idle_core(cpu, nr_of)				\
({									\
	bool ___first = !lab_thread_of(cpu);				\
	s32 ___other;							\
									\
	if (___first && lab_siblings) {					\
		___first = !nr_of(cpu);					\
		for (___other = lab_next_thread(cpu);			\
		     ___first && ___other != (cpu) && can_loop;		\
		     ___other = lab_next_thread(___other))		\
			___first = !nr_of(___other);			\
	}								\
	___first;							\
})

/* At most two rounds; a verifier takes a plain loop for one without end. */
#ifdef __bpf__
#define lab_wake_passes(pass)	bpf_for(pass, 0, 1 + lab_siblings)
#else
#define lab_wake_passes(pass)	for ((pass) = 0; (pass) < 1 + lab_siblings; (pass)++)
#endif

/*
 * lab_wake_idle - in place of the ticks of idle CPUs: wakes as many of them as
 * there are tasks that wait behind others; first one of each core that is idle as a
 * whole. nr_of(cpu): tasks of its queue; is_idle(cpu): whether it is online and has
 * nothing to do, and shall be woken.
 */
#define lab_wake_idle(nr_of, is_idle)					\
do {									\
	u64 ___waiting = 0, ___nr;					\
	s32 ___cpu;							\
	u32 ___pass, ___i;						\
									\
	bpf_for(___i, 0, lab_nr_cpus) {					\
		___nr = nr_of(___i);					\
		if (___nr > 1)						\
			___waiting += ___nr - 1;			\
	}								\
	if (!___waiting)						\
		break;							\
	lab_idle_rotor++;						\
	/* The second time the CPUs that are left; none where each core has one thread. */ \
	lab_wake_passes(___pass) {					\
		if (!___waiting)					\
			break;						\
		bpf_for(___i, 0, lab_nr_online) {			\
			___cpu = lab_cpu_spread((___i + lab_idle_rotor) % lab_nr_online); \
			if (lab_first_of_idle_core(___cpu, nr_of) == ___pass || \
			    !is_idle(___cpu))				\
				continue;				\
			scx_bpf_kick_cpu(___cpu, SCX_KICK_IDLE);	\
			if (!--___waiting)				\
				break;					\
		}							\
	}								\
} while (0)

#endif /* LAB_IDLE_H */
