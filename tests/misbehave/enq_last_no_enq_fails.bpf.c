/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * SCX_OPS_ENQ_LAST asks for the last runnable task to go through ops.enqueue(); without that op the
 * policy is ejected before it schedules anything.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

SCX_OPS_DEFINE(enq_last_no_enq_fails_ops,
	       .flags = SCX_OPS_ENQ_LAST,
	       .exit = (void *)rule_exit,
	       .name = "enq_last_no_enq");
