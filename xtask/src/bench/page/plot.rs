//! Pictures: lines over two axes, and ratios as bars with the limit beside them. Plain SVG that follows the reader's theme.

use std::fmt::Write as _;

use super::super::results::{Axis, Bound, Number, Plot, Section};
use super::shown;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
const COLOURS: [&str; 8] = [
    "#4c8dd8", "#d9822b", "#3a9d5d", "#c0504d", "#8e6bbf", "#8c6d4f", "#d67bb0", "#7f8c8d",
];
const STYLE: &str = "<style>text { font: 12px system-ui, sans-serif; fill: #1f2328 } .h { font-size: 14px } \
                     .s { font-size: 11px; fill: #59636e } .grid { stroke: #8c959f; stroke-opacity: .35 } \
                     .limit { stroke: #59636e; stroke-dasharray: 4 3 } .range { stroke: #1f2328 } \
                     @media (prefers-color-scheme: dark) { text { fill: #f0f6fc } .s { fill: #9198a1 } \
                     .limit { stroke: #9198a1 } .range { stroke: #f0f6fc } }</style>\n";

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn head(title: &str, height: f64) -> String {
    let title = escaped(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n{STYLE}\
         <text class=\"h\" x=\"16\" y=\"22\">{title}</text>\n",
        title.replace('"', "&quot;")
    )
}

/// Values of an axis, and where they lie between 0 and 1.
struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
}

impl Scale {
    fn of(axis: &Axis, values: impl Iterator<Item = f64> + Clone) -> Self {
        let usable = values.filter(|value| value.is_finite() && (!axis.is_log || *value > 0.0));
        let (low, high) = usable.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        // Without a value there is nothing to draw, but a picture all the same.
        let (low, high) = if low <= high { (low, high) } else { (1.0, 1.0) };
        match axis.is_log {
            true => Self {
                low: 10_f64.powf(low.log10().floor()),
                high: 10_f64.powf((low * 10.0).max(high).log10().ceil()),
                is_log: true,
            },
            false => Self {
                low: low.min(0.0),
                high: if high > low.min(0.0) { high * 1.05 } else { low + 1.0 },
                is_log: false,
            },
        }
    }

    fn share(&self, value: f64) -> f64 {
        let share = match self.is_log {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        share.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.is_log {
            let decades = (self.high / self.low).log10().round() as i32;
            return (0..=decades).map(|decade| self.low * 10_f64.powi(decade)).collect();
        }
        let rough = (self.high - self.low) / 5.0;
        let decade = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade);
        let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        (first..)
            .map(|index| index as f64 * step)
            .take_while(|tick| *tick <= self.high)
            .collect()
    }
}

pub(super) fn lines(plot: &Plot) -> String {
    let points = plot.lines.iter().flat_map(|line| line.points.iter());
    let x = Scale::of(&plot.x, points.clone().map(|point| point.0));
    let y = Scale::of(&plot.y, points.map(|point| point.1));
    let across = |value: f64| LEFT + x.share(value) * (WIDTH - LEFT - RIGHT);
    let down = |value: f64| HEIGHT - BOTTOM - y.share(value) * (HEIGHT - TOP - BOTTOM);
    let mut svg = head(&plot.title, HEIGHT);
    for tick in x.ticks() {
        let (at, text) = (across(tick), shown(tick));
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/><text class=\"s\" x=\"{at:.1}\" \
             y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 16.0
        );
    }
    for tick in y.ticks() {
        let (at, text) = (down(tick), shown(tick));
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text class=\"s\" x=\"{:.1}\" \
             y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0
        );
    }
    let _ = writeln!(
        svg,
        "<text class=\"s\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text><text class=\"s\" x=\"{LEFT}\" y=\"{:.1}\">{}</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 12.0,
        escaped(&plot.x.label),
        TOP - 4.0,
        escaped(&plot.y.label)
    );
    for (index, line) in plot.lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let spots: Vec<(f64, f64)> = line.points.iter().map(|(x, y)| (across(*x), down(*y))).collect();
        let path: Vec<String> = spots.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
            path.join(" ")
        );
        // Where there are many, the line says it all.
        for (x, y) in spots.iter().filter(|_| spots.len() <= 12) {
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let at = TOP + 10.0 + 18.0 * index as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"12\" height=\"4\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT + 14.0,
            at - 6.0,
            WIDTH - RIGHT + 32.0,
            at,
            escaped(&line.name)
        );
    }
    svg + "</svg>\n"
}

/// The ratios of a section, each with its range; nothing where nothing is compared.
pub(super) fn ratios(section: &Section) -> Option<String> {
    const LABELS: f64 = 400.0;
    const VALUES: f64 = WIDTH - 50.0;
    const ROW: f64 = 22.0;
    let compared: Vec<(&Number, [f64; 3])> = section
        .numbers
        .iter()
        .filter_map(|number| {
            let ratio = number.ratio()?;
            let values = [ratio.low(), ratio.median(), ratio.high()];
            values.iter().all(|value| value.is_finite()).then_some((number, values))
        })
        .collect();
    if compared.is_empty() {
        return None;
    }
    let bound = |number: &Number| match number.bound {
        Some(Bound::RatioAtMost(bound) | Bound::RatioAtLeast(bound)) => Some(bound),
        _ => None,
    };
    let furthest = |(number, values): &(&Number, [f64; 3])| values[2].max(bound(number).unwrap_or(0.0));
    let largest = compared.iter().map(furthest).fold(1.0, f64::max) * 1.05;
    let across = |value: f64| LABELS + value / largest * (VALUES - LABELS);
    let height = TOP + ROW * compared.len() as f64 + 24.0;
    let mut svg = head(
        &format!("{}: ratio to what it is measured against", section.title),
        height,
    );
    for (index, (number, [low, median, high])) in compared.iter().enumerate() {
        let at = TOP + ROW * index as f64;
        let colour = match number.is_kept() {
            Some(false) => COLOURS[3],
            Some(true) => COLOURS[2],
            None => COLOURS[0],
        };
        let against = number.against.as_ref().map_or("", |against| &against.name);
        let label = escaped(&format!("{} / {against}", number.what));
        let middle = at + 8.0;
        let _ = writeln!(
            svg,
            "<text class=\"s\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text><rect x=\"{LABELS}\" y=\"{:.1}\" \
             width=\"{:.1}\" height=\"12\" fill=\"{colour}\"/><line class=\"range\" x1=\"{:.1}\" \
             x2=\"{:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/><text class=\"s\" x=\"{VALUES}\" y=\"{:.1}\">{}</text>",
            LABELS - 8.0,
            at + 12.0,
            at + 2.0,
            across(*median) - LABELS,
            across(*low),
            across(*high),
            at + 12.0,
            shown(*median)
        );
        if let Some(bound) = bound(number) {
            let mark = across(bound);
            let _ = writeln!(
                svg,
                "<line stroke=\"{colour}\" stroke-width=\"2\" x1=\"{mark:.1}\" x2=\"{mark:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                at - 1.0,
                at + 17.0
            );
        }
    }
    let (one, end) = (across(1.0), height - 20.0);
    let _ = writeln!(
        svg,
        "<line class=\"limit\" x1=\"{one:.1}\" x2=\"{one:.1}\" y1=\"{:.1}\" y2=\"{end:.1}\"/><text class=\"s\" x=\"{one:.1}\" \
         y=\"{:.1}\" text-anchor=\"middle\">1</text>",
        TOP - 6.0,
        end + 14.0
    );
    Some(svg + "</svg>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let scale = Scale::of(&Axis::linear(""), [0.0, 92.0].into_iter());
        assert_eq!(scale.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0]);
        let scale = Scale::of(&Axis::log(""), [900.0, 10_000.0].into_iter());
        assert_eq!(scale.ticks().len(), 3);
        assert_eq!((scale.share(100.0), scale.share(10_000.0)), (0.0, 1.0));
    }

    #[test]
    fn nothing_to_draw_is_no_reason_to_fail() {
        for axis in [Axis::log(""), Axis::linear("")] {
            let scale = Scale::of(&axis, std::iter::empty());
            assert!(scale.share(f64::MAX) <= 1.0);
            assert!(scale.ticks().len() < 20);
        }
        let same = Scale::of(&Axis::linear(""), [0.0, 0.0].into_iter());
        assert!(same.share(0.0).is_finite());
    }
}
