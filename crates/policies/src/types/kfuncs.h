/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The prototypes of the kernel's functions for BPF, as Linux 7.2 has them. A type per function, kfunc__NAME: debug
 * information has no declarations. Which of them a version has is known to crates/abi/src/bpf/calls.rs alone; a loader
 * that looks for a function in the kernel's types compares its prototype with the one here.
 */
#ifndef SCHEDLAB_TYPES_KFUNCS_H
#define SCHEDLAB_TYPES_KFUNCS_H

#define KFUNC(result, name, parameters...)	typedef result kfunc__##name(parameters)

KFUNC(bool, __scx_bpf_dsq_insert_vtime, struct task_struct *p,
      struct scx_bpf_dsq_insert_vtime_args *args);
KFUNC(s32, __scx_bpf_select_cpu_and, struct task_struct *p, const struct cpumask *cpus_allowed,
      struct scx_bpf_select_cpu_and_args *args);
KFUNC(void *, bpf_arena_alloc_pages, void *map, void *addr, u32 page_cnt, int node_id, u64 flags);
KFUNC(void, bpf_arena_free_pages, void *map, void *ptr, u32 page_cnt);
KFUNC(int, bpf_arena_reserve_pages, void *map, void *ptr, u32 page_cnt);
KFUNC(void *, bpf_cast_to_kern_ctx, void *obj);
KFUNC(struct cgroup *, bpf_cgroup_acquire, struct cgroup *cgrp);
KFUNC(struct cgroup *, bpf_cgroup_ancestor, struct cgroup *cgrp, int level);
KFUNC(struct cgroup *, bpf_cgroup_from_id, u64 cgid);
KFUNC(long, bpf_task_under_cgroup, struct task_struct *task, struct cgroup *ancestor);
KFUNC(void, bpf_cgroup_release, struct cgroup *cgrp);
KFUNC(struct bpf_cpumask *, bpf_cpumask_acquire, struct bpf_cpumask *cpumask);
KFUNC(bool, bpf_cpumask_and, struct bpf_cpumask *dst, const struct cpumask *src1,
      const struct cpumask *src2);
KFUNC(u32, bpf_cpumask_any_and_distribute, const struct cpumask *src1, const struct cpumask *src2);
KFUNC(u32, bpf_cpumask_any_distribute, const struct cpumask *cpumask);
KFUNC(void, bpf_cpumask_clear, struct bpf_cpumask *cpumask);
KFUNC(void, bpf_cpumask_clear_cpu, u32 cpu, struct bpf_cpumask *cpumask);
KFUNC(void, bpf_cpumask_copy, struct bpf_cpumask *dst, const struct cpumask *src);
KFUNC(struct bpf_cpumask *, bpf_cpumask_create, void);
KFUNC(bool, bpf_cpumask_empty, const struct cpumask *cpumask);
KFUNC(bool, bpf_cpumask_equal, const struct cpumask *src1, const struct cpumask *src2);
KFUNC(u32, bpf_cpumask_first, const struct cpumask *cpumask);
KFUNC(u32, bpf_cpumask_first_and, const struct cpumask *src1, const struct cpumask *src2);
KFUNC(u32, bpf_cpumask_first_zero, const struct cpumask *cpumask);
KFUNC(bool, bpf_cpumask_full, const struct cpumask *cpumask);
KFUNC(bool, bpf_cpumask_intersects, const struct cpumask *src1, const struct cpumask *src2);
KFUNC(void, bpf_cpumask_or, struct bpf_cpumask *dst, const struct cpumask *src1,
      const struct cpumask *src2);
KFUNC(int, bpf_cpumask_populate, struct bpf_cpumask *cpumask, void *src, size_t src__sz);
KFUNC(void, bpf_cpumask_release, struct bpf_cpumask *cpumask);
KFUNC(void, bpf_cpumask_set_cpu, u32 cpu, struct bpf_cpumask *cpumask);
KFUNC(void, bpf_cpumask_setall, struct bpf_cpumask *cpumask);
KFUNC(bool, bpf_cpumask_subset, const struct cpumask *src1, const struct cpumask *src2);
KFUNC(bool, bpf_cpumask_test_and_clear_cpu, u32 cpu, struct bpf_cpumask *cpumask);
KFUNC(bool, bpf_cpumask_test_and_set_cpu, u32 cpu, struct bpf_cpumask *cpumask);
KFUNC(bool, bpf_cpumask_test_cpu, u32 cpu, const struct cpumask *cpumask);
KFUNC(u32, bpf_cpumask_weight, const struct cpumask *cpumask);
KFUNC(void, bpf_cpumask_xor, struct bpf_cpumask *dst, const struct cpumask *src1,
      const struct cpumask *src2);
KFUNC(void, bpf_iter_bits_destroy, struct bpf_iter_bits *it);
KFUNC(int, bpf_iter_bits_new, struct bpf_iter_bits *it, const u64 *unsafe_ptr, u32 nr_words);
KFUNC(int *, bpf_iter_bits_next, struct bpf_iter_bits *it);
struct bpf_iter_css;
struct cgroup_subsys_state;
KFUNC(void, bpf_iter_css_destroy, struct bpf_iter_css *it);
KFUNC(int, bpf_iter_css_new, struct bpf_iter_css *it, struct cgroup_subsys_state *start,
      unsigned int flags);
KFUNC(struct cgroup_subsys_state *, bpf_iter_css_next, struct bpf_iter_css *it);
KFUNC(void, bpf_iter_num_destroy, struct bpf_iter_num *it);
KFUNC(int, bpf_iter_num_new, struct bpf_iter_num *it, int start, int end);
KFUNC(int *, bpf_iter_num_next, struct bpf_iter_num *it);
KFUNC(void, bpf_iter_scx_dsq_destroy, struct bpf_iter_scx_dsq *it);
KFUNC(int, bpf_iter_scx_dsq_new, struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags);
KFUNC(struct task_struct *, bpf_iter_scx_dsq_next, struct bpf_iter_scx_dsq *it);
KFUNC(struct bpf_list_node *, bpf_list_pop_back, struct bpf_list_head *head);
KFUNC(struct bpf_list_node *, bpf_list_pop_front, struct bpf_list_head *head);
KFUNC(int, bpf_list_push_back_impl, struct bpf_list_head *head, struct bpf_list_node *node,
      void *meta__ign, u64 off);
KFUNC(int, bpf_list_push_front_impl, struct bpf_list_head *head, struct bpf_list_node *node,
      void *meta__ign, u64 off);
KFUNC(void, bpf_local_irq_restore, unsigned long *flags);
KFUNC(void, bpf_local_irq_save, unsigned long *flags);
KFUNC(void, bpf_preempt_disable, void);
KFUNC(void, bpf_preempt_enable, void);
KFUNC(void, bpf_obj_drop_impl, void *p__alloc, void *meta__ign);
KFUNC(void *, bpf_obj_new_impl, u64 local_type_id__k, void *meta__ign);
KFUNC(int, bpf_rbtree_add_impl, struct bpf_rb_root *root, struct bpf_rb_node *node,
      bool (less)(struct bpf_rb_node *a, const struct bpf_rb_node *b), void *meta__ign, u64 off);
KFUNC(struct bpf_rb_node *, bpf_rbtree_first, struct bpf_rb_root *root);
KFUNC(struct bpf_rb_node *, bpf_rbtree_remove, struct bpf_rb_root *root, struct bpf_rb_node *node);
KFUNC(void, bpf_rcu_read_lock, void);
KFUNC(void, bpf_rcu_read_unlock, void);
KFUNC(void *, bpf_rdonly_cast, const void *obj, u32 btf_id);
KFUNC(int, bpf_res_spin_lock, struct bpf_res_spin_lock *lock);
KFUNC(int, bpf_res_spin_lock_irqsave, struct bpf_res_spin_lock *lock, unsigned long *flags);
KFUNC(void, bpf_res_spin_unlock, struct bpf_res_spin_lock *lock);
KFUNC(void, bpf_res_spin_unlock_irqrestore, struct bpf_res_spin_lock *lock, unsigned long *flags);
KFUNC(int, bpf_stream_vprintk, int stream_id, const char *fmt__str, const void *args, u32 len__sz);
KFUNC(struct task_struct *, bpf_task_acquire, struct task_struct *p);
KFUNC(struct task_struct *, bpf_task_from_pid, s32 pid);
KFUNC(struct task_struct *, bpf_task_from_vpid, s32 vpid);
KFUNC(void, bpf_task_release, struct task_struct *p);
KFUNC(struct task_struct *, scx_bpf_cid_curr, s32 cid);
KFUNC(void, scx_bpf_cid_override, const s32 *cpu_to_cid, u32 cpu_to_cid__sz);
KFUNC(s32, scx_bpf_cid_to_cpu, s32 cid);
KFUNC(void, scx_bpf_cid_topo, s32 cid, struct scx_cid_topo *out__uninit);
KFUNC(u32, scx_bpf_cidperf_cap, s32 cid);
KFUNC(u32, scx_bpf_cidperf_cur, s32 cid);
KFUNC(void, scx_bpf_cidperf_set, s32 cid, u32 perf);
KFUNC(struct task_struct *, scx_bpf_cpu_curr, s32 cpu);
KFUNC(s32, scx_bpf_cpu_node, s32 cpu);
KFUNC(struct rq *, scx_bpf_cpu_rq, s32 cpu);
KFUNC(s32, scx_bpf_cpu_to_cid, s32 cpu);
KFUNC(u32, scx_bpf_cpuperf_cap, s32 cpu);
KFUNC(u32, scx_bpf_cpuperf_cur, s32 cpu);
KFUNC(void, scx_bpf_cpuperf_set, s32 cpu, u32 perf);
KFUNC(s32, scx_bpf_create_dsq, u64 dsq_id, s32 node);
KFUNC(void, scx_bpf_destroy_dsq, u64 dsq_id);
KFUNC(void, scx_bpf_dispatch_cancel, void);
KFUNC(u32, scx_bpf_dispatch_nr_slots, void);
KFUNC(void, scx_bpf_dsq_insert, struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags);
KFUNC(bool, scx_bpf_dsq_insert___v2, struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags);
KFUNC(void, scx_bpf_dsq_insert_vtime, struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
      u64 enq_flags);
KFUNC(bool, scx_bpf_dsq_move, struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
      u64 enq_flags);
KFUNC(void, scx_bpf_dsq_move_set_slice, struct bpf_iter_scx_dsq *it, u64 slice);
KFUNC(void, scx_bpf_dsq_move_set_vtime, struct bpf_iter_scx_dsq *it, u64 vtime);
KFUNC(bool, scx_bpf_dsq_move_to_local, u64 dsq_id);
KFUNC(bool, scx_bpf_dsq_move_to_local___v2, u64 dsq_id, u64 enq_flags);
KFUNC(bool, scx_bpf_dsq_move_vtime, struct bpf_iter_scx_dsq *it, struct task_struct *p,
      u64 dsq_id, u64 enq_flags);
KFUNC(s32, scx_bpf_dsq_nr_queued, u64 dsq_id);
KFUNC(struct task_struct *, scx_bpf_dsq_peek, u64 dsq_id);
KFUNC(void, scx_bpf_dsq_reenq, u64 dsq_id, u64 reenq_flags);
KFUNC(void, scx_bpf_dump_bstr, char *fmt, unsigned long long *data, u32 data__sz);
KFUNC(void, scx_bpf_error_bstr, char *fmt, unsigned long long *data, u32 data__sz);
KFUNC(void, scx_bpf_exit_bstr, s64 exit_code, char *fmt, unsigned long long *data, u32 data__sz);
KFUNC(const struct cpumask *, scx_bpf_get_idle_cpumask, void);
KFUNC(const struct cpumask *, scx_bpf_get_idle_cpumask_node, s32 node);
KFUNC(const struct cpumask *, scx_bpf_get_idle_smtmask, void);
KFUNC(const struct cpumask *, scx_bpf_get_idle_smtmask_node, s32 node);
KFUNC(const struct cpumask *, scx_bpf_get_online_cpumask, void);
KFUNC(const struct cpumask *, scx_bpf_get_possible_cpumask, void);
KFUNC(void, scx_bpf_kick_cid, s32 cid, u64 flags);
KFUNC(void, scx_bpf_kick_cpu, s32 cpu, u64 flags);
KFUNC(struct rq *, scx_bpf_locked_rq, void);
KFUNC(u64, scx_bpf_now, void);
KFUNC(u32, scx_bpf_nr_cids, void);
KFUNC(u32, scx_bpf_nr_cpu_ids, void);
KFUNC(u32, scx_bpf_nr_node_ids, void);
KFUNC(u32, scx_bpf_nr_online_cids, void);
KFUNC(s32, scx_bpf_pick_any_cpu, const struct cpumask *cpus_allowed, u64 flags);
KFUNC(s32, scx_bpf_pick_any_cpu_node, const struct cpumask *cpus_allowed, s32 node, u64 flags);
KFUNC(s32, scx_bpf_pick_idle_cpu, const struct cpumask *cpus_allowed, u64 flags);
KFUNC(s32, scx_bpf_pick_idle_cpu_node, const struct cpumask *cpus_allowed, s32 node, u64 flags);
KFUNC(void, scx_bpf_put_cpumask, const struct cpumask *cpumask);
KFUNC(void, scx_bpf_put_idle_cpumask, const struct cpumask *idle_mask);
KFUNC(u32, scx_bpf_reenqueue_local, void);
KFUNC(void, scx_bpf_reenqueue_local___v2, void);
KFUNC(s32, scx_bpf_select_cpu_and, struct task_struct *p, s32 prev_cpu, u64 wake_flags,
      const struct cpumask *cpus_allowed, u64 flags);
KFUNC(s32, scx_bpf_select_cpu_dfl, struct task_struct *p, s32 prev_cpu, u64 wake_flags,
      bool *is_idle);
KFUNC(struct cgroup *, scx_bpf_task_cgroup, struct task_struct *p);
KFUNC(s32, scx_bpf_task_cid, const struct task_struct *p);
KFUNC(s32, scx_bpf_task_cpu, const struct task_struct *p);
KFUNC(bool, scx_bpf_task_running, const struct task_struct *p);
KFUNC(bool, scx_bpf_task_set_dsq_vtime, struct task_struct *p, u64 vtime);
KFUNC(bool, scx_bpf_task_set_slice, struct task_struct *p, u64 slice);
KFUNC(bool, scx_bpf_test_and_clear_cpu_idle, s32 cpu);
KFUNC(s32, scx_bpf_this_cid, void);
KFUNC(struct task_struct *, scx_bpf_tid_to_task, u64 tid);

/*
 * Functions and tracepoints to which programs are attached, target__NAME and btf_trace_NAME. A loader must find them;
 * the virtual kernel never calls these programs, and a note says so.
 */
#define TARGET(result, name, parameters...)	typedef result target__##name(parameters)
#define TRACEPOINT(name, parameters...)		typedef void (*btf_trace_##name)(void *, parameters)

struct bpf_link;
struct irqaction;

TARGET(int, bpf_scx_reg, void *kdata, struct bpf_link *link);
TARGET(void, scx_tick, struct rq *rq);

TRACEPOINT(cgroup_attach_task, struct cgroup *dst_cgrp, const char *path, struct task_struct *task,
	   bool threadgroup);
TRACEPOINT(cpu_idle, unsigned int state, unsigned int cpu_id);
TRACEPOINT(hw_pressure_update, int cpu, unsigned long hw_pressure);
TRACEPOINT(irq_handler_entry, int irq, struct irqaction *action);
TRACEPOINT(irq_handler_exit, int irq, struct irqaction *action, int ret);
TRACEPOINT(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	   unsigned int prev_state);
TRACEPOINT(softirq_entry, unsigned int vec_nr);
TRACEPOINT(softirq_exit, unsigned int vec_nr);
TRACEPOINT(task_rename, struct task_struct *task, const char *comm);

#endif
