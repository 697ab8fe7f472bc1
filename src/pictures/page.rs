//! Pages to step through: a picture that changes, as one file of HTML that loads nothing.
//!
//! Every page has the same frame: buttons, a slider and keys that go from step to step, colours for dark
//! and light rooms, sentences for screen readers, and no motion where it is unwelcome. Each page
//! has its own data, and its own script that defines `view`. The comments of `page.html` list the
//! functions for the script.
//!
//! ```
//! use maypole_pictures::page::SteppedPage;
//! let script = r#"const view = { first: 0, last: data.length - 1, place: step => `Step ${step}`,
//!     show: step => { $("told").textContent = data[step]; } };"#;
//! let data = serde_json::json!(["1 < 2", "</script>"]);
//! let page = SteppedPage { title: "1 < 2", style: "", body: "", script, data: &data }.to_string();
//! assert!(page.contains("<h1>1 &lt; 2</h1>"));
//! assert_eq!(page.matches("</script>").count(), 1);
//! ```

use crate::writer::escaped;
use serde_json::Value;
use std::fmt;

const FRAME: &str = include_str!("page.html");

/// The most bytes of a page that is made by a command: it opens quickly, also from a mail.
pub const MOST_BYTES: usize = 200_000;

/// The most ranks that stand side by side on a page.
pub const MOST_RANKS: usize = 16;

/// A page's own parts. Its text is the file.
#[derive(Clone, Copy, Debug)]
pub struct SteppedPage<'a> {
    /// The title and the heading, as plain text.
    pub title: &'a str,
    /// Additional rules of CSS.
    pub style: &'a str,
    /// HTML below the stage.
    pub body: &'a str,
    /// JavaScript that defines `view`.
    pub script: &'a str,
    /// The value of `data` in the script.
    pub data: &'a Value,
}

impl fmt::Display for SteppedPage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = escaped(self.title);
        // A script ends at `</`, also within a text. In JSON, only a text can have the sign.
        let data = self.data.to_string().replace('<', "\\u003c");
        let mut pieces = FRAME.split("{{");
        f.write_str(pieces.next().unwrap_or_default())?;
        for piece in pieces {
            let (name, rest) = piece.split_once("}}").expect("a name of the frame ends");
            f.write_str(match name {
                "title" => &title,
                "style" => self.style,
                "body" => self.body,
                "script" => self.script,
                "data" => &data,
                _ => unreachable!("the frame has no {name}"),
            })?;
            f.write_str(rest)?;
        }
        Ok(())
    }
}
