/* SPDX-License-Identifier: GPL-2.0-only */
/* The root, in which every task is where the workload has no cgroups. */
#include "cgroup.h"

struct {
	__uint(type, 32);
	__uint(map_flags, 1);
	__type(key, int);
	__type(value, u64);
} of_groups SEC(".maps");

SEC("struct_ops/running") s32 g_running(u64 *ctx)
{
	struct task_struct___groups *p = (void *)ctx[0];
	struct cgroup *root = scx_bpf_task_cgroup((void *)ctx[0]);
	struct cgroup_subsys_state *css;
	struct bpf_iter_css it;
	u64 count = 0, same, *value;

	if (!root)
		return 0;
	value = bpf_cgrp_storage_get(&of_groups, root, NULL, 0);
	same = value == NULL;
	value = bpf_cgrp_storage_get(&of_groups, root, NULL, 1);
	if (!value)
		return 0;
	*value = 5;
	value = bpf_cgrp_storage_get(&of_groups, root, NULL, 0);
	bpf_iter_css_new(&it, &root->self, 2);
	while ((css = bpf_iter_css_next(&it))) {
		count += css->cgroup == root && !css->parent;
		if (count > 5)
			break;
	}
	bpf_iter_css_destroy(&it);
	finish("id %llu level %llu same %llu kept %llu groups %llu other %llu",
	       root->kn->id, root->level,
	       same + (bpf_cgroup_from_id(1) == root) + (bpf_cgroup_ancestor(root, 0) == root) +
	       (root->ancestors[0] == root) + (p->cgroups->dfl_cgrp == root) + (bpf_cgroup_ancestor(root, 1) == NULL),
	       value ? *value : 0, count, bpf_cgroup_from_id(2) != NULL);
	return 0;
}

SCHEDULER("groups", .running = (void *)g_running);
