//! Links the unoptimised program at a fixed address. Tests start it thousands of times, and to move its unoptimised code to
//! another address took a third of the time that it needs to start. A release is moved as ever.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if is("OPT_LEVEL", "0") && is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo:rustc-link-arg-bin=coracle=-no-pie");
    }
}

#[expect(clippy::disallowed_methods, reason = "cargo tells a build script by the environment what it builds")]
fn is(name: &str, value: &str) -> bool {
    std::env::var(name).is_ok_and(|it| it == value)
}
