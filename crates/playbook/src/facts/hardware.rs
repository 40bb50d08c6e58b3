//! Facts about memory, processors, disks and mounts.

use super::FactsRoot;
use crate::run::event::CancelToken;
use remoor_host::files;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// Maximum number of reported mounts and disks.
const REPORTED_MAX: usize = 500;
/// Timeouts for reading the size of one mounted file system, and of all together. The server of a
/// network file system may be unreachable.
const STATVFS_TIMEOUT: Duration = Duration::from_secs(1);
const STATVFS_TOTAL_TIMEOUT: Duration = Duration::from_secs(10);

pub fn gather_hardware(root: &FactsRoot, cancel: &CancelToken, out: &mut Map<String, Value>) {
    memory(&root.read("/proc/meminfo"), out);
    processors(root, out);
    out.insert("mounts".into(), json!(mounts(root, cancel)));
    out.insert("devices".into(), Value::Object(devices(root)));
    for (name, file) in [
        ("bios_date", "bios_date"),
        ("bios_vendor", "bios_vendor"),
        ("bios_version", "bios_version"),
        ("board_name", "board_name"),
        ("board_serial", "board_serial"),
        ("board_vendor", "board_vendor"),
        ("board_version", "board_version"),
        ("chassis_serial", "chassis_serial"),
        ("chassis_vendor", "chassis_vendor"),
        ("form_factor", "chassis_type"),
        ("product_name", "product_name"),
        ("product_serial", "product_serial"),
        ("product_uuid", "product_uuid"),
        ("product_version", "product_version"),
        ("system_vendor", "sys_vendor"),
    ] {
        let text = root.read_word(&format!("/sys/devices/virtual/dmi/id/{file}"));
        let text = if name == "form_factor" { text.map(|n| chassis_name(&n)) } else { text };
        out.insert(name.into(), json!(text.unwrap_or_else(|| "NA".into())));
    }
}

/// The name of a DMI chassis type.
fn chassis_name(number: &str) -> String {
    let names = [
        "Unknown",
        "Other",
        "Unknown",
        "Desktop",
        "Low Profile Desktop",
        "Pizza Box",
        "Mini Tower",
        "Tower",
        "Portable",
        "Laptop",
        "Notebook",
        "Hand Held",
        "Docking Station",
        "All In One",
        "Sub Notebook",
        "Space-saving",
        "Lunch Box",
        "Main Server Chassis",
        "Expansion Chassis",
        "Sub Chassis",
        "Bus Expansion Chassis",
        "Peripheral Chassis",
        "RAID Chassis",
        "Rack Mount Chassis",
        "Sealed-case PC",
        "Multi-system",
        "CompactPCI",
        "AdvancedTCA",
        "Blade",
    ];
    number.parse::<usize>().ok().and_then(|n| names.get(n)).map_or_else(|| "NA".into(), |name| (*name).to_owned())
}

fn memory(text: &str, out: &mut Map<String, Value>) {
    let mib = |key: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':'));
        line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).map(|kib| kib / 1024)
    };
    let (Some(total), Some(free)) = (mib("MemTotal"), mib("MemFree")) else { return };
    let kept = mib("Cached").unwrap_or(0) + mib("Buffers").unwrap_or(0);
    let (swap, swap_free) = (mib("SwapTotal").unwrap_or(0), mib("SwapFree").unwrap_or(0));
    out.insert("memtotal_mb".into(), json!(total));
    out.insert("memfree_mb".into(), json!(free));
    out.insert("swaptotal_mb".into(), json!(swap));
    out.insert("swapfree_mb".into(), json!(swap_free));
    out.insert(
        "memory_mb".into(),
        json!({
            "real": {"total": total, "used": total - free.min(total), "free": free},
            "nocache": {"free": free + kept, "used": total.saturating_sub(free + kept)},
            "swap": {"total": swap, "free": swap_free, "used": swap.saturating_sub(swap_free),
                "cached": mib("SwapCached").unwrap_or(0)},
        }),
    );
}

fn processors(root: &FactsRoot, out: &mut Map<String, Value>) {
    let text = root.read("/proc/cpuinfo");
    let (mut named, mut sockets, mut siblings) = (Vec::new(), Vec::<(String, u64)>::new(), Vec::<(String, u64)>::new());
    let (mut vendors, mut models, mut numbers) = (0u64, 0u64, 0u64);
    let (mut socket, mut core) = (String::from("0"), String::from("0"));
    let put =
        |list: &mut Vec<(String, u64)>, key: &str, value: Option<u64>| match list.iter_mut().find(|(k, _)| k == key) {
            Some(slot) => slot.1 = value.unwrap_or(slot.1),
            None => list.push((key.to_owned(), value.unwrap_or(1))),
        };
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match key.trim() {
            "flags" | "Features" => {
                out.insert("flags".into(), json!(value.split_whitespace().collect::<Vec<_>>()));
            }
            key @ ("model name" | "Processor" | "vendor_id" | "cpu" | "Vendor" | "processor") => {
                named.push(value.to_owned());
                vendors += u64::from(key == "vendor_id");
                models += u64::from(key == "model name");
                numbers += u64::from(key == "processor");
            }
            "physical id" => {
                socket = value.to_owned();
                put(&mut sockets, &socket, None);
            }
            "core id" => {
                core = value.to_owned();
                put(&mut siblings, &core, None);
            }
            "cpu cores" => put(&mut sockets, &socket, value.parse().ok()),
            "siblings" => put(&mut siblings, &core, value.parse().ok()),
            _ => {}
        }
    }
    let each = if vendors > 0 && vendors == models { vendors } else { numbers };
    let count = if sockets.is_empty() { each } else { sockets.len() as u64 };
    let cores = sockets.first().map_or(1, |(_, n)| *n).max(1);
    let threads = siblings.first().map_or(1, |(_, n)| (n + cores / 2) / cores).max(1);
    if numbers > 0 {
        out.insert("processor".into(), json!(named));
        out.insert("processor_count".into(), json!(count));
        out.insert("processor_cores".into(), json!(cores));
        out.insert("processor_threads_per_core".into(), json!(threads));
        out.insert("processor_vcpus".into(), json!(threads * count * cores));
    }
    let usable =
        if root.is_real() { std::thread::available_parallelism().map_or(numbers, |n| n.get() as u64) } else { numbers };
    out.insert("processor_nproc".into(), json!(usable));
}

/// The mounted disks and network file systems, each as a map with Ansible's keys.
fn mounts(root: &FactsRoot, cancel: &CancelToken) -> Vec<Value> {
    let (mut out, began): (Vec<Value>, _) = (Vec::new(), Instant::now());
    for line in root.read("/proc/self/mounts").lines().take(REPORTED_MAX) {
        let fields: Vec<String> = line.split(' ').map(unescape_octal).collect();
        let [device, mount, kind, options, ..] = fields.as_slice() else { continue };
        if !device.starts_with(['/', '\\']) && !device.contains(":/") || kind == "none" {
            continue;
        }
        let mut fact = json!({
            "device": device, "mount": mount, "fstype": kind, "options": options, "dump": 0, "passno": 0, "uuid": "N/A",
        });
        if root.is_real()
            && !cancel.is_stopped()
            && began.elapsed() < STATVFS_TOTAL_TIMEOUT
            && let Ok(Ok(stat)) = files::run_with_deadline(STATVFS_TIMEOUT, mount, |mount| rustix::fs::statvfs(mount))
        {
            for (name, value) in [
                ("block_size", stat.f_bsize),
                ("block_total", stat.f_blocks),
                ("block_available", stat.f_bavail),
                ("block_used", stat.f_blocks.saturating_sub(stat.f_bavail)),
                ("size_total", stat.f_frsize.saturating_mul(stat.f_blocks)),
                ("size_available", stat.f_frsize.saturating_mul(stat.f_bavail)),
                ("inode_total", stat.f_files),
                ("inode_available", stat.f_favail),
                ("inode_used", stat.f_files.saturating_sub(stat.f_favail)),
            ] {
                fact[name] = json!(value);
            }
        }
        // Of several mounts on one directory, only the last can be seen.
        match out.iter_mut().find(|other| other["mount"] == fact["mount"]) {
            Some(other) => *other = fact,
            None => out.push(fact),
        }
    }
    out
}

/// Decodes octal escapes such as `\040` in the kernel's mount table.
fn unescape_octal(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &rest[at + 4..];
            }
            None => {
                out.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    out + rest
}

/// Disks with their sizes and partitions.
fn devices(root: &FactsRoot) -> Map<String, Value> {
    let mut out = Map::new();
    for name in root.names("/sys/block").into_iter().take(REPORTED_MAX) {
        let base = format!("/sys/block/{name}");
        let word = |file: &str| root.read_word(&format!("{base}/{file}"));
        // Missing or unreadable sizes count as 0.
        let sectors: u64 = word("size").and_then(|n| n.parse().ok()).unwrap_or(0);
        let mut partitions = Map::new();
        for part in root.names(&base).into_iter().filter(|p| p.starts_with(&name)).take(REPORTED_MAX) {
            let of = |file: &str| root.read_word(&format!("{base}/{part}/{file}"));
            let sectors: u64 = of("size").and_then(|n| n.parse().ok()).unwrap_or(0);
            let start = of("start").unwrap_or_default();
            partitions.insert(
                part,
                json!({"sectors": sectors, "sectorsize": 512, "size": readable_size(sectors), "start": start}),
            );
        }
        let removable = word("removable").unwrap_or_else(|| "0".into());
        out.insert(
            name.clone(),
            json!({
                "model": word("device/model"), "vendor": word("device/vendor"), "removable": removable,
                "rotational": word("queue/rotational").unwrap_or_else(|| "0".into()), "sectors": sectors,
                "sectorsize": word("queue/logical_block_size").unwrap_or_else(|| "512".into()), "size": readable_size(sectors),
                "partitions": partitions, "holders": root.names(&format!("{base}/holders")),
                "virtual": i32::from(!root.exists(&format!("{base}/device"))),
            }),
        );
    }
    out
}

/// A number of 512-byte sectors as a readable size.
fn readable_size(sectors: u64) -> String {
    let bytes = sectors as f64 * 512.0;
    let units = [("TB", 40), ("GB", 30), ("MB", 20), ("KB", 10)];
    match units.iter().find(|(_, bits)| bytes >= (1u64 << bits) as f64) {
        Some((unit, bits)) => format!("{:.2} {unit}", bytes / (1u64 << bits) as f64),
        None => format!("{bytes:.2} Bytes"),
    }
}
