/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * With SCX_OPS_BUILTIN_IDLE_PER_NODE idle CPUs are kept per NUMA node: a CPU picked within a node
 * belongs to it and is claimed, and a DSQ per node is served by the node's CPUs.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define PICKS_WANTED 100

u32 nr_idle_picks;

s32 BPF_STRUCT_OPS(numa_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 node = scx_bpf_cpu_node(prev_cpu);
	s32 cpu = scx_bpf_pick_idle_cpu_node(p->cpus_ptr, node, SCX_PICK_IDLE_IN_NODE);
	const struct cpumask *idle;
	bool still_idle;

	if (cpu < 0)
		return prev_cpu;
	if (scx_bpf_cpu_node(cpu) != node)
		rule_broken("CPU %d was picked for node %d", cpu, node);
	idle = scx_bpf_get_idle_cpumask_node(node);
	still_idle = bpf_cpumask_test_cpu(cpu, idle);
	scx_bpf_put_cpumask(idle);
	if (still_idle)
		rule_broken("CPU %d was picked and still counts as idle", cpu);
	if (__sync_add_and_fetch(&nr_idle_picks, 1) == PICKS_WANTED)
		rule_holds("%d idle CPUs, each of its node", PICKS_WANTED);
	return cpu;
}

void BPF_STRUCT_OPS(numa_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, scx_bpf_cpu_node(scx_bpf_task_cpu(p)), SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(numa_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(scx_bpf_cpu_node(cpu), 0);
}

void BPF_STRUCT_OPS(numa_running, struct task_struct *p)
{
}

s32 BPF_STRUCT_OPS_SLEEPABLE(numa_init)
{
	u32 node;
	s32 err;

	if (scx_bpf_nr_node_ids() < 2)
		rule_broken("the machine of this test has several nodes");
	bpf_for(node, 0, scx_bpf_nr_node_ids()) {
		err = scx_bpf_create_dsq(node, node);
		if (err)
			return err;
	}
	return 0;
}

SCX_OPS_DEFINE(numa_ops,
	       .select_cpu = (void *)numa_select_cpu,
	       .enqueue = (void *)numa_enqueue,
	       .dispatch = (void *)numa_dispatch,
	       .running = (void *)numa_running,
	       .init = (void *)numa_init,
	       .flags = SCX_OPS_BUILTIN_IDLE_PER_NODE,
	       .exit = (void *)rule_exit,
	       .name = "numa");
