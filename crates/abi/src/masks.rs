//! CPU masks that kfuncs hand out.

use crate::layout::CpuMask;

/// A mask with the number of references to it. C code has a pointer to the first member.
#[repr(C)]
struct Pooled {
    mask: CpuMask,
    index: u32,
    references: u32,
}

/// Masks that are handed out and come back; none ever moves.
pub struct MaskPool {
    all: Vec<*mut Pooled>,
    free: Vec<u32>,
    /// Every CPU of the machine.
    possible: Box<CpuMask>,
}

impl MaskPool {
    pub fn new(nr_cpus: usize) -> MaskPool {
        let mut possible = Box::new(CpuMask::EMPTY);
        possible.set_words(schedlab_trace::CpuSet::all(nr_cpus).words());
        MaskPool {
            all: Vec::new(),
            free: Vec::new(),
            possible,
        }
    }

    /// Every CPU of the machine.
    pub fn possible(&self) -> *const CpuMask {
        &raw const *self.possible
    }

    /// A mask of the pool with these bits.
    pub fn take(&mut self, words: &[usize]) -> *mut CpuMask {
        let index = self.free.pop().unwrap_or_else(|| {
            let pooled = Pooled {
                mask: CpuMask::EMPTY,
                index: self.all.len() as u32,
                references: 0,
            };
            self.all.push(Box::into_raw(Box::new(pooled)));
            self.all.len() as u32 - 1
        });
        let pooled = self.all[index as usize];
        // SAFETY: the pool's masks live as long as the pool, and this one is free.
        unsafe {
            (*pooled).references = 1;
            (*pooled).mask.set_words(words);
        }
        pooled.cast()
    }

    fn find(&self, mask: *const CpuMask) -> Option<*mut Pooled> {
        let pooled = mask.cast::<Pooled>().cast_mut();
        // SAFETY: a policy has masks only from us; what is not of the pool is found out below, and
        // a wild pointer faults, which is caught.
        let index = unsafe { (&raw const (*pooled).index).read() };
        (self.all.get(index as usize) == Some(&pooled)).then_some(pooled)
    }

    /// One more reference; false if the mask is none of the pool.
    pub fn acquire(&mut self, mask: *const CpuMask) -> bool {
        let Some(pooled) = self.find(mask) else {
            return false;
        };
        // SAFETY: found in the pool.
        unsafe { (*pooled).references += 1 };
        true
    }

    /// One reference less; false if the mask is none of the pool or is free.
    pub fn release(&mut self, mask: *const CpuMask) -> bool {
        if std::ptr::eq(mask, self.possible()) {
            return true;
        }
        let Some(pooled) = self.find(mask) else {
            return false;
        };
        // SAFETY: found in the pool.
        let (references, index) = unsafe {
            let Some(left) = (*pooled).references.checked_sub(1) else {
                return false;
            };
            (*pooled).references = left;
            (left, (*pooled).index)
        };
        if references == 0 {
            self.free.push(index);
        }
        true
    }
}

impl Drop for MaskPool {
    fn drop(&mut self) {
        for &pooled in &self.all {
            // SAFETY: `take` made the box.
            drop(unsafe { Box::from_raw(pooled) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_used_again_when_the_last_reference_is_gone() {
        let mut pool = MaskPool::new(3);
        let mask = pool.take(&[0b101]);
        assert!(pool.acquire(mask));
        assert!(pool.release(mask));
        assert_ne!(pool.take(&[]), mask);
        assert!(pool.release(mask));
        assert!(!pool.release(mask), "nobody has it any more");
        assert_eq!(pool.take(&[]), mask);
        assert!(pool.release(pool.possible()));
    }
}
