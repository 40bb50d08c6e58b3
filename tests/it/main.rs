//! The one test binary: what crosses module borders. Tests of one module stand beside its code.

mod hosts;
mod killed;
#[path = "../lab/mod.rs"]
mod lab;
mod local;
mod loopback;
mod play;
mod play_ssh;
mod playbooks;
mod sim;
mod solo;
mod three;
mod tidy;
mod wiped;

#[test]
fn the_lab_keeps_its_promises() {
    lab::selftest::lab_self_test();
}
