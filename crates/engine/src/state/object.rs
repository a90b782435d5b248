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
    pub socket: bool,
    pub capacity: u64,
    pub used: u64,
    pub messages: VecDeque<u32>,
    /// Where they lie; empty if the machine does not say that they lie anywhere.
    pub buffers: VecDeque<Buffer>,
    pub readers: VecDeque<TaskId>,
    pub writers: VecDeque<TaskId>,
    /// All tasks that have written so far.
    pub known_writers: Vec<TaskId>,
    /// Of a direction of a TCP connection, if the machine models them.
    pub tcp: Option<Box<Flow>>,
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
        let with_flow = |socket, capacity, tcp| {
            Object::Channel(Channel {
                socket,
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
            Object::Channel(Channel { socket: true, .. }) => "a socket",
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
