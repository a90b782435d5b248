//! CPU masks that kfuncs hand out.

use std::rc::Rc;

use crate::layout::CpuMask;
use crate::memory::Memory;

/// A mask of the pool. C code has a pointer to the first member.
#[repr(C)]
#[derive(Clone, Copy)]
struct Pooled {
    mask: CpuMask,
    /// Which one it claims to be: policy code may have overwritten it.
    index: u32,
}

impl Pooled {
    fn put(memory: &Memory, index: u32) -> *mut Pooled {
        memory.put(Pooled {
            mask: CpuMask::EMPTY,
            index,
        })
    }
}

/// A mask that belongs to no pool, as large as those that do: kfuncs look for a number behind each.
pub fn put_mask(memory: &Memory, words: &[usize]) -> *mut CpuMask {
    let mask = Pooled::put(memory, u32::MAX).cast::<CpuMask>();
    // SAFETY: the memory has just been taken.
    unsafe { (*mask).set_words(words) };
    mask
}

/// Masks that are handed out and come back; none ever moves.
pub struct MaskPool {
    /// Each with the number of references to it.
    all: Vec<(*mut Pooled, u32)>,
    free: Vec<u32>,
    /// Every CPU of the machine.
    possible: *const CpuMask,
    memory: Rc<Memory>,
}

impl MaskPool {
    pub fn new(nr_cpus: usize, memory: &Rc<Memory>) -> MaskPool {
        MaskPool {
            all: Vec::new(),
            free: Vec::new(),
            possible: put_mask(memory, schedlab_trace::CpuSet::all(nr_cpus).words()),
            memory: Rc::clone(memory),
        }
    }

    /// Every CPU of the machine.
    pub fn possible(&self) -> *const CpuMask {
        self.possible
    }

    /// A mask of the pool with these bits.
    pub fn take(&mut self, words: &[usize]) -> *mut CpuMask {
        let index = self.free.pop().unwrap_or_else(|| {
            let index = self.all.len() as u32;
            self.all.push((Pooled::put(&self.memory, index), 0));
            index
        });
        let (pooled, references) = &mut self.all[index as usize];
        *references = 1;
        // SAFETY: the pool's masks live as long as the pool, and this one is free.
        unsafe { (**pooled).mask.set_words(words) };
        pooled.cast()
    }

    /// Its index, if it is one of the pool.
    fn find(&self, mask: *const CpuMask) -> Option<u32> {
        let pooled = mask.cast::<Pooled>();
        // SAFETY: a policy has masks only from us; what is not of the pool is found out below, and
        // a wild pointer faults, which is caught.
        let index = unsafe { (&raw const (*pooled).index).read_unaligned() };
        let (known, _) = self.all.get(index as usize)?;
        std::ptr::eq(*known, pooled).then_some(index)
    }

    /// Adds a reference; returns false if the mask is not in the pool.
    pub fn acquire(&mut self, mask: *const CpuMask) -> bool {
        let Some(index) = self.find(mask) else {
            return false;
        };
        self.all[index as usize].1 += 1;
        true
    }

    /// Drops a reference; returns false if the mask is not in the pool or is free.
    pub fn release(&mut self, mask: *const CpuMask) -> bool {
        if std::ptr::eq(mask, self.possible()) {
            return true;
        }
        let Some(index) = self.find(mask) else {
            return false;
        };
        let references = &mut self.all[index as usize].1;
        let Some(left) = references.checked_sub(1) else {
            return false;
        };
        *references = left;
        if left == 0 {
            self.free.push(index);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_used_again_when_the_last_reference_is_gone() {
        let mut pool = MaskPool::new(3, &Rc::new(Memory::new(1 << 20).unwrap()));
        let mask = pool.take(&[0b101]);
        assert!(pool.acquire(mask));
        assert!(pool.release(mask));
        assert_ne!(pool.take(&[]), mask);
        assert!(pool.release(mask));
        assert!(!pool.release(mask), "no reference is left");
        assert_eq!(pool.take(&[]), mask);
        assert!(pool.release(pool.possible()));
    }
}
