/* SPDX-License-Identifier: GPL-2.0-only */
/* libbpf's name for what scx/common.bpf.h has. */
#include <scx/common.bpf.h>
