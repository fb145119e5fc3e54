//! `cargo xtask graphs`: random graphs, planned against the references, for a while.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use russet::bench::SplitMix;

use crate::graphs::{Choices, check};
use crate::tally::{Failure, Tally};

/// Checks graphs until the time is over; prints the first few that differ.
pub(crate) fn run(seconds: u64, seed: u64) -> Result<Tally, Failure> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut tally, mut nodes, mut number) = (Tally::default(), 0, seed << 32);
    while Instant::now() < end && tally.failed < 10 {
        number += 1;
        let mut generator = SplitMix(number);
        let bytes: Vec<u8> = (0..8 + number % 64)
            .flat_map(|_| generator.next().to_le_bytes())
            .collect();
        let result = catch_unwind(AssertUnwindSafe(|| check(&mut Choices(&bytes))));
        let result = result.unwrap_or_else(|_| Err("it panicked".into()));
        match &result {
            Ok(n) => nodes += n,
            Err(what) => println!("graph {number}: {what}"),
        }
        tally.count(result.is_ok());
    }
    println!(
        "{nodes} operations in {} graphs",
        tally.passed + tally.failed
    );
    Ok(tally)
}

#[cfg(test)]
mod tests {
    #[test]
    fn planned_graphs_give_what_the_references_give() {
        let tally = super::run(2, 1).unwrap();
        assert!(tally.failed == 0 && tally.passed > 10, "{tally:?}");
    }
}
