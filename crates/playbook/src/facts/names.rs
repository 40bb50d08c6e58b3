//! The names of facts: those that `facts` may return, and those that only Ansible has.

/// All facts that a template can use.
pub const NAMES: &[&str] = &[
    "ansible_all_ipv4_addresses",
    "ansible_all_ipv6_addresses",
    "ansible_apparmor",
    "ansible_architecture",
    "ansible_bios_date",
    "ansible_bios_vendor",
    "ansible_bios_version",
    "ansible_board_name",
    "ansible_board_serial",
    "ansible_board_vendor",
    "ansible_board_version",
    "ansible_chassis_serial",
    "ansible_chassis_vendor",
    "ansible_cmdline",
    "ansible_date_time",
    "ansible_default_ipv4",
    "ansible_default_ipv6",
    "ansible_devices",
    "ansible_distribution",
    "ansible_distribution_file_parsed",
    "ansible_distribution_file_path",
    "ansible_distribution_file_variety",
    "ansible_distribution_major_version",
    "ansible_distribution_minor_version",
    "ansible_distribution_release",
    "ansible_distribution_version",
    "ansible_dns",
    "ansible_domain",
    "ansible_effective_group_id",
    "ansible_effective_user_id",
    "ansible_env",
    "ansible_facts",
    "ansible_fips",
    "ansible_flags",
    "ansible_form_factor",
    "ansible_fqdn",
    "ansible_gather_subset",
    "ansible_hostname",
    "ansible_interfaces",
    "ansible_is_chroot",
    "ansible_kernel",
    "ansible_kernel_version",
    "ansible_loadavg",
    "ansible_local",
    "ansible_lsb",
    "ansible_machine",
    "ansible_machine_id",
    "ansible_memfree_mb",
    "ansible_memory_mb",
    "ansible_memtotal_mb",
    "ansible_module_setup",
    "ansible_mounts",
    "ansible_nodename",
    "ansible_os_family",
    "ansible_pkg_mgr",
    "ansible_proc_cmdline",
    "ansible_processor",
    "ansible_processor_cores",
    "ansible_processor_count",
    "ansible_processor_nproc",
    "ansible_processor_threads_per_core",
    "ansible_processor_vcpus",
    "ansible_product_name",
    "ansible_product_serial",
    "ansible_product_uuid",
    "ansible_product_version",
    "ansible_python",
    "ansible_python_version",
    "ansible_real_group_id",
    "ansible_real_user_id",
    "ansible_selinux",
    "ansible_service_mgr",
    "ansible_ssh_host_key_ecdsa_public",
    "ansible_ssh_host_key_ecdsa_public_keytype",
    "ansible_ssh_host_key_ed25519_public",
    "ansible_ssh_host_key_ed25519_public_keytype",
    "ansible_ssh_host_key_rsa_public",
    "ansible_ssh_host_key_rsa_public_keytype",
    "ansible_swapfree_mb",
    "ansible_swaptotal_mb",
    "ansible_system",
    "ansible_system_vendor",
    "ansible_uptime_seconds",
    "ansible_user_dir",
    "ansible_user_gecos",
    "ansible_user_gid",
    "ansible_user_id",
    "ansible_user_shell",
    "ansible_user_uid",
    "ansible_userspace_architecture",
    "ansible_userspace_bits",
    "ansible_virtualization_role",
    "ansible_virtualization_tech_guest",
    "ansible_virtualization_tech_host",
    "ansible_virtualization_type",
    // A run sets these two after a task in a block has failed, for the `rescue` section of the
    // block.
    "ansible_failed_result",
    "ansible_failed_task",
];

/// Facts of Ansible that remoor does not gather, each with the reason.
pub const ABSENT: &[(&str, &str)] = &[
    ("ansible_selinux_python_present", "remoor does not use this library"),
    ("ansible_device_links", "links of disks are not gathered"),
    ("ansible_lvm", "volumes are not gathered"),
    ("ansible_fibre_channel_wwn", "storage adapters are not gathered"),
    ("ansible_iscsi_iqn", "storage adapters are not gathered"),
    ("ansible_hostnqn", "storage adapters are not gathered"),
    ("ansible_system_capabilities", "capabilities are not gathered"),
    ("ansible_system_capabilities_enforced", "capabilities are not gathered"),
    ("ansible_locally_reachable_ips", "use ansible_all_ipv4_addresses"),
    ("ansible_board_asset_tag", "asset tags are not gathered"),
    ("ansible_chassis_asset_tag", "asset tags are not gathered"),
    ("ansible_chassis_version", "the chassis's version is not gathered"),
    ("ansible_ssh_host_key_dsa_public", "DSA host keys are obsolete"),
];

/// Prefixes of network interface names. Each interface has a fact of its own name.
const INTERFACE_PREFIXES: [&str; 22] = [
    "eth", "en", "wl", "ww", "lo", "br", "bond", "team", "vlan", "docker", "veth", "virbr", "tun", "tap", "wg",
    "dummy", "ib", "cni", "flannel", "cali", "ifb", "em",
];

/// Whether `name` (`ansible_x`) may be a fact. Interface names are recognised by their usual
/// prefixes.
pub fn is_known(name: &str) -> bool {
    let Some(short) = name.strip_prefix("ansible_") else { return false };
    NAMES.contains(&name)
        || INTERFACE_PREFIXES
            .iter()
            .any(|begin| short.starts_with(begin) && (short == "lo" || short.len() > begin.len()))
}

/// The reason why a fact of Ansible (`ansible_x`) is not gathered.
pub fn absence_reason(name: &str) -> Option<&'static str> {
    ABSENT.iter().find(|(own, _)| *own == name).map(|(_, why)| *why)
}
