/* SPDX-License-Identifier: GPL-2.0-only */
/* The one cgroup: the root, in which every task is. */
#include "kernel.h"

struct kernfs_node {
	u64 id;
} __core;

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
} __core;

struct cgroup {
	struct cgroup_subsys_state self;
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[1];
} __core;

struct css_set {
	struct cgroup *dfl_cgrp;
} __core;

struct task_struct___groups {
	struct css_set *cgroups;
} __core;

struct bpf_iter_css {
	u64 opaque[3];
};

extern struct cgroup *scx_bpf_task_cgroup(struct task_struct *p) __ksym;
extern struct cgroup *bpf_cgroup_from_id(u64 id) __ksym;
extern struct cgroup *bpf_cgroup_ancestor(struct cgroup *of, int level) __ksym;
extern void bpf_cgroup_release(struct cgroup *of) __ksym;
extern int bpf_iter_css_new(struct bpf_iter_css *it, struct cgroup_subsys_state *start, u32 flags) __ksym;
extern struct cgroup_subsys_state *bpf_iter_css_next(struct bpf_iter_css *it) __ksym;
extern void bpf_iter_css_destroy(struct bpf_iter_css *it) __ksym;

static void *(*const bpf_cgrp_storage_get)(void *map, struct cgroup *of, void *value, u64 flags) = (void *)210;
static long (*const bpf_cgrp_storage_delete)(void *map, struct cgroup *of) = (void *)211;

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
