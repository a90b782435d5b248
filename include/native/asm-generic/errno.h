/* SPDX-License-Identifier: GPL-2.0-only */
/* The error numbers are in scx/enums.h. */
#include <scx/enums.h>
