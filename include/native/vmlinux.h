/* SPDX-License-Identifier: GPL-2.0-only */
/* The types of the kernel, as far as the virtual kernel has them. */
#include <scx/types.h>
#include <scx/enums.h>
