//! The objects of a workload, shared by all its processes.

use std::cell::UnsafeCell;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::sockopt;
use rustix::pipe::fcntl_setpipe_size;
use schedlab_workload::{ObjectId, ObjectSpec};

use crate::sys::{self, SharedMemory};

/// All objects by their ids.
pub struct Objects {
    slots: SharedSlots,
    streams: Vec<Option<Stream>>,
}

/// The part of an object in shared memory. The kind is set before the first fork and never changes.
#[repr(align(128))]
enum Slot {
    /// The state of the messages in a pipe, socket or listener.
    Stream {
        /// Their size; 0 before the first one.
        size: AtomicU32,
        /// How many more fit, where the kernel's buffer holds more than it should ([`Stream::bound`]).
        room: UnsafeCell<libc::sem_t>,
    },
    Mutex(UnsafeCell<libc::pthread_mutex_t>),
    Condition(UnsafeCell<libc::pthread_cond_t>),
    Barrier(UnsafeCell<libc::pthread_barrier_t>),
    Semaphore(UnsafeCell<libc::sem_t>),
    UserLock(AtomicU32),
    Event {
        mutex: UnsafeCell<libc::pthread_mutex_t>,
        condition: UnsafeCell<libc::pthread_cond_t>,
        /// How often it was notified.
        count: UnsafeCell<u32>,
    },
}

struct SharedSlots {
    memory: SharedMemory,
    len: usize,
}

// SAFETY: the memory lives as long as this does, is never moved, and what lies in it synchronises itself
// (atomics, pthread objects, a count guarded by a mutex).
unsafe impl Send for SharedSlots {}
// SAFETY: as above.
unsafe impl Sync for SharedSlots {}

impl SharedSlots {
    fn new(specs: &[ObjectSpec]) -> io::Result<SharedSlots> {
        let len = specs.len();
        let memory = SharedMemory::new(std::mem::size_of::<Slot>() * len)?;
        let slots = memory.start().cast::<Slot>();
        for (i, spec) in specs.iter().enumerate() {
            // SAFETY: within the mapping, whose pages are aligned beyond Slot; written once before anybody reads.
            unsafe {
                let slot = slots.add(i);
                slot.write(Slot::new(spec));
                (*slot).initialise(spec)?;
            }
        }
        Ok(SharedSlots { memory, len })
    }

    fn get(&self, i: usize) -> &Slot {
        assert!(i < self.len, "an object of this workload");
        // SAFETY: initialised by `new`, within bounds, only shared references are ever made.
        unsafe { &*self.memory.start().cast::<Slot>().add(i) }
    }
}

impl Slot {
    fn new(spec: &ObjectSpec) -> Slot {
        // SAFETY: glibc's objects are plain data; `initialise` fills them in before use.
        unsafe {
            match spec {
                ObjectSpec::Pipe { .. }
                | ObjectSpec::Socket { .. }
                | ObjectSpec::Tcp { .. }
                | ObjectSpec::Listener { .. } => Slot::Stream {
                    size: AtomicU32::new(0),
                    room: std::mem::zeroed(),
                },
                ObjectSpec::Mutex | ObjectSpec::PiMutex => Slot::Mutex(std::mem::zeroed()),
                ObjectSpec::Condition => Slot::Condition(std::mem::zeroed()),
                ObjectSpec::Barrier { .. } => Slot::Barrier(std::mem::zeroed()),
                ObjectSpec::Semaphore { .. } => Slot::Semaphore(std::mem::zeroed()),
                ObjectSpec::UserLock => Slot::UserLock(AtomicU32::new(0)),
                ObjectSpec::Event => Slot::Event {
                    mutex: std::mem::zeroed(),
                    condition: std::mem::zeroed(),
                    count: UnsafeCell::new(0),
                },
            }
        }
    }

    /// Makes glibc's objects usable by several processes. Called once, in place.
    fn initialise(&self, spec: &ObjectSpec) -> io::Result<()> {
        match self {
            Slot::UserLock(_) => Ok(()),
            Slot::Stream { room, .. } => initialise_semaphore(room, 0),
            Slot::Mutex(mutex) => initialise_mutex(mutex, *spec == ObjectSpec::PiMutex),
            Slot::Condition(condition) => initialise_condition(condition),
            Slot::Event {
                mutex, condition, ..
            } => {
                initialise_mutex(mutex, false)?;
                initialise_condition(condition)
            }
            Slot::Barrier(barrier) => {
                let ObjectSpec::Barrier { parties } = spec else {
                    unreachable!("made from this spec");
                };
                // SAFETY: the attribute is initialised before it is used; the barrier is ours alone so far.
                let error = unsafe {
                    let mut attribute = std::mem::zeroed();
                    libc::pthread_barrierattr_init(&mut attribute);
                    libc::pthread_barrierattr_setpshared(
                        &mut attribute,
                        libc::PTHREAD_PROCESS_SHARED,
                    );
                    libc::pthread_barrier_init(barrier.get(), &attribute, *parties)
                };
                told(error)
            }
            Slot::Semaphore(semaphore) => {
                let ObjectSpec::Semaphore { initial } = spec else {
                    unreachable!("made from this spec");
                };
                initialise_semaphore(semaphore, *initial)
            }
        }
    }
}

/// Returns the error that a pthread function returned.
fn told(error: libc::c_int) -> io::Result<()> {
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn initialise_mutex(mutex: &UnsafeCell<libc::pthread_mutex_t>, inherits: bool) -> io::Result<()> {
    // SAFETY: the attribute is initialised before it is used; the mutex is ours alone so far.
    told(unsafe {
        let mut attribute = std::mem::zeroed();
        libc::pthread_mutexattr_init(&mut attribute);
        libc::pthread_mutexattr_setpshared(&mut attribute, libc::PTHREAD_PROCESS_SHARED);
        if inherits {
            libc::pthread_mutexattr_setprotocol(&mut attribute, libc::PTHREAD_PRIO_INHERIT);
        }
        libc::pthread_mutex_init(mutex.get(), &attribute)
    })
}

fn initialise_condition(condition: &UnsafeCell<libc::pthread_cond_t>) -> io::Result<()> {
    // SAFETY: the attribute is initialised before it is used; the condition is ours alone so far.
    told(unsafe {
        let mut attribute = std::mem::zeroed();
        libc::pthread_condattr_init(&mut attribute);
        libc::pthread_condattr_setpshared(&mut attribute, libc::PTHREAD_PROCESS_SHARED);
        libc::pthread_cond_init(condition.get(), &attribute)
    })
}

fn initialise_semaphore(semaphore: &UnsafeCell<libc::sem_t>, initial: u32) -> io::Result<()> {
    // SAFETY: the semaphore is ours alone so far.
    match unsafe { libc::sem_init(semaphore.get(), 1, initial) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn post(semaphore: &UnsafeCell<libc::sem_t>) -> Result<(), String> {
    // SAFETY: initialised, and never destroyed while the run lasts.
    match unsafe { libc::sem_post(semaphore.get()) } {
        0 => Ok(()),
        _ => Err(format!("a post failed: {}", io::Error::last_os_error())),
    }
}

fn acquire(semaphore: &UnsafeCell<libc::sem_t>) {
    // SAFETY: as in `post`. An interrupted wait is begun again.
    while unsafe { libc::sem_wait(semaphore.get()) } != 0 {}
}

/// Both ends of a pipe, of one direction of a connection, or of what stands for a listening socket.
struct Stream {
    ends: Ends,
    /// The bytes that it holds by its definition, where the kernel gives it more. Without a bound, full is what the
    /// kernel calls full.
    bound: Option<u32>,
}

enum Ends {
    Pipe(PipeReader, PipeWriter),
    Socket {
        reader: TcpStream,
        writer: TcpStream,
    },
    /// Of several readers that wait for a stream of TCP a message wakes all; of those in `accept()`, and of those that
    /// wait for a datagram, it wakes the first.
    Listener {
        reader: UnixDatagram,
        writer: UnixDatagram,
    },
}

impl Ends {
    fn reader_fd(&self) -> BorrowedFd<'_> {
        match self {
            Ends::Pipe(reader, _) => reader.as_fd(),
            Ends::Socket { reader, .. } => reader.as_fd(),
            Ends::Listener { reader, .. } => reader.as_fd(),
        }
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Ends::Pipe(reader, _) => (&mut &*reader).read(buffer),
            Ends::Socket { reader, .. } => (&mut &*reader).read(buffer),
            Ends::Listener { reader, .. } => reader.recv(buffer),
        }
    }

    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Ends::Pipe(_, writer) => (&mut &*writer).write_all(bytes),
            Ends::Socket { writer, .. } => (&mut &*writer).write_all(bytes),
            Ends::Listener { writer, .. } => writer.send(bytes).map(drop),
        }
    }
}

/// The default capacity of a pipe (pipe(7)).
const PIPE_BYTES: u32 = 65_536;
/// Pages are what a pipe consists of.
const PAGE_BYTES: u32 = 4_096;

/// A pipe as programs get it is the kernel's alone. One of another size stands for a queue of so many messages, but the
/// kernel rounds its size up to a power of two of pages, and a writer that waits goes on when a whole page has been read.
fn new_pipe(capacity: u32) -> io::Result<Stream> {
    let (reader, writer) = io::pipe()?;
    let resize = |bytes: u32| fcntl_setpipe_size(&writer, bytes as usize);
    let bound = (capacity != PIPE_BYTES).then_some(capacity);
    // Messages leave up to half of a page unused, and of the first page some have been read.
    let ample = capacity.saturating_mul(2).saturating_add(PAGE_BYTES);
    match bound {
        None => resize(capacity)?,
        Some(_) => resize(ample).or_else(|_| resize(capacity))?,
    };
    Ok(Stream {
        ends: Ends::Pipe(reader, writer),
        bound,
    })
}

/// Buffers of sockets below this are the kernel's least, which is larger than what was asked for.
const LEAST_SOCKET_BYTES: u32 = 4_096;

/// Returns a connection to oneself. `capacity` is what is asked of the kernel for either end's buffer; its own
/// accounting decides how many messages that holds, unless it is smaller than the kernel's least.
fn new_socket(listener: &TcpListener, capacity: u32) -> io::Result<Stream> {
    let writer = TcpStream::connect(listener.local_addr()?)?;
    let (reader, _) = listener.accept()?;
    writer.set_nodelay(true)?;
    let bound = (capacity < LEAST_SOCKET_BYTES).then_some(capacity);
    if bound.is_none() {
        sockopt::set_socket_send_buffer_size(&writer, capacity as usize)?;
        sockopt::set_socket_recv_buffer_size(&reader, capacity as usize)?;
    }
    Ok(Stream {
        ends: Ends::Socket { reader, writer },
        bound,
    })
}

/// The size that the kernel's accounting adds to a datagram, and more.
const DATAGRAM_BYTES: u32 = 2_048;

fn new_listener(capacity: u32) -> io::Result<Stream> {
    let (reader, writer) = UnixDatagram::pair()?;
    // As much as may be: the bound decides, which counts messages.
    let room = capacity.saturating_mul(DATAGRAM_BYTES).min(1 << 29) as usize;
    sockopt::set_socket_send_buffer_size_force(&writer, room)
        .or_else(|_| sockopt::set_socket_send_buffer_size(&writer, room))?;
    Ok(Stream {
        ends: Ends::Listener { reader, writer },
        bound: Some(capacity),
    })
}

/// Returns a listener on loopback; where there is no loopback interface yet, it is set up first.
fn listen() -> io::Result<TcpListener> {
    let try_once = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        TcpStream::connect(listener.local_addr()?)?;
        listener.accept()?;
        Ok(listener)
    };
    try_once().or_else(|error: io::Error| match sys::raise_loopback() {
        Ok(()) => try_once(),
        Err(_) => Err(error),
    })
}

/// The most that one read returns.
const READ_BYTES: usize = 65_536;

/// A thread's own part of reading: bytes of a message whose rest has not come yet.
#[derive(Default)]
pub struct Reader {
    buffer: Vec<u8>,
    partial: Vec<(ObjectId, usize)>,
}

/// Reads what is there of a stream of bytes that is known to be messages of one size.
fn read_stream(
    ends: &Ends,
    size: &AtomicU32,
    from: ObjectId,
    limit: u32,
    own: &mut Reader,
) -> Result<u32, String> {
    if size.load(Ordering::Acquire) == 0 {
        sys::wait_readable(ends.reader_fd());
    }
    let size = size.load(Ordering::Acquire) as usize;
    let most = (READ_BYTES / size).max(1);
    let wanted = most.min(limit as usize) * size;
    // No more than is needed: the first use of each page of it costs time of the run.
    own.buffer.resize(own.buffer.len().max(wanted), 0);
    let at = own.partial.iter().position(|(id, _)| *id == from);
    let mut have = at.map_or(0, |at| own.partial.swap_remove(at).1);
    while have < size {
        let n = ends
            .read(&mut own.buffer[..wanted - have])
            .map_err(|error| format!("a read failed: {error}"))?;
        if n == 0 {
            return Err("a stream ended though its writers are there".to_owned());
        }
        have += n;
    }
    if !have.is_multiple_of(size) {
        own.partial.push((from, have % size));
    }
    Ok((have / size) as u32)
}

impl Objects {
    /// Makes them all.
    pub fn new(specs: &[ObjectSpec]) -> io::Result<Objects> {
        let slots = SharedSlots::new(specs)?;
        let mut listener = None;
        let mut stream = |spec: &ObjectSpec| -> io::Result<Option<Stream>> {
            Ok(match *spec {
                ObjectSpec::Pipe { capacity } => Some(new_pipe(capacity)?),
                ObjectSpec::Socket { capacity } | ObjectSpec::Tcp { capacity, .. } => {
                    let listener = match &mut listener {
                        Some(listener) => listener,
                        none => none.insert(listen()?),
                    };
                    Some(new_socket(listener, capacity)?)
                }
                ObjectSpec::Listener { capacity } => Some(new_listener(capacity)?),
                _ => None,
            })
        };
        let streams = specs.iter().map(&mut stream).collect::<io::Result<_>>()?;
        Ok(Objects { slots, streams })
    }

    /// Files that `specs` need.
    pub fn files(specs: &[ObjectSpec]) -> u64 {
        let is_stream = |spec: &&ObjectSpec| {
            matches!(
                spec,
                ObjectSpec::Pipe { .. }
                    | ObjectSpec::Socket { .. }
                    | ObjectSpec::Tcp { .. }
                    | ObjectSpec::Listener { .. }
            )
        };
        2 * specs.iter().filter(is_stream).count() as u64
    }

    fn slot(&self, id: ObjectId) -> &Slot {
        self.slots.get(id.0 as usize)
    }

    fn stream(&self, id: ObjectId) -> (&Stream, &AtomicU32, &UnsafeCell<libc::sem_t>) {
        match (&self.streams[id.0 as usize], self.slot(id)) {
            (Some(stream), Slot::Stream { size, room }) => (stream, size, room),
            _ => panic!("object {} is not a pipe or socket", id.0),
        }
    }

    /// Writes one message.
    pub fn write(&self, to: ObjectId, bytes: u32) -> Result<(), String> {
        let (stream, size, room) = self.stream(to);
        // A reader splits the stream by this size, which must be there before the first byte.
        let known = size.compare_exchange(0, bytes, Ordering::AcqRel, Ordering::Acquire);
        if known.is_err_and(|known| known != bytes) {
            return Err(format!(
                "messages of {bytes} bytes on a stream that had others: real streams have one size"
            ));
        }
        if let Some(capacity) = stream.bound {
            if known.is_ok() {
                // A message that never fits passes when nothing else is there.
                (0..(capacity / bytes.max(1)).max(1)).try_for_each(|_| post(room))?;
            }
            acquire(room);
        }
        static ZEROS: [u8; READ_BYTES] = [0; READ_BYTES];
        let mut left = bytes as usize;
        while left > 0 {
            let part = left.min(ZEROS.len());
            let written = stream.ends.write_all(&ZEROS[..part]);
            written.map_err(|error| format!("a write failed: {error}"))?;
            left -= part;
        }
        Ok(())
    }

    /// Reads every complete message that is there, at most `limit`, of a listener one; waits for the first.
    pub fn read(&self, from: ObjectId, limit: u32, own: &mut Reader) -> Result<u32, String> {
        let (stream, size, room) = self.stream(from);
        let count = match &stream.ends {
            listener @ Ends::Listener { .. } => {
                // The part that does not fit into the buffer of the first read is dropped with its message.
                let size = size.load(Ordering::Acquire).max(1) as usize;
                own.buffer.resize(own.buffer.len().max(size), 0);
                let read = listener.read(&mut own.buffer);
                read.map_err(|error| format!("a read failed: {error}"))?;
                1
            }
            ends => read_stream(ends, size, from, limit, own)?,
        };
        if stream.bound.is_some() {
            (0..count).try_for_each(|_| post(room))?;
        }
        Ok(count)
    }

    /// Takes a mutex.
    pub fn lock(&self, id: ObjectId) -> Result<(), String> {
        let Slot::Mutex(mutex) = self.slot(id) else {
            panic!("object {} is not a mutex", id.0);
        };
        // SAFETY: initialised, and never destroyed while the run lasts.
        told(unsafe { libc::pthread_mutex_lock(mutex.get()) })
            .map_err(|e| format!("a lock failed: {e}"))
    }

    /// Releases a mutex.
    pub fn unlock(&self, id: ObjectId) -> Result<(), String> {
        let Slot::Mutex(mutex) = self.slot(id) else {
            panic!("object {} is not a mutex", id.0);
        };
        // SAFETY: as in `lock`.
        told(unsafe { libc::pthread_mutex_unlock(mutex.get()) })
            .map_err(|e| format!("an unlock failed: {e}"))
    }

    /// Waits for a condition; the mutex is held before and after.
    pub fn wait(&self, condition: ObjectId, mutex: ObjectId) -> Result<(), String> {
        let (Slot::Condition(condition), Slot::Mutex(mutex)) =
            (self.slot(condition), self.slot(mutex))
        else {
            panic!("no condition and mutex");
        };
        // SAFETY: both are initialised; the thread holds the mutex.
        told(unsafe { libc::pthread_cond_wait(condition.get(), mutex.get()) })
            .map_err(|e| format!("a wait failed: {e}"))
    }

    /// Wakes one waiter, or all.
    pub fn signal(&self, id: ObjectId, all: bool) {
        let Slot::Condition(condition) = self.slot(id) else {
            panic!("object {} is not a condition", id.0);
        };
        // SAFETY: initialised.
        unsafe {
            if all {
                libc::pthread_cond_broadcast(condition.get());
            } else {
                libc::pthread_cond_signal(condition.get());
            }
        }
    }

    /// Waits until all parties are there.
    pub fn barrier(&self, id: ObjectId) {
        let Slot::Barrier(barrier) = self.slot(id) else {
            panic!("object {} is not a barrier", id.0);
        };
        // SAFETY: initialised.
        unsafe { libc::pthread_barrier_wait(barrier.get()) };
    }

    /// Increments a semaphore.
    pub fn post(&self, id: ObjectId) -> Result<(), String> {
        let Slot::Semaphore(semaphore) = self.slot(id) else {
            panic!("object {} is not a semaphore", id.0);
        };
        post(semaphore)
    }

    /// Decrements a semaphore; waits while it is zero.
    pub fn acquire(&self, id: ObjectId) {
        let Slot::Semaphore(semaphore) = self.slot(id) else {
            panic!("object {} is not a semaphore", id.0);
        };
        acquire(semaphore);
    }

    /// Tries to take a user-level lock.
    pub fn try_user_lock(&self, id: ObjectId) -> bool {
        let Slot::UserLock(word) = self.slot(id) else {
            panic!("object {} is not a user-level lock", id.0);
        };
        word.swap(1, Ordering::Acquire) == 0
    }

    /// Releases a user-level lock.
    pub fn user_unlock(&self, id: ObjectId) {
        let Slot::UserLock(word) = self.slot(id) else {
            panic!("object {} is not a user-level lock", id.0);
        };
        word.store(0, Ordering::Release);
    }

    /// Waits for the next notification.
    pub fn suspend(&self, id: ObjectId) {
        let Slot::Event {
            mutex,
            condition,
            count,
        } = self.slot(id)
        else {
            panic!("object {} is not an event", id.0);
        };
        // SAFETY: mutex and condition are initialised; the count is read with the mutex held.
        unsafe {
            libc::pthread_mutex_lock(mutex.get());
            let before = *count.get();
            while *count.get() == before {
                libc::pthread_cond_wait(condition.get(), mutex.get());
            }
            libc::pthread_mutex_unlock(mutex.get());
        }
    }

    /// Wakes all tasks that wait for a notification.
    pub fn notify(&self, id: ObjectId) {
        let Slot::Event {
            mutex,
            condition,
            count,
        } = self.slot(id)
        else {
            panic!("object {} is not an event", id.0);
        };
        // SAFETY: as in `suspend`.
        unsafe {
            libc::pthread_mutex_lock(mutex.get());
            *count.get() = (*count.get()).wrapping_add(1);
            libc::pthread_cond_broadcast(condition.get());
            libc::pthread_mutex_unlock(mutex.get());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Returns how many messages of 64 bytes pass before a writer has to wait.
    fn holds(spec: ObjectSpec) -> u32 {
        let objects = Objects::new(&[spec]).unwrap();
        let (written, wanted) = (AtomicU32::new(0), AtomicU32::new(u32::MAX));
        let settled = || {
            let mut before = u32::MAX;
            loop {
                std::thread::sleep(Duration::from_millis(100));
                let now = written.load(Ordering::Acquire);
                if now == before && now > 0 {
                    return now;
                }
                before = now;
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while written.load(Ordering::Acquire) < wanted.load(Ordering::Acquire) {
                    objects.write(ObjectId(0), 64).unwrap();
                    written.fetch_add(1, Ordering::AcqRel);
                }
            });
            let held = settled();
            wanted.store(held + 1, Ordering::Release);
            let mut reader = Reader::default();
            let mut read_one = || assert_eq!(objects.read(ObjectId(0), 1, &mut reader), Ok(1));
            read_one();
            let after = settled();
            // The writer ends in any case.
            (0..held).for_each(|_| read_one());
            assert_eq!(
                after,
                held + 1,
                "each message that is read makes room for one"
            );
            held
        })
    }

    #[test]
    fn small_buffers_hold_what_they_are_made_for() {
        for messages in [1, 3, 64, 100] {
            let capacity = 64 * messages;
            assert_eq!(holds(ObjectSpec::Pipe { capacity }), messages);
            assert_eq!(holds(ObjectSpec::Listener { capacity }), messages);
        }
        assert_eq!(holds(ObjectSpec::Socket { capacity: 128 }), 2);
        // A message that never fits passes alone.
        assert_eq!(holds(ObjectSpec::Pipe { capacity: 63 }), 1);
    }
}
