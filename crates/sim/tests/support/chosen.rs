//! Which policies the tests try.

/// The policies that are tested: all, or the one that SCHEDLAB_POLICY names.
pub fn policies() -> Vec<&'static schedlab_policies::PolicyFile> {
    let all = schedlab_policies::builtin().iter();
    let chosen = std::env::var("SCHEDLAB_POLICY").ok();
    let is_chosen = |name: &str| chosen.as_deref().is_none_or(|chosen| chosen == name);
    let found: Vec<_> = all.filter(|policy| is_chosen(policy.name)).collect();
    assert!(
        !found.is_empty(),
        "no policy is called {chosen:?} (SCHEDLAB_POLICY)"
    );
    found
}
