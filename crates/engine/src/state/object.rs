//! The objects of a workload: pipes, sockets, mutexes …

use std::collections::VecDeque;

use schedlab_machine::Tcp;
use schedlab_trace::TaskId;
use schedlab_workload::ObjectSpec;

use crate::state::pi::PiMutex;
use crate::state::shared::Buffer;
use crate::state::tcp::Flow;

/// A pipe or one direction of a socket.
pub(crate) struct Channel {
    is_socket: bool,
    capacity: u64,
    used: u64,
    messages: VecDeque<u32>,
    /// Where they lie; empty if the machine does not say that they lie anywhere.
    buffers: VecDeque<Buffer>,
    readers: VecDeque<TaskId>,
    writers: VecDeque<TaskId>,
    /// All tasks that have written so far.
    known_writers: Vec<TaskId>,
    /// Of a direction of a TCP connection, if the machine models them.
    tcp: Option<Box<Flow>>,
}

/// The messages that a read took out of a channel.
pub(crate) struct Taken {
    pub messages: u32,
    pub bytes: u64,
    pub buffers: Vec<Buffer>,
    /// The channel is empty now.
    pub is_all: bool,
}

impl Channel {
    pub fn is_socket(&self) -> bool {
        self.is_socket
    }

    pub fn is_tcp(&self) -> bool {
        self.tcp.is_some()
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Notes that this task writes.
    pub fn note_writer(&mut self, task: TaskId) {
        if !self.known_writers.contains(&task) {
            self.known_writers.push(task);
        }
    }

    /// Returns whether somebody has written, and all of them are `gone`.
    pub fn is_closed(&self, gone: impl Fn(&TaskId) -> bool) -> bool {
        !self.known_writers.is_empty() && self.known_writers.iter().all(gone)
    }

    /// Adds a message. Returns whether there was room: one that is larger than the channel passes when that is empty.
    pub fn put(&mut self, bytes: u32) -> bool {
        let fits = self.used + u64::from(bytes) <= self.capacity || self.used == 0;
        if fits {
            self.used += u64::from(bytes);
            self.messages.push_back(bytes);
        }
        fits
    }

    /// Adds the buffer in which a message lies.
    pub fn put_buffer(&mut self, buffer: Option<Buffer>) {
        self.buffers.extend(buffer);
    }

    /// Adds messages that have arrived over a connection, which counts their bytes.
    pub fn arrive(&mut self, messages: impl IntoIterator<Item = u32>) {
        self.messages.extend(messages);
    }

    /// Takes at most `limit` messages, and one in any case, which makes room.
    pub fn read(&mut self, limit: u32) -> Taken {
        let taken = self.take(limit);
        self.used -= taken.bytes;
        taken
    }

    /// The same of a connection, whose flow counts the bytes.
    pub fn take(&mut self, limit: u32) -> Taken {
        let count = self.messages.len().min(limit.max(1) as usize);
        let bytes = self.messages.drain(..count).map(u64::from).sum();
        let with_buffer = count.min(self.buffers.len());
        Taken {
            messages: count as u32,
            bytes,
            buffers: self.buffers.drain(..with_buffer).collect(),
            is_all: self.messages.is_empty(),
        }
    }

    pub fn wait_to_read(&mut self, task: TaskId) {
        self.readers.push_back(task);
    }

    pub fn wait_to_write(&mut self, task: TaskId) {
        self.writers.push_back(task);
    }

    /// Takes the first task that waits to read.
    pub fn next_reader(&mut self) -> Option<TaskId> {
        self.readers.pop_front()
    }

    /// Takes the first task that waits to write.
    pub fn next_writer(&mut self) -> Option<TaskId> {
        self.writers.pop_front()
    }

    /// Takes the first task that waits to write, if there is room.
    pub fn next_writer_with_room(&mut self) -> Option<TaskId> {
        let has_room = self.used < self.capacity;
        has_room.then(|| self.writers.pop_front()).flatten()
    }

    pub fn all_readers(&mut self) -> VecDeque<TaskId> {
        std::mem::take(&mut self.readers)
    }

    pub fn all_writers(&mut self) -> VecDeque<TaskId> {
        std::mem::take(&mut self.writers)
    }

    /// Looks at the flow of a connection.
    ///
    /// # Panics
    /// If it is none.
    pub fn with_flow<T>(&mut self, look: impl FnOnce(&mut Channel, &mut Flow) -> T) -> T {
        let mut flow = self.tcp.take().expect("it is one of TCP");
        let result = look(self, &mut flow);
        self.tcp = Some(flow);
        result
    }
}

/// An object and its waiters, in the order in which they came.
pub(crate) enum Object {
    Channel(Channel),
    Mutex {
        owner: Option<TaskId>,
        waiters: VecDeque<TaskId>,
    },
    PiMutex(PiMutex),
    Condition {
        waiters: VecDeque<TaskId>,
    },
    Barrier {
        parties: u32,
        arrived: u32,
        waiters: VecDeque<TaskId>,
    },
    Semaphore {
        count: u32,
        waiters: VecDeque<TaskId>,
    },
    UserLock {
        owner: Option<TaskId>,
    },
    Event {
        waiters: VecDeque<TaskId>,
    },
}

impl Object {
    pub fn new(spec: &ObjectSpec, tcp: Option<&Tcp>) -> Object {
        let with_flow = |is_socket, capacity, tcp| {
            Object::Channel(Channel {
                is_socket,
                capacity: u64::from(capacity),
                used: 0,
                messages: VecDeque::new(),
                buffers: VecDeque::new(),
                readers: VecDeque::new(),
                writers: VecDeque::new(),
                known_writers: Vec::new(),
                tcp,
            })
        };
        let channel = |socket, capacity| with_flow(socket, capacity, None);
        let waiters = VecDeque::new();
        match *spec {
            ObjectSpec::Pipe { capacity } => channel(false, capacity),
            ObjectSpec::Socket { capacity } | ObjectSpec::Listener { capacity } => {
                channel(true, capacity)
            }
            ObjectSpec::Tcp { capacity, is_first } => {
                let flow = tcp.map(|tcp| Box::new(Flow::new(tcp, is_first)));
                with_flow(true, capacity, flow)
            }
            ObjectSpec::Mutex => Object::Mutex {
                owner: None,
                waiters,
            },
            ObjectSpec::PiMutex => Object::PiMutex(PiMutex::default()),
            ObjectSpec::Condition => Object::Condition { waiters },
            ObjectSpec::Barrier { parties } => Object::Barrier {
                parties,
                arrived: 0,
                waiters,
            },
            ObjectSpec::Semaphore { initial } => Object::Semaphore {
                count: initial,
                waiters,
            },
            ObjectSpec::UserLock => Object::UserLock { owner: None },
            ObjectSpec::Event => Object::Event { waiters },
        }
    }

    /// For messages.
    pub fn what(&self) -> &'static str {
        match self {
            Object::Channel(Channel {
                is_socket: true, ..
            }) => "a socket",
            Object::Channel(_) => "a pipe",
            Object::Mutex { .. } | Object::PiMutex(_) => "a mutex",
            Object::Condition { .. } => "a condition variable",
            Object::Barrier { .. } => "a barrier",
            Object::Semaphore { .. } => "a semaphore",
            Object::UserLock { .. } => "a user-level lock",
            Object::Event { .. } => "an event",
        }
    }
}
