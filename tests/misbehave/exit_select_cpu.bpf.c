/* SPDX-License-Identifier: GPL-2.0-only */
/* scx_bpf_exit() from ops.select_cpu() ends the run with its code: see exit_point.h. */
#define EXIT_POINT IN_SELECT_CPU
#include "exit_point.h"
