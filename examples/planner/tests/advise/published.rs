//! Predictions compared with published speeds.

use maypole_planner::published::ALL;

/// The README of the trainer states each error. For dense models in 16 bits, which the cost model describes, no
/// prediction is off by more than 30 %. DeepSeek-V3 computed in 8 bits, overlapped its all-to-alls
/// by hand and ran on other links.
#[test]
fn dense_models_are_predicted_to_three_tenths() {
    for training in ALL {
        let found = training.predict().unwrap();
        let error = found.predicted / found.published - 1.0;
        println!("{}: {:+.1} %", training.name, 100.0 * error);
        let bound = if training.name == "DeepSeek-V3" { 1.0 } else { 0.3 };
        assert!(error.abs() < bound, "{}: {error:+.3}, {found:?}", training.name);
        // All of them ran on 80 GiB. The schedule of Llama's pipelines holds fewer micro-batches than
        // the one here.
        let most = if training.name.starts_with("GPT") { 86e9 } else { 170e9 };
        assert!(found.bytes < most, "{}: {:.1} GB", training.name, found.bytes / 1e9);
    }
}
