//! The bar on standard error.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar up to `total`; nothing is drawn where standard error is no terminal.
pub fn bar(total: u64, unit: &str) -> ProgressBar {
    let template =
        format!("{{bar:40}} {{human_pos}}/{{human_len}} {unit}, {{per_sec}}, {{eta}} left");
    let style = ProgressStyle::with_template(&template);
    ProgressBar::new(total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
