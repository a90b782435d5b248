//! TCP over the loopback device, as Linux 2.4 has it (`[tcp]` of a profile).
//!
//! A write transmits at once only if no short segment is unacknowledged (Nagle's algorithm, `tcp_nagle_check()`).
//! Otherwise its message waits in the sender's queue: nothing goes through the device, and the reader is not woken. A reader
//! that has read all acknowledges (`cleanup_rbuf()`), and the acknowledgement sends off all that has been gathered
//! meanwhile as one segment (`tcp_data_snd_check()`), all of it on the reader's CPU and in its time. An end that
//! answers leaves acknowledgements to its data (`pingpong`) or to a timer (`tcp_delack_timer()`).
//!
//! Model: nobody waits for the lock of a socket (`lock_sock()`), and what arrives meanwhile does not wait in a backlog. A
//! segment for a sleeping reader is processed at once (`tcp_prequeue()` leaves it to the reader). Softirqs are not
//! interrupted between two wakeups. Nothing is transmitted again.

use std::collections::VecDeque;

use schedlab_machine::{KernelPath, Timers};
use schedlab_trace::{CpuId, CpuMode, Recorder, TaskId};
use schedlab_workload::{ObjectId, Outcome};

use crate::contract::policy::Policy;
use crate::paths::kernel::Kernel;
use crate::paths::syscall::Effect;
use crate::state::cpu::{Cpu, irq};
use crate::state::event_queue::Timer;
use crate::state::object::{Channel, Object};
use crate::state::task::Task;
use crate::state::tcp::{ATO_NS, Flow, PREQUEUE_NS, Segment};

/// Things to do, in order, as the packets in a CPU's input queue (`netif_rx()`).
enum Work {
    /// The sender of a direction transmits what may go; with `now`, a short segment, too.
    Push { object: ObjectId, now: bool },
    /// The reader's end of a direction acknowledges; `opens`, though there is only a window to show.
    Ack { object: ObjectId, opens: bool },
}

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// The time of a write that only appends.
    pub(crate) fn append_ns(&self) -> u64 {
        self.machine.tcp.as_ref().map_or(0, |tcp| tcp.append_ns)
    }

    /// Looks at a direction of a connection.
    fn with_flow<T>(&self, object: ObjectId, look: impl FnOnce(&mut Channel, &mut Flow) -> T) -> T {
        let mut objects = self.objects.borrow_mut();
        let Some(Object::Channel(channel)) = objects.get_mut(object.0 as usize) else {
            unreachable!("a direction of a connection is a channel");
        };
        channel.with_flow(look)
    }

    /// `tcp_sendmsg()`.
    pub(crate) fn tcp_write(&self, c: &Cpu, p: &Task, to: ObjectId, bytes: u32) -> Effect {
        let append = |waits: bool| {
            self.with_flow(to, |channel, flow| {
                let used = flow.sender_bytes();
                if used + u64::from(bytes) > channel.capacity() && used > 0 {
                    if waits {
                        channel.wait_to_write(p.id);
                    }
                    return false;
                }
                flow.append(bytes);
                channel.put_buffer(p.program.take_message());
                true
            })
        };
        if !append(false) {
            // Before it waits for memory it sends off all that it has.
            self.net_rx(
                c,
                Work::Push {
                    object: to,
                    now: true,
                },
            );
            if !append(true) {
                return Effect::Wait;
            }
        }
        self.net_rx(
            c,
            Work::Push {
                object: to,
                now: false,
            },
        );
        Effect::Done(Outcome::Done)
    }

    /// `tcp_recvmsg()` of what is there.
    pub(crate) fn tcp_read(&self, c: &Cpu, from: ObjectId, limit: u32) -> Effect {
        let now = c.this.now.get();
        let (taken, reader, ack) = self.with_flow(from, |channel, flow| {
            let taken = channel.take(limit);
            let reader = match taken.is_all {
                true => None,
                false => channel.next_reader(),
            };
            let acks = flow.acks_after_read(taken.bytes, taken.is_all);
            if !acks && flow.has_to_ack() {
                self.delay_ack(c, from, flow, now, ATO_NS);
            }
            let opens = acks && !flow.has_to_ack();
            (taken, reader, acks.then_some(opens))
        });
        if !taken.buffers.is_empty() {
            self.empty_buffers(c, KernelPath::Receive, &taken.buffers);
        }
        if let Some(opens) = ack {
            self.net_rx(
                c,
                Work::Ack {
                    object: from,
                    opens,
                },
            );
        }
        if let Some(reader) = reader {
            self.wake_for_tcp(c, reader);
        }
        Effect::Done(Outcome::Messages(taken.messages))
    }

    /// Carries out `first` and all that follows from it, on this CPU, as softirqs do (`net_rx_action()`).
    #[inline(never)]
    fn net_rx(&self, c: &Cpu, first: Work) {
        let mut work = VecDeque::from([first]);
        while let Some(next) = work.pop_front() {
            match next {
                Work::Push { object, now } => {
                    while let Some(segment) =
                        self.with_flow(object, |_, flow| flow.next_segment(now))
                    {
                        self.transmit(c, object, segment, &mut work);
                    }
                }
                Work::Ack { object, opens } => {
                    let ack = self.with_flow(object, |_, flow| {
                        (opens || flow.has_to_ack()).then(|| flow.ack())
                    });
                    if let Some(ack) = ack {
                        let ns = self.machine.tcp.as_ref().map_or(0, |tcp| tcp.ack_ns);
                        self.through_loopback(c, object, ns);
                        self.acknowledged(c, object, ack);
                        work.push_back(Work::Push { object, now: false });
                    }
                }
            }
        }
    }

    /// A segment goes through the loopback device and arrives (`tcp_transmit_skb()`, `tcp_rcv_established()`). It
    /// acknowledges what its sender's end has received.
    fn transmit(&self, c: &Cpu, object: ObjectId, segment: Segment, work: &mut VecDeque<Work>) {
        let is_first = self.with_flow(object, |_, flow| flow.is_first);
        let back = match is_first {
            true => ObjectId(object.0 + 1),
            false => ObjectId(object.0 - 1),
        };
        let sent_at = c.this.now.get();
        let ack = self.with_flow(back, |_, flow| {
            flow.answers(sent_at);
            flow.ack()
        });
        let ns = self.machine.paths.socket_send_ns - self.append_ns();
        self.through_loopback(c, object, ns);
        self.acknowledged(c, back, ack);
        let now = c.this.now.get();
        let reader = self.with_flow(object, |channel, flow| {
            flow.arrives(segment.bytes, now);
            channel.arrive(segment.messages);
            let reader = channel.next_reader();
            if reader.is_none() && flow.acks_on_arrival() {
                work.push_back(Work::Ack {
                    object,
                    opens: false,
                });
            } else if reader.is_none() {
                self.delay_ack(c, object, flow, now, ATO_NS);
            } else if !flow.delays_ack() {
                self.delay_ack(c, object, flow, now, PREQUEUE_NS);
            }
            reader
        });
        // tcp_data_snd_check()
        work.push_front(Work::Push {
            object: back,
            now: false,
        });
        if let Some(reader) = reader {
            self.wake_for_tcp(c, reader);
        }
    }

    /// A packet's way from one end to the other takes `ns`.
    fn through_loopback(&self, c: &Cpu, object: ObjectId, ns: u64) {
        self.set_mode(c, CpuMode::Kernel);
        self.charge(c, ns);
        self.use_shared_by_packet(c, object);
        self.sync(c);
    }

    /// An acknowledgement comes to the sender's end: those who wait for memory go on where there is a third of it
    /// (`tcp_new_space()`).
    fn acknowledged(&self, c: &Cpu, object: ObjectId, ack: (u64, u64)) {
        let writers = self.with_flow(object, |channel, flow| {
            flow.acked(ack);
            if flow.sender_bytes() * 3 <= channel.capacity() * 2 {
                channel.all_writers()
            } else {
                VecDeque::new()
            }
        });
        for writer in writers {
            self.wake_for_tcp(c, writer);
        }
    }

    fn wake_for_tcp(&self, c: &Cpu, task: TaskId) {
        self.try_to_wake_up(c, self.task(task), self.channel_wake());
        self.set_mode(c, CpuMode::Kernel);
    }

    /// `tcp_send_delayed_ack()`: the acknowledgement goes `ns` after `now` at the latest.
    fn delay_ack(&self, c: &Cpu, object: ObjectId, flow: &mut Flow, now: u64, ns: u64) {
        let due = match self.machine.timers {
            Timers::Jiffies => {
                let period_ns = self.costs.tick_period_ns;
                (now / period_ns + ns.div_ceil(period_ns)) * period_ns
            }
            _ => now + ns,
        };
        if let Some(was_set) = flow.delay_ack(due) {
            if !was_set {
                self.population.add_timer();
            }
            self.set_timer(Timer::Ack(object), c.id, due);
        }
    }

    /// The timer of an acknowledgement expires on `cpu`; most have been sent by then.
    pub(crate) fn ack_timer_expires(
        &self,
        object: ObjectId,
        cpu: CpuId,
        time: u64,
    ) -> Option<CpuId> {
        let due = self.with_flow(object, |_, flow| flow.timer_expires(time));
        let cpu = self.online_or_other(cpu);
        match due {
            None => {
                self.population.remove_timer();
                None
            }
            Some(due) if due > time => {
                self.set_timer(Timer::Ack(object), cpu, due);
                None
            }
            Some(_) => {
                self.cpu(cpu).expired.push_ack(object);
                self.raise(cpu, irq::ACK, time)
            }
        }
    }

    /// `tcp_delack_timer()` of those that have expired on `c`.
    pub(crate) fn delayed_acks(&self, c: &Cpu) {
        loop {
            self.sync(c);
            let Some(object) = c.expired.pop_ack() else {
                return;
            };
            self.population.remove_timer();
            let now = c.this.now.get();
            let is_due = self.with_flow(object, |_, flow| flow.ack_is_late(now));
            if is_due {
                self.net_rx(
                    c,
                    Work::Ack {
                        object,
                        opens: false,
                    },
                );
            }
        }
    }
}
