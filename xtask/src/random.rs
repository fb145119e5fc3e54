//! `cargo xtask graphs`: random graphs, planned against the references, for a while.

use std::panic::{AssertUnwindSafe, catch_unwind};

use russet::bench::SplitMix;

use crate::graphs::{Choices, check};
use crate::tally::{Failure, Tally};

/// Checks graphs as long as `wanted`, told how many were checked; prints the first few that differ.
pub(crate) fn run(seed: u64, wanted: impl Fn(usize) -> bool) -> Result<Tally, Failure> {
    let (mut tally, mut nodes, mut number) = (Tally::default(), 0, seed << 32);
    while wanted(tally.passed + tally.failed) && tally.failed < 10 {
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
        let tally = super::run(1, |checked| checked < 400).unwrap();
        assert!(tally.failed == 0 && tally.passed == 400, "{tally:?}");
    }
}
