//! Chat rooms over loopback sockets: the workload that made the global run-queue lock of Linux 2.4 visible.
//!
//! A user is four threads: client send, client receive, server receive, server send. A message goes from
//! its client-send thread to its server-receive thread and from the server to the client-receive thread of
//! every other user of the room, so a room of 20 users with 100 messages each delivers 20 · 100 · 19 = 38,000.
//! Threads of the client share one address space, the server's threads another (the original's `chat_c` and `chat_s`
//! are two processes of `CLONE_VM` threads).
//!
//! Two servers:
//! - `server=direct` with `read=one`, the default, as the original's source (Hartner, IBM, 10 Dec 2000,
//!   version 1.0.1) has it: the receive thread reads one message at a time (`MSG_WAITALL`) and posts its user's
//!   semaphore; that user's send thread writes the message to the sockets of all the others, one after another.
//!   As long as messages are waiting, all send threads of the server are runnable: that is where the
//!   published run queues, longer than there are users, come from.
//! - `server=queue`: the receive thread puts the message into each recipient's bounded queue, guarded by a
//!   user-level test-and-set lock that yields when it is busy, as LinuxThreads' spinlocks do; the
//!   recipient's send thread takes messages out and writes them to its socket. VolanoMark's shape; for `chat`
//!   usually with `read=all`.
//!
//! Nothing here depends on the number of CPUs. What makes throughput depend on it: a receiver that is kept
//! waiting finds many messages and blocks once for all of them, one that runs at once blocks for each. The
//! more of them block, the more wakeups and choices there are, and the longer everybody waits for the scheduler.
//!
//! All connections stand before the clock starts ([`Action::Begin`]), as in the original. There the clients
//! are released by one System V semaphore operation, which in Linux 2.4 wakes one waiter at a time, each
//! on its way out waking the next (ipc/sem.c, `update_queue`): `release=chain`.

mod client;
mod io_yield;
mod server;

use schedlab_trace::Duration;

use crate::measure::{Measure, measure};
use crate::{
    Action, Builder, Kind, Model, ObjectId, ObjectSpec, Options, Param, Score, ScoreRule, TaskSpec,
    TimeUnit, WorkloadError,
};

const CPU_TIME: Kind = Kind::Time {
    bare: TimeUnit::Us,
    max: Duration::from_secs(1),
};

/// Those of `volano`, too.
pub(super) const MEASURES: &[Measure] = &[
    measure("throughput_per_s", "delivered messages/s", "messages delivered in a second, from when all connections stand; of volano from the end of the discarded first run"),
    measure("work", "", "messages delivered, without volano's first run"),
    measure("chat.messages_sent", "", "messages that the clients wrote"),
    measure("chat.messages_delivered", "", "messages that the clients read, in all runs"),
    measure("chat.reads", "", "reads of the clients that returned messages"),
    measure("chat.messages_per_read", "", "messages that a client gets from a read"),
    measure("chat.server_reads", "", "reads of the server that returned messages"),
    measure("chat.server_messages_received", "", "messages that the server read"),
    measure("chat.server_messages_per_read", "", "messages that the server gets from a read"),
    measure("chat.lock_acquisitions", "", "acquisitions of user-level locks of the server; with `server=direct` only where its writers have such a lock"),
    measure("chat.lock_busy", "", "attempts that found such a lock held"),
    measure("chat.lock_sleeps", "", "sleeps after as many yields as `lock_yields` had not helped"),
    measure("chat.lock_acquisitions_per_message", "", "acquisitions for each message delivered"),
    measure("chat.lock_busy_per_acquisition", "", "busy attempts for each acquisition"),
    measure("chat.io_yields", "", "yields at reads and writes of sockets (`io_yield`)"),
    measure("chat.queue_full", "", "times that a receive thread of the server waited because a recipient's queue was full (`server=queue`)"),
    measure("chat.queue_empty", "", "times that a send thread of the server waited because its queue was empty (`server=queue`)"),
];

pub(super) const MODEL: Model = Model {
    name: "chat",
    summary: "chat rooms over loopback sockets, four threads per user, blocking reads (IBM's Chat)",
    params: &[
        Param {
            name: "rooms",
            kind: Kind::Count {
                min: 1,
                max: 100_000,
            },
            default: "10",
            doc: "rooms; the published runs have 10, 20 and 30",
        },
        Param {
            name: "users",
            kind: Kind::Count { min: 2, max: 1_000 },
            default: "20",
            doc: "users of a room, four threads each (published)",
        },
        Param {
            name: "messages",
            kind: Kind::Count {
                min: 1,
                max: 10_000_000,
            },
            default: "100",
            doc: "messages each user sends; the published runs have 100, 200 and 300",
        },
        Param {
            name: "message_bytes",
            kind: Kind::Bytes {
                min: 1,
                max: 1 << 20,
            },
            default: "100",
            doc: "size of a message (published)",
        },
        Param {
            name: "socket_buffer",
            kind: Kind::Bytes {
                min: 1,
                max: 1 << 30,
            },
            default: "24K",
            doc: "message bytes that fit into a connection per direction (tuned on netfinity-8500r's published rows, see docs/calibration.md; Linux 2.4 accounts a small message as about 0.5 KB of its 87,380-byte tcp_rmem, which would be some 170 of 100 bytes, and the sender's side holds more)",
        },
        Param {
            name: "server",
            kind: Kind::Choice(&["queue", "direct"]),
            default: "direct",
            doc: "direct: the send thread writes to everybody itself (the original's source); queue: bounded queue per user with a yielding lock",
        },
        Param {
            name: "read",
            kind: Kind::Choice(&["all", "one"]),
            default: "one",
            doc: "one read returns one message (the original's MSG_WAITALL), or every complete one that is queued",
        },
        Param {
            name: "release",
            kind: Kind::Choice(&["chain", "together"]),
            default: "chain",
            doc: "how the clients are released: each lets the next one go (Linux 2.4's semop), or all at once",
        },
        Param {
            name: "turns",
            kind: Kind::Choice(&["free", "room"]),
            default: "free",
            doc: "when a user sends: at any time, or in turn, once it has read what the users of its room before it have sent",
        },
        Param {
            name: "queue",
            kind: Kind::Count {
                min: 1,
                max: 1_000_000,
            },
            default: "64",
            doc: "messages that a user's send queue holds (guess)",
        },
        Param {
            name: "full",
            kind: Kind::Choice(&["block", "yield"]),
            default: "block",
            doc: "a producer that finds the queue full blocks, or yields and tries again (guess)",
        },
        Param {
            name: "take",
            kind: Kind::Count {
                min: 1,
                max: 1_000_000,
            },
            default: "24",
            doc: "server=queue: messages that the send thread takes out of its queue per lock acquisition (guess)",
        },
        Param {
            name: "wake",
            kind: Kind::Choice(&["locked", "unlocked"]),
            default: "unlocked",
            doc: "whether a thread that waits for the queue is woken before or after the lock is released (unlocked: with the lock held, every wakeup that preempts leaves a held lock behind, and yields outnumber messages)",
        },
        Param {
            name: "lock",
            kind: Kind::Choice(&["user", "room"]),
            default: "user",
            doc: "one user-level lock for each user's queue, or one for all queues of a room (guess)",
        },
        Param {
            name: "write",
            kind: Kind::Choice(&["unlocked", "locked", "mutex"]),
            default: "unlocked",
            doc: "what a send thread holds while it writes to a socket: nothing, the user-level lock of that queue or socket, or (server=direct) a mutex that sleeps, as lock_sock() of the kernel does (guess)",
        },
        Param {
            name: "lock_yields",
            kind: Kind::Count {
                min: 0,
                max: 1_000_000,
            },
            default: "50",
            doc: "sched_yield() calls on a busy lock before a sleep (LinuxThreads, MAX_SPIN_COUNT)",
        },
        Param {
            name: "lock_sleep",
            kind: CPU_TIME,
            default: "2000001ns",
            doc: "that sleep (LinuxThreads, SPIN_SLEEP_DURATION)",
        },
        Param {
            name: "io_yield",
            kind: Kind::Choice(&["none", "before", "after"]),
            default: "none",
            doc: "whether a thread calls sched_yield() once for each read and write of a socket, and on which side of it",
        },
        Param {
            name: "lock_hold",
            kind: CPU_TIME,
            default: "1us",
            doc: "CPU time inside the lock per queue operation (guess for 700 MHz)",
        },
        Param {
            name: "client_send_cpu",
            kind: CPU_TIME,
            default: "1us",
            doc: "user CPU time per message in the client-send thread (guess for 700 MHz; the kernel's share is the machine's)",
        },
        Param {
            name: "client_receive_cpu",
            kind: CPU_TIME,
            default: "1us",
            doc: "user CPU time per message in the client-receive thread (guess for 700 MHz)",
        },
        Param {
            name: "server_receive_cpu",
            kind: CPU_TIME,
            default: "1us",
            doc: "user CPU time per message in the server-receive thread, besides the queues (guess for 700 MHz)",
        },
        Param {
            name: "server_send_cpu",
            kind: CPU_TIME,
            default: "1us",
            doc: "user CPU time per written message in the server-send thread (guess for 700 MHz)",
        },
        Param {
            name: "working_set",
            kind: Kind::Bytes {
                min: 0,
                max: 1 << 30,
            },
            default: "1K",
            doc: "bytes of cache each thread needs to run at full speed (tuned on netfinity-8500r's published rows, see docs/calibration.md: stack and socket)",
        },
    ],
    measures: MEASURES,
    build,
};

const CLIENT_SPACE: u32 = 0;
const SERVER_SPACE: u32 = 1;
/// The listening socket's backlog (the original asks for 4,096) and the control connection.
const CONTROL_BYTES: u32 = 4_096;

/// The objects of one user's connection.
#[derive(Clone, Copy)]
struct Connection {
    /// From client to server.
    up: ObjectId,
    /// From server to client.
    down: ObjectId,
}

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    rooms(options, builder, None)
}

/// Rooms as `options` say. With `runs`, users send their messages that many times and meet at a barrier in
/// between, and the first run does not count.
pub(super) fn rooms(
    options: &Options,
    builder: &mut Builder,
    runs: Option<u64>,
) -> Result<Score, WorkloadError> {
    let buffer = options.bytes("socket_buffer") as u32;
    if options.choice("write") == "mutex" && options.choice("server") == "queue" {
        return Err(options.contradiction("write=mutex goes with server=direct only"));
    }
    if options.bytes("message_bytes") > u64::from(buffer) {
        return Err(
            options.contradiction("a message never fits: make socket_buffer at least message_bytes")
        );
    }
    let users = options.count("users") as usize;
    let nr_users = options.count("rooms") as usize * users;
    builder.room_for(options, 4 * nr_users as u64 + 2)?;
    let workload = Common::new(options, runs.unwrap_or(1));
    let between = runs.map(|runs| client::Runs {
        left: runs - 1,
        warm_up: Some(client::WarmUp {
            ended: builder.object(ObjectSpec::Semaphore { initial: 0 }),
            go: builder.object(ObjectSpec::Barrier {
                parties: 1 + 2 * nr_users as u32,
            }),
        }),
        barrier: builder.object(ObjectSpec::Barrier {
            parties: 2 * nr_users as u32,
        }),
    });
    let gate = client::Gate::new(builder, options, 2 * nr_users as u64);
    let in_turn = options.choice("turns") == "room";
    let turns: Vec<Option<client::Turn>> = (0..nr_users)
        .map(|user| {
            in_turn.then(|| client::Turn {
                semaphore: builder.object(ObjectSpec::Semaphore { initial: 0 }),
                position: (user % users) as u64,
                others: users as u64 - 1,
            })
        })
        .collect();
    let mut client_side: Vec<TaskSpec> = Vec::with_capacity(2 * nr_users);
    let mut server_side: Vec<TaskSpec> = Vec::with_capacity(2 * nr_users);
    for room in 0..nr_users / users {
        // Neither program sets TCP_NODELAY.
        let direction = |is_first| ObjectSpec::Tcp {
            capacity: buffer,
            is_first,
        };
        let connections: Vec<Connection> = (0..users)
            .map(|_| Connection {
                up: builder.object(direction(true)),
                down: builder.object(direction(false)),
            })
            .collect();
        let server = server::Room::new(builder, options, &connections);
        for (user, connection) in connections.iter().enumerate() {
            let first = 4 * (room * users + user);
            let client_thread = |thread: usize, role: &str, behaviour| {
                let comm = format!("c{role}{room}.{user}");
                let working_set = options.bytes("working_set");
                let task =
                    builder.spec(first + thread, comm, CLIENT_SPACE, working_set, behaviour);
                io_yield::add(options, task)
            };
            let turn = turns[room * users + user];
            let send = client::Thread::sender(&workload, &gate, connection.up, between, turn);
            client_side.push(client_thread(0, "s", send));
            let receive =
                client::Thread::receiver(&workload, &gate, connection.down, between, turn);
            client_side.push(client_thread(1, "r", receive));
            let threads = server.threads(builder, options, &workload, (first, room, user));
            server_side.extend(threads.map(|task| io_yield::add(options, task)));
        }
    }
    // Taken from the end, one by one.
    client_side.reverse();
    server_side.reverse();
    let listen = builder.object(ObjectSpec::Socket {
        capacity: CONTROL_BYTES,
    });
    let control = builder.object(ObjectSpec::Socket {
        capacity: CONTROL_BYTES,
    });
    let main = client::Main::new(client_side, listen, control, &gate, between);
    builder.task("chat_c", CLIENT_SPACE, 0, main);
    let main = server::Main::new(server_side, listen, control);
    builder.task("chat_s", SERVER_SPACE, 0, main);
    Ok(Score {
        name: "throughput_per_s",
        unit: "delivered messages/s",
        higher_is_better: true,
        rule: ScoreRule::WorkPerSecond,
    })
}

/// Options that client and server threads share.
struct Common {
    /// Messages a user sends in a run.
    messages: u64,
    /// Messages a user receives in a run.
    deliveries: u64,
    /// How often that happens.
    runs: u64,
    bytes: u32,
    /// Most messages a read returns.
    read_limit: u32,
    client_send_cpu: Duration,
    client_receive_cpu: Duration,
    server_receive_cpu: Duration,
    server_send_cpu: Duration,
}

impl Common {
    fn new(options: &Options, runs: u64) -> Common {
        let messages = options.count("messages");
        Common {
            messages,
            deliveries: messages * (options.count("users") - 1),
            runs,
            bytes: options.bytes("message_bytes") as u32,
            read_limit: match options.choice("read") {
                "one" => 1,
                _ => u32::MAX,
            },
            client_send_cpu: options.time("client_send_cpu"),
            client_receive_cpu: options.time("client_receive_cpu"),
            server_receive_cpu: options.time("server_receive_cpu"),
            server_send_cpu: options.time("server_send_cpu"),
        }
    }
}

/// CPU time for `n` messages; `None` if it is 0.
fn compute(per_message: Duration, n: u32) -> Option<Action> {
    let time = Duration::from_ns(per_message.ns() * u64::from(n));
    (time > Duration::ZERO).then_some(Action::Compute(time))
}

#[cfg(test)]
mod tests {
    use crate::testing::{End, Order, run_in};
    use crate::{Workload, WorkloadError};

    fn chat(text: &str, order: Order) -> End {
        run_in(
            Workload::parse(&format!("chat:{text}"), 2).unwrap(),
            order,
        )
    }

    #[test]
    fn a_room_of_twenty_delivers_38_000() {
        for server in ["queue", "direct"] {
            let end = chat(&format!("rooms=1,server={server}"), Order::RoundRobin);
            assert_eq!(end.work, 38_000);
            assert_eq!(end.tasks, 82);
            assert_eq!(end.counters.get("chat.messages_sent"), 2_000);
            assert_eq!(end.counters.get("chat.messages_delivered"), 38_000);
        }
    }

    /// Counts are exact and nothing deadlocks, whatever the options and the order of the tasks.
    #[test]
    fn every_message_arrives_in_any_order() {
        let shapes = [
            "",
            ",read=all",
            ",release=together",
            ",queue=1",
            ",queue=1,full=yield",
            ",take=5,queue=3",
            ",wake=unlocked,queue=2",
            ",io_yield=before",
            ",io_yield=after,turns=room",
            ",turns=room",
            ",turns=room,read=all,io_yield=before",
            ",lock=room",
            ",lock=room,write=locked,take=3,queue=2",
            ",write=locked",
            ",socket_buffer=100",
            ",lock_yields=0",
            ",lock_yields=3,lock_sleep=5us,lock_hold=0",
            ",client_send_cpu=0,client_receive_cpu=0,server_receive_cpu=0,server_send_cpu=0,lock_hold=0",
        ];
        for shape in shapes {
            for server in ["queue", "direct"] {
                let text = format!("rooms=2,users=5,messages=13,server={server}{shape}");
                for seed in 0..5 {
                    for order in [Order::RoundRobin, Order::Random(seed)] {
                        let end = chat(&text, order);
                        assert_eq!(end.work, 2 * 5 * 13 * 4, "{text} {order:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_mutex_around_writes_loses_nothing() {
        for order in [Order::RoundRobin, Order::UntilBlocked, Order::Random(9)] {
            let end = chat("rooms=2,users=5,messages=13,server=direct,write=mutex", order);
            assert_eq!(end.work, 2 * 5 * 13 * 4);
        }
    }

    #[test]
    fn threads_that_wait_read_several_messages_at_once() {
        let per_read = |text: &str| {
            let end = chat(text, Order::UntilBlocked);
            let measures = end.counters.measures();
            let (_, value) = measures
                .iter()
                .find(|(name, _)| name == "chat.messages_per_read")
                .unwrap();
            *value
        };
        assert!(per_read("rooms=1,read=all") > 1.5);
        assert!(per_read("rooms=1,read=all,server=queue") > 1.5);
        assert_eq!(per_read("rooms=1").to_bits(), 1.0_f64.to_bits());
    }

    #[test]
    fn the_lock_is_counted() {
        let end = chat(
            "rooms=1,users=5,messages=20,server=queue,lock_hold=5us,take=1,wake=locked",
            Order::Random(3),
        );
        // Each delivery is one insertion and one removal, plus what found the queue empty or full.
        let acquisitions = end.counters.get("chat.lock_acquisitions");
        let waits = end.counters.get("chat.queue_empty") + end.counters.get("chat.queue_full");
        assert_eq!(acquisitions, 2 * end.work as i64 + waits);
        assert!(end.counters.get("chat.lock_busy") > 0);
        assert!(end.yields > 0);
    }

    /// Each of a room's 4·2 messages is written once by a client and three times by the server, and read as often.
    #[test]
    fn a_yield_goes_with_each_read_and_write() {
        for side in ["before", "after"] {
            for server in ["queue", "direct"] {
                let text = format!("rooms=1,users=4,messages=2,server={server},io_yield={side}");
                let end = chat(&text, Order::RoundRobin);
                assert_eq!(end.counters.get("chat.io_yields"), 2 * (4 * 2 + 4 * 2 * 3));
            }
        }
    }

    /// Each message is there before the next user of the room sends, so no socket ever holds two from clients.
    #[test]
    fn users_take_turns() {
        let per_read = |text: &str| {
            let end = chat(text, Order::UntilBlocked);
            assert_eq!(end.work, 5 * 20 * 4);
            end.counters.get("chat.server_messages_received") as f64
                / end.counters.get("chat.server_reads") as f64
        };
        assert!(per_read("rooms=1,users=5,messages=20,read=all") > 1.5);
        assert!(per_read("rooms=1,users=5,messages=20,read=all,turns=room") < 1.01);
    }

    #[test]
    fn set_up_does_not_count() {
        let end = chat("rooms=1,users=2,messages=1", Order::RoundRobin);
        assert!(end.begun <= end.now);
        assert_eq!(end.work, 2);
    }

    #[test]
    fn what_can_never_work_is_refused() {
        for text in ["chat:message_bytes=200,socket_buffer=100", "chat:server=queue,write=mutex"] {
            let error = Workload::parse(text, 1);
            assert!(matches!(error, Err(WorkloadError::Contradiction { .. })));
        }
    }
}
