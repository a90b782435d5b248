/* SPDX-License-Identifier: GPL-2.0-only */
/* A tree of cgroups: each op for them, walks, ancestors and storage. Lists of ids are numbers with a digit each, limits have seven. */
#include "cgroup.h"

struct {
	__uint(type, 32);
	__uint(map_flags, 1);
	__type(key, int);
	__type(value, u64);
} own SEC(".maps");

/* Id of a cgroup that it does not take. */
const volatile u64 refuses = 0;
/* The op that asks for the cgroup of a task that it does not operate on: 1 init_task, 2 cgroup_prep_move, 3 running of another task. */
const volatile u64 asks = 0;
/* In Linux 6.18 ops.cgroup_move() may not ask for the cgroup of its task. */
const volatile u64 older = 0;

/* A task that has been running before. */
static struct task_struct *other;

u64 made, defaults, weights, limits, idle, prepared, moved, born, runs;

SEC("struct_ops.s/cgroup_init") s32 t_cgroup_init(u64 *ctx)
{
	struct cgroup *of = (void *)ctx[0];
	struct scx_cgroup_init_args *args = (void *)ctx[1];
	u64 *value = bpf_cgrp_storage_get(&own, of, NULL, 1);

	if (!value || of->kn->id == refuses)
		return -12;
	*value = of->kn->id;
	made = made * 10 + of->kn->id;
	defaults += args->weight == 100 && args->bw_period_us == 100000 && args->bw_quota_us == ~0ull && !args->bw_burst_us;
	return 0;
}

SEC("struct_ops/cgroup_set_weight") s32 t_set_weight(u64 *ctx)
{
	struct cgroup *of = (void *)ctx[0];

	weights = weights * 10000 + of->kn->id * 1000 + (u32)ctx[1];
	return 0;
}

SEC("struct_ops/cgroup_set_bandwidth") s32 t_set_bandwidth(u64 *ctx)
{
	struct cgroup *of = (void *)ctx[0];

	limits = limits * 10000000 + of->kn->id * 1000000 + ctx[1] / 1000 * 1000 + ctx[2] / 1000 + ctx[3];
	return 0;
}

SEC("struct_ops/cgroup_set_idle") s32 t_set_idle(u64 *ctx)
{
	struct cgroup *of = (void *)ctx[0];

	idle = idle * 10 + of->kn->id * ctx[1];
	return 0;
}

SEC("struct_ops.s/cgroup_prep_move") s32 t_prep_move(u64 *ctx)
{
	struct cgroup *from = (void *)ctx[1], *to = (void *)ctx[2];

	if (asks == 2)
		scx_bpf_task_cgroup((void *)ctx[0]);
	prepared += from->kn->id * 10 + to->kn->id;
	return 0;
}

SEC("struct_ops/cgroup_move") s32 t_move(u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];
	struct cgroup *from = (void *)ctx[1], *to = (void *)ctx[2];

	/* The task is in the new one already. */
	moved += (from->kn->id * 10 + to->kn->id) * (older || scx_bpf_task_cgroup(p) == to);
	return 0;
}

SEC("struct_ops/init_task") s32 t_init_task(u64 *ctx)
{
	struct task_struct___groups *p = (void *)ctx[0];

	if (asks == 1)
		scx_bpf_task_cgroup((void *)ctx[0]);
	born += p->cgroups->dfl_cgrp->kn->id;
	return 0;
}

static u64 walk(struct cgroup *start, u32 order)
{
	struct cgroup_subsys_state *css;
	struct bpf_iter_css it;
	u64 ids = 0, nr = 0, *value;

	bpf_iter_css_new(&it, &start->self, order);
	while ((css = bpf_iter_css_next(&it)) && nr++ < 10) {
		value = bpf_cgrp_storage_get(&own, css->cgroup, NULL, 0);
		ids = ids * 10 + (value ? *value : 9);
	}
	bpf_iter_css_destroy(&it);
	return ids;
}

SEC("struct_ops/running") s32 t_running(u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];
	struct cgroup *of = scx_bpf_task_cgroup(p), *above;

	if (asks == 3 && other && other != p)
		scx_bpf_task_cgroup(other);
	other = p;
	if (!of || of->kn->id != 3 || ++runs < 3)
		return 0;
	above = bpf_cgroup_ancestor(of, 1);
	if (!above)
		return 0;
	finish("made %llu defaults %llu weights %llu limits %llu idle %llu prepared %llu moved %llu born %llu "
	       "walks %llu %llu %llu under %llu",
	       made, defaults, weights, limits, idle, prepared, moved, born,
	       walk(bpf_cgroup_from_id(1), 2) * 1000 + walk(bpf_cgroup_from_id(1), 5), walk(bpf_cgroup_from_id(1), 3), walk(of, 4),
	       bpf_task_under_cgroup(p, above) * 100 + bpf_task_under_cgroup(p, bpf_cgroup_from_id(4)) * 10 +
	       (above->kn->id == 2 && of->level == 2 && of->self.parent == &above->self && of->ancestors[1] == above));
	return 0;
}

SCHEDULER("tree", .running = (void *)t_running, .init_task = (void *)t_init_task, .cgroup_init = (void *)t_cgroup_init,
	  .cgroup_set_weight = (void *)t_set_weight, .cgroup_set_bandwidth = (void *)t_set_bandwidth,
	  .cgroup_set_idle = (void *)t_set_idle, .cgroup_prep_move = (void *)t_prep_move, .cgroup_move = (void *)t_move);
