//! The calls of a supervised program: receives and answers them, and reaches its memory and descriptors.

use std::fs::File;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use libc::{c_int, c_long, c_ulong};

/// `SECCOMP_IOCTL_NOTIF_*`.
const RECEIVE: c_ulong = 0xc050_2100;
const SEND: c_ulong = 0xc018_2101;
const ADD_DESCRIPTOR: c_ulong = 0x4018_2103;

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`, `SECCOMP_ADDFD_FLAG_SEND`.
const CONTINUE: u32 = 1;
const AND_SEND: u32 = 2;

/// `struct seccomp_notif`.
#[repr(C)]
struct Notification {
    id: u64,
    pid: u32,
    flags: u32,
    number: c_int,
    arch: u32,
    instruction: u64,
    arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// `struct seccomp_notif_addfd`.
#[repr(C)]
struct AddDescriptor {
    id: u64,
    flags: u32,
    source: u32,
    target: u32,
    target_flags: u32,
}

/// A call that waits for its answer.
pub struct Asked {
    id: u64,
    /// The thread that asks.
    pub thread: u32,
    pub number: c_long,
    pub arguments: [u64; 6],
}

/// The answer to a call.
#[derive(Debug)]
pub enum Reply {
    Value(i64),
    /// An error number.
    Error(c_int),
    /// The call runs as if nobody had looked.
    Untouched,
    /// A descriptor that the program is given.
    Descriptor(OwnedFd, bool),
}

/// The state of the listener.
pub enum Next {
    Asked(Asked),
    /// Nothing was asked for so long.
    Nothing,
    /// All threads are gone.
    Gone,
}

/// Waits for a call.
///
/// # Errors
/// If the host fails.
pub fn next(listener: &OwnedFd, patience: Duration) -> io::Result<Next> {
    let mut poll = libc::pollfd {
        fd: listener.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: it points to one structure.
    let ready = unsafe { libc::poll(&raw mut poll, 1, patience.as_millis() as c_int) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::Interrupted => Ok(Next::Nothing),
            _ => Err(error),
        };
    }
    if ready == 0 {
        return Ok(Next::Nothing);
    }
    if poll.revents & libc::POLLIN == 0 {
        return Ok(Next::Gone);
    }
    // SAFETY: the kernel wants it zeroed, and fills it.
    let (status, asked) = unsafe {
        let mut asked: Notification = zeroed();
        let status = libc::ioctl(listener.as_raw_fd(), RECEIVE as _, &raw mut asked);
        (status, asked)
    };
    if status != 0 {
        let error = io::Error::last_os_error();
        // The thread was killed meanwhile.
        return match error.raw_os_error() {
            Some(libc::ENOENT | libc::EINTR) => Ok(Next::Nothing),
            _ => Err(error),
        };
    }
    Ok(Next::Asked(Asked {
        id: asked.id,
        thread: asked.pid,
        number: asked.number.into(),
        arguments: asked.arguments,
    }))
}

impl Asked {
    /// Answers. Whether anybody still waits does not matter.
    pub fn answer(&self, listener: &OwnedFd, reply: Reply) {
        let (value, error, flags) = match reply {
            Reply::Value(value) => (value, 0, 0),
            Reply::Error(number) => (0, -number, 0),
            Reply::Untouched => (0, 0, CONTINUE),
            Reply::Descriptor(descriptor, close_on_exec) => {
                match self.give(listener, &descriptor, close_on_exec) {
                    Ok(()) => return,
                    Err(error) => (0, -error.raw_os_error().unwrap_or(libc::EMFILE), 0),
                }
            }
        };
        let response = Response {
            id: self.id,
            value,
            error,
            flags,
        };
        // SAFETY: it points to the structure that the request takes.
        unsafe { libc::ioctl(listener.as_raw_fd(), SEND as _, &raw const response) };
    }

    fn give(
        &self,
        listener: &OwnedFd,
        descriptor: &OwnedFd,
        close_on_exec: bool,
    ) -> io::Result<()> {
        let add = AddDescriptor {
            id: self.id,
            flags: AND_SEND,
            source: descriptor.as_raw_fd() as u32,
            target: 0,
            target_flags: if close_on_exec {
                libc::O_CLOEXEC as u32
            } else {
                0
            },
        };
        // SAFETY: as above.
        match unsafe { libc::ioctl(listener.as_raw_fd(), ADD_DESCRIPTOR as _, &raw const add) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Opens the memory of the thread that asks.
    ///
    /// # Errors
    /// If the host does not let us.
    pub fn memory(&self) -> io::Result<Memory> {
        let path = format!("/proc/{}/mem", self.thread);
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Memory(file))
    }

    /// Returns the name of one of its descriptors' files, as `/proc` has it.
    pub fn descriptor_name(&self, descriptor: i64) -> Option<String> {
        let path = format!("/proc/{}/fd/{}", self.thread, descriptor as i32);
        let name = std::fs::read_link(path).ok()?;
        Some(name.to_string_lossy().into_owned())
    }

    /// A copy of one of its descriptors.
    ///
    /// # Errors
    /// If it is not open, or the host does not let us.
    pub fn descriptor(&self, descriptor: i32) -> io::Result<OwnedFd> {
        let process = process_of(self.thread)?;
        // SAFETY: system calls with valid arguments; a descriptor that they give is ours.
        unsafe {
            let pidfd = libc::syscall(libc::SYS_pidfd_open, process, 0);
            if pidfd < 0 {
                return Err(io::Error::last_os_error());
            }
            let pidfd = OwnedFd::from_raw_fd(pidfd as c_int);
            let copy = libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), descriptor, 0);
            match copy {
                0.. => Ok(OwnedFd::from_raw_fd(copy as c_int)),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }
}

/// The process of a thread.
fn process_of(thread: u32) -> io::Result<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    let process = line.and_then(|line| line.trim().parse().ok());
    process.ok_or_else(|| io::Error::other("the process is gone"))
}

/// The memory of a supervised program.
pub struct Memory(File);

impl Memory {
    /// # Errors
    /// If it is not there.
    pub fn read(&self, address: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let mut found = vec![0; bytes];
        self.0.read_exact_at(&mut found, address)?;
        Ok(found)
    }

    /// # Errors
    /// If it is not there.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, address)
    }

    /// A string of C, without its end.
    ///
    /// # Errors
    /// If it is not there, or has no end.
    pub fn text(&self, address: u64) -> io::Result<Vec<u8>> {
        const PAGE: u64 = 4096;
        let mut found = Vec::new();
        let mut at = address;
        while found.len() < PAGE as usize {
            let bytes = self.read(at, (PAGE - at % PAGE) as usize)?;
            at += bytes.len() as u64;
            match bytes.iter().position(|&byte| byte == 0) {
                Some(end) => {
                    found.extend_from_slice(&bytes[..end]);
                    return Ok(found);
                }
                None => found.extend(bytes),
            }
        }
        Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG))
    }
}
