//! The systemd unit of the daemon that `node add` installs. Its `ExecStopPost` records how the
//! process ended. The next start reads that record (`agent/record.rs`).

pub const UNIT: &str = "\
[Unit]
Description=remoor agent
After=network.target ssh.service

[Service]
ExecStart=/usr/local/bin/remoor agent
ExecStopPost=-/bin/sh -c 'cd \"$STATE_DIRECTORY\" && { [ -e ended ] || echo \"$SERVICE_RESULT $EXIT_CODE $EXIT_STATUS\" >ended; }'
Restart=always
RestartSec=1
Environment=MALLOC_ARENA_MAX=2 MALLOC_TRIM_THRESHOLD_=131072
StateDirectory=remoor
StateDirectoryMode=0700
RuntimeDirectory=remoor
RuntimeDirectoryMode=0700
UMask=0077
NoNewPrivileges=yes
KeyringMode=private
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_PACKET
SystemCallFilter=~@cpu-emulation @module @obsolete @reboot @swap
SystemCallErrorNumber=EPERM
CapabilityBoundingSet=~CAP_SYS_TIME CAP_SYS_MODULE CAP_SYS_BOOT CAP_SYS_PACCT CAP_SYS_TTY_CONFIG CAP_MAC_ADMIN CAP_MAC_OVERRIDE CAP_WAKE_ALARM CAP_BLOCK_SUSPEND CAP_LEASE CAP_LINUX_IMMUTABLE CAP_MKNOD

[Install]
WantedBy=multi-user.target
";

#[cfg(test)]
mod tests {
    #[test]
    fn the_lab_and_the_guide_have_the_same_unit() {
        assert!(include_str!("../../docs/guides/getting-started.md").contains(super::UNIT));
        assert_eq!(super::UNIT, include_str!("../../tests/demo/bin/remoor.service"));
    }
}
