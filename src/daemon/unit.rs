//! The systemd unit of the daemon. Its `ExecStopPost` records how the process ended. The next start
//! reads that record (`agent/record.rs`).

/// The unit of the packages, which contain the program as `/usr/bin/remoor`.
const PACKAGED: &str = include_str!("../../packaging/remoor.service");

/// The unit that `node add` writes. Its program is the copy in `/usr/local/bin`.
pub fn unit_of_copied_program() -> String {
    PACKAGED.replace("=/usr/bin/remoor ", "=/usr/local/bin/remoor ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_unit_names_the_copied_program_once() {
        let unit = super::unit_of_copied_program();
        assert_eq!(unit.matches("\nExecStart=/usr/local/bin/remoor agent\n").count(), 1, "{unit}");
        assert!(!unit.contains("/usr/bin/"), "{unit}");
    }
}
