//! The server's process: its main thread, and a receiver and a sender for each user.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use schedlab_trace::Duration;

use super::{Common, Connection, SERVER_SPACE, compute};
use crate::{
    Action, Behaviour, Builder, Context, Counters, ObjectId, ObjectSpec, Options, Outcome, TaskSpec,
};

/// The main thread: accepts every connection, creates its two threads, then signals the client to start.
pub(super) struct Main {
    /// Still to be created, the next one last.
    threads: Vec<TaskSpec>,
    listen: ObjectId,
    control: ObjectId,
    step: MainStep,
}

enum MainStep {
    Accept,
    Fork { second: bool },
    Exit,
}

impl Main {
    pub fn new(threads: Vec<TaskSpec>, listen: ObjectId, control: ObjectId) -> Main {
        Main {
            threads,
            listen,
            control,
            step: MainStep::Accept,
        }
    }
}

impl Behaviour for Main {
    fn next(&mut self, _: &mut Context<'_>) -> Action {
        match self.step {
            MainStep::Accept if self.threads.is_empty() => {
                self.step = MainStep::Exit;
                Action::Write {
                    to: self.control,
                    bytes: 1,
                }
            }
            MainStep::Accept => {
                self.step = MainStep::Fork { second: false };
                Action::Read {
                    from: self.listen,
                    limit: 1,
                }
            }
            MainStep::Fork { second } => {
                self.step = if second {
                    MainStep::Accept
                } else {
                    MainStep::Fork { second: true }
                };
                Action::Fork(Box::new(self.threads.pop().expect("two threads a user")))
            }
            MainStep::Exit => Action::Exit,
        }
    }
}

/// The server's state of one room.
pub(super) enum Room {
    Queue(Arc<[Mailbox]>),
    Direct {
        /// One semaphore a user: messages received and not yet broadcast.
        received: Vec<ObjectId>,
        /// Each connection, and the mutex that writers of its socket take.
        connections: Vec<(Connection, Option<ObjectId>)>,
    },
}

/// A user's bounded send queue. The fields below the objects belong to the lock's holder.
pub(super) struct Mailbox {
    connection: Connection,
    lock: ObjectId,
    /// The send thread waits here for a message.
    filled: ObjectId,
    /// Receive threads wait here for space.
    drained: ObjectId,
    queued: AtomicU32,
    sender_waits: AtomicBool,
    producers_waiting: AtomicU32,
}

impl Room {
    pub fn new(builder: &mut Builder, options: &Options, connections: &[Connection]) -> Room {
        let semaphore = ObjectSpec::Semaphore { initial: 0 };
        if options.choice("server") == "direct" {
            return Room::Direct {
                received: connections
                    .iter()
                    .map(|_| builder.object(semaphore))
                    .collect(),
                connections: connections
                    .iter()
                    .map(|&connection| {
                        let lock = match options.choice("write") {
                            "mutex" => Some(builder.object(ObjectSpec::Mutex)),
                            "locked" => Some(builder.object(ObjectSpec::UserLock)),
                            _ => None,
                        };
                        (connection, lock)
                    })
                    .collect(),
            };
        }
        let room_lock = match options.choice("lock") {
            "room" => Some(builder.object(ObjectSpec::UserLock)),
            _ => None,
        };
        let mailbox = |&connection: &Connection| Mailbox {
            connection,
            lock: room_lock.unwrap_or_else(|| builder.object(ObjectSpec::UserLock)),
            filled: builder.object(semaphore),
            drained: builder.object(semaphore),
            queued: AtomicU32::new(0),
            sender_waits: AtomicBool::new(false),
            producers_waiting: AtomicU32::new(0),
        };
        Room::Queue(connections.iter().map(mailbox).collect())
    }

    /// Returns a user's receive and send threads.
    pub fn threads(
        &self,
        builder: &Builder,
        options: &Options,
        common: &Common,
        (first, room, user): (usize, usize, usize),
    ) -> [TaskSpec; 2] {
        let names = [format!("sr{room}.{user}"), format!("ss{room}.{user}")];
        let [receive, send] = names;
        let working_set = options.bytes("working_set");
        match self {
            Room::Queue(mailboxes) => {
                let receiver = Receiver::new(mailboxes, options, common, user);
                let sender = Sender::new(mailboxes, options, common, user);
                [
                    builder.spec(first + 2, receive, SERVER_SPACE, working_set, receiver),
                    builder.spec(first + 3, send, SERVER_SPACE, working_set, sender),
                ]
            }
            Room::Direct {
                received,
                connections,
            } => {
                let receiver = DirectReceiver {
                    from: connections[user].0.up,
                    semaphore: received[user],
                    left: common.messages * common.runs,
                    limit: common.read_limit,
                    cpu: common.server_receive_cpu,
                    step: DirectReceiverStep::Read,
                    tally: ReadTally::default(),
                };
                let others = connections.iter().enumerate();
                let others = others.filter(|&(other, _)| other != user);
                let sender = DirectSender {
                    semaphore: received[user],
                    to: others.map(|(_, &(connection, lock))| (connection.down, lock)).collect(),
                    left: common.messages * common.runs,
                    bytes: common.bytes,
                    cpu: common.server_send_cpu,
                    step: DirectSenderStep::Acquire,
                    lock: (options.choice("write") == "locked").then(|| UserLock::new(options)),
                };
                [
                    builder.spec(first + 2, receive, SERVER_SPACE, working_set, receiver),
                    builder.spec(first + 3, send, SERVER_SPACE, working_set, sender),
                ]
            }
        }
    }
}

/// Reads of the server-receive threads.
#[derive(Default)]
struct ReadTally {
    reads: u64,
    messages: u64,
}

impl ReadTally {
    fn add(&mut self, outcome: Outcome) -> u32 {
        let Outcome::Messages(n) = outcome else {
            panic!("a chat socket answered {outcome:?}");
        };
        self.reads += 1;
        self.messages += u64::from(n);
        n
    }

    fn report(&self, counters: &mut Counters) {
        counters.add("chat.server_reads", self.reads);
        counters.add("chat.server_messages_received", self.messages);
        counters.ratio(
            "chat.server_messages_per_read",
            "chat.server_messages_received",
            "chat.server_reads",
        );
    }
}

/// Takes a user-level lock as LinuxThreads does: test-and-set; while it is busy some yields, then a sleep.
struct UserLock {
    yields_max: u64,
    sleep: Duration,
    /// Yields since the last sleep.
    yields: u64,
    tried: bool,
    acquisitions: u64,
    busy: u64,
    sleeps: u64,
}

impl UserLock {
    fn new(options: &Options) -> UserLock {
        UserLock {
            yields_max: options.count("lock_yields"),
            sleep: options.time("lock_sleep"),
            yields: 0,
            tried: false,
            acquisitions: 0,
            busy: 0,
            sleeps: 0,
        }
    }

    /// Returns the action that acquires `lock`; `None` once it is held.
    fn take(&mut self, lock: ObjectId, outcome: Outcome) -> Option<Action> {
        if !std::mem::replace(&mut self.tried, true) {
            return Some(Action::TryUserLock(lock));
        }
        self.tried = false;
        match outcome {
            Outcome::Taken => {
                self.acquisitions += 1;
                self.yields = 0;
                None
            }
            Outcome::Busy => {
                self.busy += 1;
                if self.yields < self.yields_max {
                    self.yields += 1;
                    return Some(Action::Yield);
                }
                self.yields = 0;
                self.sleeps += 1;
                Some(Action::Sleep(self.sleep))
            }
            other => panic!("a user-level lock answered {other:?}"),
        }
    }

    fn report(&self, counters: &mut Counters) {
        counters.add("chat.lock_acquisitions", self.acquisitions);
        counters.add("chat.lock_busy", self.busy);
        counters.add("chat.lock_sleeps", self.sleeps);
        counters.ratio(
            "chat.lock_acquisitions_per_message",
            "chat.lock_acquisitions",
            "chat.messages_delivered",
        );
        counters.ratio(
            "chat.lock_busy_per_acquisition",
            "chat.lock_busy",
            "chat.lock_acquisitions",
        );
    }
}

/// Reads its user's messages and puts each into the queue of everybody else in the room.
struct Receiver {
    room: Arc<[Mailbox]>,
    user: usize,
    /// The recipient whose queue is next.
    target: usize,
    /// Messages read and not yet broadcast, the current one included.
    batch: u32,
    left: u64,
    limit: u32,
    cpu: Duration,
    hold: Duration,
    capacity: u32,
    full_yields: bool,
    wakes_locked: bool,
    lock: UserLock,
    step: ReceiverStep,
    tally: ReadTally,
    queue_full: u64,
}

#[derive(Clone, Copy)]
enum ReceiverStep {
    Read,
    Received,
    /// The next message of the batch.
    Message,
    /// The next recipient.
    Target,
    Lock,
    /// The message is in the queue, the lock still held.
    Inserted,
    Unlock { wake: bool },
    Wake,
    /// The queue was full and the lock has been released.
    Full,
}

impl Receiver {
    fn new(room: &Arc<[Mailbox]>, options: &Options, common: &Common, user: usize) -> Receiver {
        Receiver {
            room: Arc::clone(room),
            user,
            target: 0,
            batch: 0,
            left: common.messages * common.runs,
            limit: common.read_limit,
            cpu: common.server_receive_cpu,
            hold: options.time("lock_hold"),
            capacity: options.count("queue") as u32,
            full_yields: options.choice("full") == "yield",
            wakes_locked: options.choice("wake") == "locked",
            lock: UserLock::new(options),
            step: ReceiverStep::Read,
            tally: ReadTally::default(),
            queue_full: 0,
        }
    }
}

impl Behaviour for Receiver {
    fn next(&mut self, context: &mut Context<'_>) -> Action {
        loop {
            match self.step {
                ReceiverStep::Read if self.left == 0 => return Action::Exit,
                ReceiverStep::Read => {
                    self.step = ReceiverStep::Received;
                    return Action::Read {
                        from: self.room[self.user].connection.up,
                        limit: self.limit,
                    };
                }
                ReceiverStep::Received => {
                    self.batch = self.tally.add(context.outcome);
                    self.left -= u64::from(self.batch);
                    self.step = ReceiverStep::Message;
                }
                ReceiverStep::Message if self.batch == 0 => self.step = ReceiverStep::Read,
                ReceiverStep::Message => {
                    self.batch -= 1;
                    self.target = 0;
                    self.step = ReceiverStep::Target;
                    if let Some(action) = compute(self.cpu, 1) {
                        return action;
                    }
                }
                ReceiverStep::Target => {
                    if self.target == self.user {
                        self.target += 1;
                    }
                    self.step = if self.target < self.room.len() {
                        ReceiverStep::Lock
                    } else {
                        ReceiverStep::Message
                    };
                }
                ReceiverStep::Lock => {
                    let mailbox = &self.room[self.target];
                    if let Some(action) = self.lock.take(mailbox.lock, context.outcome) {
                        return action;
                    }
                    let queued = mailbox.queued.load(Relaxed);
                    if queued == self.capacity {
                        self.queue_full += 1;
                        self.step = ReceiverStep::Full;
                        if !self.full_yields {
                            mailbox.producers_waiting.fetch_add(1, Relaxed);
                        }
                        return Action::UserUnlock(mailbox.lock);
                    }
                    mailbox.queued.store(queued + 1, Relaxed);
                    self.step = ReceiverStep::Inserted;
                    if let Some(action) = compute(self.hold, 1) {
                        return action;
                    }
                }
                ReceiverStep::Inserted => {
                    let mailbox = &self.room[self.target];
                    let wake = mailbox.sender_waits.swap(false, Relaxed);
                    if wake && self.wakes_locked {
                        self.step = ReceiverStep::Unlock { wake: false };
                        return Action::Post(mailbox.filled);
                    }
                    self.step = ReceiverStep::Unlock { wake };
                }
                ReceiverStep::Unlock { wake } => {
                    let mailbox = &self.room[self.target];
                    if wake {
                        self.step = ReceiverStep::Wake;
                    } else {
                        self.target += 1;
                        self.step = ReceiverStep::Target;
                    }
                    return Action::UserUnlock(mailbox.lock);
                }
                ReceiverStep::Wake => {
                    let filled = self.room[self.target].filled;
                    self.target += 1;
                    self.step = ReceiverStep::Target;
                    return Action::Post(filled);
                }
                ReceiverStep::Full => {
                    self.step = ReceiverStep::Lock;
                    return if self.full_yields {
                        Action::Yield
                    } else {
                        Action::Acquire(self.room[self.target].drained)
                    };
                }
            }
        }
    }

    fn report(&self, counters: &mut Counters) {
        self.tally.report(counters);
        self.lock.report(counters);
        counters.add("chat.queue_full", self.queue_full);
    }
}

/// Takes messages out of its user's queue and writes them to its user's socket.
struct Sender {
    room: Arc<[Mailbox]>,
    user: usize,
    left: u64,
    bytes: u32,
    take: u32,
    cpu: Duration,
    hold: Duration,
    wakes_locked: bool,
    writes_locked: bool,
    lock: UserLock,
    step: SenderStep,
    queue_empty: u64,
}

#[derive(Clone, Copy)]
enum SenderStep {
    Lock,
    /// The queue was empty and the lock has been released.
    Wait,
    /// `taken` messages are out, the lock still held; `wakes` producers are to be woken.
    Taken {
        taken: u32,
        wakes: u32,
    },
    Wake {
        taken: u32,
        wakes: u32,
    },
    /// The next of `taken` messages is to be written; `locked` if the lock is still held.
    Prepare {
        taken: u32,
        locked: bool,
    },
    Write {
        taken: u32,
        locked: bool,
    },
}

impl Sender {
    fn new(room: &Arc<[Mailbox]>, options: &Options, common: &Common, user: usize) -> Sender {
        Sender {
            room: Arc::clone(room),
            user,
            left: common.deliveries * common.runs,
            bytes: common.bytes,
            take: options.count("take") as u32,
            cpu: common.server_send_cpu,
            hold: options.time("lock_hold"),
            wakes_locked: options.choice("wake") == "locked",
            writes_locked: options.choice("write") == "locked",
            lock: UserLock::new(options),
            step: SenderStep::Lock,
            queue_empty: 0,
        }
    }
}

impl Behaviour for Sender {
    fn next(&mut self, context: &mut Context<'_>) -> Action {
        let mailbox = &self.room[self.user];
        loop {
            match self.step {
                SenderStep::Lock if self.left == 0 => return Action::Exit,
                SenderStep::Lock => {
                    if let Some(action) = self.lock.take(mailbox.lock, context.outcome) {
                        return action;
                    }
                    let queued = mailbox.queued.load(Relaxed);
                    if queued == 0 {
                        self.queue_empty += 1;
                        mailbox.sender_waits.store(true, Relaxed);
                        self.step = SenderStep::Wait;
                        return Action::UserUnlock(mailbox.lock);
                    }
                    let taken = queued.min(self.take);
                    mailbox.queued.store(queued - taken, Relaxed);
                    let waiting = mailbox.producers_waiting.load(Relaxed);
                    let wakes = waiting.min(taken);
                    mailbox.producers_waiting.store(waiting - wakes, Relaxed);
                    self.step = SenderStep::Taken { taken, wakes };
                    if let Some(action) = compute(self.hold, 1) {
                        return action;
                    }
                }
                SenderStep::Wait => {
                    self.step = SenderStep::Lock;
                    return Action::Acquire(mailbox.filled);
                }
                SenderStep::Taken { taken, wakes } if wakes > 0 && self.wakes_locked => {
                    let wakes = wakes - 1;
                    self.step = SenderStep::Taken { taken, wakes };
                    return Action::Post(mailbox.drained);
                }
                SenderStep::Taken { taken, wakes: 0 } if self.writes_locked => {
                    let locked = true;
                    self.step = SenderStep::Prepare { taken, locked };
                }
                SenderStep::Taken { taken, wakes } => {
                    self.step = SenderStep::Wake { taken, wakes };
                    return Action::UserUnlock(mailbox.lock);
                }
                SenderStep::Wake { taken, wakes: 0 } => {
                    let locked = false;
                    self.step = SenderStep::Prepare { taken, locked };
                }
                SenderStep::Wake { taken, wakes } => {
                    let wakes = wakes - 1;
                    self.step = SenderStep::Wake { taken, wakes };
                    return Action::Post(mailbox.drained);
                }
                SenderStep::Prepare { taken: 0, locked } => {
                    self.step = SenderStep::Lock;
                    if locked {
                        return Action::UserUnlock(mailbox.lock);
                    }
                }
                SenderStep::Prepare { taken, locked } => {
                    self.step = SenderStep::Write { taken, locked };
                    if let Some(action) = compute(self.cpu, 1) {
                        return action;
                    }
                }
                SenderStep::Write { taken, locked } => {
                    let taken = taken - 1;
                    self.left -= 1;
                    self.step = SenderStep::Prepare { taken, locked };
                    return Action::Write {
                        to: mailbox.connection.down,
                        bytes: self.bytes,
                    };
                }
            }
        }
    }

    fn report(&self, counters: &mut Counters) {
        self.lock.report(counters);
        counters.add("chat.queue_empty", self.queue_empty);
    }
}

/// The original's receiver: posts its user's semaphore once a message.
struct DirectReceiver {
    from: ObjectId,
    semaphore: ObjectId,
    left: u64,
    limit: u32,
    cpu: Duration,
    step: DirectReceiverStep,
    tally: ReadTally,
}

enum DirectReceiverStep {
    Read,
    Received,
    Post(u32),
}

impl Behaviour for DirectReceiver {
    fn next(&mut self, context: &mut Context<'_>) -> Action {
        loop {
            match self.step {
                DirectReceiverStep::Read if self.left == 0 => return Action::Exit,
                DirectReceiverStep::Read => {
                    self.step = DirectReceiverStep::Received;
                    return Action::Read {
                        from: self.from,
                        limit: self.limit,
                    };
                }
                DirectReceiverStep::Received => {
                    let n = self.tally.add(context.outcome);
                    self.left -= u64::from(n);
                    self.step = DirectReceiverStep::Post(n);
                    if let Some(action) = compute(self.cpu, n) {
                        return action;
                    }
                }
                DirectReceiverStep::Post(0) => self.step = DirectReceiverStep::Read,
                DirectReceiverStep::Post(n) => {
                    self.step = DirectReceiverStep::Post(n - 1);
                    return Action::Post(self.semaphore);
                }
            }
        }
    }

    fn report(&self, counters: &mut Counters) {
        self.tally.report(counters);
    }
}

/// The original's sender: writes each message of its user to everybody else.
struct DirectSender {
    semaphore: ObjectId,
    /// The sockets of the others, each with its writers' mutex.
    to: Vec<(ObjectId, Option<ObjectId>)>,
    left: u64,
    bytes: u32,
    cpu: Duration,
    step: DirectSenderStep,
    /// How the writers' locks are taken, if they are user-level ones.
    lock: Option<UserLock>,
}

enum DirectSenderStep {
    Acquire,
    Prepare(usize),
    Lock(usize),
    Write(usize),
    Unlock(usize),
}

impl Behaviour for DirectSender {
    fn next(&mut self, context: &mut Context<'_>) -> Action {
        loop {
            match self.step {
                DirectSenderStep::Acquire if self.left == 0 => return Action::Exit,
                DirectSenderStep::Acquire => {
                    self.left -= 1;
                    self.step = DirectSenderStep::Prepare(0);
                    return Action::Acquire(self.semaphore);
                }
                DirectSenderStep::Prepare(i) if i == self.to.len() => {
                    self.step = DirectSenderStep::Acquire;
                }
                DirectSenderStep::Prepare(i) => {
                    self.step = DirectSenderStep::Lock(i);
                    if let Some(action) = compute(self.cpu, 1) {
                        return action;
                    }
                }
                DirectSenderStep::Lock(i) => {
                    if let (Some(lock), Some(user_lock)) = (self.to[i].1, &mut self.lock) {
                        if let Some(action) = user_lock.take(lock, context.outcome) {
                            return action;
                        }
                        self.step = DirectSenderStep::Write(i);
                        continue;
                    }
                    self.step = DirectSenderStep::Write(i);
                    if let Some(mutex) = self.to[i].1 {
                        return Action::Lock(mutex);
                    }
                }
                DirectSenderStep::Write(i) => {
                    self.step = DirectSenderStep::Unlock(i);
                    return Action::Write {
                        to: self.to[i].0,
                        bytes: self.bytes,
                    };
                }
                DirectSenderStep::Unlock(i) => {
                    self.step = DirectSenderStep::Prepare(i + 1);
                    if let Some(lock) = self.to[i].1 {
                        return match self.lock {
                            Some(_) => Action::UserUnlock(lock),
                            None => Action::Unlock(lock),
                        };
                    }
                }
            }
        }
    }

    fn report(&self, counters: &mut Counters) {
        if let Some(lock) = &self.lock {
            lock.report(counters);
        }
    }
}
