//! A chart with two axes: lines, points with their spread, and bars.

use std::borrow::Cow;
use std::ops::Range;

use plotters::coord::combinators::{BindKeyPoints as _, WithKeyPoints};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use schedlab_trace::time_unit;
use textwrap::core::{Word, display_width};
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

/// Two axes and what is drawn over them.
#[derive(Clone, PartialEq, Debug)]
pub struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

/// The quantity and the scale of an axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// With the unit behind a comma. Times in `ns` and sizes in `bytes` are drawn in the unit that suits them.
    pub label: String,
    pub scale: Scale,
    /// It counts things: there are labels at whole numbers alone.
    pub whole: bool,
    /// It has times in nanoseconds, and each label its own unit.
    times: bool,
}

impl Axis {
    /// Returns an axis in equal steps.
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis {
            label: label.into(),
            scale: Scale::Linear,
            whole: false,
            times: false,
        }
    }

    /// Returns an axis in equal factors; values that are not above 0 are left out.
    pub fn log(label: impl Into<String>) -> Axis {
        Axis {
            label: label.into(),
            scale: Scale::Log,
            whole: false,
            times: false,
        }
    }

    /// Chooses the unit by the largest of the axis' values, and returns how many of the unit before it is.
    fn rescale(&mut self, values: impl Iterator<Item = f64>) -> f64 {
        let largest = values
            .filter(|value| value.is_finite())
            .fold(0.0, |largest: f64, value| largest.max(value.abs()));
        let Some((name, unit)) = self.label.rsplit_once(", ") else {
            return 1.0;
        };
        // From microseconds to seconds no unit suits all labels.
        if self.scale == Scale::Log && unit == "ns" {
            self.label = name.replace("_ns", "");
            self.times = true;
            return 1.0;
        }
        let found = match unit {
            "bytes" if largest >= 1_048_576.0 => Some((1_048_576.0, "MiB".to_owned())),
            "bytes" if largest >= 1_024.0 => Some((1_024.0, "KiB".to_owned())),
            _ => time_unit(largest, unit),
        };
        let Some((size, unit)) = found else {
            return 1.0;
        };
        // The names of measures have their unit in them, which is another one now.
        self.label = format!("{}, {unit}", name.replace("_ns", ""));
        size
    }

    /// Returns the label at a value.
    fn text(&self, value: f64) -> String {
        match time_unit(value, "ns").filter(|_| self.times) {
            Some((size, unit)) => format!("{} {unit}", short(value / size)),
            None => short(value),
        }
    }

    /// Returns the same axis for counts.
    pub fn of_counts(self) -> Axis {
        Axis {
            whole: true,
            ..self
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// From 0, or from the lowest value if that is below 0.
    Linear,
    /// To the base of 10.
    Log,
}

/// Values that belong together.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// For the legend.
    pub name: String,
    pub mark: Mark,
    pub points: Vec<Point>,
}

/// How a series is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// Points joined by a line: what was computed.
    Line,
    /// A dashed line without points, which differs from others without colours.
    Dashed,
    /// Hollow points joined by a thin line: a published measurement. In the colour of the series whose name begins
    /// its own (`dss` of `dss, published`).
    Hollow,
    /// Points alone.
    Dots,
}

/// One value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// Lowest and highest, drawn as a stroke.
    pub spread: Option<(f64, f64)>,
}

impl From<(f64, f64)> for Point {
    fn from((x, y): (f64, f64)) -> Point {
        Point { x, y, spread: None }
    }
}

/// Width of every chart and height without title and legend, in CSS pixels.
const WIDTH: u32 = 640;
const PLOT: u32 = 336;
const FONT: &str = "sans-serif";
const LABEL: i32 = 12;

/// Wong's palette (Nature Methods 8, 441, 2011): tellable apart with any colour vision.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
];

impl Chart {
    /// Returns the chart as an `<svg>` element. Values that are not finite, or not above 0 on a logarithmic axis, are
    /// not drawn; without any value the chart says so.
    pub fn svg(&self) -> String {
        self.in_units_of_people().drawn()
    }

    /// Returns the same chart with times and sizes in the units that suit them: `20 ms` instead of `20 M` of `ns`.
    fn in_units_of_people(&self) -> Chart {
        let mut chart = self.clone();
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = chart.x.rescale(points().map(|point| point.x));
        let y = chart.y.rescale(points().map(|point| point.y));
        for point in chart
            .series
            .iter_mut()
            .flat_map(|series| &mut series.points)
        {
            point.x /= x;
            point.y /= y;
            point.spread = point.spread.map(|(low, high)| (low / y, high / y));
        }
        chart
    }

    fn drawn(&self) -> String {
        let mut svg = String::new();
        {
            let title = wrapped(&self.title, (WIDTH - 2 * TITLE_LETTER) / TITLE_LETTER);
            let rows = self.legend();
            let above = title.len() as u32 * TITLE_ROW;
            let size = (WIDTH, above + PLOT + rows.len() as u32 * LEGEND_ROW);
            let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            let (head, rest) = area.split_vertically(above);
            let (chart, below) = rest.split_vertically(PLOT);
            // This back end fails only on files, and writes none.
            draw_title(&head, &title).expect("drawing into a string");
            self.draw(&chart).expect("drawing into a string");
            draw_legend(&below, &rows).expect("drawing into a string");
            area.present().expect("drawing into a string");
        }
        svg
    }

    /// Returns the names below the chart, in rows; none where there is only one.
    fn legend(&self) -> Vec<Vec<Item>> {
        let mut rows: Vec<Vec<Item>> = Vec::new();
        let named: Vec<_> = self.drawable_names().collect();
        if named.len() < 2 {
            return rows;
        }
        let mut next = WIDTH;
        for (index, series) in named {
            let lines = wrapped(
                &series.name,
                (WIDTH - LEGEND_LEFT - LEGEND_MARK) / LEGEND_LETTER,
            );
            let longest = lines
                .iter()
                .map(|line| display_width(line))
                .max()
                .unwrap_or(0);
            let width = LEGEND_MARK + longest as u32 * LEGEND_LETTER;
            if next + width > WIDTH || rows.is_empty() {
                rows.push(Vec::new());
                next = LEGEND_LEFT;
            }
            let x = next;
            next += width;
            for (line, name) in lines.into_iter().enumerate() {
                if line > 0 {
                    // The next legend entry begins below it.
                    rows.push(Vec::new());
                    next = WIDTH;
                }
                let item = Item {
                    x,
                    name,
                    goes_on: line > 0,
                    mark: series.mark,
                    colour: self.colour(index),
                    dashed: index >= COLOURS.len() || series.mark == Mark::Dashed,
                };
                rows.last_mut().expect("one was begun").push(item);
            }
        }
        rows
    }

    fn drawable_names(&self) -> impl Iterator<Item = (usize, &Series)> {
        let all = self.series.iter().enumerate();
        all.filter(|(_, series)| !series.points.is_empty())
    }

    fn colour(&self, index: usize) -> RGBColor {
        let series = &self.series[index];
        let begins = |other: &Series| {
            let rest = series.name.strip_prefix(other.name.as_str());
            rest.is_some_and(|rest| rest.starts_with(','))
        };
        let like = match series.mark {
            Mark::Hollow => self.series.iter().position(begins),
            _ => None,
        };
        COLOURS[like.unwrap_or(index) % COLOURS.len()]
    }

    fn draw<'a>(&self, area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>) -> Drawn<'a> {
        area.fill(&WHITE)?;
        let drawable = self.drawable();
        let all = || drawable.iter().flat_map(|series| &series.points);
        if all().next().is_none() {
            let at = (WIDTH as i32 / 2, PLOT as i32 / 2);
            let style = (FONT, 14)
                .into_font()
                .color(&BLACK)
                .pos(Pos::new(HPos::Center, VPos::Center));
            area.draw(&Text::new("no values", at, style))?;
            return Ok(());
        }
        let x = bounds(all().map(|point| point.x), self.x.scale);
        let y = bounds(
            all().flat_map(|point| {
                let (low, high) = point.spread.unwrap_or((point.y, point.y));
                [point.y, low, high]
            }),
            self.y.scale,
        );
        // Along x the shape counts, not the distance from 0.
        let first = all().map(|point| point.x).fold(f64::INFINITY, f64::min);
        let x = if self.x.scale == Scale::Linear && first < x.end {
            first.max(x.start)..x.end
        } else {
            x
        };
        match (self.x.scale, self.y.scale) {
            (Scale::Linear, Scale::Linear) => self.plot(area, &drawable, x, y),
            (Scale::Log, Scale::Linear) => self.plot(area, &drawable, log(x), y),
            (Scale::Linear, Scale::Log) => self.plot(area, &drawable, x, log(y)),
            (Scale::Log, Scale::Log) => self.plot(area, &drawable, log(x), log(y)),
        }
    }

    /// Returns whether there is anything to draw.
    pub fn has_values(&self) -> bool {
        self.drawable()
            .iter()
            .any(|series| !series.points.is_empty())
    }

    /// Returns the series without what cannot be drawn.
    fn drawable(&self) -> Vec<Series> {
        let fits =
            |value: f64, scale: Scale| value.is_finite() && (scale == Scale::Linear || value > 0.0);
        let series = self.series.iter().map(|series| Series {
            points: series
                .points
                .iter()
                .filter(|point| fits(point.x, self.x.scale) && fits(point.y, self.y.scale))
                .map(|point| Point {
                    spread: point
                        .spread
                        .filter(|&(low, high)| fits(low, self.y.scale) && high.is_finite()),
                    ..*point
                })
                .collect(),
            ..series.clone()
        });
        series.collect()
    }

    fn plot<'a, X, Y>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
        drawable: &[Series],
        x: X,
        y: Y,
    ) -> Drawn<'a>
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_right(20)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(x, y)?;
        let (x_range, y_range) = (chart.x_range(), chart.y_range());
        let x_labels = match self.x.whole {
            // No more than there are whole numbers: their steps are whole, too.
            true => (x_range.end.floor() - x_range.start.ceil()) as usize + 1,
            false => usize::MAX,
        };
        let x_labels = x_labels.clamp(1, 10);
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .x_labels(x_labels)
            .y_labels(6)
            .x_label_formatter(&|value| self.x.text(without_rounding(*value, &x_range)))
            .y_label_formatter(&|value| self.y.text(without_rounding(*value, &y_range)))
            .label_style((FONT, LABEL))
            .draw()?;
        for (index, series) in drawable.iter().enumerate() {
            let colour = self.colour(index);
            // After one round through the colours the strokes differ.
            let dashed = index >= COLOURS.len() || series.mark == Mark::Dashed;
            let stroke = colour.stroke_width(1 + u32::from(series.mark != Mark::Hollow));
            let filled = if series.mark == Mark::Hollow {
                colour.stroke_width(1)
            } else {
                colour.filled()
            };
            let radius = if series.points.len() > 60 { 1 } else { 3 };
            match series.mark {
                Mark::Line | Mark::Hollow | Mark::Dashed => {
                    let line = series.points.iter().map(|point| (point.x, point.y));
                    if dashed {
                        chart.draw_series(DashedLineSeries::new(line, 5, 4, stroke))?;
                    } else {
                        chart.draw_series(LineSeries::new(line, stroke))?;
                    }
                    let has_dots = series.mark != Mark::Dashed;
                    let dots = series.points.iter().filter(|_| has_dots);
                    chart.draw_series(
                        dots.map(|point| Circle::new((point.x, point.y), radius, filled)),
                    )?;
                }
                Mark::Dots => {
                    let dots = series.points.iter();
                    chart.draw_series(
                        dots.map(|point| Circle::new((point.x, point.y), radius, filled)),
                    )?;
                }
            }
            let spreads = series.points.iter().filter_map(|point| {
                let (low, high) = point.spread?;
                Some(PathElement::new(
                    vec![(point.x, low), (point.x, high)],
                    colour.mix(0.6).stroke_width(1),
                ))
            });
            chart.draw_series(spreads)?;
        }
        Ok(())
    }
}

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// A name of the legend.
struct Item {
    x: u32,
    /// All of it, or a line of one that is longer than a row.
    name: String,
    /// Not its first line, which has the mark.
    goes_on: bool,
    mark: Mark,
    colour: RGBColor,
    /// A second round through the colours.
    dashed: bool,
}

/// Heights and widths of the legend. A letter is counted as wide as the widest common ones.
const LEGEND_ROW: u32 = 18;
const LEGEND_LEFT: u32 = 64;
const LEGEND_MARK: u32 = 40;
const LEGEND_LETTER: u32 = 7;

/// Returns the height and width of the title, as the legend's are computed.
const TITLE_ROW: u32 = 20;
const TITLE_LETTER: u32 = 9;

/// Returns a text in lines of at most so many letters, broken after spaces and commas where there are any.
pub(crate) fn wrapped(text: &str, letters: u32) -> Vec<String> {
    let options = Options::new(letters as usize)
        .word_separator(WordSeparator::Custom(|line| {
            Box::new(line.split_inclusive([' ', ',']).map(Word::from))
        }))
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    let lines = textwrap::wrap(text, options);
    lines.into_iter().map(Cow::into_owned).collect()
}

fn draw_title<'a>(
    area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    lines: &[String],
) -> Drawn<'a> {
    area.fill(&WHITE)?;
    for (row, line) in lines.iter().enumerate() {
        let style = (FONT, 15)
            .into_font()
            .color(&BLACK)
            .pos(Pos::new(HPos::Center, VPos::Center));
        let at = (
            WIDTH as i32 / 2,
            (row as u32 * TITLE_ROW + TITLE_ROW / 2) as i32,
        );
        area.draw(&Text::new(line.as_str(), at, style))?;
    }
    Ok(())
}

fn draw_legend<'a>(
    area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    rows: &[Vec<Item>],
) -> Drawn<'a> {
    area.fill(&WHITE)?;
    for (row, items) in rows.iter().enumerate() {
        let y = (row as u32 * LEGEND_ROW) as i32 + 8;
        for item in items {
            let x = item.x as i32;
            let hollow = item.mark == Mark::Hollow;
            let stroke = item.colour.stroke_width(if hollow { 1 } else { 3 });
            let pieces: &[(i32, i32)] = match item.dashed {
                true => &[(0, 7), (11, 18)],
                false => &[(0, 18)],
            };
            let pieces = if item.goes_on { &[][..] } else { pieces };
            for &(from, to) in pieces {
                area.draw(&PathElement::new(vec![(x + from, y), (x + to, y)], stroke))?;
            }
            if hollow && !item.goes_on {
                area.draw(&Circle::new((x + 9, y), 3, item.colour.stroke_width(1)))?;
            }
            let style = (FONT, LABEL)
                .into_font()
                .color(&BLACK)
                .pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(item.name.as_str(), (x + 24, y), style))?;
        }
    }
    Ok(())
}

/// Returns the range that shows all values.
fn bounds(values: impl Iterator<Item = f64>, scale: Scale) -> Range<f64> {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    match scale {
        Scale::Linear => {
            let low = low.min(0.0);
            if high > low {
                low..high + (high - low) * 0.05
            } else {
                low..low + 1.0
            }
        }
        Scale::Log => low / 1.2..high * 1.2,
    }
}

/// Returns a logarithmic axis with labels: its own are powers of ten alone, of which a short one has one or none.
fn log(range: Range<f64>) -> WithKeyPoints<LogCoord<f64>> {
    let ticks = ticks(&range);
    range.log_scale().with_key_points(ticks)
}

/// So many labels at least and at most.
const TICKS: std::ops::RangeInclusive<usize> = 3..=10;

/// Where a logarithmic axis has labels: at powers of ten, or at as many numbers between them as it takes.
fn ticks(range: &Range<f64>) -> Vec<f64> {
    let decades = range.start.log10().floor() as i32..=range.end.log10().ceil() as i32;
    let at = |steps: &[f64]| -> Vec<f64> {
        let all = decades
            .clone()
            .flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
        all.filter(|tick| range.contains(tick)).collect()
    };
    let powers = at(&[1.0]);
    if powers.len() > *TICKS.end() {
        let every = powers.len().div_ceil(*TICKS.end());
        return powers.into_iter().step_by(every).collect();
    }
    let between: [&[f64]; 2] = [
        &[1.0, 2.0, 5.0],
        &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
    ];
    let few = between.into_iter().map(at);
    let enough = |found: &Vec<f64>| TICKS.contains(&found.len());
    if let Some(found) = std::iter::once(powers).chain(few).find(enough) {
        return found;
    }
    // Less than a factor of two: equal steps.
    let decade = 10f64.powf((range.end - range.start).log10().floor());
    let steps = [1.0, 0.5, 0.2].map(|part| part * decade);
    let equal = |step: f64| -> Vec<f64> {
        let first = (range.start / step).ceil() as u64;
        let last = (range.end / step).floor() as u64;
        (first..=last).map(|number| number as f64 * step).collect()
    };
    let found = steps.into_iter().map(equal).find(enough);
    found.unwrap_or_else(|| vec![range.start, range.end])
}

/// Returns 0 for a value that differs from 0 only by rounding on an axis of this range.
fn without_rounding(value: f64, range: &Range<f64>) -> f64 {
    let least = 1e-9 * (range.end - range.start).abs();
    if range.start <= 0.0 && value.abs() < least {
        0.0
    } else {
        value
    }
}

/// Returns a number for an axis: at most four digits that count, and k, M or G; very small ones as 2e-7.
fn short(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-4 {
        return format!("{value:.1e}").replace(".0e", "e");
    }
    let (scaled, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, " G"),
        size if size >= 1e6 => (value / 1e6, " M"),
        size if size >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        0.0 => 0,
        size if size >= 100.0 => 0,
        size if size >= 1.0 => 2,
        size if size >= 0.01 => 4,
        _ => 6,
    };
    let text = format!("{scaled:.digits$}");
    let text = if digits > 0 {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(series: Vec<Series>) -> Chart {
        Chart {
            title: "Throughput".into(),
            x: Axis::linear("CPUs"),
            y: Axis::linear("messages/s"),
            series,
        }
    }

    fn line(points: &[(f64, f64)]) -> Series {
        Series {
            name: "dss".into(),
            mark: Mark::Line,
            points: points.iter().map(|&point| point.into()).collect(),
        }
    }

    #[test]
    fn numbers_of_axes_are_short() {
        let all = [
            0.0, 0.25, 1.0, 2.5, 100.0, 9_000.0, 12_500.0, 2e6, 3.5e9, -40.0, 0.00025, 1e-5,
            -2.5e-7,
        ];
        let told: Vec<String> = all.into_iter().map(short).collect();
        let expected = [
            "0", "0.25", "1", "2.5", "100", "9000", "12.5 k", "2 M", "3.5 G", "-40", "0.00025",
            "1e-5", "-2.5e-7",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn values_lie_where_they_should() {
        // The y axis ends 5 % above the highest value, so 100 is at 100/105 of the height, 50 at 50/105.
        let svg = chart(vec![line(&[(1.0, 50.0), (2.0, 100.0)])]).svg();
        let circles: Vec<(f64, f64)> = svg
            .lines()
            .filter(|line| line.contains("<circle"))
            .map(|line| (attribute(line, "cx"), attribute(line, "cy")))
            .collect();
        assert_eq!(circles.len(), 2, "{svg}");
        let plot_height = (circles[0].1 - circles[1].1) * 105.0 / 50.0;
        let axis = circles[1].1 + plot_height * 100.0 / 105.0;
        assert!((250.0..330.0).contains(&axis), "the axis is at {axis}");
        assert!(circles[0].0 < circles[1].0);
    }

    #[test]
    fn short_logarithmic_axes_have_labels_too() {
        for (low, high, some) in [
            (2.0, 8.0, "5"),
            (2.2e6, 7e6, "5 M"),
            (8.3, 8.4, "8"),
            (1.0, 1.0, "1"),
            (1e-9, 3e-9, "2e-9"),
            (2.0, 1024.0, "100"),
            (1.0, 1e15, "100"),
        ] {
            let range = bounds([low, high].into_iter(), Scale::Log);
            let ticks = ticks(&range);
            assert!(TICKS.contains(&ticks.len()), "{low} {high}: {ticks:?}");
            assert!(
                ticks.iter().all(|tick| range.contains(tick)),
                "{low} {high}: {ticks:?}"
            );
            let mut chart = chart(vec![line(&[(low, 1.0), (high, 2.0)])]);
            chart.x = Axis::log("x");
            let svg = chart.svg();
            let texts: Vec<&str> = svg.lines().map(str::trim).collect();
            assert!(texts.contains(&some), "{low} {high}: {ticks:?}");
        }
        // Of an axis that begins below 0, what is 0 but for rounding.
        assert_eq!(short(without_rounding(-2.8e-17, &(-1.0..1.0))), "0");
    }

    /// Times and sizes stand at the same places as in the unit that they came in.
    #[test]
    fn axes_have_the_units_of_people() {
        let mut chart = chart(vec![line(&[(2_048.0, 1.5e6), (4_096.0, 20e6)])]);
        chart.x = Axis::linear("size, bytes");
        chart.y = Axis::linear("wakeup.latency_ns_p99, ns");
        chart.series[0].points[0].spread = Some((1e6, 2e6));
        let scaled = chart.in_units_of_people();
        assert_eq!(scaled.y.label, "wakeup.latency_p99, ms");
        assert_eq!(scaled.x.label, "size, KiB");
        let point = scaled.series[0].points[0];
        assert_eq!(
            (point.x, point.y, point.spread),
            (2.0, 1.5, Some((1.0, 2.0)))
        );
        let svg = chart.svg();
        assert!(svg.contains("wakeup.latency_p99, ms"), "{svg}");
        assert!(
            !svg.lines().any(|line| line.trim().ends_with(" M")),
            "{svg}"
        );
        // Over several decades each label has its own unit.
        chart.y = Axis::log("wakeup.latency_ns_p99, ns");
        chart.series = vec![line(&[(1_024.0, 2e3), (2_048.0, 5e6), (4_096.0, 3e9)])];
        let svg = chart.svg();
        let texts: Vec<&str> = svg.lines().map(str::trim).collect();
        for label in ["wakeup.latency_p99", "10 µs", "1 ms", "1 s"] {
            assert!(texts.contains(&label), "{label}: {texts:?}");
        }
        chart.y = Axis::linear("messages/s");
        chart.series = vec![line(&[(2_048.0, 1.5e6), (4_096.0, 20e6)])];
        assert_eq!(chart.in_units_of_people().y.label, "messages/s");
        assert_eq!(chart.in_units_of_people().series[0].points[1].y, 20e6);
    }

    fn attribute(element: &str, name: &str) -> f64 {
        let from = element.find(&format!("{name}=\"")).expect(name) + name.len() + 2;
        let value = &element[from..];
        value[..value.find('"').unwrap()].parse().unwrap()
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        let mut log = chart(vec![line(&[
            (0.0, 1.0),
            (1.0, f64::NAN),
            (10.0, 2.0),
            (20.0, 3.0),
        ])]);
        log.x = Axis::log("tasks");
        assert_eq!(log.svg().matches("<circle").count(), 2);
        let none = chart(vec![line(&[])]).svg();
        assert!(none.contains("no values"));
    }

    #[test]
    fn names_stand_below_the_chart_in_rows() {
        let named = |name: &str, mark| Series {
            name: name.into(),
            mark,
            ..line(&[(1.0, 2.0)])
        };
        let chart = chart(vec![
            named("dss", Mark::Line),
            named(
                "a scheduler with a name that takes very nearly all of its own row",
                Mark::Line,
            ),
            named("mq", Mark::Line),
            named("dss, published", Mark::Hollow),
        ]);
        let rows = chart.legend();
        let names: Vec<Vec<&str>> = rows
            .iter()
            .map(|row| row.iter().map(|item| item.name.as_str()).collect())
            .collect();
        assert_eq!(names[0], ["dss", chart.series[1].name.as_str()]);
        assert_eq!(names[1], ["mq", "dss, published"]);
        assert_eq!(rows[1][1].colour, rows[0][0].colour);
        assert_ne!(rows[1][0].colour, rows[0][0].colour);
        let height = TITLE_ROW + PLOT + 2 * LEGEND_ROW;
        assert!(chart.svg().contains(&format!("height=\"{height}\"")));
        // One name is no news.
        let alone = Chart {
            series: chart.series[..1].to_vec(),
            ..chart.clone()
        };
        assert!(alone.legend().is_empty());
    }

    /// Names may differ at their very end alone.
    #[test]
    fn long_names_and_titles_are_shown_whole() {
        let name = |last: &str| format!("{}{last}", "feature=alternative,".repeat(8));
        let named = |last: &str| Series {
            name: name(last),
            ..line(&[(1.0, 2.0)])
        };
        let mut chart = chart(vec![named("a"), named("b"), line(&[(1.0, 2.0)])]);
        chart.title = name("title");
        let svg = chart.svg();
        let texts: Vec<&str> = svg.lines().map(str::trim).collect();
        for last in ["a", "b", "title"] {
            let end = format!("alternative,{last}");
            assert!(texts.iter().any(|text| text.ends_with(&end)), "{svg}");
        }
        let rows = chart.legend();
        let marks = rows.iter().flatten().filter(|item| !item.goes_on);
        assert_eq!(marks.count(), 3);
        assert_eq!(wrapped("one two", 5), ["one", "two"]);
        assert_eq!(wrapped("abcdefg", 5), ["abcde", "fg"]);
    }

    #[test]
    fn counts_have_labels_at_whole_numbers_alone() {
        for last in 2..70 {
            let mut chart = chart(vec![line(&[(1.0, 5.0), (f64::from(last), 7.0)])]);
            chart.x = Axis::linear("CPUs").of_counts();
            chart.y = Axis::log("y");
            let svg = chart.svg();
            let mut numbers = svg
                .lines()
                .filter_map(|text| text.trim().parse::<f64>().ok());
            assert!(numbers.all(|number| number.fract() == 0.0), "{last}: {svg}");
        }
    }

    #[test]
    fn one_value_is_a_chart() {
        assert!(chart(vec![line(&[(3.0, 0.0)])]).svg().contains("<circle"));
        let mut both = chart(vec![line(&[(3.0, 7.0)])]);
        both.x = Axis::log("x");
        both.y = Axis::log("y");
        assert!(both.svg().contains("<circle"));
    }

    #[test]
    fn the_same_chart_is_the_same_bytes() {
        let chart = chart(vec![
            line(&[(1.0, 50.0), (2.0, 100.0)]),
            Series {
                name: "published <&>".into(),
                mark: Mark::Hollow,
                points: vec![Point {
                    x: 1.0,
                    y: 30.0,
                    spread: Some((20.0, 40.0)),
                }],
            },
        ]);
        assert_eq!(chart.svg(), chart.svg());
        assert!(chart.svg().contains("published &lt;&amp;&gt;"));
    }
}
