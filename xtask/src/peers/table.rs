//! What was measured, as a table (which is also Markdown) and as JSON.

use russet::bench::Spread;
use serde::Serialize;
use serde_json::{Value, json};

use super::contender::Contender;

/// Who was measured, and by how much each russet is ahead.
#[derive(Serialize)]
pub(crate) struct Row {
    engine: String,
    version: String,
    weights: String,
    /// Why there are no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    rounds: usize,
    /// Tokens a second.
    prompt_tps: Spread,
    gen_tps: Spread,
    /// From the start of opening to the logits of a first token.
    first_token_seconds: Spread,
    /// Bytes.
    peak_rss: Spread,
    #[serde(skip)]
    is_russet: bool,
}

impl Row {
    pub(crate) fn of(contender: &Contender) -> Self {
        let outcomes = &contender.outcomes;
        let trials = || outcomes.iter().flat_map(|o| &o.trials);
        let opening = |o: &super::contender::Outcome| o.prepare_seconds + o.warmup_seconds;
        Self {
            engine: contender.engine.clone(),
            version: contender.version.clone(),
            weights: contender.weights.clone(),
            failure: contender.failure.clone(),
            rounds: outcomes.len(),
            prompt_tps: Spread::of(trials().map(|t| t.prompt_tps)),
            gen_tps: Spread::of(trials().map(|t| t.gen_tps)),
            first_token_seconds: Spread::of(outcomes.iter().map(opening)),
            peak_rss: Spread::of(outcomes.iter().filter_map(|o| o.peak_rss).map(|b| b as f64)),
            is_russet: contender.is_russet,
        }
    }

    /// How many times as fast this row is as another, in prompts and generation; nothing where either has no figures.
    fn ahead_of(&self, other: &Self) -> [Option<f64>; 2] {
        let ratio = |a: f64, b: f64| (a > 0.0 && b > 0.0).then_some(a / b);
        [
            ratio(self.prompt_tps.median, other.prompt_tps.median),
            ratio(self.gen_tps.median, other.gen_tps.median),
        ]
    }

    fn cells(&self) -> Vec<String> {
        let engine = format!("{} {}", self.engine, self.version);
        let mut cells = vec![engine.trim().to_owned(), self.weights.clone()];
        if let Some(reason) = &self.failure {
            cells.push(format!("failed: {reason}"));
            return cells;
        }
        let mib = self.peak_rss.median / f64::from(1 << 20);
        cells.extend([
            speed(self.prompt_tps),
            speed(self.gen_tps),
            format!("{:.2} s", self.first_token_seconds.median),
            format!("{mib:.0} MiB"),
        ]);
        cells
    }
}

const HEADS: [&str; 6] = [
    "engine",
    "weights",
    "prompt, tokens/s",
    "generation, tokens/s",
    "first token after",
    "peak memory",
];

/// The median and, in parentheses, the least and the greatest.
fn speed(spread: Spread) -> String {
    if spread.max <= 0.0 {
        return "-".into();
    }
    let digits = usize::from(spread.median < 100.0);
    let Spread { median, min, max } = spread;
    format!("{median:.digits$} ({min:.digits$}-{max:.digits$})")
}

/// The rows as an aligned table. Behind every peer stand the ratios of each russet to it.
pub(crate) fn text(rows: &[Row]) -> String {
    let russets: Vec<&Row> = rows.iter().filter(|r| r.is_russet).collect();
    let mut heads: Vec<String> = HEADS.map(str::to_owned).into();
    for (i, _) in russets.iter().enumerate() {
        let which = if russets.len() > 1 {
            format!("russet ({})", i + 1)
        } else {
            "russet".into()
        };
        heads.push(format!("{which}: prompt"));
        heads.push("generation".into());
    }
    let mut lines = vec![heads];
    let mut number = 0;
    for row in rows {
        let mut cells = row.cells();
        if row.is_russet && russets.len() > 1 {
            number += 1;
            cells[0].push_str(&format!(" ({number})"));
        }
        if !row.is_russet && row.failure.is_none() {
            let ratios = russets.iter().flat_map(|r| r.ahead_of(row));
            cells.extend(ratios.map(|r| r.map_or_else(|| "-".into(), |r| format!("{r:.2} x"))));
        }
        lines.push(cells);
    }
    aligned(&lines)
}

/// Rows of cells as a Markdown table whose columns line up; the last cell of a short row, a reason, may stick out.
fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let sticks_out = |line: &Vec<String>, i| line.len() < HEADS.len() && i + 1 == line.len();
    let width = |i: usize| {
        let inside = lines.iter().filter(|line| !sticks_out(line, i));
        inside
            .filter_map(|line| line.get(i))
            .map(|c| c.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for (n, line) in lines.iter().enumerate() {
        for (i, width) in widths.iter().enumerate() {
            let cell = line.get(i).map_or("", String::as_str);
            out.push_str(&if i < 2 {
                format!("| {cell:<width$} ")
            } else {
                format!("| {cell:>width$} ")
            });
        }
        out.push_str("|\n");
        if n == 0 {
            for (i, width) in widths.iter().enumerate() {
                let end = if i < 2 { "-" } else { ":" };
                out.push_str(&format!("|-{}{end}", "-".repeat(*width)));
            }
            out.push_str("|\n");
        }
    }
    out
}

/// The rows and the ratios as JSON.
pub(crate) fn value(rows: &[Row]) -> Value {
    let mut ratios = Vec::new();
    for russet in rows.iter().filter(|r| r.is_russet) {
        for peer in rows.iter().filter(|r| !r.is_russet) {
            let [prompt, generation] = russet.ahead_of(peer);
            ratios.push(json!({
                "russet": russet.weights,
                "peer": peer.engine,
                "weights": peer.weights,
                "prompt": prompt,
                "generation": generation,
            }));
        }
    }
    json!({ "rows": rows, "ratios": ratios })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(engine: &str, is_russet: bool, [prompt, generation]: [f64; 2]) -> Row {
        Row {
            engine: engine.into(),
            version: "1".into(),
            weights: "w".into(),
            failure: None,
            rounds: 1,
            prompt_tps: Spread::of([prompt].into_iter()),
            gen_tps: Spread::of([generation].into_iter()),
            first_token_seconds: Spread::of([0.25].into_iter()),
            peak_rss: Spread::of([2_097_152.0].into_iter()),
            is_russet,
        }
    }

    #[test]
    fn ratios_stand_behind_the_peers() {
        let rows = [
            row("russet", true, [1000.0, 50.0]),
            row("other", false, [500.0, 100.0]),
        ];
        let table = text(&rows);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(
            lines
                .iter()
                .all(|l| l.chars().count() == lines[0].chars().count()),
            "{table}"
        );
        assert!(
            lines[2].contains("1000 (1000-1000)") && lines[2].contains("0.25 s"),
            "{table}"
        );
        assert!(
            lines[3].contains("2.00 x") && lines[3].contains("0.50 x"),
            "{table}"
        );
        let value = value(&rows);
        assert_eq!(value["ratios"][0]["prompt"], 2.0);
        assert_eq!(value["ratios"][0]["generation"], 0.5);
    }

    #[test]
    fn several_russets_are_numbered() {
        let rows = [
            row("russet", true, [1000.0, 50.0]),
            row("russet", true, [250.0, 50.0]),
            row("other", false, [500.0, 50.0]),
        ];
        let table = text(&rows);
        assert!(
            table.contains("russet 1 (2)") && table.contains("russet (2): prompt"),
            "{table}"
        );
        assert!(
            table.contains("2.00 x") && table.contains("0.50 x"),
            "{table}"
        );
    }

    #[test]
    fn who_fails_is_in_the_table_with_the_reason() {
        let mut failed = row("other", false, [0.0, 0.0]);
        failed.failure = Some("not installed".into());
        let rows = [row("russet", true, [1000.0, 50.0]), failed];
        assert!(text(&rows).contains("failed: not installed"));
        assert_eq!(value(&rows)["rows"][1]["failure"], "not installed");
        assert!(value(&rows)["ratios"][0]["prompt"].is_null());
    }

    #[test]
    fn what_was_not_measured_has_no_ratio() {
        let rows = [
            row("russet", true, [0.0, 50.0]),
            row("other", false, [0.0, 25.0]),
        ];
        assert_eq!(rows[0].ahead_of(&rows[1]), [None, Some(2.0)]);
    }
}
