/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Adds to <scx/common.bpf.h> of today the names that earlier versions of scx had. All
 * are macros, so that a message has the line of who uses one.
 */
#ifndef LAB_OLDER_COMMON_H
#define LAB_OLDER_COMMON_H

/* `enq_flags` came with Linux 7.1. */
#undef scx_bpf_dsq_move_to_local
#define scx_bpf_dsq_move_to_local(dsq_id, ...)					\
	(bpf_ksym_exists(scx_bpf_dsq_move_to_local___v2___compat) ?		\
	 scx_bpf_dsq_move_to_local___v2___compat((dsq_id), (0, ##__VA_ARGS__)) :\
	 scx_bpf_dsq_move_to_local___v1((dsq_id)))

/* It was a function of the kernel, whose existence a scheduler could ask for. */
extern s32 scx_bpf_select_cpu_and(struct task_struct *p, s32 prev_cpu, u64 wake_flags, const struct cpumask *cpus_allowed,
				  u64 flags) __ksym __weak;

/* It returned how many tasks were enqueued again. */
#define scx_bpf_reenqueue_local()	scx_bpf_reenqueue_local___v1()

/* They were constants, and initialize other constants. */
#undef SCX_SLICE_DFL
#undef SCX_SLICE_INF
#undef SCX_DSQ_GLOBAL
#undef SCX_DSQ_LOCAL
#undef SCX_DSQ_LOCAL_ON

/* Schedulers have a function of this name. */
#undef div_round_up

/* Flags that the kernel has retired: they changed nothing. */
#define SCX_OPS_HAS_CGROUP_WEIGHT	0
#define SCX_OPS_CGROUP_KNOB_WEIGHT	0

/* Macros that covered differences between kernels of then. */
#define __COMPAT_SCX_KICK_IDLE		SCX_KICK_IDLE
#define __COMPAT_scx_bpf_switch_all()	((void)0)
#define __COMPAT_scx_bpf_task_cgroup(p)	scx_bpf_task_cgroup(p)
#define __COMPAT_scx_bpf_dsq_move(it, p, dsq_id, enq_flags)		scx_bpf_dsq_move((it), (p), (dsq_id), (enq_flags))
#define __COMPAT_scx_bpf_dsq_move_vtime(it, p, dsq_id, enq_flags)	scx_bpf_dsq_move_vtime((it), (p), (dsq_id), (enq_flags))
#define __COMPAT_scx_bpf_dsq_move_set_slice(it, slice)			scx_bpf_dsq_move_set_slice((it), (slice))
#define __COMPAT_scx_bpf_dsq_move_set_vtime(it, vtime)			scx_bpf_dsq_move_set_vtime((it), (vtime))

#endif
