//! A checkout that is copied with its `target/` has its own schedulers.

use std::path::Path;

#[test]
fn a_copied_checkout_embeds_its_own_policies() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let paths =
        schedlab_testing::assert_copies_build_their_own(Path::new(env!("OUT_DIR")), package);
    for needed in [
        "../../policies",
        "../../include",
        "../../policies/fifo.bpf.c",
    ] {
        assert!(
            paths.iter().any(|path| path == needed),
            "{needed}: {paths:?}"
        );
    }
}
