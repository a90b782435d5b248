//! Reads the switches of a Perfetto trace by the numbers of the fields in Perfetto's schema, not by the writer's messages.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packets: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(message, optional, tag = "1")]
    ftrace_events: Option<Bundle>,
}

#[derive(Clone, PartialEq, Message)]
struct Bundle {
    #[prost(uint32, tag = "1")]
    cpu: u32,
    #[prost(message, repeated, tag = "2")]
    events: Vec<FtraceEvent>,
}

#[derive(Clone, PartialEq, Message)]
struct FtraceEvent {
    #[prost(message, optional, tag = "4")]
    sched_switch: Option<Switch>,
}

/// A switch, by the pids of both tasks.
#[derive(Clone, PartialEq, Message)]
pub struct Switch {
    #[prost(int32, tag = "2")]
    pub prev_pid: i32,
    #[prost(int32, tag = "6")]
    pub next_pid: i32,
}

/// Returns the switches in the order of the file, each with its CPU.
pub fn switches(bytes: &[u8]) -> Result<Vec<(u32, Switch)>, String> {
    let trace = Trace::decode(bytes).map_err(|error| error.to_string())?;
    let bundles = trace
        .packets
        .into_iter()
        .filter_map(|packet| packet.ftrace_events);
    let switches = bundles.flat_map(|bundle| {
        let cpu = bundle.cpu;
        let events = bundle.events.into_iter();
        events.filter_map(move |event| Some((cpu, event.sched_switch?)))
    });
    Ok(switches.collect())
}
