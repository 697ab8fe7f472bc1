//! `train`: the trainer on the command line.

fn main() {
    println!("nothing yet");
}
