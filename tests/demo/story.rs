//! Prints the output of the demo: numbered stages, each with its duration. It performs no actions.

use std::time::{Duration, Instant};

/// Prints stages and measures their times.
pub struct Story {
    began: Instant,
    stage: Option<(String, Instant)>,
    number: u32,
}

impl Story {
    pub fn begin(first_line: &str) -> Story {
        println!("{first_line}");
        Story { began: Instant::now(), stage: None, number: 0 }
    }

    /// Ends the previous stage and begins the next one.
    pub fn stage(&mut self, title: &str) {
        self.end_stage();
        self.number += 1;
        println!("\n[{}] {title}", self.number);
        self.stage = Some((title.to_owned(), Instant::now()));
    }

    /// Prints indented lines of the current stage.
    pub fn print(&self, text: &str) {
        for line in text.lines() {
            println!("    {line}");
        }
    }

    /// Ends the last stage and prints the total time.
    pub fn end(mut self) {
        self.end_stage();
        println!("\ndone in {}", seconds(self.began.elapsed()));
    }

    fn end_stage(&mut self) {
        if let Some((_, began)) = self.stage.take() {
            println!("    ({})", seconds(began.elapsed()));
        }
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
