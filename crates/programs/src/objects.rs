//! The objects of a workload, shared by all its processes.

use std::cell::UnsafeCell;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use schedlab_workload::{ObjectId, ObjectSpec};

use crate::sys::{self, SharedMemory};

/// All objects by their ids, and the gate at which the tasks wait for the start.
pub struct Objects {
    slots: SharedSlots,
    streams: Vec<Option<Stream>>,
}

/// What an object keeps in shared memory. The kind is set before the first fork and never changes.
#[repr(align(128))]
enum Slot {
    /// Size of the messages on a stream; 0 before the first one.
    Stream(AtomicU32),
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
    fn new(kinds: &[ObjectSpec]) -> io::Result<SharedSlots> {
        let memory = SharedMemory::new(std::mem::size_of::<Slot>() * kinds.len())?;
        let slots = memory.start().cast::<Slot>();
        for (i, spec) in kinds.iter().enumerate() {
            // SAFETY: within the mapping, whose pages are aligned beyond Slot; written once before anybody reads.
            unsafe {
                let slot = slots.add(i);
                slot.write(Slot::new(spec));
                (*slot).initialise(spec)?;
            }
        }
        Ok(SharedSlots {
            memory,
            len: kinds.len(),
        })
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
                ObjectSpec::Pipe { .. } | ObjectSpec::Socket { .. } => {
                    Slot::Stream(AtomicU32::new(0))
                }
                ObjectSpec::Mutex => Slot::Mutex(std::mem::zeroed()),
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
            Slot::Stream(_) | Slot::UserLock(_) => Ok(()),
            Slot::Mutex(mutex) => initialise_mutex(mutex),
            Slot::Condition(condition) => initialise_condition(condition),
            Slot::Event {
                mutex, condition, ..
            } => {
                initialise_mutex(mutex)?;
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
                // SAFETY: the semaphore is ours alone so far.
                match unsafe { libc::sem_init(semaphore.get(), 1, *initial) } {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            }
        }
    }
}

/// The error that a pthread function returned.
fn told(error: libc::c_int) -> io::Result<()> {
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn initialise_mutex(mutex: &UnsafeCell<libc::pthread_mutex_t>) -> io::Result<()> {
    // SAFETY: the attribute is initialised before it is used; the mutex is ours alone so far.
    told(unsafe {
        let mut attribute = std::mem::zeroed();
        libc::pthread_mutexattr_init(&mut attribute);
        libc::pthread_mutexattr_setpshared(&mut attribute, libc::PTHREAD_PROCESS_SHARED);
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

/// Both ends of a pipe or of one direction of a connection.
enum Stream {
    Pipe(PipeReader, PipeWriter),
    Socket {
        reader: TcpStream,
        writer: TcpStream,
    },
}

impl Stream {
    fn reader_fd(&self) -> i32 {
        match self {
            Stream::Pipe(reader, _) => reader.as_raw_fd(),
            Stream::Socket { reader, .. } => reader.as_raw_fd(),
        }
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Pipe(reader, _) => (&mut &*reader).read(buffer),
            Stream::Socket { reader, .. } => (&mut &*reader).read(buffer),
        }
    }

    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Pipe(_, writer) => (&mut &*writer).write_all(bytes),
            Stream::Socket { writer, .. } => (&mut &*writer).write_all(bytes),
        }
    }
}

fn new_pipe(capacity: u32) -> io::Result<Stream> {
    let (reader, writer) = io::pipe()?;
    sys::set_pipe_size(writer.as_raw_fd(), capacity)?;
    Ok(Stream::Pipe(reader, writer))
}

/// A connection to oneself. `capacity` is what is asked of the kernel for either end's buffer; its own
/// accounting decides how many messages that holds.
fn new_socket(listener: &TcpListener, capacity: u32) -> io::Result<Stream> {
    let writer = TcpStream::connect(listener.local_addr()?)?;
    let (reader, _) = listener.accept()?;
    writer.set_nodelay(true)?;
    sys::set_socket_buffer(writer.as_raw_fd(), libc::SO_SNDBUF, capacity)?;
    sys::set_socket_buffer(reader.as_raw_fd(), libc::SO_RCVBUF, capacity)?;
    Ok(Stream::Socket { reader, writer })
}

/// A listener on loopback; where there is no loopback interface yet, it is set up first.
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

impl Objects {
    /// Makes them all.
    pub fn new(specs: &[ObjectSpec]) -> io::Result<Objects> {
        // The last slot is the gate.
        let mut kinds = specs.to_vec();
        kinds.push(ObjectSpec::Event);
        let slots = SharedSlots::new(&kinds)?;
        let mut listener = None;
        let mut stream = |spec: &ObjectSpec| -> io::Result<Option<Stream>> {
            Ok(match *spec {
                ObjectSpec::Pipe { capacity } => Some(new_pipe(capacity)?),
                ObjectSpec::Socket { capacity } => {
                    let listener = match &mut listener {
                        Some(listener) => listener,
                        none => none.insert(listen()?),
                    };
                    Some(new_socket(listener, capacity)?)
                }
                _ => None,
            })
        };
        let streams = specs.iter().map(&mut stream).collect::<io::Result<_>>()?;
        Ok(Objects { slots, streams })
    }

    /// Files that `specs` need.
    pub fn files(specs: &[ObjectSpec]) -> u64 {
        let is_stream = |spec: &&ObjectSpec| {
            matches!(spec, ObjectSpec::Pipe { .. } | ObjectSpec::Socket { .. })
        };
        2 * specs.iter().filter(is_stream).count() as u64
    }

    fn slot(&self, id: ObjectId) -> &Slot {
        self.slots.get(id.0 as usize)
    }

    fn stream(&self, id: ObjectId) -> (&Stream, &AtomicU32) {
        match (&self.streams[id.0 as usize], self.slot(id)) {
            (Some(stream), Slot::Stream(bytes)) => (stream, bytes),
            _ => panic!("object {} is no pipe or socket", id.0),
        }
    }

    /// Writes one message.
    pub fn write(&self, to: ObjectId, bytes: u32) -> Result<(), String> {
        let (stream, size) = self.stream(to);
        // A reader splits the stream by this size, which must be there before the first byte.
        let known = size.compare_exchange(0, bytes, Ordering::AcqRel, Ordering::Acquire);
        if known.is_err_and(|known| known != bytes) {
            return Err(format!(
                "messages of {bytes} bytes on a stream that had others: real streams have one size"
            ));
        }
        const ZEROS: [u8; 4_096] = [0; 4_096];
        let mut left = bytes as usize;
        while left > 0 {
            let part = left.min(ZEROS.len());
            let written = stream.write_all(&ZEROS[..part]);
            written.map_err(|error| format!("a write failed: {error}"))?;
            left -= part;
        }
        Ok(())
    }

    /// Reads every complete message that is there, at most `limit`; waits for the first.
    pub fn read(&self, from: ObjectId, limit: u32, own: &mut Reader) -> Result<u32, String> {
        let (stream, size) = self.stream(from);
        if size.load(Ordering::Acquire) == 0 {
            sys::wait_readable(stream.reader_fd());
        }
        let size = size.load(Ordering::Acquire) as usize;
        own.buffer.resize(READ_BYTES.max(size), 0);
        let at = own.partial.iter().position(|(id, _)| *id == from);
        let mut have = at.map_or(0, |at| own.partial.swap_remove(at).1);
        while have < size {
            let wanted = (limit as usize)
                .saturating_mul(size)
                .min(own.buffer.len() / size * size);
            let n = stream
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

    /// Takes a mutex.
    pub fn lock(&self, id: ObjectId) -> Result<(), String> {
        let Slot::Mutex(mutex) = self.slot(id) else {
            panic!("object {} is no mutex", id.0);
        };
        // SAFETY: initialised, and never destroyed while the run lasts.
        told(unsafe { libc::pthread_mutex_lock(mutex.get()) })
            .map_err(|e| format!("a lock failed: {e}"))
    }

    /// Releases a mutex.
    pub fn unlock(&self, id: ObjectId) -> Result<(), String> {
        let Slot::Mutex(mutex) = self.slot(id) else {
            panic!("object {} is no mutex", id.0);
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
            panic!("object {} is no condition", id.0);
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
            panic!("object {} is no barrier", id.0);
        };
        // SAFETY: initialised.
        unsafe { libc::pthread_barrier_wait(barrier.get()) };
    }

    /// Increments a semaphore.
    pub fn post(&self, id: ObjectId) -> Result<(), String> {
        let Slot::Semaphore(semaphore) = self.slot(id) else {
            panic!("object {} is no semaphore", id.0);
        };
        // SAFETY: initialised.
        match unsafe { libc::sem_post(semaphore.get()) } {
            0 => Ok(()),
            _ => Err(format!("a post failed: {}", io::Error::last_os_error())),
        }
    }

    /// Decrements a semaphore; waits while it is zero.
    pub fn acquire(&self, id: ObjectId) {
        let Slot::Semaphore(semaphore) = self.slot(id) else {
            panic!("object {} is no semaphore", id.0);
        };
        // SAFETY: initialised. An interrupted wait is begun again.
        while unsafe { libc::sem_wait(semaphore.get()) } != 0 {}
    }

    /// Tries to take a user-level lock.
    pub fn try_user_lock(&self, id: ObjectId) -> bool {
        let Slot::UserLock(word) = self.slot(id) else {
            panic!("object {} is no user-level lock", id.0);
        };
        word.swap(1, Ordering::Acquire) == 0
    }

    /// Releases a user-level lock.
    pub fn user_unlock(&self, id: ObjectId) {
        let Slot::UserLock(word) = self.slot(id) else {
            panic!("object {} is no user-level lock", id.0);
        };
        word.store(0, Ordering::Release);
    }

    /// Waits for the next notification.
    pub fn suspend(&self, id: ObjectId) {
        self.await_event(self.slot(id), |now, before| now == before);
    }

    /// Wakes everybody who waits for a notification.
    pub fn notify(&self, id: ObjectId) {
        self.notify_event(self.slot(id));
    }

    /// Waits for the start of the run; returns at once when it has begun.
    pub fn wait_at_gate(&self) {
        self.await_event(self.gate(), |now, _| now == 0);
    }

    /// Starts the run.
    pub fn open_gate(&self) {
        self.notify_event(self.gate());
    }

    fn gate(&self) -> &Slot {
        self.slots.get(self.slots.len - 1)
    }

    fn await_event(&self, slot: &Slot, waits: impl Fn(u32, u32) -> bool) {
        let Slot::Event {
            mutex,
            condition,
            count,
        } = slot
        else {
            panic!("no event");
        };
        // SAFETY: mutex and condition are initialised; the count is read with the mutex held.
        unsafe {
            libc::pthread_mutex_lock(mutex.get());
            let before = *count.get();
            while waits(*count.get(), before) {
                libc::pthread_cond_wait(condition.get(), mutex.get());
            }
            libc::pthread_mutex_unlock(mutex.get());
        }
    }

    fn notify_event(&self, slot: &Slot) {
        let Slot::Event {
            mutex,
            condition,
            count,
        } = slot
        else {
            panic!("no event");
        };
        // SAFETY: as in `await_event`.
        unsafe {
            libc::pthread_mutex_lock(mutex.get());
            *count.get() = (*count.get()).wrapping_add(1);
            libc::pthread_cond_broadcast(condition.get());
            libc::pthread_mutex_unlock(mutex.get());
        }
    }
}
