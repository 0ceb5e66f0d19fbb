//! Runs inputs of the target `stream`, the files named, and cuts the first
//! that goes wrong down to what matters. With `--steps` it prints the steps of
//! each.

use kvradix_fuzz::cut_down;
use kvradix_fuzz::decode::Decoded;

fn main() -> std::io::Result<()> {
    let (options, files): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|argument| argument == "--steps");
    for file in &files {
        println!("{file}");
        let input = std::fs::read(file)?;
        if let (false, Some(decoded)) = (options.is_empty(), Decoded::of(&input)) {
            println!("{:?}\n{:#x?}", decoded.setup, decoded.ops);
        }
        cut_down(&input);
    }
    Ok(())
}
