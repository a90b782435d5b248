/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The default choices; ends itself with an error when a task named "ejector" sleeps or exits, and
 * records no reason, so that user space sees only that it is gone.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(silent_stopping, struct task_struct *p, bool runnable)
{
	char name[16];

	if (runnable || bpf_probe_read_kernel_str(name, sizeof(name), p->comm) < 0)
		return;
	if (!bpf_strncmp(name, 8, "ejector"))
		scx_bpf_error("nobody hears this");
}

SCX_OPS_DEFINE(silent_ops,
	       .stopping	= (void *)silent_stopping,
	       .name		= "silent");
