//! The client's process: its main thread, and a sender and a receiver for each user.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use schedlab_trace::Duration;

use super::{Common, compute};
use crate::{
    Action, Behaviour, Builder, Context, Counters, ObjectId, ObjectSpec, Options, Outcome, TaskSpec,
};

/// Holds the client threads back until all connections stand.
#[derive(Clone)]
pub(super) struct Gate {
    semaphore: ObjectId,
    threads: u64,
    /// Threads still to be let through by one another; `None`: the main thread lets them all go.
    chain: Option<Arc<AtomicU64>>,
}

impl Gate {
    pub fn new(builder: &mut Builder, options: &Options, threads: u64) -> Gate {
        let chained = options.choice("release") == "chain";
        Gate {
            semaphore: builder.object(ObjectSpec::Semaphore { initial: 0 }),
            threads,
            chain: chained.then(|| Arc::new(AtomicU64::new(threads))),
        }
    }

    /// Returns how often the main thread posts.
    fn posts(&self) -> u64 {
        match self.chain {
            Some(_) => 1,
            None => self.threads,
        }
    }

    /// Called by a thread that got through: what lets the next one go.
    fn next(&self) -> Option<Action> {
        // One thread at a time is between its passing and its post, so this counts without races.
        let left = self.chain.as_ref()?.fetch_sub(1, Relaxed) - 1;
        (left > 0).then_some(Action::Post(self.semaphore))
    }
}

/// The main thread: connects and creates two threads for every user, waits for the server's word, starts
/// the clock and opens the gate.
pub(super) struct Main {
    /// Still to be created, the next one last.
    threads: Vec<TaskSpec>,
    listen: ObjectId,
    control: ObjectId,
    gate: Gate,
    /// The first of several runs, whose end it waits for.
    warm_up: Option<WarmUp>,
    step: MainStep,
}

enum MainStep {
    Connect,
    Fork { second: bool },
    Begin,
    Open { posts: u64 },
    /// The first run is under way; so many threads have not ended it.
    WarmUp { threads: u64 },
    BeginAgain,
}

impl Main {
    pub fn new(
        threads: Vec<TaskSpec>,
        listen: ObjectId,
        control: ObjectId,
        gate: &Gate,
        runs: Option<Runs>,
    ) -> Main {
        Main {
            warm_up: runs.and_then(|runs| runs.warm_up),
            threads,
            listen,
            control,
            gate: gate.clone(),
            step: MainStep::Connect,
        }
    }
}

impl Behaviour for Main {
    fn next(&mut self, _: &mut Context<'_>) -> Action {
        match self.step {
            MainStep::Connect if self.threads.is_empty() => {
                self.step = MainStep::Begin;
                Action::Read {
                    from: self.control,
                    limit: 1,
                }
            }
            MainStep::Connect => {
                self.step = MainStep::Fork { second: false };
                Action::Write {
                    to: self.listen,
                    bytes: 1,
                }
            }
            MainStep::Fork { second } => {
                self.step = if second {
                    MainStep::Connect
                } else {
                    MainStep::Fork { second: true }
                };
                Action::Fork(Box::new(self.threads.pop().expect("two threads a user")))
            }
            MainStep::Begin => {
                self.step = MainStep::Open {
                    posts: self.gate.posts(),
                };
                Action::Begin
            }
            MainStep::Open { posts: 0 } => match self.warm_up {
                Some(warm_up) => {
                    self.step = MainStep::WarmUp {
                        threads: self.gate.threads - 1,
                    };
                    Action::Acquire(warm_up.ended)
                }
                None => Action::Exit,
            },
            MainStep::Open { posts } => {
                self.step = MainStep::Open { posts: posts - 1 };
                Action::Post(self.gate.semaphore)
            }
            MainStep::WarmUp { threads: 0 } => {
                self.step = MainStep::BeginAgain;
                Action::Begin
            }
            MainStep::WarmUp { threads } => {
                self.step = MainStep::WarmUp {
                    threads: threads - 1,
                };
                let warm_up = self.warm_up.expect("it was there before");
                Action::Acquire(warm_up.ended)
            }
            MainStep::BeginAgain => {
                self.step = MainStep::Open { posts: 0 };
                let warm_up = self.warm_up.take().expect("it was there before");
                Action::Barrier(warm_up.go)
            }
        }
    }
}

/// Several runs, one after another, with a barrier of all client threads before each but the first.
#[derive(Clone, Copy)]
pub(super) struct Runs {
    /// Runs after this one.
    pub left: u64,
    /// The first run is under way, which does not count.
    pub warm_up: Option<WarmUp>,
    /// Between the others.
    pub barrier: ObjectId,
}

/// How the first run ends: when all are done, the main thread starts the clock and lets them go on.
#[derive(Clone, Copy)]
pub(super) struct WarmUp {
    /// Posted by each thread.
    pub ended: ObjectId,
    /// Entered by the main thread last.
    pub go: ObjectId,
}

/// A user's place in the order in which the users of a room send their messages, one each time.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    /// Posted by the user's receiver when the messages before the user's next one are there.
    pub semaphore: ObjectId,
    /// Users before it.
    pub position: u64,
    /// The other users of the room.
    pub others: u64,
}

impl Turn {
    /// Returns whether a user that has read `received` messages in this run is to send one now, if it
    /// sends `messages` in all.
    fn begins(&self, received: u64, messages: u64) -> bool {
        let (round, place) = (received / self.others, received % self.others);
        // The last user's place is a whole round.
        if self.position == self.others {
            return place == 0 && round > 0 && round <= messages;
        }
        place == self.position && round < messages
    }
}

/// A user's sender or receiver.
pub(super) struct Thread {
    gate: Gate,
    socket: ObjectId,
    /// Messages still to be sent or received in this run.
    left: u64,
    /// … and at its beginning.
    per_run: u64,
    runs: Option<Runs>,
    turn: Option<Turn>,
    /// Messages that a user sends in a run.
    messages: u64,
    cpu: Duration,
    role: Role,
    step: Step,
}

enum Role {
    Sender { bytes: u32, sent: u64 },
    Receiver { limit: u32, reads: u64, received: u64 },
}

enum Step {
    Arrive,
    LetNextGo,
    /// A message is to be made when it is the user's turn, or one is to be read.
    Turn,
    /// A message is to be made.
    Make,
    Write,
    /// A read has returned.
    Received,
    Count(u32),
    /// So many of the messages just read may begin the sender's turn.
    Pass(u32),
    /// The main thread knows that the first run is over.
    WarmedUp,
    /// All others have ended their runs too.
    NextRun,
}

impl Thread {
    pub fn sender(
        common: &Common,
        gate: &Gate,
        socket: ObjectId,
        runs: Option<Runs>,
        turn: Option<Turn>,
    ) -> Thread {
        Thread {
            gate: gate.clone(),
            socket,
            left: common.messages,
            per_run: common.messages,
            runs,
            turn,
            messages: common.messages,
            cpu: common.client_send_cpu,
            role: Role::Sender {
                bytes: common.bytes,
                sent: 0,
            },
            step: Step::Arrive,
        }
    }

    pub fn receiver(
        common: &Common,
        gate: &Gate,
        socket: ObjectId,
        runs: Option<Runs>,
        turn: Option<Turn>,
    ) -> Thread {
        Thread {
            gate: gate.clone(),
            socket,
            left: common.deliveries,
            per_run: common.deliveries,
            runs,
            turn,
            messages: common.messages,
            cpu: common.client_receive_cpu,
            role: Role::Receiver {
                limit: common.read_limit,
                reads: 0,
                received: 0,
            },
            step: Step::Arrive,
        }
    }
}

impl Behaviour for Thread {
    fn next(&mut self, context: &mut Context<'_>) -> Action {
        loop {
            match self.step {
                Step::Arrive => {
                    self.step = Step::LetNextGo;
                    return Action::Acquire(self.gate.semaphore);
                }
                Step::LetNextGo => {
                    self.step = Step::Turn;
                    if let Some(post) = self.gate.next() {
                        return post;
                    }
                }
                Step::Turn if self.left == 0 => match &mut self.runs {
                    Some(runs) if runs.left > 0 => {
                        if let Some(warm_up) = runs.warm_up {
                            self.step = Step::WarmedUp;
                            return Action::Post(warm_up.ended);
                        }
                        runs.left -= 1;
                        self.step = Step::NextRun;
                        return Action::Barrier(runs.barrier);
                    }
                    _ => return Action::Exit,
                },
                Step::WarmedUp => {
                    let runs = self.runs.as_mut().expect("there are runs after the first");
                    runs.left -= 1;
                    self.step = Step::NextRun;
                    let warm_up = runs.warm_up.take().expect("it ends once");
                    return Action::Barrier(warm_up.go);
                }
                Step::NextRun => {
                    self.left = self.per_run;
                    self.step = Step::Turn;
                }
                Step::Turn => match self.role {
                    Role::Sender { .. } => {
                        self.step = Step::Make;
                        if let Some(turn) = self.turn {
                            // Nobody is before the first user's first message.
                            if turn.position > 0 || self.left < self.per_run {
                                return Action::Acquire(turn.semaphore);
                            }
                        }
                    }
                    Role::Receiver { limit, .. } => {
                        self.step = Step::Received;
                        return Action::Read {
                            from: self.socket,
                            limit,
                        };
                    }
                },
                Step::Make => {
                    self.step = Step::Write;
                    if let Some(action) = compute(self.cpu, 1) {
                        return action;
                    }
                }
                Step::Write => {
                    let Role::Sender { bytes, sent } = &mut self.role else {
                        unreachable!("only senders write");
                    };
                    self.step = Step::Turn;
                    self.left -= 1;
                    *sent += 1;
                    return Action::Write {
                        to: self.socket,
                        bytes: *bytes,
                    };
                }
                Step::Received => {
                    let Role::Receiver { reads, received, .. } = &mut self.role else {
                        unreachable!("only receivers read");
                    };
                    let Outcome::Messages(n) = context.outcome else {
                        panic!("a chat socket answered {:?}", context.outcome);
                    };
                    *reads += 1;
                    *received += u64::from(n);
                    self.left -= u64::from(n);
                    self.step = Step::Count(n);
                    if let Some(action) = compute(self.cpu, n) {
                        return action;
                    }
                }
                Step::Count(n) => {
                    self.step = Step::Pass(n);
                    if self.runs.is_some_and(|runs| runs.warm_up.is_some()) {
                        continue;
                    }
                    return Action::Work(n);
                }
                Step::Pass(0) => self.step = Step::Turn,
                Step::Pass(n) => {
                    self.step = Step::Pass(n - 1);
                    let received = self.per_run - self.left - u64::from(n - 1);
                    if let Some(turn) = self.turn
                        && turn.begins(received, self.messages)
                    {
                        return Action::Post(turn.semaphore);
                    }
                }
            }
        }
    }

    fn report(&self, counters: &mut Counters) {
        match self.role {
            Role::Sender { sent, .. } => counters.add("chat.messages_sent", sent),
            Role::Receiver { reads, received, .. } => {
                counters.add("chat.reads", reads);
                counters.add("chat.messages_delivered", received);
                counters.ratio(
                    "chat.messages_per_read",
                    "chat.messages_delivered",
                    "chat.reads",
                );
            }
        }
    }
}
