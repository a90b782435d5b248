/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Every task goes through init_task, enable, disable and exit_task in this order, each exactly once,
 * and init_task says which tasks were forked under the policy.
 *
 * The workload's forked tasks are called "child".
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define CHILDREN_WANTED 10

/* The ops that a task has gone through. */
enum { IS_ABSENT, IS_INITED, IS_ENABLED, IS_DISABLED };

u32 life[RULE_TASKS];
u32 nr_children, nr_exits;

static inline bool is_child(const struct task_struct *p)
{
	return !bpf_strncmp(p->comm, 5, "child");
}

static inline void step(struct task_struct *p, u32 from, u32 to)
{
	u32 slot = slot_of(p);

	if (life[slot] != from)
		rule_broken("%s[%d] goes to state %u from %u", p->comm, p->pid, to, life[slot]);
	life[slot] = to;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(init_enable_count_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	step(p, IS_ABSENT, IS_INITED);
	if (args->fork)
		__sync_fetch_and_add(&nr_children, 1);
	return 0;
}

void BPF_STRUCT_OPS(init_enable_count_enable, struct task_struct *p)
{
	step(p, IS_INITED, IS_ENABLED);
}

void BPF_STRUCT_OPS(init_enable_count_running, struct task_struct *p)
{
	if (life[slot_of(p)] != IS_ENABLED)
		rule_broken("%s[%d] runs without having been enabled", p->comm, p->pid);
}

void BPF_STRUCT_OPS(init_enable_count_disable, struct task_struct *p)
{
	step(p, IS_ENABLED, IS_DISABLED);
}

void BPF_STRUCT_OPS(init_enable_count_exit_task, struct task_struct *p,
		    struct scx_exit_task_args *args)
{
	step(p, IS_DISABLED, IS_ABSENT);
	if (!is_child(p) || __sync_add_and_fetch(&nr_exits, 1) != CHILDREN_WANTED)
		return;
	if (nr_children < CHILDREN_WANTED)
		rule_broken("%u forks were told, not %d", nr_children, CHILDREN_WANTED);
	rule_holds("%d children from init_task to exit_task", CHILDREN_WANTED);
}

SCX_OPS_DEFINE(init_enable_count_ops,
	       .init_task = (void *)init_enable_count_init_task,
	       .enable = (void *)init_enable_count_enable,
	       .running = (void *)init_enable_count_running,
	       .disable = (void *)init_enable_count_disable,
	       .exit_task = (void *)init_enable_count_exit_task,
	       .exit = (void *)rule_exit,
	       .name = "init_enable");
