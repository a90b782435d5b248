/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * DSQs can be created and destroyed in great number, from init as from init_task and exit_task; an id
 * is taken while its DSQ lives and free afterwards.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define NR_DSQS 1024
/* Task DSQs live above init's. */
#define TASK_DSQ(p) (0x10000ULL + (p)->pid)
#define EXITS_WANTED 8

u32 nr_exits;

s32 BPF_STRUCT_OPS_SLEEPABLE(create_dsq_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	s32 err = scx_bpf_create_dsq(TASK_DSQ(p), -1);

	if (err)
		rule_broken("no DSQ for %s[%d]: %d", p->comm, p->pid, err);
	return err;
}

void BPF_STRUCT_OPS(create_dsq_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	scx_bpf_destroy_dsq(TASK_DSQ(p));
	if (__sync_add_and_fetch(&nr_exits, 1) == EXITS_WANTED)
		rule_holds("%d tasks came and went with their DSQs", EXITS_WANTED);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(create_dsq_init)
{
	s32 err;
	u32 i, round;

	bpf_for(round, 0, 2) {
		bpf_for(i, 0, NR_DSQS) {
			err = scx_bpf_create_dsq(i, -1);
			if (err) {
				rule_broken("DSQ %u of round %u: %d", i, round, err);
				return 0;
			}
		}
		err = scx_bpf_create_dsq(NR_DSQS / 2, -1);
		if (err != -EEXIST) {
			rule_broken("DSQ %d was created twice: %d", NR_DSQS / 2, err);
			return 0;
		}
		bpf_for(i, 0, NR_DSQS)
			scx_bpf_destroy_dsq(i);
	}
	return 0;
}

SCX_OPS_DEFINE(create_dsq_ops,
	       .init_task = (void *)create_dsq_init_task,
	       .exit_task = (void *)create_dsq_exit_task,
	       .init = (void *)create_dsq_init,
	       .exit = (void *)rule_exit,
	       .name = "create_dsq");
