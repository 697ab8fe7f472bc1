//! The part of the page about one collective: a legend, plots and a table for each transport.

use super::plot::{self, AxisScale, Plot, PlotAxis, PlotPoint, Series};
use super::{ceiling_us, fits, median_us, percentiles, series_name, tables, three_digits};
use crate::perf::benchmark::{BufferPlacement, bus_factor};
use crate::perf::communicators::PerfTransport;
use crate::perf::measure::limits::MachineLimit;
use crate::perf::output::row::PerfRow;
use crate::{names, sizes};
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use std::fmt::Write;

/// How many series of one collective have colours of their own.
pub(super) const COLOURS: usize = 10;

/// The results of one collective.
///
/// A series is one entry of `--algorithm`: an algorithm, or `None` for `auto`, the tuner's choice.
/// The tuner's choice at one size may be the algorithm of another series. The two stay apart, so
/// that each series has one point at each size.
pub(super) struct CollectiveSection<'a> {
    collective: Collective,
    rows: Vec<&'a PerfRow>,
    limits: &'a [MachineLimit],
    /// In order of first appearance; the index chooses the colour and the mark.
    series: Vec<Option<Algorithm>>,
    transports: Vec<PerfTransport>,
}

impl<'a> CollectiveSection<'a> {
    pub(super) fn new(
        rows: &'a [PerfRow],
        limits: &'a [MachineLimit],
        collective: Collective,
    ) -> Self {
        let rows: Vec<&PerfRow> =
            rows.iter().filter(|row| row.point.collective == collective).collect();
        let mut series = Vec::new();
        let mut transports = Vec::new();
        for row in &rows {
            if !series.contains(&row.point.algorithm) {
                series.push(row.point.algorithm);
            }
            if !transports.contains(&row.transport) {
                transports.push(row.transport);
            }
        }
        Self { collective, rows, limits, series, transports }
    }

    pub(super) fn html(&self) -> String {
        let name = names::dashed(self.collective);
        let mut html = format!("<section id=\"{name}\">\n<h2>{name}</h2>\n");
        // A line needs two sizes; a barrier has none.
        let is_plotted = self.rows.iter().any(|row| row.bytes() != self.rows[0].bytes());
        if is_plotted {
            html += &self.legend();
        }
        for transport in &self.transports {
            let _ = writeln!(html, "<h3>over {transport}</h3>");
            if is_plotted {
                html += &self.figures(*transport);
            }
            let rows: Vec<&PerfRow> =
                self.rows.iter().filter(|row| row.transport == *transport).copied().collect();
            html += &fits::of_series(&rows);
            html += &tables::table(&rows, &self.series, self.limit(*transport));
            html += &percentiles::of_calls(&rows, self.limits);
        }
        html + "</section>\n"
    }

    fn figures(&self, transport: PerfTransport) -> String {
        let id = format!("{}-{transport}", names::dashed(self.collective)).replace('+', "-");
        let time = self.plot(transport, PlotQuantity::Time).svg(&format!("{id}-time"));
        let bus = self.plot(transport, PlotQuantity::BusBandwidth).svg(&format!("{id}-bus"));
        format!(
            "<div class=\"plots\">\n<figure>\n{time}</figure>\n<figure>\n{bus}</figure>\n</div>\n"
        )
    }

    fn limit(&self, transport: PerfTransport) -> Option<&'a MachineLimit> {
        self.limits.iter().find(|limit| limit.transport == transport)
    }

    fn legend(&self) -> String {
        let mut html = "<div class=\"legend\">\n".to_owned();
        for (nth, series) in self.series.iter().enumerate() {
            let class = format!("s{}", nth % COLOURS);
            html += &legend_entry(&class, plot::outline(nth), series_name(*series));
        }
        html += &legend_entry("predicted", "", "predicted");
        if self.limits.iter().any(|limit| self.transports.contains(&limit.transport)) {
            html += &legend_entry("limit", "", "the machine's limit");
        }
        html + "</div>\n"
    }

    /// Lines that are drawn first lie below: the limit, then predictions, then measurements.
    fn plot(&self, transport: PerfTransport, quantity: PlotQuantity) -> Plot {
        let limit = self.limit(transport);
        let mut lines: Vec<Series> =
            limit.map(|limit| self.limit_line(limit, transport, quantity)).into_iter().collect();
        for nth in 0..self.series.len() {
            lines.push(self.line(nth, "predicted", transport, |row| {
                let us = row.prediction?.us;
                let is_possible = limit.is_none_or(|limit| !is_beyond(row, us, limit));
                is_possible.then(|| quantity.point(row, us, None))
            }));
        }
        for nth in 0..self.series.len() {
            lines.push(self.line(nth, "measured", transport, |row| {
                Some(quantity.point(row, median_us(row)?, Some(note(row, limit))))
            }));
        }
        let y = quantity.axis();
        let collective = names::dashed(self.collective);
        Plot {
            title: format!("{collective} over {transport}: {} by size", y.label),
            x: PlotAxis {
                label: "size (bytes)",
                scale: AxisScale::Log(2.0),
                tick: |bytes| sizes::name(bytes.round() as usize),
            },
            y,
            series: lines,
        }
    }

    /// The line of the `nth` series; `point` is `None` where a row has no such value.
    fn line(
        &self,
        nth: usize,
        class: &str,
        transport: PerfTransport,
        point: impl Fn(&PerfRow) -> Option<PlotPoint>,
    ) -> Series {
        let rows = self
            .rows
            .iter()
            .filter(|row| row.transport == transport && row.point.algorithm == self.series[nth]);
        let mut points: Vec<PlotPoint> = rows.filter_map(|row| point(row)).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Series { class: format!("s{} {class}", nth % COLOURS), points, mark: nth, cut: false }
    }

    fn limit_line(
        &self,
        limit: &MachineLimit,
        transport: PerfTransport,
        quantity: PlotQuantity,
    ) -> Series {
        let rows = self.rows.iter().filter(|row| row.transport == transport);
        let mut points: Vec<PlotPoint> = rows
            .filter_map(|row| Some(quantity.point(row, ceiling_us(row, limit)?, None)))
            .collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        points.dedup_by(|a, b| a.x == b.x);
        Series { class: "limit".to_owned(), points, mark: 0, cut: true }
    }
}

/// A box that hides and shows the lines of a class.
fn legend_entry(class: &str, mark: &str, name: &str) -> String {
    format!(
        "<label class=\"{class}\"><input type=\"checkbox\" class=\"pick-{class}\" checked>\
         <svg viewBox=\"-12 -5 24 10\" class=\"swatch\"><path class=\"line\" d=\"M-12 0H12\"/>\
         <g class=\"mark\"><path d=\"{mark}\"/></g></svg><span>{name}</span></label>\n"
    )
}

/// True if a call of `us` microseconds would be faster than the machine's limit.
pub(super) fn is_beyond(row: &PerfRow, us: f64, limit: &MachineLimit) -> bool {
    ceiling_us(row, limit).is_some_and(|ceiling| us < ceiling)
}

/// The tooltip of a mark.
fn note(row: &PerfRow, limit: Option<&MachineLimit>) -> String {
    let mut text = match row.point.algorithm {
        Some(algorithm) => algorithm.to_string(),
        None => format!("auto ({})", row.algorithm),
    };
    let _ = write!(text, ", {}", sizes::name(row.bytes()));
    for (placement, measurement) in row.measured() {
        let bus = row.bandwidths(measurement).bus;
        let placement = match placement {
            BufferPlacement::InPlace => "in place",
            BufferPlacement::OutOfPlace => "out of place",
        };
        let time = measurement.time;
        let _ = write!(
            text,
            "\n{placement}: {} µs ({} to {}), {bus:.3} GB/s",
            three_digits(time.p50),
            three_digits(time.min),
            three_digits(time.p99)
        );
    }
    if let Some(prediction) = row.prediction {
        let _ = write!(text, "\npredicted: {} µs", three_digits(prediction.us));
        if limit.is_some_and(|limit| is_beyond(row, prediction.us, limit)) {
            text += ", faster than the machine's limit";
        }
    }
    text
}

/// A power of ten of microseconds, in a unit without decimals.
pub(super) fn duration(us: f64) -> String {
    match us {
        ..0.9 => format!("{} ns", (us * 1e3).round()),
        ..900.0 => format!("{} µs", us.round()),
        ..900e3 => format!("{} ms", (us / 1e3).round()),
        _ => format!("{} s", (us / 1e6).round()),
    }
}

/// The quantity on the vertical axis.
#[derive(Clone, Copy)]
enum PlotQuantity {
    Time,
    BusBandwidth,
}

impl PlotQuantity {
    fn axis(self) -> PlotAxis {
        match self {
            Self::Time => {
                PlotAxis { label: "time of a call", scale: AxisScale::Log(10.0), tick: duration }
            }
            Self::BusBandwidth => PlotAxis {
                label: "bus bandwidth (GB/s)",
                scale: AxisScale::Linear,
                tick: |value| value.to_string(),
            },
        }
    }

    /// The point of `row` where a call takes `us` microseconds.
    fn point(self, row: &PerfRow, us: f64, note: Option<String>) -> PlotPoint {
        let bytes = row.bytes() as f64;
        let y = match self {
            Self::Time => us,
            Self::BusBandwidth => {
                bytes / us / 1e3 * bus_factor(row.point.collective, row.parameters.world)
            }
        };
        PlotPoint { x: bytes, y, note }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::measure::limits::tests::example as limit;
    use crate::perf::output::prediction::TunerPrediction;
    use crate::perf::output::row::tests::example;

    fn row(asked: Option<Algorithm>, ran: Algorithm, count: usize) -> PerfRow {
        let mut row = example();
        row.point.algorithm = asked;
        row.point.count = count;
        row.algorithm = ran;
        row
    }

    /// The tuner chooses one-shot for the small size and the ring for the large one, as requested
    /// by `-a auto,ring,one-shot`.
    #[test]
    fn auto_is_a_series_of_its_own_with_one_point_a_size() {
        let small = 2;
        let large = 1 << 18;
        let ring = Some(Algorithm::Ring);
        let one_shot = Some(Algorithm::OneShot);
        let rows = [
            row(None, Algorithm::OneShot, small),
            row(None, Algorithm::Ring, large),
            row(ring, Algorithm::Ring, small),
            row(ring, Algorithm::Ring, large),
            row(one_shot, Algorithm::OneShot, large),
            row(one_shot, Algorithm::OneShot, small),
        ];
        let section = CollectiveSection::new(&rows, &[], Collective::AllReduce);
        assert_eq!(section.series, [None, ring, one_shot]);
        let plot = section.plot(PerfTransport::Shm, PlotQuantity::Time);
        let measured = plot.series.iter().filter(|series| series.class.ends_with("measured"));
        for series in measured {
            let sizes: Vec<f64> = series.points.iter().map(|point| point.x).collect();
            assert_eq!(sizes, [8.0, f64::from(1 << 20)], "{}", series.class);
        }
        let legend = section.legend();
        for name in ["auto", "ring", "one-shot"] {
            assert!(
                legend.contains(&format!("</svg><span>{name}</span></label>")),
                "{name}: {legend}"
            );
        }
    }

    #[test]
    fn a_prediction_that_is_faster_than_the_limit_is_not_drawn() {
        let ring = Some(Algorithm::Ring);
        let mut rows = [row(ring, Algorithm::Ring, 2), row(ring, Algorithm::Ring, 1 << 18)];
        for (row, us) in rows.iter_mut().zip([50.0, 70.0]) {
            row.prediction = Some(TunerPrediction { us, choice: Algorithm::Ring });
        }
        let limits = [MachineLimit { points: vec![(1.0, 60.0), (1e9, 60.0)], ..limit() }];
        let section = CollectiveSection::new(&rows, &limits, Collective::AllReduce);
        let plot = section.plot(PerfTransport::Shm, PlotQuantity::Time);
        let mut lines = plot.series.iter();
        let predicted = lines.find(|series| series.class.ends_with("predicted")).unwrap();
        let sizes: Vec<f64> = predicted.points.iter().map(|point| point.x).collect();
        assert_eq!(sizes, [f64::from(1 << 20)]);
    }
}
