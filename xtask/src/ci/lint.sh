#!/bin/sh
# Cargo's wrapper around the compiler of our own crates (RUSTC_WORKSPACE_WRAPPER): checks their lints while it compiles, and
# then their documentation, which goes to $DOCUMENTATION. As builds of their own both would read every dependency once more.
set -eu
clippy-driver "$@" --deny warnings

shift # the compiler
kind='' name='' is_test='' before=''
for word; do
    shift
    case $before in
        --crate-type) kind=$word ;;
        --crate-name) name=$word ;;
        --out-dir) word=$DOCUMENTATION ;;
    esac
    before=$word
    case $word in
        --test) is_test=yes ;;
        --emit=*) continue ;;
    esac
    set -- "$@" "$word"
done
# Of the programs, those that no library has the name of.
case $is_test.$kind.$name in
    .lib.* | .bin.xtask | .bin.container) exec rustdoc "$@" --deny warnings ;;
esac
