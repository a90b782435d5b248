//! Starts a program whose system calls are answered here: the filter of seccomp, and the descriptor on which the calls arrive.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use libc::{c_int, c_long, c_ulong, sock_filter};

use crate::arch::{self, Call};

/// `SECCOMP_SET_MODE_FILTER`, `SECCOMP_FILTER_FLAG_NEW_LISTENER`.
const SET_MODE_FILTER: c_ulong = 1;
const NEW_LISTENER: c_ulong = 8;

const ALLOW: u32 = 0x7fff_0000;
const NOTIFY: u32 = 0x7fc0_0000;
const REFUSE: u32 = 0x0005_0000;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
/// The lower half of an argument.
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

/// `PERF_EVENT_IOC_ENABLE`, `_DISABLE` and `_SET_BPF`, which a loader asks of what stands for a perf event.
pub const PERF_IOCTLS: [u32; 3] = [0x2400, 0x2401, 0x4004_2408];

/// `RLIMIT_MEMLOCK`.
const MEMLOCK: u32 = 8;

fn load(offset: u32) -> sock_filter {
    sock_filter {
        code: 0x20,
        jt: 0,
        jf: 0,
        k: offset,
    }
}

fn answer(k: u32) -> sock_filter {
    sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        k,
    }
}

/// Skips `jt` instructions if the loaded word is `k`, else `jf`.
fn jump(k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter {
        code: 0x15,
        jt,
        jf,
        k,
    }
}

/// Returns the filter: a thread with one of our calls waits for the answer, everything else runs untouched.
fn program() -> Vec<sock_filter> {
    // Programs for another processor have other numbers: none of their calls is let through.
    let mut program = vec![
        load(ARCH),
        jump(arch::AUDIT, 1, 0),
        answer(REFUSE | libc::ENOSYS as u32),
        load(NUMBER),
    ];
    for (number, call) in arch::calls() {
        match conditions(number, call) {
            None => program.extend([jump(number as u32, 0, 1), answer(NOTIFY)]),
            Some((index, values)) => {
                let nr = values.len() as u8;
                program.push(jump(number as u32, 0, nr + 3));
                program.push(load(argument(index)));
                for (at, value) in values.iter().enumerate() {
                    program.push(jump(*value, nr - at as u8, 0));
                }
                program.push(answer(ALLOW));
                program.push(answer(NOTIFY));
            }
        }
    }
    program.push(answer(ALLOW));
    program
}

/// The values of an argument with which a call is one of ours; `None`: it always is.
fn conditions(number: c_long, call: Call) -> Option<(u32, &'static [u32])> {
    match call {
        Call::Ioctl => Some((1, &PERF_IOCTLS)),
        Call::Limit if number == libc::SYS_setrlimit => Some((0, &[MEMLOCK])),
        Call::Limit => Some((1, &[MEMLOCK])),
        _ => None,
    }
}

/// A program that runs supervised.
pub struct Supervised {
    pub child: Child,
    /// Where its calls arrive.
    pub listener: OwnedFd,
}

/// Starts a program under the filter.
///
/// # Errors
/// If it cannot be started, or the host lets nobody supervise.
pub fn start(command: &mut Command) -> io::Result<Supervised> {
    let (ours, theirs) = UnixStream::pair()?;
    let program = program();
    let channel = theirs.as_raw_fd();
    // SAFETY: what runs between fork and exec only makes system calls.
    unsafe {
        command.pre_exec(move || enter(&program, channel));
    }
    let child = command.spawn()?;
    drop(theirs);
    let listener = receive(ours.as_raw_fd())?;
    Ok(Supervised { child, listener })
}

fn checked(status: c_long) -> io::Result<c_long> {
    match status {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

/// Runs in the new process.
///
/// # Safety
/// Only between fork and exec.
unsafe fn enter(program: &[sock_filter], channel: RawFd) -> io::Result<()> {
    // SAFETY: system calls with valid arguments.
    unsafe {
        // It does not outlive who answers it, and Ctrl-C reaches it through us alone.
        checked(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0).into())?;
        checked(libc::setpgid(0, 0).into())?;
        // Addresses are the same each time: some loaders put them into maps. Where the host refuses that, they differ.
        libc::personality(libc::ADDR_NO_RANDOMIZE as c_ulong);
        checked(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_ptr().cast_mut(),
        };
        let listener = checked(libc::syscall(
            libc::SYS_seccomp,
            SET_MODE_FILTER,
            NEW_LISTENER,
            &raw const filter,
        ))?;
        send(channel, listener as RawFd)
    }
}

/// Room for a control message with one descriptor.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Sends a descriptor.
unsafe fn send(channel: RawFd, descriptor: RawFd) -> io::Result<()> {
    let mut byte = 0u8;
    let mut control = Control([0; 64]);
    // SAFETY: the message's parts live until the call returns; the control message has room for one descriptor.
    unsafe {
        let mut part = libc::iovec {
            iov_base: (&raw mut byte).cast(),
            iov_len: 1,
        };
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<c_int>() as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<c_int>() as u32) as _;
        libc::CMSG_DATA(header)
            .cast::<c_int>()
            .write_unaligned(descriptor);
        checked(libc::sendmsg(channel, &raw const message, 0) as c_long)?;
    }
    Ok(())
}

/// Receives a descriptor.
fn receive(channel: RawFd) -> io::Result<OwnedFd> {
    let mut byte = 0u8;
    let mut control = Control([0; 64]);
    // SAFETY: as in `send`.
    unsafe {
        let mut part = libc::iovec {
            iov_base: (&raw mut byte).cast(),
            iov_len: 1,
        };
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len() as _;
        checked(libc::recvmsg(channel, &raw mut message, libc::MSG_CMSG_CLOEXEC) as c_long)?;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null() {
            return Err(io::Error::other("the new process has sent no descriptor"));
        }
        let descriptor = libc::CMSG_DATA(header).cast::<c_int>().read_unaligned();
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}
