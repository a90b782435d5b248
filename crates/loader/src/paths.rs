//! Calls with paths: a path of the virtual kernel leads into its folder, and a change of the host outside the working folder is
//! refused. It is no wall against a hostile program: a path may change after it was looked at.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use libc::{c_int, c_long};

use crate::arch::Call;
use crate::notify::{Asked, Memory, Reply};
use crate::tree::{Tree, normal};

/// Files of the host that may be written.
const DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/tty",
    "/dev/ptmx",
];

/// Where paths lead.
pub struct Paths {
    pub tree: Tree,
    /// The only folder of the host that may be written.
    pub folder: PathBuf,
    /// Objects that were opened.
    pub objects: RefCell<BTreeSet<PathBuf>>,
}

/// A path that a call names.
struct Named {
    /// On the host, without symbolic links followed.
    host: PathBuf,
    /// In the virtual kernel's folder.
    ours: Option<PathBuf>,
}

type Answer = io::Result<Reply>;

fn errno(number: c_int) -> Answer {
    Ok(Reply::Error(number))
}

fn status(value: c_long) -> Answer {
    match value {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(Reply::Value(value)),
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("it came from a string of C")
}

impl Paths {
    /// Answers a call.
    ///
    /// # Errors
    /// The error that the program gets.
    pub fn answer(&self, call: Call, asked: &Asked) -> Answer {
        let memory = asked.memory()?;
        let a = asked.arguments;
        const HERE: u64 = libc::AT_FDCWD as i64 as u64;
        match call {
            Call::Open => self.open(asked, &memory, (HERE, a[0]), (a[1], a[2])),
            Call::Creat => {
                let flags = (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC) as u64;
                self.open(asked, &memory, (HERE, a[0]), (flags, a[1]))
            }
            Call::OpenAt => self.open(asked, &memory, (a[0], a[1]), (a[2], a[3])),
            Call::OpenAt2 => {
                let how = memory.read(a[2], 16)?;
                let word =
                    |at: usize| u64::from_le_bytes(how[at..at + 8].try_into().expect("eight"));
                self.open(asked, &memory, (a[0], a[1]), (word(0), word(8)))
            }
            Call::Stat => self.stat(asked, &memory, (HERE, a[0]), a[1], 0),
            Call::Lstat => {
                let flags = libc::AT_SYMLINK_NOFOLLOW as u64;
                self.stat(asked, &memory, (HERE, a[0]), a[1], flags)
            }
            Call::StatAt => self.stat(asked, &memory, (a[0], a[1]), a[2], a[3]),
            Call::Statx => self.statx(asked, &memory),
            Call::Access => self.access(asked, &memory, (HERE, a[0]), a[1]),
            Call::AccessAt => self.access(asked, &memory, (a[0], a[1]), a[2]),
            Call::Readlink => self.readlink(asked, &memory, (HERE, a[0]), (a[1], a[2])),
            Call::ReadlinkAt => self.readlink(asked, &memory, (a[0], a[1]), (a[2], a[3])),
            Call::Statfs => self.statfs(asked, &memory),
            Call::Change(paths) => {
                let paths = a[..paths.into()].iter().map(|&at| (HERE, at));
                self.change(asked, &memory, paths)
            }
            Call::ChangeAt(1) => self.change_at(asked, &memory),
            Call::ChangeAt(_) => {
                self.change(asked, &memory, [(a[0], a[1]), (a[2], a[3])].into_iter())
            }
            Call::Symlink => self.change(asked, &memory, [(HERE, a[1])].into_iter()),
            Call::SymlinkAt => self.change(asked, &memory, [(a[1], a[2])].into_iter()),
            Call::Bind => self.bind(asked, &memory),
            Call::Connect => self.connect(asked, &memory),
            _ => Ok(Reply::Untouched),
        }
    }

    fn named(&self, asked: &Asked, memory: &Memory, (folder, at): (u64, u64)) -> io::Result<Named> {
        let text = memory.text(at)?;
        let path = PathBuf::from(std::ffi::OsString::from_vec(text));
        let base = || -> io::Result<PathBuf> {
            let link = match folder as i32 {
                libc::AT_FDCWD => format!("/proc/{}/cwd", asked.thread),
                descriptor => format!("/proc/{}/fd/{descriptor}", asked.thread),
            };
            std::fs::read_link(link)
        };
        let path = match path.is_absolute() {
            true => path,
            // An empty path means the descriptor itself.
            false => base()?.join(path),
        };
        let host = normal(&path);
        let ours = self
            .tree
            .place(&host)
            .or_else(|| self.tree.has(&host).then(|| host.clone()));
        Ok(Named { host, ours })
    }

    /// Whether the host's file may be written.
    fn may_write(&self, path: &Path) -> bool {
        DEVICES.iter().any(|device| path == Path::new(device))
            || path.starts_with("/dev/pts")
            || path.starts_with("/proc/self")
            // Where folders above it are symbolic links, the file is elsewhere.
            || resolved(path).starts_with(&self.folder)
    }

    fn open(
        &self,
        asked: &Asked,
        memory: &Memory,
        at: (u64, u64),
        (flags, mode): (u64, u64),
    ) -> Answer {
        let named = self.named(asked, memory, at)?;
        let flags = flags as c_int;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY
            || flags & (libc::O_CREAT | libc::O_TRUNC) != 0
            || flags & libc::O_TMPFILE == libc::O_TMPFILE;
        let Some(ours) = &named.ours else {
            if named.host.extension().is_some_and(|ending| ending == "o") {
                self.objects.borrow_mut().insert(named.host.clone());
            }
            return match !writes || self.may_write(&named.host) {
                true => Ok(Reply::Untouched),
                false => errno(libc::EROFS),
            };
        };
        // SAFETY: a system call with a path; the descriptor is ours.
        let file = unsafe {
            let path = c_path(ours);
            let flags = flags | libc::O_CLOEXEC;
            let descriptor = libc::open(path.as_ptr(), flags, mode as libc::mode_t);
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from(OwnedFd::from_raw_fd(descriptor))
        };
        Ok(Reply::Descriptor(file.into(), flags & libc::O_CLOEXEC != 0))
    }

    fn stat(&self, asked: &Asked, memory: &Memory, at: (u64, u64), to: u64, flags: u64) -> Answer {
        let named = self.named(asked, memory, at)?;
        let Some(ours) = named
            .ours
            .filter(|_| flags as c_int & libc::AT_EMPTY_PATH == 0)
        else {
            return Ok(Reply::Untouched);
        };
        let path = c_path(&ours);
        // SAFETY: the call fills the structure.
        unsafe {
            let mut stat: libc::stat = zeroed();
            let flags = flags as c_int & libc::AT_SYMLINK_NOFOLLOW;
            if libc::fstatat(libc::AT_FDCWD, path.as_ptr(), &raw mut stat, flags) != 0 {
                return Err(io::Error::last_os_error());
            }
            let bytes =
                std::slice::from_raw_parts((&raw const stat).cast::<u8>(), size_of_val(&stat));
            memory.write(to, bytes)?;
        }
        Ok(Reply::Value(0))
    }

    fn statx(&self, asked: &Asked, memory: &Memory) -> Answer {
        let [folder, at, flags, mask, to, _] = asked.arguments;
        if at == 0 || flags as c_int & libc::AT_EMPTY_PATH != 0 {
            return Ok(Reply::Untouched);
        }
        let named = self.named(asked, memory, (folder, at))?;
        let Some(ours) = named.ours else {
            return Ok(Reply::Untouched);
        };
        let path = c_path(&ours);
        let mut bytes = [0u8; 256];
        // SAFETY: the structure has 256 bytes.
        let result = unsafe {
            libc::syscall(
                libc::SYS_statx,
                libc::AT_FDCWD,
                path.as_ptr(),
                flags as c_int,
                mask as u32,
                bytes.as_mut_ptr(),
            )
        };
        if result == 0 {
            memory.write(to, &bytes)?;
        }
        status(result)
    }

    fn access(&self, asked: &Asked, memory: &Memory, at: (u64, u64), mode: u64) -> Answer {
        let named = self.named(asked, memory, at)?;
        let Some(ours) = named.ours else {
            return Ok(Reply::Untouched);
        };
        let path = c_path(&ours);
        // SAFETY: a system call with a path.
        status(unsafe { libc::access(path.as_ptr(), mode as c_int) }.into())
    }

    fn readlink(
        &self,
        asked: &Asked,
        memory: &Memory,
        at: (u64, u64),
        (to, room): (u64, u64),
    ) -> Answer {
        let named = self.named(asked, memory, at)?;
        let Some(ours) = named.ours else {
            return Ok(Reply::Untouched);
        };
        let target = std::fs::read_link(ours)?;
        let bytes = target.as_os_str().as_bytes();
        let bytes = &bytes[..bytes.len().min(room as usize)];
        memory.write(to, bytes)?;
        Ok(Reply::Value(bytes.len() as i64))
    }

    /// A loader asks what file system a path is of.
    fn statfs(&self, asked: &Asked, memory: &Memory) -> Answer {
        /// `BPF_FS_MAGIC`, `TRACEFS_MAGIC`, `CGROUP2_SUPER_MAGIC`, `SYSFS_MAGIC`.
        const KINDS: [(&str, i64); 4] = [
            ("/sys/fs/bpf", 0xcafe_4a11),
            ("/sys/kernel/tracing", 0x7472_6163),
            ("/sys/fs/cgroup", 0x6367_7270),
            ("/sys", 0x6265_6572),
        ];
        let [at, to, ..] = asked.arguments;
        let named = self.named(asked, memory, (libc::AT_FDCWD as i64 as u64, at))?;
        if named.ours.is_none() {
            return Ok(Reply::Untouched);
        }
        let kind = KINDS
            .iter()
            .find(|(folder, _)| named.host.starts_with(folder));
        let mut bytes = [0u8; 120];
        bytes[..8].copy_from_slice(&kind.map_or(0, |(_, magic)| *magic).to_le_bytes());
        bytes[8..16].copy_from_slice(&4096i64.to_le_bytes());
        memory.write(to, &bytes)?;
        Ok(Reply::Value(0))
    }

    /// A call that changes what is at some paths.
    fn change(
        &self,
        asked: &Asked,
        memory: &Memory,
        paths: impl Iterator<Item = (u64, u64)>,
    ) -> Answer {
        for at in paths {
            let named = self.named(asked, memory, at)?;
            if let Some(ours) = &named.ours {
                return self.change_ours(asked, ours);
            }
            if !self.may_write(&named.host) {
                return errno(libc::EROFS);
            }
        }
        Ok(Reply::Untouched)
    }

    fn change_at(&self, asked: &Asked, memory: &Memory) -> Answer {
        let [folder, at, ..] = asked.arguments;
        self.change(asked, memory, [(folder, at)].into_iter())
    }

    /// Makes and removes files of the virtual kernel's folder; the rest is refused.
    fn change_ours(&self, asked: &Asked, ours: &Path) -> Answer {
        let number = asked.number;
        let path = c_path(ours);
        #[cfg(target_arch = "x86_64")]
        let (makes, removes, removes_folder) = (
            [libc::SYS_mkdir, libc::SYS_mkdirat],
            [libc::SYS_unlink, libc::SYS_unlinkat],
            libc::SYS_rmdir,
        );
        #[cfg(not(target_arch = "x86_64"))]
        let (makes, removes, removes_folder) =
            ([libc::SYS_mkdirat; 2], [libc::SYS_unlinkat; 2], -1);
        // SAFETY: system calls with a path.
        unsafe {
            if makes.contains(&number) {
                status(libc::mkdir(path.as_ptr(), 0o755).into())
            } else if number == removes_folder {
                status(libc::rmdir(path.as_ptr()).into())
            } else if removes.contains(&number) {
                status(libc::unlink(path.as_ptr()).into())
            } else {
                // Modes and owners of its files mean nothing.
                Ok(Reply::Value(0))
            }
        }
    }

    /// A server's socket: below `/run/scx` it lies in the virtual kernel's folder.
    fn bind(&self, asked: &Asked, memory: &Memory) -> Answer {
        let [descriptor, at, bytes, ..] = asked.arguments;
        let Some(path) = socket_path(memory, at, bytes)? else {
            return Ok(Reply::Untouched);
        };
        let host = normal(&path);
        let Some(ours) = self.tree.place(&host) else {
            return match path.is_absolute() && self.may_write(&host) {
                true => Ok(Reply::Untouched),
                false => errno(libc::EROFS),
            };
        };
        let socket = asked.descriptor(descriptor as i32)?;
        // SAFETY: the address is zeroed, and the path fits with its end.
        unsafe {
            let mut address: libc::sockaddr_un = zeroed();
            address.sun_family = libc::AF_UNIX as libc::sa_family_t;
            let name = ours.as_os_str().as_bytes();
            if name.len() >= address.sun_path.len() {
                return errno(libc::ENAMETOOLONG);
            }
            for (to, from) in address.sun_path.iter_mut().zip(name) {
                *to = *from as _;
            }
            let bytes = size_of_val(&address) as libc::socklen_t;
            status(libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes).into())
        }
    }

    /// Servers of the host are not the virtual kernel's: nobody is there.
    fn connect(&self, asked: &Asked, memory: &Memory) -> Answer {
        let [_, at, bytes, ..] = asked.arguments;
        let family = memory.read(at, 2.min(bytes as usize))?;
        match family.as_slice() {
            [low, high] if i32::from(*low) | i32::from(*high) << 8 == libc::AF_UNIX => {
                match socket_path(memory, at, bytes)? {
                    Some(path) if self.tree.has(&path) => Ok(Reply::Untouched),
                    _ => errno(libc::ENOENT),
                }
            }
            _ => errno(libc::ENETUNREACH),
        }
    }
}

/// The path of a socket's address; `None`: it has none.
fn socket_path(memory: &Memory, at: u64, bytes: u64) -> io::Result<Option<PathBuf>> {
    let address = memory.read(at, (bytes as usize).min(110))?;
    let is_unix = address.first_chunk() == Some(&(libc::AF_UNIX as u16).to_le_bytes());
    let name = address.get(2..).unwrap_or_default();
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    let is_path = is_unix && !name.is_empty();
    Ok(is_path.then(|| PathBuf::from(std::ffi::OsStr::from_bytes(name))))
}

/// A path whose folder has no symbolic links, as far as it is there.
fn resolved(path: &Path) -> PathBuf {
    let (mut above, mut rest) = (path, Vec::new());
    loop {
        if let Ok(found) = above.canonicalize() {
            return rest.iter().rev().fold(found, |path, part| path.join(part));
        }
        match (above.parent(), above.file_name()) {
            (Some(parent), Some(name)) => {
                rest.push(name.to_owned());
                above = parent;
            }
            _ => return path.to_owned(),
        }
    }
}
