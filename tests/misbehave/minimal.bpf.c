/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A policy without a single op schedules the machine: the kernel's own choices stand in for all of
 * them (idle CPU selection, the global DSQ, the default slice).
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

SCX_OPS_DEFINE(minimal_ops, .name = "minimal");
