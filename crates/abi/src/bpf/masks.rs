//! CPU masks and iteration over numbers and bits, as objects call them (kernel/bpf/cpumask.c, kernel/bpf/bpf_iter.c,
//! kernel/bpf/helpers.c). Natively policies have them from include/native/scx/cpumask.h.

use schedlab_bpf::program::HostFn;

use super::words::host_fn;
use crate::host::Context;
use crate::kfuncs::cpu;
use crate::layout::CpuMask;
use crate::maps::{E2BIG, EINVAL, ENOMEM};
use crate::primitives;

type Mask = *const CpuMask;

fn nr_cpus(context: Context) -> u32 {
    context.with(|host| host.nr_cpus as u32)
}

/// The words that have bits of CPUs that are there.
fn words(context: Context) -> usize {
    nr_cpus(context).div_ceil(64) as usize
}

/// The bits of a word that stand for CPUs that are there.
fn valid(context: Context, word: usize) -> u64 {
    let rest = nr_cpus(context) as usize - word * 64;
    if rest >= 64 {
        u64::MAX
    } else {
        (1 << rest) - 1
    }
}

fn read(mask: Mask, word: usize) -> u64 {
    // SAFETY: policies have pointers to masks only from us; a wild one faults, and that is caught.
    unsafe { (&raw const (*mask).bits[word]).read() }
}

fn write(mask: *mut CpuMask, word: usize, bits: u64) {
    // SAFETY: as in `read`.
    unsafe { (&raw mut (*mask).bits[word]).write(bits) }
}

/// False for a CPU that is not there (`cpu_valid()`).
fn has(context: Context, cpu: u32, mask: Mask) -> bool {
    cpu < nr_cpus(context) && read(mask, cpu as usize / 64) >> (cpu % 64) & 1 != 0
}

fn change(context: Context, cpu: u32, mask: *mut CpuMask, to: bool) -> bool {
    context.charge_kfunc();
    primitives::sync(context);
    let was = has(context, cpu, mask);
    if cpu < nr_cpus(context) {
        let (word, bit) = (cpu as usize / 64, 1 << (cpu % 64));
        let bits = read(mask, word);
        write(mask, word, if to { bits | bit } else { bits & !bit });
    }
    was
}

fn fill(context: Context, mask: *mut CpuMask, of: impl Fn(usize) -> u64) -> u64 {
    context.charge_kfunc();
    let mut any = 0;
    for word in 0..words(context) {
        let bits = of(word);
        any |= bits;
        write(mask, word, bits);
    }
    any
}

fn all(context: Context, holds: impl Fn(usize) -> bool) -> bool {
    context.charge_kfunc();
    (0..words(context)).all(holds)
}

/// The first bit; the number of CPUs if there is none.
fn first(context: Context, of: impl Fn(usize) -> u64) -> u32 {
    context.charge_kfunc();
    let mut words = (0..words(context)).map(|word| (word, of(word)));
    match words.find(|(_, bits)| *bits != 0) {
        Some((word, bits)) => word as u32 * 64 + bits.trailing_zeros(),
        None => nr_cpus(context),
    }
}

fn populate(context: Context, mask: *mut CpuMask, from: *const u8, bytes: u64) -> i64 {
    const EACCES: i64 = -13;
    if bytes < words(context) as u64 * 8 {
        context.charge_kfunc();
        return EACCES;
    }
    let of = |word: usize| {
        // SAFETY: the policy's own memory, which need not be aligned; a wild pointer faults, and that is caught.
        let bits = unsafe { from.cast::<u64>().add(word).read_unaligned() };
        bits & valid(context, word)
    };
    fill(context, mask, of);
    0
}

/// A kfunc of masks.
pub fn mask(name: &str) -> Option<HostFn> {
    Some(match name {
        "bpf_cpumask_create" => host_fn!(|c| cpu::mask_create(c)),
        "bpf_cpumask_acquire" => host_fn!(|c, mask: *mut CpuMask| {
            cpu::mask_acquire(c, mask);
            mask
        }),
        "bpf_cpumask_release" => host_fn!(|c, mask: *mut CpuMask| cpu::mask_release(c, mask)),
        "bpf_cpumask_test_cpu" => host_fn!(|c, cpu: u32, mask: Mask| {
            c.charge_kfunc();
            has(c, cpu, mask)
        }),
        "bpf_cpumask_set_cpu" => host_fn!(|c, cpu: u32, mask: *mut CpuMask| {
            change(c, cpu, mask, true);
        }),
        "bpf_cpumask_clear_cpu" => host_fn!(|c, cpu: u32, mask: *mut CpuMask| {
            change(c, cpu, mask, false);
        }),
        "bpf_cpumask_test_and_set_cpu" => {
            host_fn!(|c, cpu: u32, mask: *mut CpuMask| change(c, cpu, mask, true))
        }
        "bpf_cpumask_test_and_clear_cpu" => {
            host_fn!(|c, cpu: u32, mask: *mut CpuMask| change(c, cpu, mask, false))
        }
        "bpf_cpumask_setall" => host_fn!(|c, mask: *mut CpuMask| {
            fill(c, mask, |word| valid(c, word));
        }),
        "bpf_cpumask_clear" => host_fn!(|c, mask: *mut CpuMask| {
            fill(c, mask, |_| 0);
        }),
        "bpf_cpumask_copy" => host_fn!(|c, mask: *mut CpuMask, from: Mask| {
            fill(c, mask, |word| read(from, word));
        }),
        "bpf_cpumask_populate" => {
            host_fn!(
                |c, mask: *mut CpuMask, from: *const u8, bytes: u64| populate(c, mask, from, bytes)
            )
        }
        "bpf_cpumask_and" => host_fn!(|c, mask: *mut CpuMask, a: Mask, b: Mask| {
            fill(c, mask, |word| read(a, word) & read(b, word)) != 0
        }),
        "bpf_cpumask_or" => host_fn!(|c, mask: *mut CpuMask, a: Mask, b: Mask| {
            fill(c, mask, |word| read(a, word) | read(b, word));
        }),
        "bpf_cpumask_xor" => host_fn!(|c, mask: *mut CpuMask, a: Mask, b: Mask| {
            fill(c, mask, |word| read(a, word) ^ read(b, word));
        }),
        "bpf_cpumask_equal" => {
            host_fn!(|c, a: Mask, b: Mask| all(c, |word| read(a, word) == read(b, word)))
        }
        "bpf_cpumask_intersects" => {
            host_fn!(|c, a: Mask, b: Mask| !all(c, |word| read(a, word) & read(b, word) == 0))
        }
        "bpf_cpumask_subset" => {
            host_fn!(|c, a: Mask, b: Mask| all(c, |word| read(a, word) & !read(b, word) == 0))
        }
        "bpf_cpumask_empty" => host_fn!(|c, mask: Mask| all(c, |word| read(mask, word) == 0)),
        "bpf_cpumask_full" => host_fn!(|c, mask: Mask| all(c, |word| {
            read(mask, word) & valid(c, word) == valid(c, word)
        })),
        "bpf_cpumask_weight" => host_fn!(|c, mask: Mask| {
            c.charge_kfunc();
            (0..words(c))
                .map(|word| read(mask, word).count_ones())
                .sum::<u32>()
        }),
        "bpf_cpumask_first" => host_fn!(|c, mask: Mask| first(c, |word| read(mask, word))),
        "bpf_cpumask_first_zero" => {
            host_fn!(|c, mask: Mask| first(c, |word| !read(mask, word) & valid(c, word)))
        }
        "bpf_cpumask_first_and" => {
            host_fn!(|c, a: Mask, b: Mask| first(c, |word| read(a, word) & read(b, word)))
        }
        "bpf_cpumask_any_distribute" => {
            host_fn!(|c, mask: Mask| cpu::any_distribute(c, mask, mask))
        }
        "bpf_cpumask_any_and_distribute" => {
            host_fn!(|c, a: Mask, b: Mask| cpu::any_distribute(c, a, b))
        }
        _ => return None,
    })
}

/// `struct bpf_iter_num_kern`.
#[repr(C)]
struct Numbers {
    current: i32,
    end: i32,
}

fn numbers_new(it: *mut Numbers, start: i32, end: i32) -> i64 {
    let nr = i64::from(end) - i64::from(start);
    let (numbers, result) = match nr {
        ..0 => (Numbers { current: 0, end: 0 }, EINVAL),
        nr if nr > i64::from(primitives::STEPS_MAX) => (Numbers { current: 0, end: 0 }, E2BIG),
        _ => (
            Numbers {
                current: start.wrapping_sub(1),
                end,
            },
            0,
        ),
    };
    // SAFETY: the iterator lies on the policy's stack.
    unsafe { it.write(numbers) };
    result
}

fn numbers_next(context: Context, it: *mut Numbers) -> *mut i32 {
    // A loop may wait for what another CPU does.
    primitives::sync(context);
    primitives::step(context);
    // SAFETY: as above.
    let numbers = unsafe { &mut *it };
    if i64::from(numbers.current) + 1 >= i64::from(numbers.end) {
        *numbers = Numbers { current: 0, end: 0 };
        return std::ptr::null_mut();
    }
    numbers.current += 1;
    &raw mut numbers.current
}

/// `struct bpf_iter_bits_kern`, 16 bytes: one word is kept in place of the pointer.
#[repr(C)]
struct Bits {
    /// The word itself if there is one, or a pointer to a copy of them.
    words: u64,
    nr_bits: u32,
    bit: i32,
}

/// `BITS_ITER_NR_WORDS_MAX`.
const WORDS_MAX: u32 = 511;

fn bits_new(context: Context, it: *mut Bits, from: *const u64, nr_words: u32) -> i64 {
    let put = |bits: Bits| {
        // SAFETY: the iterator lies on the policy's stack.
        unsafe { it.write(bits) };
    };
    put(Bits {
        words: 0,
        nr_bits: 0,
        bit: -1,
    });
    if from.is_null() || nr_words == 0 {
        return EINVAL;
    }
    if nr_words > WORDS_MAX {
        return E2BIG;
    }
    // SAFETY: the policy says how many there are; a wild pointer faults, and that is caught.
    let words = unsafe { std::slice::from_raw_parts(from, nr_words as usize) };
    let words = match words {
        [word] => *word,
        words => {
            let copy = context.with(|host| {
                let free = host.bpf.free_words.pop();
                free.unwrap_or_else(|| host.memory.take(WORDS_MAX as usize * 8).cast())
            });
            if copy.is_null() {
                return ENOMEM;
            }
            // SAFETY: the copy has room for the most words there are.
            unsafe { copy.copy_from_nonoverlapping(words.as_ptr(), words.len()) };
            copy as u64
        }
    };
    put(Bits {
        words,
        nr_bits: nr_words * 64,
        bit: -1,
    });
    0
}

fn bits_next(context: Context, it: *mut Bits) -> *mut i32 {
    primitives::step(context);
    // SAFETY: as in `bits_new`.
    let bits = unsafe { &mut *it };
    let mut bit = (bits.bit + 1) as u32;
    while bit < bits.nr_bits {
        let word = match bits.nr_bits {
            64 => bits.words,
            // SAFETY: `bits_new` has put the copy there.
            _ => unsafe { (bits.words as *const u64).add(bit as usize / 64).read() },
        };
        let rest = word >> (bit % 64);
        if rest != 0 {
            bits.bit = (bit + rest.trailing_zeros()) as i32;
            return &raw mut bits.bit;
        }
        bit = (bit | 63) + 1;
    }
    bits.bit = bits.nr_bits as i32;
    std::ptr::null_mut()
}

fn bits_destroy(context: Context, it: *mut Bits) {
    // SAFETY: as in `bits_new`.
    let bits = unsafe { &mut *it };
    if bits.nr_bits > 64 {
        let copy = bits.words as *mut u64;
        context.with(|host| host.bpf.free_words.push(copy));
        bits.nr_bits = 0;
    }
}

/// A kfunc of an iterator.
pub fn iterator(name: &str) -> Option<HostFn> {
    Some(match name {
        "bpf_iter_num_new" => {
            host_fn!(|c, it: *mut Numbers, start: i32, end: i32| numbers_new(it, start, end))
        }
        "bpf_iter_num_next" => host_fn!(|c, it: *mut Numbers| numbers_next(c, it)),
        "bpf_iter_num_destroy" => host_fn!(|c, it: *mut Numbers| {
            // SAFETY: the iterator lies on the policy's stack.
            unsafe { it.write(Numbers { current: 0, end: 0 }) }
        }),
        "bpf_iter_bits_new" => {
            host_fn!(|c, it: *mut Bits, from: *const u64, words: u32| bits_new(c, it, from, words))
        }
        "bpf_iter_bits_next" => host_fn!(|c, it: *mut Bits| bits_next(c, it)),
        "bpf_iter_bits_destroy" => host_fn!(|c, it: *mut Bits| bits_destroy(c, it)),
        _ => return None,
    })
}
