//! Memory that a loader and programs share: an anonymous file for each map that a loader may map.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;

const PAGE: u64 = 4096;

/// An anonymous file. Its name survives copies of its descriptor, so that it is found again by it.
///
/// # Errors
/// If the host gives none.
pub fn anonymous(name: &CStr, bytes: u64) -> io::Result<File> {
    // SAFETY: the name is a string of C; the descriptor is ours.
    let file = unsafe {
        let descriptor = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        File::from(OwnedFd::from_raw_fd(descriptor))
    };
    file.set_len(bytes)?;
    Ok(file)
}

/// The contents of a map, and what of them is known to both sides.
pub struct Shared {
    pub file: File,
    bytes: u64,
    /// Pages as they were last seen, by their place; others are zero.
    seen: BTreeMap<u64, Vec<u8>>,
}

impl Shared {
    pub fn new(file: File, bytes: u64) -> Shared {
        Shared {
            file,
            bytes,
            seen: BTreeMap::new(),
        }
    }

    /// Returns the words of 8 bytes that the loader has written since the last time: places and bytes. Words beside them may be
    /// pointers of programs to objects of the kernel, which differ from run to run.
    ///
    /// # Errors
    /// If the host fails.
    pub fn changes(&mut self) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let mut changes: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut at = 0;
        while let Some((start, end)) = self.extent(at)? {
            for page in (start / PAGE * PAGE..end).step_by(PAGE as usize) {
                let mut bytes = vec![0; PAGE.min(self.bytes - page) as usize];
                self.file.read_exact_at(&mut bytes, page)?;
                let known = self.seen.get(&page);
                let zeroes = vec![0; bytes.len()];
                let seen = known.unwrap_or(&zeroes);
                for (index, (word, before)) in bytes.chunks(8).zip(seen.chunks(8)).enumerate() {
                    // Whether a page is there is a part of an arena's contents.
                    let is_new = known.is_none() && index == 0;
                    if word == before && !is_new {
                        continue;
                    }
                    let at = page + index as u64 * 8;
                    match changes.last_mut() {
                        Some((from, run)) if *from + run.len() as u64 == at => run.extend(word),
                        _ => changes.push((at, word.to_vec())),
                    }
                }
                self.seen.insert(page, bytes);
            }
            at = end;
        }
        Ok(changes)
    }

    /// Programs have changed contents: the loader sees them.
    ///
    /// # Errors
    /// If the host fails.
    pub fn show(&mut self, start: u64, bytes: &[u8]) -> io::Result<()> {
        for (index, part) in bytes.chunks(PAGE as usize).enumerate() {
            let page = start + index as u64 * PAGE;
            if page >= self.bytes {
                break;
            }
            let part = &part[..part.len().min((self.bytes - page) as usize)];
            let is_same = match self.seen.get(&page) {
                Some(seen) => *seen == part,
                None => part.iter().all(|&byte| byte == 0),
            };
            if !is_same {
                self.file.write_all_at(part, page)?;
                self.seen.insert(page, part.to_vec());
            }
        }
        Ok(())
    }

    /// The next part that has pages.
    fn extent(&self, from: u64) -> io::Result<Option<(u64, u64)>> {
        if from >= self.bytes {
            return Ok(None);
        }
        // SAFETY: a system call on a descriptor of ours.
        let seek = |at: u64, whence| unsafe {
            libc::lseek(self.file.as_raw_fd(), at as libc::off_t, whence)
        };
        let start = seek(from, libc::SEEK_DATA);
        if start < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::ENXIO) => Ok(None),
                _ => Err(error),
            };
        }
        let end = seek(start as u64, libc::SEEK_HOLE) as u64;
        Ok(Some((start as u64, end.min(self.bytes))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_sees_what_the_other_has_changed_once() {
        let file = anonymous(c"test", 1 << 32).unwrap();
        let loader = file.try_clone().unwrap();
        let mut shared = Shared::new(file, 1 << 32);
        assert_eq!(shared.changes().unwrap(), []);
        loader.write_all_at(&[7], 3 * PAGE + 5).unwrap();
        loader.write_all_at(&[8], 4 * PAGE).unwrap();
        loader.write_all_at(&[9], 1 << 31).unwrap();
        loader.write_all_at(&[0], 6 * PAGE).unwrap();
        let changes = shared.changes().unwrap();
        let word = |at: usize, byte| {
            let mut word = vec![0; 8];
            word[at] = byte;
            word
        };
        let expected = [
            (3 * PAGE, word(5, 7)),
            (4 * PAGE, word(0, 8)),
            (6 * PAGE, vec![0; 8]),
            (1 << 31, word(0, 9)),
        ];
        assert_eq!(changes, expected);
        assert_eq!(shared.changes().unwrap(), []);
        shared.show(PAGE, &[1; 5000]).unwrap();
        let mut seen = [0; 3];
        loader.read_exact_at(&mut seen, PAGE + 4998).unwrap();
        assert_eq!(seen, [1, 1, 0]);
        assert_eq!(shared.changes().unwrap(), []);
        loader.write_all_at(&[2; 24], PAGE + 4088).unwrap();
        assert_eq!(shared.changes().unwrap(), [(PAGE + 4088, vec![2; 24])]);
    }
}
