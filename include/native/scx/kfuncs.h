/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's functions that a policy may call, bound to the virtual kernel.
 * Deviations from the kernel's are listed in docs/sched_ext.md.
 */
#ifndef SCHEDLAB_SCX_KFUNCS_H
#define SCHEDLAB_SCX_KFUNCS_H

#include "bpf.h"

/* Dispatch queues */

#define scx_bpf_create_dsq(dsq, node)	lab_host->create_dsq(lab_host, (dsq), (node))
#define scx_bpf_destroy_dsq(dsq)	lab_host->destroy_dsq(lab_host, (dsq))
#define scx_bpf_dsq_nr_queued(dsq)	lab_host->dsq_nr_queued(lab_host, (dsq))
#define scx_bpf_dsq_peek(dsq)		lab_host->dsq_peek(lab_host, (dsq))
#define scx_bpf_dsq_move_to_local(dsq, enq_flags) \
	lab_host->dsq_move_to_local(lab_host, (dsq), (enq_flags))
#define scx_bpf_dispatch_nr_slots()	lab_host->dispatch_nr_slots(lab_host)
#define scx_bpf_dispatch_cancel()	lab_host->dispatch_cancel(lab_host)
#define scx_bpf_reenqueue_local()	((void)lab_host->reenqueue(lab_host, SCX_DSQ_LOCAL, 0))
#define scx_bpf_dsq_reenq(dsq, flags)	((void)lab_host->reenqueue(lab_host, (dsq), (flags)))

LAB_INLINE bool scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags)
{
	return lab_host->dsq_insert(lab_host, p, dsq_id, slice, enq_flags, lab_here());
}

LAB_INLINE bool scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
					 u64 enq_flags)
{
	return lab_host->dsq_insert_vtime(lab_host, p, dsq_id, slice, vtime, enq_flags,
					  lab_here());
}

LAB_INLINE bool __scx_bpf_dsq_insert_vtime(struct task_struct *p,
					   struct scx_bpf_dsq_insert_vtime_args *args)
{
	lab_require("__scx_bpf_dsq_insert_vtime");
	return scx_bpf_dsq_insert_vtime(p, args->dsq_id, args->slice, args->vtime,
					args->enq_flags);
}

LAB_INLINE int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags)
{
	return lab_host->iter_new(lab_host, it, dsq_id, flags);
}

LAB_INLINE struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it)
{
	return lab_host->iter_next(lab_host, it);
}

LAB_INLINE void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it)
{
	lab_host->iter_destroy(lab_host, it);
}

/* The iterator of the bpf_for_each() around it. */
#define BPF_FOR_EACH_ITER	(&___it)

#define scx_bpf_dsq_move_set_slice(it, slice)	lab_host->move_set_slice(lab_host, (it), (slice))
#define scx_bpf_dsq_move_set_vtime(it, vtime)	lab_host->move_set_vtime(lab_host, (it), (vtime))
#define scx_bpf_dsq_move(it, p, dsq, flags) \
	lab_host->dsq_move(lab_host, (it), (p), (dsq), (flags), false)
#define scx_bpf_dsq_move_vtime(it, p, dsq, flags) \
	lab_host->dsq_move(lab_host, (it), (p), (dsq), (flags), true)

/* CPUs */

#define scx_bpf_kick_cpu(cpu, flags)	lab_host->kick_cpu(lab_host, (cpu), (flags))
#define scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, is_idle) \
	lab_host->select_cpu_dfl(lab_host, (p), (prev_cpu), (wake_flags), (is_idle))
#define scx_bpf_select_cpu_and(p, prev_cpu, wake_flags, allowed, flags) \
	lab_host->select_cpu_and(lab_host, (p), (prev_cpu), (wake_flags), (allowed), (flags))
#define scx_bpf_test_and_clear_cpu_idle(cpu) lab_host->test_and_clear_cpu_idle(lab_host, (cpu))

LAB_INLINE s32 __scx_bpf_select_cpu_and(struct task_struct *p, const struct cpumask *allowed,
					struct scx_bpf_select_cpu_and_args *args)
{
	lab_require("__scx_bpf_select_cpu_and");
	return scx_bpf_select_cpu_and(p, args->prev_cpu, args->wake_flags, allowed, args->flags);
}

#define scx_bpf_pick_idle_cpu(allowed, flags) \
	lab_host->pick_cpu(lab_host, (allowed), false, 0, (flags), false)
#define scx_bpf_pick_any_cpu(allowed, flags) \
	lab_host->pick_cpu(lab_host, (allowed), false, 0, (flags), true)
#define scx_bpf_pick_idle_cpu_node(allowed, node, flags) \
	lab_host->pick_cpu(lab_host, (allowed), true, (node), (flags), false)
#define scx_bpf_pick_any_cpu_node(allowed, node, flags) \
	lab_host->pick_cpu(lab_host, (allowed), true, (node), (flags), true)
#define scx_bpf_get_idle_cpumask()	lab_host->idle_mask(lab_host, false, 0, false)
#define scx_bpf_get_idle_smtmask()	lab_host->idle_mask(lab_host, false, 0, true)
#define scx_bpf_get_idle_cpumask_node(node) lab_host->idle_mask(lab_host, true, (node), false)
#define scx_bpf_get_idle_smtmask_node(node) lab_host->idle_mask(lab_host, true, (node), true)
#define scx_bpf_put_idle_cpumask(mask)	lab_host->put_mask(lab_host, (mask))
#define scx_bpf_get_online_cpumask()	lab_host->online_mask(lab_host)
#define scx_bpf_get_possible_cpumask()	lab_host->possible_mask(lab_host)
#define scx_bpf_put_cpumask(mask)	lab_host->put_mask(lab_host, (mask))
#define scx_bpf_nr_cpu_ids()		lab_host->nr_cpu_ids(lab_host)
#define scx_bpf_nr_node_ids()		lab_host->nr_node_ids(lab_host)
#define scx_bpf_cpu_node(cpu)		lab_host->cpu_node(lab_host, (cpu))
#define scx_bpf_cpuperf_cap(cpu)	lab_host->cpuperf_cap(lab_host, (cpu))
#define scx_bpf_cpuperf_cur(cpu)	lab_host->cpuperf_cur(lab_host, (cpu))
#define scx_bpf_cpuperf_set(cpu, perf)	lab_host->cpuperf_set(lab_host, (cpu), (perf))
#define scx_bpf_now()			lab_host->now(lab_host)

/* Tasks */

#define scx_bpf_task_running(p)		lab_host->task_running(lab_host, (p))
#define scx_bpf_cpu_curr(cpu)		lab_host->cpu_curr(lab_host, (cpu))
#define scx_bpf_cpu_rq(cpu)		lab_host->cpu_rq(lab_host, (cpu))
#define scx_bpf_tid_to_task(tid)	lab_host->tid_to_task(lab_host, (tid))
#define bpf_task_from_pid(pid)		lab_host->task_from_pid(lab_host, (pid))
#define scx_bpf_task_set_slice(p, slice) ((void)lab_host->task_set_slice(lab_host, (p), (slice)))
#define scx_bpf_task_set_dsq_vtime(p, vtime) \
	((void)lab_host->task_set_dsq_vtime(lab_host, (p), (vtime)))

LAB_INLINE s32 scx_bpf_task_cpu(const struct task_struct *p)
{
	lab_host->kfunc(lab_host);
	return p->__lab_cpu;
}

/* A task cannot vanish during an op, so references need not be counted. */
LAB_INLINE struct task_struct *bpf_task_acquire(struct task_struct *p)
{
	return p;
}

LAB_INLINE void bpf_task_release(struct task_struct *p)
{
	(void)p;
}

LAB_INLINE bool is_migration_disabled(const struct task_struct *p)
{
	return p->migration_disabled;
}

struct rq {
	int cpu;
	struct task_struct *curr;
};

/* Not in the virtual kernel: calling one ends the run with its name. */

#define LAB_MISSING(type, name, result, args...)			\
static inline __attribute__((unused)) type name(args)			\
{									\
	lab_host->missing(lab_host, #name);				\
	return result;							\
}
#define LAB_MISSING_VOID(name, args...)					\
static inline __attribute__((unused)) void name(args)			\
{									\
	lab_host->missing(lab_host, #name);				\
}

struct scx_event_stats;
struct cgroup_subsys_state;

LAB_MISSING(struct rq *, scx_bpf_locked_rq, NULL, void)
LAB_MISSING_VOID(scx_bpf_events, struct scx_event_stats *events, size_t size)
LAB_MISSING(s32, scx_bpf_cpu_to_cid, 0, s32 cpu)
LAB_MISSING(s32, scx_bpf_cid_to_cpu, 0, s32 cid)
LAB_MISSING_VOID(scx_bpf_cid_topo, s32 cid, struct scx_cid_topo *out, size_t size)
LAB_MISSING_VOID(scx_bpf_kick_cid, s32 cid, u64 flags)
LAB_MISSING(s32, scx_bpf_task_cid, 0, const struct task_struct *p)
LAB_MISSING(s32, scx_bpf_this_cid, 0, void)
LAB_MISSING(struct task_struct *, scx_bpf_cid_curr, NULL, s32 cid)
LAB_MISSING(u32, scx_bpf_nr_cids, 0, void)
LAB_MISSING(u32, scx_bpf_nr_online_cids, 0, void)
LAB_MISSING(u32, scx_bpf_cidperf_cap, 0, s32 cid)
LAB_MISSING(u32, scx_bpf_cidperf_cur, 0, s32 cid)
LAB_MISSING_VOID(scx_bpf_cidperf_set, s32 cid, u32 perf)
LAB_MISSING_VOID(scx_bpf_cid_override, const s32 *cpu_to_cid, u32 size)
LAB_MISSING(bool, scx_bpf_sub_dispatch, false, u64 cgroup_id)
LAB_MISSING(struct cgroup *, scx_bpf_task_cgroup, NULL, struct task_struct *p)
LAB_MISSING(struct cgroup *, bpf_cgroup_from_id, NULL, u64 id)
LAB_MISSING(struct cgroup *, bpf_cgroup_acquire, NULL, struct cgroup *cgrp)
LAB_MISSING(struct cgroup *, bpf_cgroup_ancestor, NULL, struct cgroup *cgrp, int level)
LAB_MISSING_VOID(bpf_cgroup_release, struct cgroup *cgrp)
LAB_MISSING(void *, bpf_cgrp_storage_get, NULL, void *map, struct cgroup *cgrp, void *value, u64 flags)
LAB_MISSING(long, bpf_cgrp_storage_delete, 0, void *map, struct cgroup *cgrp)
LAB_MISSING(void *, bpf_per_cpu_ptr, NULL, const void *symbol, u32 cpu)
LAB_MISSING(void *, bpf_this_cpu_ptr, NULL, const void *symbol)
LAB_MISSING(long, bpf_user_ringbuf_drain, 0, void *map, void *callback, void *ctx, u64 flags)
LAB_MISSING(void *, bpf_ringbuf_reserve, NULL, void *map, u64 size, u64 flags)
LAB_MISSING_VOID(bpf_ringbuf_submit, void *data, u64 flags)
LAB_MISSING_VOID(bpf_ringbuf_discard, void *data, u64 flags)
LAB_MISSING(long, bpf_ringbuf_output, 0, void *map, void *data, u64 size, u64 flags)
LAB_MISSING(void *, bpf_obj_new_impl, NULL, u64 type, void *meta)
LAB_MISSING_VOID(bpf_obj_drop_impl, void *object, void *meta)
LAB_MISSING(struct bpf_list_node *, bpf_list_pop_front, NULL, struct bpf_list_head *head)
LAB_MISSING(struct bpf_list_node *, bpf_list_pop_back, NULL, struct bpf_list_head *head)
LAB_MISSING(struct bpf_rb_node *, bpf_rbtree_first, NULL, struct bpf_rb_root *root)
LAB_MISSING(struct bpf_rb_node *, bpf_rbtree_remove, NULL, struct bpf_rb_root *root, struct bpf_rb_node *node)
LAB_MISSING(u64, bpf_jiffies64, 0, void)
LAB_MISSING(long, bpf_send_signal, 0, u32 sig)

#define bpf_obj_new(type)			((type *)bpf_obj_new_impl(0, NULL))
#define bpf_obj_drop(object)			bpf_obj_drop_impl((object), NULL)
#define bpf_list_push_front(head, node)		({ lab_host->missing(lab_host, "bpf_list_push_front"); 0; })
#define bpf_list_push_back(head, node)		({ lab_host->missing(lab_host, "bpf_list_push_back"); 0; })
#define bpf_rbtree_add(root, node, less)	({ lab_host->missing(lab_host, "bpf_rbtree_add"); 0; })
#define bpf_refcount_acquire(object)		({ lab_host->missing(lab_host, "bpf_refcount_acquire"); (object); })

#endif /* SCHEDLAB_SCX_KFUNCS_H */
