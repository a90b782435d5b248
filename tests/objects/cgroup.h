/* SPDX-License-Identifier: GPL-2.0-only */
/* The types and functions of cgroups that the objects here need. */
#ifndef OBJECTS_CGROUP_H
#define OBJECTS_CGROUP_H

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

struct scx_cgroup_init_args {
	u32 weight;
	u64 bw_period_us;
	u64 bw_quota_us;
	u64 bw_burst_us;
} __core;

struct bpf_iter_css {
	u64 opaque[3];
};

extern struct cgroup *scx_bpf_task_cgroup(struct task_struct *p) __ksym;
extern struct cgroup *bpf_cgroup_from_id(u64 id) __ksym;
extern struct cgroup *bpf_cgroup_ancestor(struct cgroup *of, int level) __ksym;
extern void bpf_cgroup_release(struct cgroup *of) __ksym;
extern long bpf_task_under_cgroup(struct task_struct *p, struct cgroup *ancestor) __ksym;
extern int bpf_iter_css_new(struct bpf_iter_css *it, struct cgroup_subsys_state *start, u32 flags) __ksym;
extern struct cgroup_subsys_state *bpf_iter_css_next(struct bpf_iter_css *it) __ksym;
extern void bpf_iter_css_destroy(struct bpf_iter_css *it) __ksym;

static void *(*const bpf_cgrp_storage_get)(void *map, struct cgroup *of, void *value, u64 flags) = (void *)210;
static long (*const bpf_cgrp_storage_delete)(void *map, struct cgroup *of) = (void *)211;

#endif
