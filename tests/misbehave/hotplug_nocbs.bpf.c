/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A policy without ops.cpu_online() and ops.cpu_offline() is unregistered by the kernel when a CPU
 * comes or goes, with a code that asks for a restart.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

SCX_OPS_DEFINE(hotplug_nocbs_ops,
	       .timeout_ms = 1000U,
	       .exit = (void *)rule_exit,
	       .name = "hotplug_nocbs");
