/* SPDX-License-Identifier: GPL-2.0-only */
/* One of the names that the kernel tree has for parts of common.bpf.h. */
#include "common.bpf.h"
