//! Damages a report as terminals, editors and issue trackers do. No damage changes the content of
//! the report.

/// `text` in every damaged form, each with the name of its damage.
pub(crate) fn all(text: &str) -> Vec<(String, String)> {
    let mut all = vec![
        ("expanded".to_owned(), expanded(text)),
        ("unindented".to_owned(), unindented(text)),
        ("other line ends".to_owned(), text.replace('\n', "\r\n")),
        ("spaced".to_owned(), text.replace('\n', "\n\n")),
        ("in a table".to_owned(), text.replace('\t', "\t|\t")),
        ("marked".to_owned(), format!("\u{feff}{text}")),
    ];
    for width in [80, 61, 100] {
        all.push((format!("broken at {width}"), broken(text, width)));
        all.push((format!("folded at {width}"), folded(text, width)));
    }
    for prefix in ["#", "# ", "// ", "> ", "    ", " * ", "rank 0: ", "[1,0]<stdout>:"] {
        all.push((format!("behind {prefix:?}"), prefixed(text, prefix)));
    }
    for (code, end) in
        [("\u{1b}[4m", "\u{1b}[0m"), ("[4m", "[0m"), ("^[[4m", "^[[0m"), ("\\x1b[4m", "\\x1b[0m")]
    {
        for behind in [false, true] {
            let name = format!("underlined by {code:?}, behind the tab: {behind}");
            all.push((name, underlined(text, code, end, behind)));
        }
    }
    all.extend((0..3).map(|nth| (format!("gap {nth} closed"), fused(text, nth))));
    all
}

/// Blanks for tabs, as terminals show them: every eighth column.
fn expanded(text: &str) -> String {
    let expand = |line: &str| {
        line.chars().fold(String::new(), |mut line, char| {
            match char {
                '\t' => line.extend(std::iter::repeat_n(' ', 8 - line.chars().count() % 8)),
                char => line.push(char),
            }
            line
        })
    };
    text.lines().map(|line| expand(line) + "\n").collect()
}

/// Every line broken after `width` characters, even within a word.
fn broken(text: &str, width: usize) -> String {
    let line = |line: &str| {
        let chars: Vec<char> = line.trim_end().chars().collect();
        let parts =
            chars.chunks(width).map(|part| part.iter().collect::<String>()).collect::<Vec<_>>();
        parts.join("\n") + "\n"
    };
    expanded(text).lines().map(line).collect()
}

/// Every line broken between words. The blanks at the break are lost.
fn folded(text: &str, width: usize) -> String {
    let fold = |line: &str| {
        let mut folded = String::new();
        let mut column = 0;
        for part in line.trim_end().split_inclusive(' ') {
            let length = part.trim_end().len();
            if column > 0 && column + length > width && length > 0 {
                folded = folded.trim_end().to_owned() + "\n";
                column = 0;
            }
            folded += part;
            column += part.len();
        }
        folded + "\n"
    };
    expanded(text).lines().map(fold).collect()
}

/// Every line after `prefix`.
fn prefixed(text: &str, prefix: &str) -> String {
    text.lines().map(|line| format!("{prefix}{line}\n")).collect()
}

/// The header in `code`, which begins before or after its first tab or blanks.
fn underlined(text: &str, code: &str, end: &str, behind_tab: bool) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if let Some(header) =
        lines.iter_mut().find(|line| line.contains("GPU0") && !line.contains(" X "))
    {
        let label = header.find("GPU0").unwrap();
        let at = if behind_tab {
            label
        } else {
            header.find(|char: char| char != '#').unwrap_or(0).min(label)
        };
        header.insert_str(at, code);
        header.push_str(end);
    }
    lines.join("\n") + "\n"
}

/// The header, and each row, without the blanks before it.
fn unindented(text: &str) -> String {
    text.lines().map(|line| line.trim_start().to_owned() + "\n").collect()
}

/// Some neighbouring cells and labels of the rows run together: the `nth` gap of every line is
/// closed.
fn fused(text: &str, nth: usize) -> String {
    let fuse = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_row = words.len() > nth + 2
            && words[0].starts_with("GPU")
            && words[nth + 1..nth + 3].iter().all(is_cell);
        let is_header =
            words.len() > nth + 2 && words[nth..nth + 2].iter().all(|word| word.starts_with("GPU"));
        let gap = if is_row { nth + 1 } else { nth };
        if !is_row && !is_header {
            return line.to_owned() + "\n";
        }
        let ends = |at: usize| if at == gap { "" } else { "\t" };
        words.iter().enumerate().map(|(at, word)| format!("{word}{}", ends(at))).collect::<String>()
            + "\n"
    };
    text.lines().map(fuse).collect()
}

fn is_cell(word: &&str) -> bool {
    matches!(*word, "X" | "PIX" | "PXB" | "PHB" | "NODE" | "SYS") || word.starts_with("NV")
}
