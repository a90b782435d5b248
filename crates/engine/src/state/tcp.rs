//! One direction of a TCP connection over loopback, as Linux 2.4 has it: sequence numbers, the sender's queue and
//! the acknowledgements that are due. Names are the kernel's (`include/net/sock.h`, `struct tcp_opt`).
//!
//! Model: a segment consists of whole messages, the congestion window never limits, and nothing is lost.

use std::collections::VecDeque;

use schedlab_machine::Tcp;

/// `TCP_MAX_QUICKACKS`: so many segments are acknowledged at once when a connection begins.
const QUICK_ACKS: u32 = 16;
/// `TCP_MIN_RCVMSS`: the size of a full segment in the reader's eyes until it has seen a larger one.
const RCV_MSS_MIN: u64 = 536;
/// `TCP_ATO_MIN`: an acknowledgement is delayed for so long, and data that follows within this time carries it.
pub(crate) const ATO_NS: u64 = 40_000_000;
/// Three quarters of `TCP_RTO_MIN`: the same of a segment that a sleeping reader is woken for (`tcp_prequeue()`).
pub(crate) const PREQUEUE_NS: u64 = 150_000_000;

/// A segment under way.
pub(crate) struct Segment {
    pub messages: Vec<u32>,
    pub bytes: u64,
}

/// The two ends of a direction, besides its queue of messages that have arrived.
pub(crate) struct Flow {
    mss: u64,
    window: u64,
    /// Whether the other direction of the connection is the next object, or the one before.
    pub is_first: bool,

    // The sender's end.
    /// Messages that no segment has taken yet (`send_head`).
    gathered: VecDeque<u32>,
    /// Bytes written so far …
    write_seq: u64,
    /// … of them transmitted …
    snd_nxt: u64,
    /// … and acknowledged.
    snd_una: u64,
    /// End of the last segment that was not full.
    snd_sml: u64,
    /// End of the window that the reader's end has shown.
    snd_wnd_end: u64,

    // The reader's end.
    /// Bytes that have arrived …
    rcv_nxt: u64,
    /// … of them acknowledged …
    rcv_wup: u64,
    /// … and read.
    copied_seq: u64,
    rcv_mss: u64,
    quick: u32,
    /// Whether the reader's end answers: what it sends carries its acknowledgements.
    pingpong: bool,
    /// When a segment last arrived.
    lrcvtime: Option<u64>,
    /// When the acknowledgement that is delayed goes at the latest.
    ack_due: Option<u64>,
    /// When its timer expires.
    timer_at: Option<u64>,
}

impl Flow {
    pub fn new(tcp: &Tcp, is_first: bool) -> Flow {
        let window = u64::from(tcp.window_bytes);
        Flow {
            mss: u64::from(tcp.mss_bytes),
            window,
            is_first,
            gathered: VecDeque::new(),
            write_seq: 0,
            snd_nxt: 0,
            snd_una: 0,
            snd_sml: 0,
            snd_wnd_end: window,
            rcv_nxt: 0,
            rcv_wup: 0,
            copied_seq: 0,
            rcv_mss: RCV_MSS_MIN,
            quick: QUICK_ACKS,
            pingpong: false,
            lrcvtime: None,
            ack_due: None,
            timer_at: None,
        }
    }

    /// Bytes that the sender keeps: those not transmitted, and those not acknowledged (`wmem_queued`).
    pub fn sender_bytes(&self) -> u64 {
        self.write_seq - self.snd_una
    }

    /// Appends a message to the sender's queue.
    pub fn append(&mut self, bytes: u32) {
        self.gathered.push_back(bytes);
        self.write_seq += u64::from(bytes);
    }

    /// Takes the next segment out of the sender's queue if it may go (`tcp_snd_test()`, `tcp_nagle_check()`). With
    /// `now`, a segment that is not full need not wait for the one before.
    pub fn next_segment(&mut self, now: bool) -> Option<Segment> {
        let first = u64::from(*self.gathered.front()?);
        let is_small = self.write_seq - self.snd_nxt < self.mss;
        // Minshall's rule: full segments in flight make none wait.
        if is_small && !now && self.snd_sml > self.snd_una {
            return None;
        }
        let (mut count, mut bytes) = (0, 0);
        for &message in &self.gathered {
            let message = u64::from(message);
            if count > 0 && bytes + message > self.mss {
                break;
            }
            count += 1;
            bytes += message;
        }
        // A message larger than the window passes when all has been read.
        let passes = first > self.window && self.snd_nxt == self.copied_seq;
        let fits = passes || self.snd_nxt + bytes <= self.snd_wnd_end;
        if !fits {
            return None;
        }
        self.snd_nxt += bytes;
        if is_small {
            self.snd_sml = self.snd_nxt;
        }
        let messages = self.gathered.drain(..count).collect();
        Some(Segment { messages, bytes })
    }

    /// A segment arrives at the reader's end (`tcp_event_data_recv()`).
    pub fn arrives(&mut self, bytes: u64, now: u64) {
        self.rcv_nxt += bytes;
        self.rcv_mss = self.rcv_mss.max(bytes);
        self.lrcvtime = Some(now);
    }

    /// Whether what has arrived is acknowledged before anybody reads it (`__tcp_ack_snd_check()`).
    pub fn acks_on_arrival(&self) -> bool {
        self.has_to_ack() && (self.rcv_nxt - self.rcv_wup > self.rcv_mss || self.is_quick())
    }

    /// Whether a reader acknowledges after it has read `bytes` (`cleanup_rbuf()`).
    pub fn acks_after_read(&mut self, bytes: u64, all_read: bool) -> bool {
        self.copied_seq += bytes;
        let shown = self.snd_wnd_end.saturating_sub(self.rcv_nxt);
        let free = self.window.saturating_sub(self.rcv_nxt - self.copied_seq);
        // The window has opened by much, where there was not enough for a segment.
        let opens = shown < self.mss && free >= shown + self.mss / 2;
        self.acks_on_arrival() || (self.has_to_ack() && all_read && !self.pingpong) || opens
    }

    /// Whether something has arrived that is not acknowledged (`tcp_ack_scheduled()`).
    pub fn has_to_ack(&self) -> bool {
        self.rcv_nxt > self.rcv_wup
    }

    fn is_quick(&self) -> bool {
        self.quick > 0 && !self.pingpong
    }

    /// The reader's end sends something that acknowledges. Returns the acknowledgement: the bytes that have arrived, and
    /// the end of the window.
    pub fn ack(&mut self) -> (u64, u64) {
        self.quick = self.quick.saturating_sub(1);
        self.ack_due = None;
        self.rcv_wup = self.rcv_nxt;
        let end = (self.copied_seq + self.window).max(self.snd_wnd_end);
        (self.rcv_nxt, end)
    }

    /// The reader's end sends data at `now`: it answers if it does so soon (`tcp_event_data_sent()`).
    pub fn answers(&mut self, now: u64) {
        if self
            .lrcvtime
            .is_some_and(|at| now.saturating_sub(at) < ATO_NS)
        {
            self.pingpong = true;
        }
    }

    /// An acknowledgement comes to the sender's end (`tcp_ack()`).
    pub fn acked(&mut self, (up_to, window_end): (u64, u64)) {
        self.snd_una = self.snd_una.max(up_to);
        self.snd_wnd_end = self.snd_wnd_end.max(window_end);
    }

    /// Returns whether an acknowledgement is delayed.
    pub fn delays_ack(&self) -> bool {
        self.ack_due.is_some()
    }

    /// `tcp_send_delayed_ack()`: an acknowledgement goes at `due` at the latest. Returns whether the timer is to be set to
    /// that, and if so, whether it was set before.
    pub fn delay_ack(&mut self, due: u64) -> Option<bool> {
        if self.ack_due.is_some_and(|earlier| earlier <= due) {
            return None;
        }
        self.ack_due = Some(due);
        let is_later = self.timer_at.is_none_or(|at| at > due);
        is_later.then(|| self.timer_at.replace(due).is_some())
    }

    /// Ends the timer at `time`. Returns when the acknowledgement is due; if later, the timer is to be set to that.
    pub fn timer_expires(&mut self, time: u64) -> Option<u64> {
        self.timer_at = self.ack_due.filter(|&due| due > time);
        self.ack_due
    }

    /// `tcp_delack_timer()`. Returns whether the time of an acknowledgement has come by `now`.
    pub fn ack_is_late(&mut self, now: u64) -> bool {
        let is_due = self.ack_due.is_some_and(|due| due <= now);
        if is_due {
            self.pingpong = false;
        }
        is_due
    }
}
