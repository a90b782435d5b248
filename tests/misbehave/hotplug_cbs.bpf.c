/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel calls ops.cpu_online() and ops.cpu_offline() of a policy that has them for CPUs that come
 * and go, and the policy may go on, or end itself with a code that asks for a restart. This one goes on
 * when CPU 1 goes offline and ends itself when it comes back.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

/* The reason of its own, in the bits that are free for a policy. */
#define CAME_ONLINE (SCX_ECODE_ACT_RESTART | 0x11)

bool went;

void BPF_STRUCT_OPS(hotplug_cbs_running, struct task_struct *p)
{
	/*
	 * A CPU's own threads are still needed to take it down, and a task that waits there is picked
	 * once more to be pushed away (balance_push()).
	 */
	if (went && p->nr_cpus_allowed > 1 && bpf_get_smp_processor_id() == 1)
		rule_broken_or_raced("%s[%d] runs on an offline CPU", p->comm, p->pid);
}

void BPF_STRUCT_OPS_SLEEPABLE(hotplug_cbs_cpu_offline, s32 cpu)
{
	if (cpu != 1 || went)
		rule_broken("CPU %d goes offline", cpu);
	went = true;
}

void BPF_STRUCT_OPS_SLEEPABLE(hotplug_cbs_cpu_online, s32 cpu)
{
	if (cpu != 1 || !went)
		rule_broken("CPU %d comes online", cpu);
	scx_bpf_exit(CAME_ONLINE, "CPU %d is back", cpu);
}

SCX_OPS_DEFINE(hotplug_cbs_ops,
	       .running = (void *)hotplug_cbs_running,
	       .cpu_online = (void *)hotplug_cbs_cpu_online,
	       .cpu_offline = (void *)hotplug_cbs_cpu_offline,
	       .timeout_ms = 1000U,
	       .exit = (void *)rule_exit,
	       .name = "hotplug_cbs");
