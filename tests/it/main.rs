//! The binary of all integration tests, which test several modules together. Unit tests are next to
//! the code of their module.

mod budget;
mod clocks;
mod disaster;
mod distance;
mod epochs;
mod examples;
mod far;
mod faults;
mod formats;
mod fuzzed;
mod gossip_attacks;
mod hosts;
mod identity;
mod killed;
#[path = "../lab/mod.rs"]
mod lab;
mod local;
mod loopback;
mod lost_gossip;
mod managed;
mod members;
mod play;
mod play_background;
mod play_delegation;
mod play_inventory;
mod play_lookups;
mod play_plugins;
mod play_reboot;
mod play_ssh;
mod play_synchronize;
mod play_users;
mod play_web;
mod playbooks;
mod prometheus;
mod protected;
mod python_fleets;
mod python_modules;
mod removed;
mod replayed_reports;
mod solo;
mod sops;
mod stale;
mod template_limits;
mod three;
mod tidy;
mod time_limit;
mod versions;
mod walk;
mod wiped;

#[test]
fn the_lab_keeps_its_promises() {
    lab::selftest::lab_self_test();
}
