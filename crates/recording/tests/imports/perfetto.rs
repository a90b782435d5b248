//! Traces as Perfetto writes them, with whole events or in brief form, packed and not.

use quick_protobuf::Writer;
use schedlab_recording::{Event, Left, Tid, What};

use crate::story::{comm, flags, prio, state, story};
use crate::{events, program, told, tracedat};

/// Writes a message.
fn message(write: impl FnOnce(&mut Message<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut Message(Writer::new(&mut bytes)));
    bytes
}

struct Message<'a>(Writer<&'a mut Vec<u8>>);

impl Message<'_> {
    fn number(&mut self, field: u32, value: u64) {
        self.0
            .write_with_tag(field << 3, |to| to.write_uint64(value))
            .unwrap();
    }

    fn bytes(&mut self, field: u32, value: &[u8]) {
        self.0
            .write_with_tag(field << 3 | 2, |to| to.write_bytes(value))
            .unwrap();
    }

    fn numbers(&mut self, field: u32, values: &[u64]) {
        let packed = message(|to| {
            for value in values {
                to.0.write_uint64(*value).unwrap();
            }
        });
        self.bytes(field, &packed);
    }
}

fn name(tid: Tid) -> Vec<u8> {
    comm(tid).text().into_bytes()
}

/// A whole event.
fn whole(event: &Event) -> Vec<u8> {
    message(|to| {
        to.number(1, event.at_ns);
        to.number(2, event.current.unwrap() as u64);
        to.number(5, u64::from(flags(event.context)));
        let (field, body) = match event.what {
            What::Switch {
                prev, left, next, ..
            } => {
                let body = message(|to| {
                    to.bytes(1, &name(prev));
                    to.number(2, prev as u64);
                    to.number(3, prio(prev) as u64);
                    to.number(4, state(left));
                    to.bytes(5, &name(next));
                    to.number(6, next as u64);
                    to.number(7, prio(next) as u64);
                });
                (4, body)
            }
            What::Waking { task, .. } | What::New { task } => {
                let body = message(|to| {
                    to.bytes(1, &name(task));
                    to.number(2, task as u64);
                });
                let is_new = matches!(event.what, What::New { .. });
                (if is_new { 114 } else { 20 }, body)
            }
            What::Fork { parent, child } => {
                let body = message(|to| {
                    to.number(2, parent as u64);
                    to.number(4, child as u64);
                });
                (239, body)
            }
            other => panic!("{other:?}"),
        };
        to.bytes(field, &body);
    })
}

/// Switches and wakeups in brief form.
fn brief(events: &[Event]) -> Vec<u8> {
    let mut switches: [Vec<u64>; 5] = Default::default();
    let mut wakings: [Vec<u64>; 6] = Default::default();
    let mut last = [0, 0];
    let mut names: Vec<Tid> = Vec::new();
    let mut index = |tid: Tid| match names.iter().position(|known| *known == tid) {
        Some(at) => at as u64,
        None => {
            names.push(tid);
            names.len() as u64 - 1
        }
    };
    for event in events {
        match event.what {
            What::Switch { left, next, .. } => {
                let passed = event.at_ns - last[0];
                last[0] = event.at_ns;
                let of = [
                    passed,
                    state(left),
                    next as u64,
                    prio(next) as u64,
                    index(next),
                ];
                switches
                    .iter_mut()
                    .zip(of)
                    .for_each(|(list, value)| list.push(value));
            }
            What::Waking { task, .. } => {
                let passed = event.at_ns - last[1];
                last[1] = event.at_ns;
                let flags = u64::from(flags(event.context));
                let of = [
                    passed,
                    task as u64,
                    0,
                    prio(task) as u64,
                    index(task),
                    flags,
                ];
                wakings
                    .iter_mut()
                    .zip(of)
                    .for_each(|(list, value)| list.push(value));
            }
            _ => {}
        }
    }
    message(|to| {
        for tid in &names {
            to.bytes(5, &name(*tid));
        }
        for (field, values) in [1, 2, 3, 4, 6].into_iter().zip(&switches) {
            to.numbers(field, values);
        }
        for (field, values) in (7..).zip(&wakings) {
            to.numbers(field, values);
        }
    })
}

fn packet(sequence: u64, write: impl FnOnce(&mut Message<'_>)) -> Vec<u8> {
    message(|to| {
        write(to);
        to.number(10, sequence);
    })
}

/// The story in rounds of so many ns, each with a bundle of CPU 1 and then one of CPU 0.
pub fn file(is_brief: bool, packing: &str) -> Vec<u8> {
    let mut packets = vec![
        packet(1, |to| {
            let uname = message(|to| {
                to.bytes(3, b"6.1.0");
                to.bytes(4, b"x86_64");
            });
            to.bytes(
                45,
                &message(|to| {
                    to.bytes(1, &uname);
                    to.number(8, 4);
                }),
            );
        }),
        packet(2, |to| {
            let thread = message(|to| {
                to.number(1, 11);
                to.number(3, 10);
            });
            to.bytes(2, &message(|to| to.bytes(2, &thread)));
        }),
        stats(1, 20),
    ];
    for round in [
        0..1_025_000u64,
        1_025_000..150_000_000,
        150_000_000..u64::MAX,
    ] {
        for cpu in [1, 0] {
            let is_its = |event: &Event| event.cpu == cpu && round.contains(&event.at_ns);
            let events: Vec<Event> = story().into_iter().filter(is_its).collect();
            packets.push(packet(3, |to| {
                let is_whole = |event: &&Event| {
                    let is_common = matches!(event.what, What::Switch { .. } | What::Waking { .. });
                    !is_brief || !is_common
                };
                let bundle = message(|to| {
                    to.number(1, u64::from(cpu));
                    for event in events.iter().filter(is_whole) {
                        to.bytes(2, &whole(event));
                    }
                    if is_brief {
                        to.bytes(4, &brief(&events));
                    }
                });
                to.bytes(1, &bundle);
                // The first of a sequence has the flag, too.
                to.number(42, u64::from(round.start == 0 && cpu == 1));
            }));
        }
    }
    packets.push(stats(2, 23));
    let trace = |packets: &[Vec<u8>]| {
        message(|to| {
            for packet in packets {
                to.bytes(1, packet);
            }
        })
    };
    if packing == "none" {
        return trace(&packets);
    }
    let halves = packets.chunks(5).map(|half| packed(packing, &trace(half)));
    trace(&halves.collect::<Vec<_>>())
}

/// A packet that holds packets.
fn packed(packing: &str, packets: &[u8]) -> Vec<u8> {
    let field = if packing == "zlib" { 50 } else { 133 };
    message(|to| to.bytes(field, &tracedat::packed(packing, packets)))
}

/// The kernel's counts at the begin (1) or the end (2).
fn stats(phase: u64, overrun: u64) -> Vec<u8> {
    packet(1, |to| {
        let cpu = message(|to| {
            to.number(1, 0);
            to.number(3, overrun);
        });
        to.bytes(
            34,
            &message(|to| {
                to.number(1, phase);
                to.bytes(2, &cpu);
            }),
        );
    })
}

#[test]
fn perfetto_holds_the_story() {
    for packing in ["none", "zlib", "zstd"] {
        let (mut events, about) = events(&file(false, packing)).unwrap();
        let process = events.remove(0).what;
        assert_eq!(
            process,
            What::Process {
                task: 11,
                process: 10
            }
        );
        assert_eq!(events, story());
        assert_eq!((about.lost, about.late, about.cpus), (3, 0, Some(4)));
        assert_eq!(about.kernel.as_deref(), Some("6.1.0"));
    }
}

/// In brief form the leaving task is the one that came; before the first switch of a CPU it is unknown, and counts as idle.
#[test]
fn brief_events_name_the_task_that_leaves() {
    let (events, _) = events(&file(true, "none")).unwrap();
    let mut expected = story();
    let mut has_switched = [false; 2];
    for event in &mut expected {
        let known = &mut has_switched[event.cpu as usize];
        if let What::Switch {
            prev_comm, left, ..
        } = &mut event.what
        {
            if !*known {
                (event.current, *prev_comm) = (None, Default::default());
            }
            // The writer's own state of an idle task.
            assert!(*known || *left == Left::Runnable);
            *known = true;
        }
    }
    assert_eq!(events[1..], expected);
}

/// Each flush writes the counts of begin and end, and those of the end go on growing.
#[test]
fn the_first_and_the_last_count_of_a_session_tell_its_losses() {
    let mut trace = file(false, "none");
    for (phase, overrun) in [(1, 20), (2, 30)] {
        trace.extend(message(|to| to.bytes(1, &stats(phase, overrun))));
    }
    assert_eq!(events(&trace).unwrap().1.lost, 10);
}

#[test]
fn gaps_are_losses() {
    let lost = |write: &dyn Fn(&mut Message<'_>)| {
        let trace = message(|to| {
            for _ in 0..2 {
                let bundle = message(|to| {
                    to.number(1, 0);
                    to.bytes(2, &whole(&story()[0]));
                    write(to);
                });
                to.bytes(
                    1,
                    &packet(3, |to| {
                        to.bytes(1, &bundle);
                        to.number(42, 1);
                    }),
                );
            }
        });
        events(&trace).unwrap().1.lost
    };
    assert_eq!(lost(&|_| ()), 1);
    assert_eq!(lost(&|to| to.number(3, 1)), 3);
}

/// Two tasks would wait for 292 years each, and their sum is more than a number holds.
#[test]
fn a_time_with_a_flipped_bit_is_damage() {
    let mut story = story();
    for event in &mut story[7..] {
        event.at_ns |= 1 << 63;
    }
    story[4].at_ns |= 1 << 63;
    let trace = message(|to| {
        for cpu in [0, 1] {
            let its = story.iter().filter(|event| u64::from(event.cpu) == cpu);
            let bundle = bundle(cpu, true, |to| {
                its.for_each(|event| to.bytes(2, &whole(event)));
            });
            to.bytes(1, &bundle);
        }
    });
    let error = program(&trace).unwrap_err().to_string();
    assert!(
        error.contains(" s: the time is more than 104 days after the first event's, 0.001000000 s"),
        "{error}"
    );
}

/// Before Linux 4.3 `sched_wakeup` has a flag for a task that slept.
#[test]
fn a_wakeup_that_failed_is_none() {
    let wakeup = |success: Option<u64>| {
        message(|to| {
            to.number(1, 2_000_000);
            to.bytes(
                17,
                &message(|to| {
                    to.number(2, 11);
                    if let Some(success) = success {
                        to.number(4, success);
                    }
                }),
            );
        })
    };
    let told = |success| {
        let bundle = bundle(0, true, |to| {
            to.bytes(2, &whole(&story()[0]));
            to.bytes(2, &wakeup(success));
        });
        let trace = message(|to| to.bytes(1, &bundle));
        let (events, about) = events(&trace).unwrap();
        (events.len(), about.passed_over)
    };
    assert_eq!(told(Some(1)), (2, 0));
    assert_eq!(told(None), (2, 0));
    assert_eq!(told(Some(0)), (1, 1));
}

/// Their CPUs have the same numbers.
#[test]
fn several_machines_are_refused() {
    let of = |machine| {
        let bundle = message(|to| to.bytes(2, &whole(&story()[0])));
        let packet = packet(3, |to| {
            to.bytes(1, &bundle);
            to.number(98, machine);
        });
        message(|to| to.bytes(1, &packet))
    };
    assert!(events(&[of(5), of(5)].concat()).is_ok());
    let error = told(&[of(0), of(5)].concat());
    assert!(error.contains("several machines were recorded"), "{error}");
}

#[test]
fn a_small_trace_does_not_take_much_memory() {
    let trace = |packet: &[u8]| message(|to| to.bytes(1, packet));
    let zeros = |field: u32, size: usize| message(|to| to.bytes(field, &vec![0; size]));
    let behind = |packet: &[u8]| [file(false, "none"), trace(packet)].concat();
    // A large packet that does not matter is passed over.
    let passed = [behind(&zeros(99, 17 << 20)), file(false, "none")].concat();
    assert!(events(&passed).is_ok());
    for field in [1, 50, 133] {
        let error = told(&behind(&zeros(field, 17 << 20)));
        assert!(error.contains(": a packet of 178"), "{error}");
    }
    // A packed packet does not become a large one.
    for packing in ["zlib", "zstd"] {
        let large = packed(packing, &trace(&zeros(99, 16 << 20)));
        let error = told(&trace(&large));
        assert!(error.contains("it cannot be unpacked"), "{error}");
    }
    // An event without anything but its time, again and again.
    let event = message(|to| to.bytes(2, &message(|to| to.number(1, 1))));
    let tiny = trace(&message(|to| to.bytes(1, &event)));
    let batch = trace(&packed("zlib", &tiny.repeat((15 << 20) / tiny.len())));
    let error = told(&batch.repeat(2));
    assert!(
        error.contains("the trace has more packets than its size allows"),
        "{error}"
    );
}

/// A bundle of a CPU in a packet.
fn bundle(cpu: u64, is_dropped: bool, write: impl FnOnce(&mut Message<'_>)) -> Vec<u8> {
    let bundle = message(|to| {
        to.number(1, cpu);
        write(to);
    });
    packet(3, |to| {
        to.bytes(1, &bundle);
        to.number(42, u64::from(is_dropped));
    })
}

/// In brief form a task that came before a gap is not the one that leaves after it.
#[test]
fn nobody_is_known_to_leave_after_a_gap() {
    let (first, second) = (story()[0], story()[5]);
    let come = |to: &mut Message<'_>| to.bytes(4, &brief(&[first]));
    let leave = |to: &mut Message<'_>| to.bytes(4, &brief(&[second]));
    let current = |packets: [Vec<u8>; 3]| {
        let trace = message(|to| {
            for packet in packets.iter().filter(|packet| !packet.is_empty()) {
                to.bytes(1, packet);
            }
        });
        let (events, about) = events(&trace).unwrap();
        (events[1].current, about.lost)
    };
    let error = |at_ns| message(|to| to.number(1, at_ns));
    let before = || bundle(0, true, come);
    let after = || bundle(0, false, leave);
    let none = Vec::new;
    assert_eq!(current([before(), none(), after()]), (Some(10), 0));
    // A bundle without events reports a loss.
    let lossy = bundle(0, false, |to| to.number(3, 1));
    assert_eq!(current([before(), lossy, after()]), (None, 1));
    // A packet was dropped before the one of the other CPU.
    let other = bundle(1, true, |_| ());
    assert_eq!(current([before(), other, after()]), (None, 1));
    let dropped = bundle(0, true, leave);
    assert_eq!(current([before(), none(), dropped]), (None, 1));
    // A page could not be read, before the first switch or between them.
    for (at_ns, left) in [(1, Some(10)), (1_010_000, None)] {
        let torn = bundle(0, true, |to| {
            come(to);
            to.bytes(8, &error(at_ns));
        });
        assert_eq!(current([torn, none(), after()]).0, left);
    }
    // Or it was behind the second one.
    let torn = bundle(0, false, |to| {
        leave(to);
        to.bytes(8, &error(second.at_ns + 1));
    });
    assert_eq!(current([before(), none(), torn]), (Some(10), 1));
    // The writer's last event is here, or is not.
    for (end_ns, left) in [(first.at_ns, Some(10)), (first.at_ns + 1, None)] {
        let later = bundle(0, false, |to| {
            leave(to);
            to.number(10, end_ns);
        });
        assert_eq!(current([before(), none(), later]), (left, 0));
    }
}

#[test]
fn damage_is_told_with_its_place() {
    let bytes = file(false, "none");
    assert!(told(&bytes[..bytes.len() - 1]).contains("is truncated: the packet at offset"));
    let mut foreign = bytes.clone();
    foreign.push(0x12);
    let place = format!(
        "the packet at offset {}: no packet begins there",
        bytes.len()
    );
    assert!(told(&foreign).contains(&place), "{}", told(&foreign));
    let nothing = message(|to| to.bytes(1, &packet(1, |_| ())));
    assert!(
        told(&nothing)
            .contains("has no sched_switch events: record with `tracebox -o FILE -t 10s sched/")
    );
    let mut torn = message(|to| to.bytes(1, &packet(3, |to| to.bytes(1, &[8, 0, 0x12, 9, 1]))));
    assert!(told(&torn).contains("the packet at offset 0: its fields do not fit into it"));
    torn = file(false, "zlib");
    let last = torn.len() - 10;
    torn[last] ^= 0xff;
    assert!(
        told(&torn).contains("it cannot be unpacked"),
        "{}",
        told(&torn)
    );
}
