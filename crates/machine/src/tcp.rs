//! TCP between tasks of one machine: segments that wait for acknowledgements, and the time that both take.
//!
//! A profile has a section `[tcp]`, or sockets pass each message on at once. Nothing here says how many messages go
//! in one segment: that follows from when the reader has read the one before.

/// TCP over the loopback device. Times come on top of `paths.syscall_ns`.
#[derive(Clone, PartialEq, Eq, Debug, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Tcp {
    /// Bytes of a full segment (`tcp_current_mss()`). A shorter one waits while a short one is unacknowledged.
    pub mss_bytes: u32,
    /// Bytes that a reader's end takes without being read (`tcp_select_initial_window()`).
    pub window_bytes: u32,
    /// A write whose message is only appended to the sender's queue. One that transmits takes
    /// `paths.socket_send_ns`; an acknowledgement that transmits takes the difference.
    pub append_ns: u64,
    /// An acknowledgement without data, from the reader's end to the effect at the sender's.
    pub ack_ns: u64,
}

/// Returns the fault in the section: the field and the remedy.
pub(crate) fn complaint(tcp: Option<&Tcp>, socket_send_ns: u64) -> Option<(String, String)> {
    let tcp = tcp?;
    let fault = |field: &str, message: &str| Some((format!("tcp.{field}"), message.to_owned()));
    if tcp.mss_bytes == 0 {
        return fault("mss_bytes", "must be above 0");
    }
    if u64::from(tcp.window_bytes) < u64::from(tcp.mss_bytes) * 3 / 2 {
        return fault(
            "window_bytes",
            "must be at least one and a half times mss_bytes, so that a full segment always fits again",
        );
    }
    if tcp.append_ns > socket_send_ns {
        return fault(
            "append_ns",
            "must be at most paths.socket_send_ns, of which it is a part",
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;

    fn with(tcp: &str) -> Result<Machine, crate::ProfileError> {
        let text = Machine::builtin("laptop").unwrap().to_toml();
        let fields = tcp.split(';').map(|field| {
            let (key, value) = field.split_once('=').unwrap();
            format!("{key} = {{ value = {value}, source = \"guess\" }}\n")
        });
        let fields: String = fields.collect();
        Machine::from_toml("x.toml", &format!("{text}\n[tcp]\n{fields}"))
    }

    #[test]
    fn a_section_is_read_and_written() {
        let machine = with("mss_bytes=1000;window_bytes=1500;append_ns=200;ack_ns=300").unwrap();
        let expected = Tcp {
            mss_bytes: 1_000,
            window_bytes: 1_500,
            append_ns: 200,
            ack_ns: 300,
        };
        assert_eq!(machine.tcp, Some(expected));
        let again = Machine::from_toml("again", &machine.to_toml()).unwrap();
        assert_eq!(again, machine);
        assert_eq!(Machine::builtin("laptop").unwrap().tcp, None);
    }

    #[test]
    fn what_can_never_work_is_refused() {
        for (tcp, field) in [
            (
                "mss_bytes=0;window_bytes=1500;append_ns=200;ack_ns=300",
                "tcp.mss_bytes",
            ),
            (
                "mss_bytes=1000;window_bytes=1499;append_ns=200;ack_ns=300",
                "tcp.window_bytes",
            ),
            (
                "mss_bytes=1000;window_bytes=1500;append_ns=900000;ack_ns=300",
                "tcp.append_ns",
            ),
        ] {
            let error = with(tcp).unwrap_err().to_string();
            assert!(error.contains(field), "{error}");
        }
    }
}
