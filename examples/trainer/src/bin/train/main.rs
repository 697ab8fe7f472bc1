//! `train`: the trainer on the command line.

use maypole_trainer::bench::measure;
use maypole_trainer::config::Config;

fn main() {
    let config = Config { vocab: 256, context: 128, width: 256, heads: 4, layers: 4, experts: 0 };
    let speed = measure(&config, 8, 12);
    println!("{:.0} {:.0} {:.1}%", speed.training, speed.products, 100.0 * speed.training / speed.products);
}
