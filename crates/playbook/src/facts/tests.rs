//! Facts read from the tree `tests/ansible/node`, compared with the output of Ansible's `setup` on
//! the machine from which it was copied.

use super::address::InterfaceAddress;
use super::*;

fn load_recording() -> (FactsRoot, Value) {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/ansible");
    let text = std::fs::read_to_string(dir.join("setup.json")).unwrap();
    (FactsRoot(dir.join("node")), serde_json::from_str(&text).unwrap())
}

fn addresses(told: &Value) -> Vec<InterfaceAddress> {
    let mut out = Vec::new();
    // The recording has the addresses by the numbers of the interfaces.
    let names = ["", "lo", "ifb0", "ifb1", "eth0"];
    for (index, list) in told.as_object().unwrap() {
        for a in list.as_array().unwrap() {
            out.push(InterfaceAddress {
                interface: names[index.parse::<usize>().unwrap()].to_owned(),
                address: a["local"].as_str().unwrap().parse().unwrap(),
                broadcast: a["broadcast"].as_str().map(|b| b.parse().unwrap()),
                prefix: a["prefixlen"].as_u64().unwrap() as u8,
                scope: match a["scope"].as_str().unwrap() {
                    "global" => 0,
                    "link" => 253,
                    _ => 254,
                },
                secondary: a["secondary"] == true,
            });
        }
    }
    out
}

/// Sorts all lists, because their order has no meaning.
fn sort_lists(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(sort_lists).collect();
            items.sort_by_key(Value::to_string);
            json!(items)
        }
        Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), sort_lists(v))).collect::<Map<_, _>>().into(),
        other => other.clone(),
    }
}

#[test]
fn facts_match_ansible_setup() {
    let (root, told) = load_recording();
    let mut own = Map::new();
    machine::gather_machine(&root, &CancelToken::new(), &mut own);
    system::gather_system(&root, &mut own);
    hardware::gather_hardware(&root, &CancelToken::new(), &mut own);
    network::gather_network(&root, &addresses(&told["addresses"]), &mut own);
    let mut faults = Vec::new();
    let facts = told["facts"].as_object().unwrap();
    for (name, want) in facts {
        let got = own.get(name).unwrap_or(&Value::Null);
        if sort_lists(got) != sort_lists(want) {
            faults.push(format!("{name}\n  want {want}\n  got  {got}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(facts.len() > 30, "{}", facts.len());
}

#[test]
fn facts_of_this_machine_are_known() {
    let facts = gather(&CancelToken::new());
    let unknown: Vec<&String> =
        facts.keys().filter(|name| !is_known(name) && !facts[*name]["device"].is_string()).collect();
    assert!(unknown.is_empty(), "lint would call these undefined: {unknown:?}");
    for name in [
        "hostname",
        "fqdn",
        "distribution",
        "os_family",
        "kernel",
        "processor_vcpus",
        "memtotal_mb",
        "pkg_mgr",
        "date_time",
    ] {
        let value = &facts[&format!("ansible_{name}")];
        assert!(!value.is_null() && value != "", "{name}: {value}");
        assert_eq!(facts["ansible_facts"][name], *value);
    }
    assert_eq!(facts["ansible_lo"]["ipv4"]["address"], "127.0.0.1", "{}", facts["ansible_lo"]);
    assert!(ABSENT.iter().all(|(name, _)| !facts.contains_key(*name)), "gathered, but listed as absent");
    assert_eq!(
        (absence_reason("ansible_lvm").is_some(), is_known("ansible_eth0"), is_known("ansible_hosntame")),
        (true, true, false)
    );
}

#[test]
fn distributions_are_detected() {
    let of = |release: &str, more: &[(&str, &str)]| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("etc")).unwrap();
        for (name, text) in more.iter().chain([&("os-release", release)]) {
            std::fs::write(dir.path().join("etc").join(name), text).unwrap();
        }
        let mut out = Map::new();
        system::gather_system(&FactsRoot(dir.path().to_owned()), &mut out);
        let word = |name: &str| out[name].as_str().unwrap_or_default().to_owned();
        ["distribution", "os_family", "distribution_version", "distribution_major_version", "distribution_release"]
            .map(word)
    };
    for (release, more, want) in [
        (
            "ID=ubuntu\nNAME=\"Ubuntu\"\nVERSION_ID=\"24.04\"\nVERSION_CODENAME=noble\nID_LIKE=debian\n",
            vec![("debian_version", "trixie/sid")],
            ["Ubuntu", "Debian", "24.04", "24", "noble"],
        ),
        (
            "ID=debian\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\n",
            vec![("debian_version", "12.11\n")],
            ["Debian", "Debian", "12.11", "12", "bookworm"],
        ),
        (
            "ID=\"rocky\"\nVERSION_ID=\"9.4\"\nID_LIKE=\"rhel centos fedora\"\n",
            vec![("redhat-release", "Rocky Linux release 9.4 (Blue Onyx)")],
            ["Rocky", "RedHat", "9.4", "9", "Blue Onyx"],
        ),
        (
            "ID=\"centos\"\nVERSION_ID=\"7\"\n",
            vec![("centos-release", "CentOS Linux release 7.9.2009 (Core)")],
            ["CentOS", "RedHat", "7.9", "7", "Core"],
        ),
        (
            "ID=\"opensuse-leap\"\nVERSION_ID=\"15.6\"\nID_LIKE=\"suse opensuse\"\n",
            vec![],
            ["openSUSE Leap", "Suse", "15.6", "15", "6"],
        ),
        ("ID=mine\nNAME=Mine\nVERSION_ID=3\nID_LIKE=debian\n", vec![], ["Mine", "Debian", "3", "3", "NA"]),
    ] {
        assert_eq!(of(release, &more), want, "{release}");
    }
}

#[test]
fn addresses_belong_to_names_if_sys_is_of_another_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    // In the namespace of this process, eth0 is the second interface.
    for (name, index) in [("eth0", "4"), ("ifb0", "2")] {
        write(&format!("sys/class/net/{name}/ifindex"), index);
        write(&format!("sys/class/net/{name}/mtu"), "1400");
    }
    write("proc/net/route", "Iface\tDest\neth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n");
    let address = InterfaceAddress {
        interface: "eth0".into(),
        address: "10.0.0.2".parse().unwrap(),
        broadcast: None,
        prefix: 24,
        scope: 0,
        secondary: false,
    };
    let mut out = Map::new();
    network::gather_network(&FactsRoot(dir.path().to_owned()), &[address], &mut out);
    let found = (&out["eth0"]["ipv4"]["address"], &out["ifb0"]["ipv4"], &out["default_ipv4"]["address"]);
    assert_eq!(found, (&json!("10.0.0.2"), &Value::Null, &json!("10.0.0.2")), "{out:?}");
}

#[test]
fn only_the_last_mount_on_a_directory_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("proc/self")).unwrap();
    let table = "/dev/a / ext4 rw 0 0\n/dev/b /srv ext4 rw 0 0\n/dev/c / xfs ro 0 0\n";
    std::fs::write(dir.path().join("proc/self/mounts"), table).unwrap();
    let mut out = Map::new();
    hardware::gather_hardware(&FactsRoot(dir.path().to_owned()), &CancelToken::new(), &mut out);
    let listed = out["mounts"].as_array().unwrap().iter().map(|m| (&m["mount"], &m["device"]));
    let listed: Vec<_> = listed.filter_map(|(mount, device)| Some((mount.as_str()?, device.as_str()?))).collect();
    assert_eq!(listed, [("/", "/dev/c"), ("/srv", "/dev/b")]);
}
