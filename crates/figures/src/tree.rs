//! A tree, drawn from left to right: a column for each level.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::chart::wrapped;

/// A tree of named nodes.
#[derive(Clone, PartialEq, Debug)]
pub struct Tree {
    pub title: String,
    pub root: Node,
}

/// A node with what stands below it.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    pub text: String,
    pub verdict: Option<Verdict>,
    pub children: Vec<Node>,
}

/// A verdict on a node. Each has a colour and a mark, so that the page is readable without colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Good,
    Bad,
    /// Bad beside others that are good.
    Doubtful,
    Neutral,
}

impl Verdict {
    fn mark(self) -> &'static str {
        match self {
            Verdict::Good => "+ ",
            Verdict::Bad => "− ",
            Verdict::Doubtful => "± ",
            Verdict::Neutral => "",
        }
    }

    /// Of Wong's palette, as charts.
    fn colour(self) -> RGBColor {
        match self {
            Verdict::Good => RGBColor(0, 158, 115),
            Verdict::Bad => RGBColor(213, 94, 0),
            Verdict::Doubtful => RGBColor(230, 159, 0),
            Verdict::Neutral => RGBColor(150, 150, 150),
        }
    }
}

impl Node {
    /// Returns a node without a verdict.
    pub fn plain(text: impl Into<String>, children: Vec<Node>) -> Node {
        Node {
            text: text.into(),
            verdict: None,
            children,
        }
    }

    fn leaves(&self) -> u32 {
        let below: u32 = self.children.iter().map(Node::leaves).sum();
        below.max(1)
    }

    fn depth(&self) -> u32 {
        1 + self.children.iter().map(Node::depth).max().unwrap_or(0)
    }

    /// Returns the text with its mark, in lines that fit a column.
    fn lines(&self) -> Vec<String> {
        let mark = self.verdict.map_or("", Verdict::mark);
        wrapped(&format!("{mark}{}", self.text), (COLUMN - PAD) / LETTER)
    }

    /// Returns the most lines of a node.
    fn rows(&self) -> u32 {
        let own = self.lines().len() as u32;
        let below = self.children.iter().map(Node::rows).max().unwrap_or(0);
        own.max(below)
    }
}

/// Widths and heights in CSS pixels; a letter is counted as wide as the widest common ones.
const COLUMN: u32 = 210;
const PAD: u32 = 40;
const LETTER: u32 = 7;
const LINE: u32 = 15;
const GAP: u32 = 9;
const TITLE: u32 = 28;
const FONT: &str = "sans-serif";

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

impl Tree {
    /// Returns the tree as an `<svg>` element.
    pub fn svg(&self) -> String {
        let mut svg = String::new();
        {
            let row = self.root.rows() * LINE + GAP;
            let size = (
                self.root.depth() * COLUMN,
                TITLE + self.root.leaves() * row + GAP,
            );
            let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            // The back end fails on files alone, and this is a string.
            area.fill(&WHITE).expect("drawing into a string");
            let style = (FONT, 15)
                .into_font()
                .color(&BLACK)
                .pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(
                self.title.as_str(),
                (8, TITLE as i32 / 2),
                style,
            ))
            .expect("drawing into a string");
            draw(&area, &self.root, 0, TITLE as i32, row).expect("drawing into a string");
            area.present().expect("drawing into a string");
        }
        svg
    }
}

/// Draws a node and all below it in the rows from `top` on.
fn draw<'a>(area: &Area<'a>, node: &Node, depth: u32, top: i32, row: u32) -> Drawn<'a> {
    let middle = |node: &Node, top: i32| top + (node.leaves() * row / 2) as i32;
    let (x, y) = ((depth * COLUMN) as i32 + 8, middle(node, top));
    let lines = node.lines();
    let longest = lines
        .iter()
        .map(|line| textwrap::core::display_width(line))
        .max();
    let width = longest.unwrap_or(0) as i32 * LETTER as i32 + 10;
    let half = (lines.len() as u32 * LINE) as i32 / 2 + 2;
    let mut below = top;
    for child in &node.children {
        let (from, to) = (x + width, ((depth + 1) * COLUMN) as i32 + 8);
        let at = middle(child, below);
        let elbow = to - 12;
        let path = vec![(from, y), (elbow, y), (elbow, at), (to, at)];
        area.draw(&PathElement::new(
            path,
            RGBColor(150, 150, 150).stroke_width(1),
        ))?;
        draw(area, child, depth + 1, below, row)?;
        below += (child.leaves() * row) as i32;
    }
    if let Some(verdict) = node.verdict {
        let corners = [(x, y - half), (x + width, y + half)];
        let colour = verdict.colour();
        area.draw(&Rectangle::new(corners, colour.mix(0.18).filled()))?;
        area.draw(&Rectangle::new(corners, colour.stroke_width(2)))?;
    }
    for (index, line) in lines.iter().enumerate() {
        let style = (FONT, 12)
            .into_font()
            .color(&BLACK)
            .pos(Pos::new(HPos::Left, VPos::Center));
        let at = y - half + 2 + (index as u32 * LINE + LINE / 2) as i32;
        area.draw(&Text::new(line.as_str(), (x + 5, at), style))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(text: &str, verdict: Verdict) -> Node {
        Node {
            verdict: Some(verdict),
            ..Node::plain(text, Vec::new())
        }
    }

    fn tree() -> Tree {
        let election = Node::plain(
            "election",
            vec![leaf("rbtree", Verdict::Good), leaf("fifo", Verdict::Bad)],
        );
        let slice = Node::plain("slice", vec![leaf("fixed", Verdict::Doubtful)]);
        Tree {
            title: "The <tree>".into(),
            root: Node::plain("feature", vec![election, slice]),
        }
    }

    #[test]
    fn every_node_is_drawn_with_its_mark() {
        let svg = tree().svg();
        let texts: Vec<&str> = svg.lines().map(str::trim).collect();
        for text in [
            "feature", "election", "slice", "+ rbtree", "− fifo", "± fixed",
        ] {
            assert!(texts.contains(&text), "{text}: {svg}");
        }
        assert!(svg.contains("The &lt;tree&gt;"));
        // A box is filled and has an edge; a node without a verdict has no box. One rectangle is the ground.
        assert_eq!(svg.matches("<rect ").count(), 1 + 2 * 3, "{svg}");
        // A line from each parent to each child.
        assert_eq!(svg.matches("<polyline ").count(), 5, "{svg}");
        assert_eq!(svg, tree().svg());
    }

    #[test]
    fn rows_and_columns_have_room_for_all() {
        let tree = tree();
        assert_eq!((tree.root.leaves(), tree.root.depth()), (3, 3));
        let svg = tree.svg();
        assert!(svg.contains(&format!("width=\"{}\"", 3 * COLUMN)), "{svg}");
        let long = Node::plain("word ".repeat(20), Vec::new());
        assert!(long.rows() > 3);
    }
}
