/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All types of the virtual kernel, for objects, which ask by CO-RE what a kernel has. Nothing of it runs: the build
 * script keeps its debug information (crates/abi/src/bpf/types.rs).
 */
#include <scx/common.bpf.h>
#include "kfuncs.h"
