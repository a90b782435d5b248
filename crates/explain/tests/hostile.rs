//! Input that means harm, or nothing at all.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use schedlab_explain::explain;

/// Pieces of which a hostile text is made: those that open something, in any order.
const PIECES: [&str; 18] = [
    "a[1] triggered exit kind 1026:\n",
    "  runnable task stall (a[1] failed to run for 9.999s)\n",
    "CPU states\n",
    "CPU 0   : nr_run=4294967295 flags=0x1 cpu_rel=1 ksync=1\n",
    "CPU 99999: nr_run=99999999999999 flags=0x1\n",
    "          curr=a[1] class=rt_sched_class\n",
    " *R a[1] -99999999999999999999ms\n",
    "  R a[1] *root +5ms\n",
    "  R b[2] -9223372036854775807ms\n",
    "      scx_state/flags=3/0xffffffff dsq_flags=0x0 ops_state/qseq=9/1\n",
    "      sticky/holding_cpu=-1/7 dsq_id=0xffffffffffffffff\n",
    "      dsq_vtime=5 slice=99999999999999999999 weight=100\n",
    "      cpus=ffffffff,ffffffff no_mig=1\n",
    "      cpus=,,,\n",
    "sched_ext: BPF scheduler \"x\" disabled (runtime error)\n",
    "sched_ext: x: invalid CPU -99999999999999999999\n",
    "    f+0x1/0x2\n",
    "EXIT: unregistered from BPF ()\n",
];

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
        let _ = explain(&bytes);
    }

    #[test]
    fn any_mixture_of_the_kernels_lines_is_read(
        pieces in proptest::collection::vec((0..PIECES.len(), any::<Option<u8>>()), 0..60)
    ) {
        let mut text = Vec::new();
        for (piece, noise) in pieces {
            text.extend_from_slice(PIECES[piece].as_bytes());
            text.extend(noise);
        }
        if let Ok(found) = explain(&text) {
            for one in found {
                prop_assert!(!one.sentence.is_empty());
            }
        }
    }
}

/// Time is linear: eight times the text takes about eight times as long, not sixty-four.
#[test]
fn large_texts_take_their_time_and_no_more() {
    let mut noise = Vec::new();
    let mut state = 1_u64;
    while noise.len() < 2 << 20 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        noise.extend_from_slice(&state.to_le_bytes());
    }
    let lines: Vec<u8> = PIECES.concat().into_bytes().repeat(2_000);
    let one_line = vec![b' '; 2 << 20];
    for (text, what) in [(noise, "noise"), (lines, "lines"), (one_line, "one line")] {
        let time = |text: &[u8]| {
            let begun = Instant::now();
            let _ = explain(text);
            begun.elapsed()
        };
        time(&text);
        let (once, eight) = (time(&text), time(&text.repeat(8)));
        let bound = once * 24 + Duration::from_secs(2);
        assert!(eight < bound, "{what}: {once:?}, then {eight:?}");
    }
}
