//! Calls with paths: a path of the virtual kernel leads into its folder, and a change of the host outside the working folder is
//! refused. It is no wall against a hostile program: a path may change after it was looked at.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _};
use std::mem::zeroed;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use libc::{c_int, c_long};
use schedlab_bpf::originals;

use crate::arch::{Call, Change};
use crate::notify::{Asked, Memory, Reply};
use crate::seen::{Question, Seen};
use crate::tree::{self, Tree, normal};

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
    pub found: RefCell<Found>,
    /// The loader's questions to the host.
    pub seen: RefCell<Seen>,
}

/// Holds the objects for BPF in files that the loader reads: one may have any name, or be a part of a program or library.
#[derive(Default)]
pub struct Found {
    /// Files that were looked at.
    files: BTreeSet<PathBuf>,
    pub objects: Vec<Vec<u8>>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl Found {
    /// Looks for objects in a file at a path, which is another name of `file`.
    fn look(&mut self, file: &Path, path: &Path) {
        if !self.files.insert(file.to_owned()) {
            return;
        }
        match elf(path) {
            Ok(None) => {}
            Ok(Some(bytes)) => {
                for object in originals::find(&bytes) {
                    if !self.objects.iter().any(|known| known == object) {
                        self.objects.push(object.to_vec());
                    }
                }
            }
            // The loader does not find it either.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.notes.push(format!(
                "{} cannot be read ({error}): if the scheduler's object is in it, faults name lines of its source in place of fields",
                file.display()
            )),
        }
    }
}

fn is_device(path: &Path) -> bool {
    DEVICES.iter().any(|device| path == Path::new(device)) || path.starts_with("/dev/pts")
}

/// Reads a file if it is an ELF.
fn elf(path: &Path) -> io::Result<Option<Vec<u8>>> {
    const MAGIC: &[u8] = b"\x7fELF";
    // A pipe or a device is not read.
    if !std::fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    file.by_ref()
        .take(MAGIC.len() as u64)
        .read_to_end(&mut bytes)?;
    if bytes != MAGIC {
        return Ok(None);
    }
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// A path that a call names.
struct Named {
    /// As the program means it, without symbolic links followed.
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
            Call::Execute => self.execute(asked, &memory, (HERE, a[0])),
            Call::ExecuteAt => self.execute(asked, &memory, (a[0], a[1])),
            Call::Change(change) => self.change(asked, &memory, change, &[(HERE, a[0])]),
            Call::Change2(change) => {
                self.change(asked, &memory, change, &[(HERE, a[0]), (HERE, a[1])])
            }
            Call::ChangeAt(change) => self.change(asked, &memory, change, &[(a[0], a[1])]),
            Call::ChangeAt2(change) => {
                self.change(asked, &memory, change, &[(a[0], a[1]), (a[2], a[3])])
            }
            Call::Symlink => self.change(asked, &memory, Change::Other, &[(HERE, a[1])]),
            Call::SymlinkAt => self.change(asked, &memory, Change::Other, &[(a[1], a[2])]),
            Call::ChangeOpen(change) => self.change(asked, &memory, change, &[(a[0], 0)]),
            Call::Bind => self.bind(asked, &memory),
            Call::Connect => self.connect(asked, &memory),
            _ => Ok(Reply::Untouched),
        }
    }

    fn named(&self, asked: &Asked, memory: &Memory, (folder, at): (u64, u64)) -> io::Result<Named> {
        let text = match at {
            0 => Vec::new(),
            at => memory.text(at)?,
        };
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
        // A descriptor of a folder leads there by its own name.
        Ok(match self.tree.virtual_path(&host) {
            Some(path) => Named {
                host: path,
                ours: Some(host),
            },
            None => Named {
                ours: self.tree.place(&host),
                host,
            },
        })
    }

    /// Looks at the program that a thread runs: it may have its objects in its own file.
    pub fn look_at_program(&self, asked: &Asked) {
        let path = PathBuf::from(format!("/proc/{}/exe", asked.thread));
        // A file of this name may be gone.
        if let Ok(name) = std::fs::read_link(&path) {
            self.found.borrow_mut().look(&name, &path);
            let mut seen = self.seen.borrow_mut();
            match name.to_string_lossy().ends_with(" (deleted)") {
                true => seen.doubt("the file of its program is gone".to_owned()),
                false => seen.ask(&name, Question::Contents),
            }
        }
    }

    /// A loader that changes files may find others next time.
    fn writes(&self, path: &Path) {
        let why = format!("it writes {}", path.display());
        self.seen.borrow_mut().doubt(why);
    }

    /// Whether the host's file may be written.
    fn may_write(&self, path: &Path) -> bool {
        is_device(path)
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
            let is_read = flags & libc::O_ACCMODE != libc::O_WRONLY
                && flags & (libc::O_PATH | libc::O_DIRECTORY) == 0;
            self.look_at_program(asked);
            if writes && self.may_write(&named.host) && !is_device(&named.host) {
                self.writes(&named.host);
            } else {
                self.seen.borrow_mut().ask(&named.host, Question::Contents);
            }
            if is_read {
                let path = own_process(&named.host, asked.thread);
                self.found.borrow_mut().look(&named.host, &path);
            }
            return match !writes || self.may_write(&named.host) {
                true => Ok(Reply::Untouched),
                false => errno(libc::EROFS),
            };
        };
        let makes = flags & libc::O_CREAT != 0 && !ours.exists()
            || flags & libc::O_TMPFILE == libc::O_TMPFILE;
        if makes && !tree::may_change(&named.host) {
            return errno(libc::EROFS);
        }
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
        let Some(ours) = named.ours else {
            self.asks_status(&named.host, flags);
            return Ok(Reply::Untouched);
        };
        // The descriptor answers itself.
        if flags as c_int & libc::AT_EMPTY_PATH != 0 {
            return Ok(Reply::Untouched);
        }
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

    fn asks_status(&self, path: &Path, flags: u64) {
        let follows = flags as c_int & libc::AT_SYMLINK_NOFOLLOW == 0;
        let mut seen = self.seen.borrow_mut();
        seen.ask(path, |path| Question::Status(path, follows));
    }

    fn statx(&self, asked: &Asked, memory: &Memory) -> Answer {
        let [folder, at, flags, mask, to, _] = asked.arguments;
        if at == 0 || flags as c_int & libc::AT_EMPTY_PATH != 0 {
            return Ok(Reply::Untouched);
        }
        let named = self.named(asked, memory, (folder, at))?;
        let Some(ours) = named.ours else {
            self.asks_status(&named.host, flags);
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

    /// A search for a program goes on where it is missing. The contents of a program are known when it asks for something
    /// ([`Paths::look_at_program`]).
    fn execute(&self, asked: &Asked, memory: &Memory, at: (u64, u64)) -> Answer {
        let named = self.named(asked, memory, at)?;
        if named.ours.is_none() {
            self.asks_status(&named.host, 0);
        }
        Ok(Reply::Untouched)
    }

    fn access(&self, asked: &Asked, memory: &Memory, at: (u64, u64), mode: u64) -> Answer {
        let named = self.named(asked, memory, at)?;
        let Some(ours) = named.ours else {
            self.asks_status(&named.host, 0);
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
            self.seen.borrow_mut().ask(&named.host, Question::Link);
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

    /// A call that changes what is at some paths. One with 0 for its text is the descriptor's.
    fn change(
        &self,
        asked: &Asked,
        memory: &Memory,
        change: Change,
        paths: &[(u64, u64)],
    ) -> Answer {
        // Descriptors of pipes, sockets and memory have no path.
        let has_path = |&(descriptor, text): &(u64, u64)| {
            text != 0
                || asked
                    .descriptor_name(descriptor as i64)
                    .is_some_and(|name| {
                        name.starts_with('/')
                            && !name.starts_with("/memfd:")
                            && !name.ends_with(" (deleted)")
                    })
        };
        if !paths.iter().all(has_path) {
            return Ok(Reply::Untouched);
        }
        let named = paths.iter().map(|at| self.named(asked, memory, *at));
        let named: Vec<Named> = named.collect::<io::Result<_>>()?;
        match named.as_slice() {
            [one] if one.ours.is_some() => {
                let ours = one.ours.as_deref().expect("just looked at");
                self.change_ours(asked, change, &one.host, ours)
            }
            // A file of the virtual kernel is neither moved nor linked.
            all if all.iter().any(|it| it.ours.is_some()) => errno(libc::EROFS),
            all if all.iter().all(|it| self.may_write(&it.host)) => {
                self.writes(&all[0].host);
                Ok(Reply::Untouched)
            }
            _ => errno(libc::EROFS),
        }
    }

    /// Makes and removes files of the virtual kernel where a kernel lets a loader do so; what has no meaning succeeds.
    fn change_ours(&self, asked: &Asked, change: Change, host: &Path, ours: &Path) -> Answer {
        let is_removed_folder = change == Change::RemoveFolder
            || change == Change::RemoveAt && asked.arguments[2] as c_int & libc::AT_REMOVEDIR != 0;
        // Modes, owners and times of its files mean nothing.
        if change == Change::Attributes {
            return match ours.exists() {
                true => Ok(Reply::Value(0)),
                false => errno(libc::ENOENT),
            };
        }
        if !tree::may_change(host) {
            return errno(libc::EROFS);
        }
        let path = c_path(ours);
        // SAFETY: system calls with a path.
        unsafe {
            match change {
                Change::MakeFolder => status(libc::mkdir(path.as_ptr(), 0o755).into()),
                _ if is_removed_folder => status(libc::rmdir(path.as_ptr()).into()),
                Change::Remove | Change::RemoveAt => status(libc::unlink(path.as_ptr()).into()),
                _ => errno(libc::EROFS),
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

/// A path below `/proc/self` as another process finds it.
fn own_process(path: &Path, thread: u32) -> PathBuf {
    match path.strip_prefix("/proc/self") {
        Ok(rest) => Path::new("/proc").join(thread.to_string()).join(rest),
        Err(_) => path.to_owned(),
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
