//! The shape of VolanoMark, a Java chat server: [`chat`](super::chat) with blocking I/O only.
//!
//! Each user has one connection and a pair of threads at either end of it, since Java had no other I/O: one
//! reads, one writes. All threads of the server share one address space, all of the client's another. The
//! reading thread of the server puts a message into the queue of every other user of the room under that
//! queue's monitor, and the writing thread of that user sends it. A busy monitor is tried again with
//! `sched_yield` in between, as Java machines of the time did.
//!
//! The published method is eleven runs: the first, in which code is compiled, is discarded, and the result is the
//! mean of the other ten; connections stay. Here the runs follow each other in one simulation, and throughput covers
//! all but the first. The scaling factor of the studies is the throughput with 20 rooms divided by the throughput
//! with 5.
//!
//! Two properties of the original are options, since the fit to published results was made without them
//! (docs/experiments/model/2026-11-27-yields.md). `turns=room`: the users of a room take turns, one message each.
//! `io_yield`: the Java machine yielded about as often as it read and wrote sockets.
//!
//! VolanoMark's source is not public: sizes and CPU times are guesses, or fitted to what was published of the
//! default scheduler: by how much throughput falls from 5 to 25 rooms, and the scheduler's share of kernel time.

use schedlab_trace::Duration;

use crate::{Builder, Kind, Model, Options, Param, Score, TimeUnit, WorkloadError};

const CPU_TIME: Kind = Kind::Time {
    bare: TimeUnit::Us,
    max: Duration::from_secs(1),
};

const fn param(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Param {
    Param {
        name,
        kind,
        default,
        doc,
    }
}

const fn count(min: u64, max: u64) -> Kind {
    Kind::Count { min, max }
}

pub(super) const MODEL: Model = Model {
    name: "volano",
    summary: "VolanoMark's shape: a Java chat server, two threads at either end of each connection",
    params: &[
        param("rooms", count(1, 100_000), "10", "rooms; the published runs have 5, 10, 15 and 20"),
        param("users", count(2, 1_000), "20", "users of a room, four threads each (published)"),
        param("messages", count(1, 10_000_000), "100", "messages each user sends in a run (published)"),
        param("runs", count(2, 1_000), "11", "runs, the first of which is discarded (published)"),
        param("message_bytes", Kind::Bytes { min: 1, max: 1 << 20 }, "50", "size of a message (guess: a short line)"),
        param(
            "socket_buffer",
            Kind::Bytes { min: 1, max: 1 << 30 },
            "500",
            "message bytes that fit into a connection per direction (fitted, see docs/calibration.md: ten messages)",
        ),
        param("server", Kind::Choice(&["queue", "direct"]), "queue", "as for chat"),
        param("read", Kind::Choice(&["all", "one"]), "one", "one read returns one message (blocking streams), or all"),
        param("release", Kind::Choice(&["chain", "together"]), "together", "how the clients are released, as for chat"),
        param("turns", Kind::Choice(&["free", "room"]), "free", "as for chat (VolanoMark's manual: the users of a room take turns)"),
        param("queue", count(1, 1_000_000), "10", "messages that a user's send queue holds (fitted, see docs/calibration.md)"),
        param("full", Kind::Choice(&["block", "yield"]), "block", "a thread that finds the queue full blocks, or yields"),
        param("take", count(1, 1_000_000), "1", "messages that the writing thread takes out of its queue at once (guess)"),
        param("wake", Kind::Choice(&["locked", "unlocked"]), "unlocked", "whether a waiter is woken inside the monitor (guess)"),
        param("lock", Kind::Choice(&["user", "room"]), "user", "one monitor for each user's queue, or one per room (guess)"),
        param("write", Kind::Choice(&["unlocked", "locked", "mutex"]), "unlocked", "as for chat"),
        param("lock_yields", count(0, 1_000_000), "50", "sched_yield() calls on a busy monitor before a sleep (guess: as LinuxThreads)"),
        param("lock_sleep", CPU_TIME, "2000001ns", "that sleep (LinuxThreads, SPIN_SLEEP_DURATION)"),
        param("io_yield", Kind::Choice(&["none", "before", "after"]), "none", "sched_yield() once for each read and write of a socket, on this side of it (a run of 10 rooms and 100 messages, which has 800,000 reads and writes, yielded about 800,000 times: Hartner, 2001)"),
        param("lock_hold", CPU_TIME, "3us", "CPU time inside the monitor per queue operation (guess for 400 MHz)"),
        param("client_send_cpu", CPU_TIME, "90us", "user CPU time per message in the client's writing thread (fitted, see docs/calibration.md: Java on 400 MHz)"),
        param("client_receive_cpu", CPU_TIME, "90us", "user CPU time per message in the client's reading thread (guess)"),
        param("server_receive_cpu", CPU_TIME, "90us", "user CPU time per message in the server's reading thread, besides the queues (guess)"),
        param("server_send_cpu", CPU_TIME, "60us", "user CPU time per message in the server's writing thread (guess)"),
        param("working_set", Kind::Bytes { min: 0, max: 1 << 30 }, "8K", "bytes of cache each thread needs to run at full speed (guess)"),
    ],
    measures: super::chat::MEASURES,
    build,
};

fn build(options: &Options, builder: &mut Builder) -> Result<Score, WorkloadError> {
    super::chat::rooms(options, builder, Some(options.count("runs")))
}

#[cfg(test)]
mod tests {
    use crate::Workload;
    use crate::testing::{Order, run_in};

    #[test]
    fn the_first_run_is_played_but_not_counted() {
        let orders = [Order::RoundRobin, Order::UntilBlocked, Order::Random(4)];
        for (order, turns) in orders.into_iter().flat_map(|o| [(o, "free"), (o, "room")]) {
            let text = format!("volano:rooms=2,users=3,messages=5,runs=4,turns={turns}");
            let end = run_in(Workload::parse(&text, 2).unwrap(), order);
            let a_run = 2 * 3 * 5 * 2;
            assert_eq!(end.work, 3 * a_run);
            assert_eq!(end.counters.get("chat.messages_delivered"), 4 * a_run as i64);
            assert_eq!(end.tasks, 2 + 4 * 2 * 3);
            assert!(end.begun.ns() > 0 && end.begun < end.now);
        }
    }
}
