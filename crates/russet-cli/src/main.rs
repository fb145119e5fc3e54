//! The `russet` command.
#![forbid(unsafe_code)]
mod pull;
fn main() {
    let p = pull::pull("smollm2", &mut |s, a, b| println!("{} {a} {b}", s.label()));
    println!("{p:?}");
}
