//! What the planner finds.

use maypole_planner::cluster::AcceleratorCluster;
use maypole_planner::picture::svg;
use maypole_planner::report::{advice_json, advice_text};
use maypole_planner::search::{Advice, AdviceQuestion, advise};
use maypole_planner::sizes::ModelSizes;
use maypole_planner::strategy::{NumberFormat, Recomputation, ZeroStage};
use std::time::{Duration, Instant};

fn asked(model: &str, cluster: &str, tokens: usize) -> (ModelSizes, AcceleratorCluster, Advice) {
    let model = ModelSizes::preset(model).unwrap();
    let cluster = AcceleratorCluster::named(cluster).unwrap();
    let question = AdviceQuestion {
        tokens,
        formats: NumberFormat::ALL.to_vec(),
        recompute: Recomputation::USUAL.to_vec(),
        stages: ZeroStage::ALL.to_vec(),
    };
    let advice = advise(&model, &cluster, &question).unwrap();
    (model, cluster, advice)
}

#[test]
fn advice_is_legal_fits_and_is_in_order() {
    for (name, cluster) in [("7b", "4xdgx-h100"), ("mixtral", "8xdgx-h100"), ("8b", "2xmi300x")] {
        let (model, cluster, advice) = asked(name, cluster, 1 << 20);
        assert!(advice.best.len() >= 5, "{name}: {}", advice.best.len());
        for way in &advice.best {
            assert_eq!(way.strategy.check(&model), Ok(()));
            assert_eq!(way.strategy.mesh.world(), cluster.ranks());
            assert_eq!(way.strategy.global_rows() * model.sequence, 1 << 20);
            assert!(way.bytes.total() <= advice.usable);
            assert!(way.utilisation > 0.0 && way.utilisation < 1.0, "{way:?}");
        }
        let seconds: Vec<f64> = advice.best.iter().map(|way| way.price.total()).collect();
        assert!(seconds.is_sorted(), "{seconds:?}");
        assert!(advice.best[0].utilisation > 0.3, "{:?}", advice.best[0]);
    }
}

#[test]
fn a_model_that_does_not_fit_says_by_how_much() {
    let (model, cluster, advice) = asked("405b", "dgx-h100", 1 << 20);
    assert!(advice.best.is_empty() && advice.refused > 0);
    let text = advice_text(&advice, 10);
    let over = advice.nearest[0].bytes - advice.usable;
    assert!(text.contains(&format!("{:.1} GB too many", over / 1e9)), "{text}");
    // 405 billion parameters in 16 bits, over eight ranks, are 101 GB of weights alone.
    assert!(advice.nearest[0].bytes > 101e9, "{text}");
    let object = advice_json(&model, &cluster, &advice, 10);
    assert_eq!(object["best"].as_array().unwrap().len(), 0);
    assert_eq!(object["unfit"][0]["over"], over);
    assert!(svg(&advice, "nothing").trim_end().ends_with("</svg>"));
}

/// The same advice is written as text, as JSON and as SVG.
#[test]
fn answers_are_text_json_and_a_picture() {
    let (model, cluster, advice) = asked("7b", "2xdgx-a100", 1 << 20);
    let text = advice_text(&advice, 10);
    assert!(text.lines().all(|line| line.len() <= 110), "{text}");
    assert!(text.contains("zero1") || text.contains("fsdp"), "{text}");
    let object = advice_json(&model, &cluster, &advice, 3);
    assert_eq!(object["best"].as_array().unwrap().len(), 3);
    let first = &object["best"][0];
    assert_eq!(first["seconds_in_all"], advice.best[0].price.total());
    let picture = svg(&advice, "7b < 8b & more");
    assert!(picture.contains("7b &lt; 8b &amp; more") && picture.contains("(GB)"));
    assert!(picture.matches("<circle").count() >= 5);
}

#[test]
fn sixteen_thousand_ranks_take_less_than_a_minute() {
    let began = Instant::now();
    let (_, cluster, advice) = asked("405b", "2048xdgx-h100", 16 << 20);
    let took = began.elapsed();
    assert_eq!(cluster.ranks(), 16_384);
    assert!(advice.best.len() > 10);
    assert!(took < Duration::from_secs(60), "{took:?}");
}
