//! The project's own commands: `cargo xtask VERB`, one file a verb.
//!
//! **Invariant:** no other crate of the project is a dependency, so that this compiles in seconds on a bare machine.
//! **Invariant:** programs are started, and the environment is read, in `sh` alone.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what these commands are for")]

mod archive;
mod bench;
mod book;
mod ci;
mod clients;
mod compiler;
mod cost;
mod demo;
mod dist;
mod engines;
mod fuzz;
mod generate;
mod guest;
mod install_test;
mod modules;
mod package;
mod ratchet;
mod release;
mod scale;
mod scenarios;
mod sh;
mod skips;
mod test;
mod tools;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask VERB

  demo                          the main job on a real engine, set up first if the machine has none
  test [--fake-only|--engines|--all-engines] [ARGS…]
                                each test on the fake or the embedded engine, without root; --engines sets up Docker and
                                Podman and runs each on them too, --all-engines each on every engine; ARGS go to
                                cargo-nextest
  ci                            what has to hold before a change goes in
  generate                      the OpenAPI document and what of docs/ follows from the code, and the generated modules of the
                                packages in clients/, which are not committed; after `cargo build`
  guest [--dist|--fast]         the supervisor and the worker for containers, for `coracle` to embed; --dist: as small as
                                a release has them; --fast: not optimised, for tests
  book [--mdbook PROGRAM]       links of all pages, then the book of docs/ by mdBook, into target/book/html
  bench exec|create [ROUNDS]    times of commands, or of making containers, beside the engines' own programs,
                                into docs/bench
  cost [demo|release|test]      CPU seconds of that build by package, from nothing, into docs/compile-time.md
  eval [ENGINE]                 recorded tasks, played by scripted models over MCP, into docs/bench/agents.md
  fuzz [request|response|mux] [SECONDS]  malformed input to both ends of the guest protocol
  dist [--binary FILE] [--out DIR] [--url URL]
                                what a release offers for this machine's platform, into target/dist
  dist --index DIR [--url URL]  checksums and the Homebrew formula for what several machines have built
  install-test [DIR]            what `dist` made, installed on a bare Debian and on busybox with musl, up to the first
                                container; as root
  release check [TAG]           whether tag, versions, changelog and crates are ready for a release
  release bump VERSION          that version everywhere, and in the changelog
  package [PROGRAM [DIR]]       the wheel and the npm package of this platform, into target/package
  modules [CRATE…]              what the modules of a crate use of each other, and where that is a circle
  size [--json]                 lines of code and of tests by crate, and the limits
  ratchet                       take what is gone from the lists of known faults, xtask/tests/tidy/known_*.txt
  engines up|down [docker|podman]
                                real engines on Debian, from nothing
  engines up|down --kubernetes  a Kubernetes cluster of two nodes on this machine, built from Debian's sources once
  scale [NODES [PODS]]          the Kubernetes engine against a real API server with many nodes, into docs/scale.md
  scenarios [--json]            which scenarios of the specification have a test, and where it ran";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(code) = cost::measure(&words).or_else(|| compiler::compile(&words)) {
        return code;
    }
    let (verb, rest) = words.split_first().map_or(("", &[][..]), |(verb, rest)| (verb.as_str(), rest));
    let done = match verb {
        "demo" => demo::run(rest),
        "dist" => dist::run(rest),
        "release" => release::run(rest),
        "test" => test::run(rest),
        "ci" => ci::run(rest),
        "install-test" => install_test::run(rest),
        "generate" => generate::run(rest),
        "guest" => guest::run(rest),
        "bench" => bench::run(rest),
        "cost" => cost::run(rest),
        "book" => book::run(rest),
        "eval" => bench::agents::run(rest),
        "fuzz" => fuzz::run(rest),
        "modules" => modules::run(rest),
        "package" => package::run(rest),
        "size" => modules::size(rest),
        "ratchet" => ratchet::run(rest),
        "engines" => engines::run(rest),
        "scale" => scale::run(rest),
        "scenarios" => scenarios::run(rest),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(anyhow::anyhow!("no verb `{verb}`\n\n{USAGE}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
