/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A policy can be loaded and unloaded over and over, from several threads at once: each load begins
 * with its own initial globals, and unloading takes leave of every task that was ever announced.
 *
 * The harness loads it many times. What is wrong at unloading can no longer be reported through an
 * exit, so `verdict` stays behind for the harness to read.
 */
#define RULE_OWN_EXIT
#include "rule.h"

char _license[] SEC("license") = "GPL";

s32 nr_inits, nr_exits;
s32 nr_tasks, nr_enabled, nr_runs;
/* 1: every announced task was taken leave of before ops.exit(); -1: not. */
s32 verdict;

s32 BPF_STRUCT_OPS_SLEEPABLE(reload_loop_init)
{
	if (nr_inits || nr_exits || nr_tasks || nr_enabled || verdict)
		rule_broken("a fresh copy finds the globals of another");
	nr_inits++;
	return 0;
}

s32 BPF_STRUCT_OPS(reload_loop_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	__sync_fetch_and_add(&nr_tasks, 1);
	return 0;
}

void BPF_STRUCT_OPS(reload_loop_enable, struct task_struct *p)
{
	__sync_fetch_and_add(&nr_enabled, 1);
}

/* Ends while tasks are there to take leave of. */
void BPF_STRUCT_OPS(reload_loop_running, struct task_struct *p)
{
	if (++nr_runs == 5)
		rule_holds("%d tasks are announced", nr_tasks);
}

void BPF_STRUCT_OPS(reload_loop_disable, struct task_struct *p)
{
	__sync_fetch_and_sub(&nr_enabled, 1);
}

void BPF_STRUCT_OPS(reload_loop_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	__sync_fetch_and_sub(&nr_tasks, 1);
}

void BPF_STRUCT_OPS(reload_loop_exit, struct scx_exit_info *ei)
{
	rule_exit_record(ei);
	nr_exits++;
	verdict = nr_exits == 1 && !nr_tasks && !nr_enabled ? 1 : -1;
}

SCX_OPS_DEFINE(reload_loop_ops,
	       .init = (void *)reload_loop_init,
	       .init_task = (void *)reload_loop_init_task,
	       .enable = (void *)reload_loop_enable,
	       .running = (void *)reload_loop_running,
	       .disable = (void *)reload_loop_disable,
	       .exit_task = (void *)reload_loop_exit_task,
	       .exit = (void *)reload_loop_exit,
	       .name = "reload_loop");
