//! A timeline: lanes of stretches over time. The page has a picture of the whole, which needs no script and can be printed; a
//! script shows any part of it and names what is pointed at.

use std::fmt::Write as _;

use minijinja::HtmlEscape;
use schedlab_trace::time_unit;
use serde_json::json;
use textwrap::core::display_width;

/// Lanes over time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Timeline {
    pub title: String,
    /// The begin and the end of what it shows, in ns.
    pub from_ns: u64,
    pub to_ns: u64,
    /// The kinds of stretches.
    pub kinds: Vec<Kind>,
    /// Names that stretches refer to.
    pub names: Vec<String>,
    pub lanes: Vec<Lane>,
}

/// A kind of stretch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kind {
    pub mark: Mark,
    /// The words for it: `runs`, `waits behind`; the name of the stretch follows.
    pub words: String,
}

/// The look of a kind, which differs without colours, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// A full box in the colour of its name.
    Box,
    /// A hatched box.
    Hatched,
    /// A dark box with crossing lines.
    Crossed,
    /// A line in the middle.
    Line,
}

impl Mark {
    const ALL: [Mark; 4] = [Mark::Box, Mark::Hatched, Mark::Crossed, Mark::Line];
}

/// The stretches of a CPU or a task, which do not overlap, in the order of time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Lane {
    pub label: String,
    pub stretches: Vec<Stretch>,
}

/// A time in which one thing was so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    pub from_ns: u64,
    pub to_ns: u64,
    /// Its place in [`Timeline::kinds`] and in [`Timeline::names`].
    pub kind: u32,
    pub name: u32,
    /// More stretches that it stands for: shorter ones that follow each other, of which this one takes the most time. It is as
    /// long as they are together, from the begin of the first on.
    pub more: u32,
}

/// Lanes of the picture that is printed.
const PRINTED_LANES_MAX: usize = 48;
/// Boxes in it.
const PRINTED_MAX: usize = 1_500;
/// Width of the picture, of the labels beside the lanes, and height of a lane.
const WIDTH: f64 = 1_100.0;
const LABELS: f64 = 130.0;
const LANE: f64 = 20.0;
/// Room for the axis.
const AXIS: f64 = 26.0;
/// Width of a letter in a box.
const LETTER: f64 = 6.6;
/// Least width of a box: all boxes that there may be do not fill a lane.
const LEAST: f64 = 0.1;

impl Timeline {
    /// Returns the number of stretches.
    pub fn len(&self) -> usize {
        self.lanes.iter().map(|lane| lane.stretches.len()).sum()
    }

    /// Returns whether there is nothing to see.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Merges stretches that are shorter than some time with those that follow within that time, until no more than `most` are
    /// left or each lane has two. Returns the time; 0 if all were kept.
    pub fn merge(&mut self, most: usize) -> u64 {
        let mut below = 0;
        let span = self.to_ns.saturating_sub(self.from_ns).max(1);
        while self.len() > most && below < span {
            // Nothing is shorter than a part of the whole that all could have.
            below = match below {
                0 => (span / most.max(1) as u64 / 4).max(1),
                before => before * 2,
            };
            for lane in &mut self.lanes {
                lane.stretches = merged(&lane.stretches, below);
            }
        }
        below
    }

    /// Merges until it takes at most so many bytes of a page, or each lane has two stretches. Returns as [`Timeline::merge`].
    pub fn fit(&mut self, bytes: usize) -> u64 {
        let mut below = 0;
        loop {
            self.name_used();
            let most = self.len() / 2;
            if self.html("").len() <= bytes || most < 2 * self.lanes.len() {
                return below;
            }
            below = self.merge(most).max(below);
        }
    }

    /// Drops the names to which no stretch refers.
    fn name_used(&mut self) {
        let mut places: Vec<Option<u32>> = vec![None; self.names.len()];
        let mut names = Vec::new();
        for one in self.lanes.iter_mut().flat_map(|lane| &mut lane.stretches) {
            let Some(place) = places.get_mut(one.name as usize) else {
                continue;
            };
            one.name = *place.get_or_insert_with(|| {
                names.push(self.names[one.name as usize].clone());
                names.len() as u32 - 1
            });
        }
        self.names = names;
    }

    /// Returns the timeline as it stands in a page; `id` is different for each of a page.
    pub(crate) fn html(&self, id: &str) -> String {
        let mut html = String::new();
        let (picture, below) = self.svg(id);
        let merged = match time_unit(below as f64, "ns") {
            Some((size, unit)) if below > 0 => format!(
                "<p>This picture of the whole has room for less: stretches below {:.1} {unit} are merged in it.</p>",
                below as f64 / size
            ),
            _ => String::new(),
        };
        let _ = write!(
            html,
            "<figure class=\"timeline\" id=\"{id}\"><figcaption>{}</figcaption>\n\
             <div class=\"printed\">{picture}{merged}</div>\n",
            HtmlEscape(&self.title)
        );
        // A script cannot be ended by a name in it.
        let data = self.json().replace('<', "\\u003c");
        let _ = writeln!(
            html,
            "<script type=\"application/json\">{data}</script></figure>"
        );
        html
    }

    /// The picture of the whole, and the time below which stretches are merged in it; 0: none.
    fn svg(&self, id: &str) -> (String, u64) {
        let mut shown = Timeline {
            from_ns: self.from_ns,
            to_ns: self.to_ns,
            lanes: self.lanes.iter().take(PRINTED_LANES_MAX).cloned().collect(),
            ..Timeline::default()
        };
        let below = shown.merge(PRINTED_MAX);
        let height = shown.lanes.len() as f64 * LANE + AXIS;
        let span = self.to_ns.saturating_sub(self.from_ns).max(1) as f64;
        let scale = (WIDTH - LABELS) / span;
        let x = |ns: u64| LABELS + ns.saturating_sub(self.from_ns) as f64 * scale;
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"{}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"11\">\n<defs>\
             <pattern id=\"{id}-h\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
             <path d=\"M0 0V5\" stroke=\"#444\" stroke-width=\"1.4\"/></pattern>\
             <pattern id=\"{id}-c\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\">\
             <path d=\"M0 0L4 4M4 0L0 4\" stroke=\"#000\"/></pattern></defs>\n",
            HtmlEscape(&self.title)
        );
        for (place, lane) in shown.lanes.iter().enumerate() {
            let top = place as f64 * LANE;
            let _ = writeln!(
                svg,
                "<text x=\"0\" y=\"{:.0}\">{}</text><path d=\"M{LABELS} {:.1}H{WIDTH}\" stroke=\"#ddd\"/>",
                top + LANE - 6.0,
                HtmlEscape(&cut(&lane.label, 20)),
                top + LANE - 0.5
            );
            for one in &lane.stretches {
                let (from, to) = (x(one.from_ns), x(one.to_ns));
                self.draw(&mut svg, id, one, (from, to - from), top);
            }
        }
        let bottom = shown.lanes.len() as f64 * LANE;
        let (size, unit) = time_unit(span, "ns").unwrap_or((1.0, "ns".to_owned()));
        for tick in 0..=5 {
            let part = f64::from(tick) / 5.0;
            let at = LABELS + part * (WIDTH - LABELS);
            let anchor = match tick {
                0 => "start",
                5 => "end",
                _ => "middle",
            };
            let told = (self.from_ns as f64 + part * span) / size;
            let _ = writeln!(
                svg,
                "<path d=\"M{at:.1} {bottom}v5\" stroke=\"#444\"/><text x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{} \
                 {unit}</text>",
                bottom + 18.0,
                digits(told, span / size)
            );
        }
        svg.push_str("</svg>");
        (svg, below)
    }

    fn draw(&self, svg: &mut String, id: &str, one: &Stretch, (x, wide): (f64, f64), top: f64) {
        let (y, high) = (top + 2.0, LANE - 4.0);
        let name = self.names.get(one.name as usize).map_or("", String::as_str);
        let mark = self
            .kinds
            .get(one.kind as usize)
            .map_or(Mark::Box, |kind| kind.mark);
        let shape = |fill: &str| {
            format!(
                "<rect x=\"{x:.1}\" y=\"{y:.0}\" width=\"{:.2}\" height=\"{high:.0}\" fill=\"{fill}\"",
                wide.max(LEAST)
            )
        };
        let _ = match mark {
            Mark::Box => write!(svg, "{}/>", shape(&colour(one.name))),
            Mark::Hatched => write!(
                svg,
                "{} stroke=\"#444\" stroke-width=\".5\"/>",
                shape(&format!("url(#{id}-h)"))
            ),
            Mark::Crossed => write!(svg, "{}/>", shape(&format!("url(#{id}-c)"))),
            Mark::Line => write!(
                svg,
                "<path d=\"M{x:.1} {:.0}h{wide:.1}\" stroke=\"#888\"/>",
                top + LANE / 2.0
            ),
        };
        let fits = (wide / LETTER) as usize;
        if mark == Mark::Box && fits >= 3 && one.more == 0 {
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.0}\">{}</text>",
                x + 2.0,
                top + LANE - 6.0,
                HtmlEscape(&cut(name, fits - 1))
            );
        }
        svg.push('\n');
    }

    /// All of it for the script: of each stretch the gap before it, its length, kind, name and how many more it stands for.
    fn json(&self) -> String {
        let lanes: Vec<_> = self
            .lanes
            .iter()
            .map(|lane| {
                let mut numbers = Vec::with_capacity(lane.stretches.len() * 5);
                let mut at = self.from_ns;
                for one in &lane.stretches {
                    numbers.extend([
                        one.from_ns.saturating_sub(at),
                        one.to_ns.saturating_sub(one.from_ns),
                        u64::from(one.kind),
                        u64::from(one.name),
                        u64::from(one.more),
                    ]);
                    at = one.to_ns;
                }
                json!({"label": lane.label, "stretches": numbers})
            })
            .collect();
        let kinds: Vec<_> = self
            .kinds
            .iter()
            .map(|kind| {
                let mark = Mark::ALL.iter().position(|mark| *mark == kind.mark);
                json!([mark, kind.words])
            })
            .collect();
        json!({
            "from": self.from_ns, "to": self.to_ns, "kinds": kinds, "names": self.names, "lanes": lanes,
        })
        .to_string()
    }
}

/// Stretches with those below a length merged: all that begin in the same cell of time become one, as long as they are
/// together, so that what is full of them looks full and what is nearly empty nearly empty.
fn merged(stretches: &[Stretch], below: u64) -> Vec<Stretch> {
    let mut kept: Vec<Stretch> = Vec::new();
    // The time of each (kind, name) of the stretch that is being merged.
    let mut parts: Vec<((u32, u32), u64)> = Vec::new();
    let mut cell = None;
    for one in stretches {
        let length = one.to_ns - one.from_ns;
        let own = (length < below).then_some(one.from_ns / below);
        let part = ((one.kind, one.name), length);
        match kept.last_mut().filter(|_| own.is_some() && own == cell) {
            Some(last) => {
                last.to_ns += length;
                last.more = last.more.saturating_add(1).saturating_add(one.more);
                match parts.iter_mut().find(|(key, _)| *key == part.0) {
                    Some((_, sum)) => *sum += length,
                    None => parts.push(part),
                }
                // Of equals the first.
                let most = parts.iter().rev().max_by_key(|(_, sum)| *sum);
                ((last.kind, last.name), _) = *most.expect("it has a part");
            }
            None => {
                kept.push(*one);
                parts.clear();
                parts.push(part);
            }
        }
        cell = own;
    }
    kept
}

/// A light colour for a name, so that text on it can be read; neighbours differ much.
fn colour(name: u32) -> String {
    format!("hsl({} 60% 78%)", u64::from(name) * 137 % 360)
}

/// Cuts a text to a width in columns, of which a wide letter takes two.
fn cut(text: &str, columns: usize) -> String {
    if display_width(text) <= columns {
        return text.to_owned();
    }
    let mut kept = String::new();
    for letter in text.chars() {
        kept.push(letter);
        if display_width(&kept) >= columns {
            kept.pop();
            break;
        }
    }
    kept + "…"
}

/// As many digits as tell ticks apart.
fn digits(value: f64, span: f64) -> String {
    match span {
        span if span < 10.0 => format!("{value:.2}"),
        span if span < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_to_its_width() {
        for (text, told) in [
            ("abcd", "abcd"),
            ("abcde", "abc…"),
            ("日本", "日本"),
            ("日本語", "日…"),
            ("e\u{301}e\u{301}e\u{301}ee", "e\u{301}e\u{301}e\u{301}…"),
        ] {
            assert_eq!(cut(text, 4), told, "{text}");
        }
    }

    fn stretch(from_ns: u64, to_ns: u64, name: u32) -> Stretch {
        Stretch {
            from_ns,
            to_ns,
            kind: 0,
            name,
            more: 0,
        }
    }

    fn timeline(stretches: Vec<Stretch>) -> Timeline {
        Timeline {
            title: "CPUs & tasks".to_owned(),
            from_ns: 0,
            to_ns: 1_000,
            kinds: vec![
                Kind {
                    mark: Mark::Box,
                    words: "runs".to_owned(),
                },
                Kind {
                    mark: Mark::Hatched,
                    words: "waits behind".to_owned(),
                },
            ],
            names: vec!["a".to_owned(), "</script><b>".to_owned()],
            lanes: vec![Lane {
                label: "cpu 0".to_owned(),
                stretches,
            }],
        }
    }

    /// Stretches of 2 ns at 0, 10, 20 …, and a long one at 500: the short ones that begin in the same cell become one, which
    /// has the name that takes most of it; the long one stays.
    #[test]
    fn short_stretches_are_merged_and_long_ones_stay() {
        let mut all: Vec<Stretch> = (0..50)
            .map(|n| stretch(n * 10, n * 10 + 2 + u64::from(n % 2 == 1), (n % 2) as u32))
            .collect();
        all.push(stretch(500, 900, 0));
        let mut merged = timeline(all.clone());
        assert_eq!(merged.merge(100), 0, "all have room");
        assert_eq!(merged.len(), 51);
        let below = merged.merge(20);
        assert!(below > 3 && merged.len() <= 20, "{below} {}", merged.len());
        let stretches = &merged.lanes[0].stretches;
        assert_eq!(stretches[stretches.len() - 1], all[50]);
        assert!(
            stretches[..stretches.len() - 1]
                .iter()
                .all(|one| one.name == 1)
        );
        let stands_for: u32 = stretches.iter().map(|one| one.more + 1).sum();
        assert_eq!(stands_for, 51, "each is in one");
        assert!(
            stretches
                .windows(2)
                .all(|pair| pair[0].to_ns <= pair[1].from_ns)
        );
    }

    /// A CPU that is busy for 4 % of the time looks so, however much is merged, and the picture that is printed says what
    /// is merged in it.
    #[test]
    fn a_merged_stretch_is_as_long_as_its_parts() {
        let all =
            (0..20_000).map(|n| stretch(n * 500 + n % 7, n * 500 + 20 + n % 7, (n % 2) as u32));
        let mut one = timeline(all.collect());
        one.to_ns = 10_000_000;
        let sum = |one: &Timeline| -> u64 {
            let stretches = one.lanes.iter().flat_map(|lane| &lane.stretches);
            stretches.map(|one| one.to_ns - one.from_ns).sum()
        };
        assert_eq!(sum(&one), 400_000);
        // The boxes of the picture, in parts of its width.
        let filled = |one: &Timeline| -> f64 {
            let (svg, _) = one.svg("");
            let boxes = svg.split("<rect ").skip(1);
            let wide = boxes.map(|one| {
                let from = one.split("width=\"").nth(1).expect("it has a width");
                from.split('"').next().unwrap().parse::<f64>().unwrap()
            });
            wide.sum::<f64>() / (WIDTH - LABELS)
        };
        for most in [20_000, 5_000, 500, 10] {
            one.merge(most);
            assert_eq!(sum(&one), 400_000, "{most}");
            assert!(one.len() <= most);
            // Boxes have a least width.
            let filled = filled(&one);
            assert!((0.03..0.2).contains(&filled), "{most}: {filled}");
            let says = one.html("").contains("are merged in it");
            assert_eq!(says, most > PRINTED_MAX, "{most}");
        }
    }

    /// Stretches without room on a page are merged, and names without a stretch go.
    #[test]
    fn a_timeline_fits_into_its_bytes() {
        let all = (0..20_000).map(|n| stretch(n * 10, n * 10 + 6, (n % 3) as u32 + 1));
        let mut one = timeline(all.collect());
        one.to_ns = 200_000;
        one.names = ["unused", "a", "b", "c"].map(str::to_owned).to_vec();
        let all = one.html("").len();
        assert!(one.fit(all / 4) > 0);
        assert!(one.html("").len() <= all / 4 && one.len() > 100);
        assert!(!one.names.contains(&"unused".to_owned()));
        let mut small = timeline(vec![stretch(0, 500, 1)]);
        assert_eq!((small.fit(10_000), small.len()), (0, 1));
        assert_eq!(
            (small.names.len(), small.lanes[0].stretches[0].name),
            (1, 0)
        );
    }

    #[test]
    fn a_page_has_the_picture_and_the_numbers() {
        let one = timeline(vec![stretch(100, 400, 0), stretch(500, 900, 1)]);
        let html = one.html("t1");
        assert!(html.contains("<svg ") && html.contains("CPUs &amp; tasks"));
        // Each: gap, length, kind, name, more.
        assert!(html.contains("[100,300,0,0,0,100,400,0,1,0]"), "{html}");
        // No name ends the script.
        assert_eq!(html.matches("</script>").count(), 1);
        assert!(html.contains("\\u003c/script>"), "{html}");
        assert_eq!(html, one.html("t1"));
    }
}
