// Texts, colours and sizes of a page, for tests.

// The texts of all cells of the tables that a selector finds, by row.
const cells = selector => [...document.querySelectorAll(selector)].flatMap(table =>
    [...table.rows].slice(1).map(row => [table.dataset.over, ...[...row.cells].map(cell => cell.textContent)]));

// The width of the page, what of it is seen, and the width of the window with its scrollbar.
const widths = () => {
    const {scrollWidth, clientWidth} = document.documentElement;
    return [scrollWidth, clientWidth, innerWidth];
};

// The texts whose contrast with their background is less than 4.5, the limit of the WCAG. The background of a
// figure in a heat map is its cell.
const pale = () => {
    const numbers = colour => colour.match(/[\d.]+/g).map(Number);
    const luminance = colour => numbers(colour).slice(0, 3).map(part => part / 255)
        .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, nth) => sum + part * [0.2126, 0.7152, 0.0722][nth], 0);
    const ground = element => {
        const cell = element.parentElement?.querySelector(':scope > rect');
        if (element.tagName === 'text' && cell) return getComputedStyle(cell).fill;
        for (let at = element; at; at = at.parentElement) {
            const colour = getComputedStyle(at).backgroundColor;
            if ((numbers(colour)[3] ?? 1) > 0) return colour;
        }
        return getComputedStyle(document.documentElement).colorScheme;
    };
    const has = node => node.nodeType === 3 && node.data.trim();
    return [...document.body.querySelectorAll('*:not(title)')]
        .filter(it => [...it.childNodes].some(has) && it.getClientRects().length)
        .map(it => {
            const style = getComputedStyle(it);
            const ink = luminance(it.tagName === 'text' ? style.fill : style.color);
            const [high, low] = [ink, luminance(ground(it))].sort((a, b) => b - a);
            return [it.textContent.trim(), style.color, ground(it), (high + 0.05) / (low + 0.05)];
        })
        .filter(([, , , ratio]) => !(ratio >= 4.5));
};

// The texts of figures that are less than 9 pixels high.
const small = () => [...document.querySelectorAll('figure svg text')]
    .filter(it => {
        const {a, b} = it.getScreenCTM();
        return parseFloat(getComputedStyle(it).fontSize) * Math.hypot(a, b) < 8.9;
    })
    .map(it => it.textContent);
