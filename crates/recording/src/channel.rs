//! Pipes and sockets: which write completes the data of which read.
//!
//! A reader that comes late finds its data and does not sleep, so the wakeups alone do not show what it needs. Where a
//! writer wakes a reader, both their descriptors belong to one channel; then all writes and reads of that channel count.
//! The bytes that were written, added up, say which write completes each read.
//!
//! Model: only channels with one reading task; of others the wakeups alone are kept. Room in the channel's buffer is
//! not modelled: a writer waits for it as often as it was recorded.

use std::collections::BTreeMap;

use crate::Tid;
use crate::task::{Of, Raw};

/// A process and its descriptor.
type End = (Tid, i32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// A call that moved data.
struct Transfer {
    end: usize,
    task: usize,
    direction: Direction,
    /// Of a write the earliest, of a read the latest instant at which the data can have moved.
    at_ns: u64,
    bytes: u64,
}

/// All descriptors, joined to channels.
#[derive(Default)]
pub(crate) struct Channels {
    ends: BTreeMap<End, usize>,
    /// By end: another one of its channel, itself if it is the last of the chain.
    joined: Vec<usize>,
    transfers: Vec<Transfer>,
}

impl Channels {
    fn end(&mut self, end: End) -> usize {
        let next = self.joined.len();
        let known = *self.ends.entry(end).or_insert(next);
        if known == next {
            self.joined.push(next);
        }
        known
    }

    fn channel(&self, mut end: usize) -> usize {
        while self.joined[end] != end {
            end = self.joined[end];
        }
        end
    }

    /// Both are of one channel.
    pub fn join(&mut self, one: End, other: End) {
        let (one, other) = (self.end(one), self.end(other));
        let (one, other) = (self.channel(one), self.channel(other));
        // The lower number stays, so that chains are short and the same each time.
        self.joined[one.max(other)] = one.min(other);
    }

    /// The descriptor's number may mean something else from now on.
    pub fn close(&mut self, end: End) {
        self.ends.remove(&end);
    }

    /// A transfer begins, or is found to have happened.
    pub fn begin(&mut self, end: End, task: usize, direction: Direction, at_ns: u64) -> usize {
        let end = self.end(end);
        self.transfers.push(Transfer {
            end,
            task,
            direction,
            at_ns,
            bytes: 0,
        });
        self.transfers.len() - 1
    }

    /// It has moved so many bytes.
    pub fn moved(&mut self, transfer: usize, bytes: u64) {
        self.transfers[transfer].bytes = bytes;
    }

    /// Replaces, in the steps of all tasks, the wakeups of the channels that are understood by what their reads need.
    pub fn resolve(&self, tasks: &mut [Of]) {
        let mut channels: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, transfer) in self.transfers.iter().enumerate() {
            channels
                .entry(self.channel(transfer.end))
                .or_default()
                .push(index);
        }
        // By transfer: for a write the reads that it completes, for a read whether it waits for one.
        let mut tokens = vec![0u32; self.transfers.len()];
        let mut understood = vec![false; tasks.len()];
        let mut reader_of: BTreeMap<usize, usize> = BTreeMap::new();
        for (channel, indexes) in &channels {
            let of = |direction| {
                indexes
                    .iter()
                    .copied()
                    .filter(move |index| self.transfers[*index].direction == direction)
            };
            let Some(reader) = of(Direction::Read)
                .map(|index| self.transfers[index].task)
                .next()
            else {
                continue;
            };
            let is_shared = of(Direction::Read).any(|index| self.transfers[index].task != reader);
            if is_shared || of(Direction::Write).next().is_none() {
                continue;
            }
            reader_of.insert(*channel, reader);
            understood[reader] = true;
            let mut writes: Vec<usize> = of(Direction::Write).collect();
            writes.sort_by_key(|index| self.transfers[*index].at_ns);
            let mut writes = writes.into_iter().peekable();
            let (mut written, mut read) = (0u64, 0u64);
            let mut last: Option<usize> = None;
            for index in of(Direction::Read) {
                read = read.saturating_add(self.transfers[index].bytes);
                // A write that began later cannot have had these data: the count is off by what came before the
                // recording. If a read waited for it, tasks could wait for each other for ever.
                let at_ns = self.transfers[index].at_ns;
                while written < read
                    && let Some(write) =
                        writes.next_if(|write| self.transfers[*write].at_ns <= at_ns)
                {
                    written = written.saturating_add(self.transfers[write].bytes);
                    last = Some(write);
                }
                // Data from before the recording are there already.
                if let Some(write) = last {
                    tokens[write] += 1;
                    tokens[index] = 1;
                }
            }
        }
        // A reader of several channels, of which some are not understood, keeps the wakeups of those.
        let partly: Vec<bool> = (0..tasks.len())
            .map(|task| {
                channels.iter().any(|(channel, indexes)| {
                    !reader_of.contains_key(channel)
                        && indexes.len() > 1
                        && self.is_joined(indexes)
                        && indexes.iter().any(|index| {
                            self.transfers[*index].task == task
                                && self.transfers[*index].direction == Direction::Read
                        })
                })
            })
            .collect();
        let replaced: Vec<bool> = understood
            .iter()
            .zip(&partly)
            .map(|(understood, partly)| *understood && !partly)
            .collect();
        for of in tasks.iter_mut() {
            of.steps = std::mem::take(&mut of.steps)
                .into_iter()
                .flat_map(|step| self.replaced(step, &replaced, &tokens, &reader_of))
                .collect();
        }
        // The waits for data are in the reads now.
        for (task, of) in tasks.iter_mut().enumerate() {
            if replaced[task] {
                of.steps
                    .retain(|step| !matches!(step, Raw::Wait { data: true, .. }));
            }
        }
    }

    fn is_joined(&self, indexes: &[usize]) -> bool {
        let first = self.transfers[indexes[0]].end;
        indexes
            .iter()
            .any(|index| self.transfers[*index].end != first)
    }

    fn replaced(
        &self,
        step: Raw,
        replaced: &[bool],
        tokens: &[u32],
        reader_of: &BTreeMap<usize, usize>,
    ) -> Vec<Raw> {
        match step {
            Raw::Post { to, data: true, .. } if replaced[to] => Vec::new(),
            Raw::Transfer(index) => {
                let transfer = &self.transfers[index];
                match (
                    reader_of.get(&self.channel(transfer.end)),
                    transfer.direction,
                ) {
                    (Some(reader), _) if !replaced[*reader] => Vec::new(),
                    (Some(reader), Direction::Write) => {
                        vec![Raw::Token(*reader); tokens[index] as usize]
                    }
                    (Some(_), Direction::Read) if tokens[index] > 0 => vec![Raw::Take],
                    _ => Vec::new(),
                }
            }
            step => vec![step],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(steps: Vec<Raw>) -> Of {
        Of {
            comm: "t".to_owned(),
            process: 1,
            prio: 120,
            is_member: true,
            is_recorder: false,
            steps,
        }
    }

    /// Writes of 10, 20 and 5 bytes, reads of 15, 15 and 5: the second write completes the first two reads.
    #[test]
    fn a_read_waits_for_the_write_that_completes_it() {
        let mut channels = Channels::default();
        channels.join((1, 4), (2, 3));
        let write = |channels: &mut Channels, at_ns, bytes| {
            let index = channels.begin((1, 4), 0, Direction::Write, at_ns);
            channels.moved(index, bytes);
            Raw::Transfer(index)
        };
        let read = |channels: &mut Channels, at_ns, bytes| {
            let index = channels.begin((2, 3), 1, Direction::Read, at_ns);
            channels.moved(index, bytes);
            Raw::Transfer(index)
        };
        let (w1, w2) = (write(&mut channels, 1, 10), write(&mut channels, 2, 20));
        let (r1, r2) = (read(&mut channels, 3, 15), read(&mut channels, 4, 15));
        let w3 = write(&mut channels, 5, 5);
        let r3 = read(&mut channels, 6, 5);
        let post = Raw::Post {
            to: 1,
            post: 0,
            data: true,
        };
        let wait = Raw::Wait {
            post: 0,
            ns: 9,
            data: true,
        };
        let mut tasks = [
            of(vec![w1, post, w2, Raw::Run(7), w3]),
            of(vec![wait, r1, r2, Raw::Run(3), r3]),
        ];
        channels.resolve(&mut tasks);
        assert_eq!(
            tasks[0].steps,
            [Raw::Token(1), Raw::Token(1), Raw::Run(7), Raw::Token(1)]
        );
        assert_eq!(
            tasks[1].steps,
            [Raw::Take, Raw::Take, Raw::Run(3), Raw::Take]
        );
    }

    /// Two writers: the one that waited for room puts its data in after the other, whose data are read first.
    #[test]
    fn no_read_waits_for_a_write_that_comes_later() {
        let mut channels = Channels::default();
        channels.join((1, 4), (2, 3));
        let mut transfer = |end, task, direction, at_ns| {
            let index = channels.begin(end, task, direction, at_ns);
            channels.moved(index, 10);
            Raw::Transfer(index)
        };
        let read = transfer((2, 3), 1, Direction::Read, 5);
        let late = transfer((1, 4), 0, Direction::Write, 9);
        let early = transfer((1, 4), 2, Direction::Write, 3);
        let mut tasks = [of(vec![late]), of(vec![read]), of(vec![early])];
        channels.resolve(&mut tasks);
        assert!(tasks[0].steps.is_empty());
        assert_eq!(tasks[1].steps, [Raw::Take]);
        assert_eq!(tasks[2].steps, [Raw::Token(1)]);
    }

    /// Of a channel with two readers the wakeups are kept, and nothing else.
    #[test]
    fn a_channel_with_several_readers_keeps_its_wakeups() {
        let mut channels = Channels::default();
        channels.join((1, 4), (1, 3));
        let mut transfer = |task, direction| {
            let file = if direction == Direction::Read { 3 } else { 4 };
            Raw::Transfer(channels.begin((1, file), task, direction, 1))
        };
        let steps = [
            transfer(0, Direction::Write),
            transfer(1, Direction::Read),
            transfer(2, Direction::Read),
        ];
        let post = Raw::Post {
            to: 1,
            post: 0,
            data: true,
        };
        let wait = Raw::Wait {
            post: 0,
            ns: 9,
            data: true,
        };
        let mut tasks = [
            of(vec![steps[0], post]),
            of(vec![wait, steps[1]]),
            of(vec![steps[2]]),
        ];
        channels.resolve(&mut tasks);
        assert_eq!(tasks[0].steps, [post]);
        assert_eq!(tasks[1].steps, [wait]);
        assert!(tasks[2].steps.is_empty());
    }
}
